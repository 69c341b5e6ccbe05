"""Prices and public rules of trees of private medians."""

import math
from fractions import Fraction

import numpy as np

from app.forests.contract.facts import PublicFacts
from app.forests.data.encoding import Encoding

LEVEL_RATIO = Fraction(3, 2)
"""What a level's selections get of ε, as a multiple of what the level above gets (the paper's equation 7)."""

RANGE_SENSITIVITY = 2
"""An added row moves the utility of every split by 1, of some up and of others down."""

DEFAULT_TREES = 10


def most_splits(encoding: Encoding) -> int:
    """Public splits of the feature that has most of them: among so many a median is selected at most."""
    return int(np.bincount(encoding.candidates.feature, minlength=1).max())


def default_depth(facts: PublicFacts, n_trees: int) -> int:
    """Depth by a public rule of the size, ε and the number of trees: about eight rows over ε in a leaf.

    The paper takes the number of features, whatever the size; with many features that leaves no rows, with few it stops
    too early.
    """
    strength = max(facts.size * float(facts.epsilon) / n_trees, 1.0)
    return min(max(round(math.log2(strength)) - 3, 1), 10)
