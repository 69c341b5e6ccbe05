"""Computes the public grid: the positions at which private bins may cut a numeric feature, fixed before rows are read.

A numeric feature with public bounds [lower, upper] of width R has the union of 255 equally spaced inner edges and of a
geometric set R · 2^(−k/2), k = 2 … 40: measured from ``lower`` where the range is not negative, from ``upper`` where it
is not positive, else upward and downward from 0 (with the bounds in place of R), and an edge at 0. The geometric part
resolves skewed columns, such as amounts of money, whose values concentrate at one end. An integer feature with R ≤ 255
has one cell per value; the edges of a wider integer feature are moved to halves. A grid has at most 335 cells. MISSING
is not a cell.

Ordered categories count as the integers 0, 1, 2, ….
"""

from collections.abc import Iterator
from functools import lru_cache
from math import isqrt

import numpy as np
from numpy.typing import NDArray

from app.forests.data.ordinals import as_number
from app.forests.data.public_edges import public_edges
from app.forests.data.schema import Feature

MAX_CELLS = 335
"""256 equal steps, 39 geometric edges on either side of 0, and 0 itself."""

_EQUAL_STEPS = 256
_WIDEST_LISTED_RANGE = 255
_GEOMETRIC_STEPS = range(2, 41)
_SHARE_BITS = 64
"""Geometric shares of the width are rounded down to multiples of 2⁻⁶⁴."""


def edges(feature: Feature) -> NDArray[np.float64]:
    """The inner edges of a feature's grid, ascending; cell c holds the values above edge c − 1 and up to edge c.

    Args:
        feature: public; a number or an ordered category.

    Returns:
        Read-only float64, at most :data:`MAX_CELLS` − 1 edges; empty where the bounds are equal.
    """
    number = as_number(feature)
    return _edges(number.lower, number.upper, whole=number.type == "integer")


@lru_cache(maxsize=4_096)
def _edges(lower: float, upper: float, *, whole: bool) -> NDArray[np.float64]:
    return public_edges(lower, upper, whole=whole, widest_listed=_WIDEST_LISTED_RANGE, positions=_positions)


def n_cells(feature: Feature) -> int:
    """Number of cells of a feature, MISSING not counted."""
    return len(edges(feature)) + 1


def _positions(low: int, high: int) -> Iterator[tuple[int, int]]:
    width, one = high - low, 2**_SHARE_BITS
    yield from ((low * _EQUAL_STEPS + width * step, _EQUAL_STEPS) for step in range(1, _EQUAL_STEPS))
    if low >= 0:
        yield from ((low * one + width * share, one) for share in _shares())
    elif high <= 0:
        yield from ((high * one - width * share, one) for share in _shares())
    else:
        yield 0, 1
        yield from ((side * share, one) for side in (low, high) for share in _shares())


def _shares() -> list[int]:
    """2^(−k/2) for every geometric step k, in units of 2⁻⁶⁴, rounded down."""
    return [isqrt(2 ** (2 * _SHARE_BITS - k)) for k in _GEOMETRIC_STEPS]
