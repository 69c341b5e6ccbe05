"""Computes the edges of a number's public bins: exact fractions of the declared bounds, rounded once.

Every edge is a function of the declaration alone and is rounded to the nearest double in the last step. So edges are
equal on every machine and carry no information about rows.
"""

from collections.abc import Callable, Iterable
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Positions: TypeAlias = Callable[[int, int], Iterable[tuple[int, int]]]
"""Maps the bounds of a number, in a common unit, to the cuts of its range: numerators and denominators in that unit."""


def public_edges(
    lower: float, upper: float, *, whole: bool, widest_listed: int, positions: Positions
) -> NDArray[np.float64]:
    """The edges of a number, ascending.

    Args:
        lower: declared.
        upper: declared; at least ``lower``.
        whole: whether the number is an integer; its edges are at halves.
        widest_listed: the largest width of an integer range that has one bin per value.
        positions: computes the cuts of all other ranges.

    Returns:
        Read-only float64 in [lower, upper); empty where the bounds are equal.
    """
    (low, low_scale), (high, high_scale) = lower.as_integer_ratio(), upper.as_integer_ratio()
    scale = max(low_scale, high_scale)  # both are powers of two
    low, high = low * (scale // low_scale), high * (scale // high_scale)
    if whole and high - low <= widest_listed:
        rounded = {(2 * value + 1) / 2 for value in range(low, high)}
    elif whole:
        rounded = {(2 * (over // (under * scale)) + 1) / 2 for over, under in positions(low, high)}
    else:  # true division of integers rounds to nearest, whatever their size
        rounded = {over / (under * scale) for over, under in positions(low, high)}
    edges = np.array(sorted(edge for edge in rounded if lower <= edge < upper), dtype=np.float64)
    edges.flags.writeable = False
    return edges
