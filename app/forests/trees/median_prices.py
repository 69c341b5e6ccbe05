"""Prices trees of private medians, and chooses their depth by a public rule."""

import math
from fractions import Fraction

import numpy as np

from app.forests.contract.facts import PublicFacts
from app.forests.data.encoding import Encoding

LEVEL_RATIO = Fraction(3, 2)
"""Ratio of a level's share of ε to the share of the level above (the paper's equation 7)."""

RANGE_SENSITIVITY = 2
"""An added row changes the utility of every split by +1 or −1, not by the same sign for all splits."""


def most_splits(encoding: Encoding) -> int:
    """Largest number of public splits of one feature: a median has at most that many candidates."""
    return int(np.bincount(encoding.candidates.feature, minlength=1).max())


def default_depth(facts: PublicFacts, n_trees: int) -> int:
    """Depth by a public rule of the size, ε and the number of trees: about eight rows over ε in a leaf.

    The paper sets the depth to the number of features, whatever the size: too deep with many features, too shallow
    with few.
    """
    strength = max(facts.size * float(facts.epsilon) / n_trees, 1.0)
    return min(max(round(math.log2(strength)) - 3, 1), 10)
