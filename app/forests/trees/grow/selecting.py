"""Draws a private selection among candidates, by the mechanism that its price names."""

import numpy as np
from numpy.typing import NDArray

from app.forests.noise.randomness import Randomness
from app.forests.trees.tree_price import Selection
from app.privacy.events import PermuteAndFlip


def draw(selection: Selection, utilities: NDArray[np.int64], randomness: Randomness) -> int:
    """The index of the selected candidate; one call is one release at the price of ``selection``.

    Args:
        selection: as priced.
        utilities: PRIVATE int64 ``(n_candidates,)``, at least one; the candidates are public or follow from releases.
        randomness: source of the draw.
    """
    if isinstance(selection, PermuteAndFlip):
        return randomness.permute_and_flip(utilities, inverse_scale=selection.inverse_scale)
    return randomness.select_exponential(utilities, inverse_scale=selection.inverse_scale)
