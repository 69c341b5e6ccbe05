"""Computes what a private start of a label that is a number reads: the utilities of a
median and of a spread.

A number is stored as a code, a whole number of 2^-30 parts of its public range. The
start is a median, selected privately among public edges: equal ones, and ones that halve
toward zero or a bound, as the public grid of a feature has. The spread, in which
residuals are measured, is 3/2 of a distance that is selected among halves of the range,
so that bounds which are far too wide cost little.
"""

from __future__ import annotations

from fractions import Fraction
from functools import lru_cache
from typing import Final

import numpy as np

from grovekeeper_forests.array_types import Int32Array, Int64Array
from grovekeeper_forests.bins import quantile_bins
from grovekeeper_forests.data.schema import TARGET_STEPS, Label

MIDDLE_SENSITIVITY: Final = 2
"""Range sensitivity of −|left − right|: a row changes some edges by +1 and others by −1."""

SPREAD_SENSITIVITY: Final = 2
"""Range sensitivity of the utility of a distance, which a row changes by −1 to 1."""

N_SPREADS: Final = 16
"""The distance within which half of the rows are is taken to be the range halved 1 to 16
times.
"""

_SPREAD_OF_DISTANCE: Final = Fraction(3, 2)
"""A spread is 3/2 of that distance: about the deviation of normal numbers."""

_LIKELY_HALVINGS: Final = 3
"""The distance is taken to be an eighth of the range; each step from there halves the
base measure of a candidate.
"""

_LOG_2: Final = Fraction(693, 1000)


@lru_cache(maxsize=64)
def edges_of(label: Label) -> Int32Array:
    """The candidates of the start, as codes, ascending.

    Args:
        label: public; a number.

    Returns:
        Read-only int32 ``(n_edges,)``, each from 0 to 2^30 − 1; at least one.
    """
    column = label.column
    lower = Fraction(column.lower)
    step = (Fraction(column.upper) - lower) / TARGET_STEPS
    inner = quantile_bins.grid_edges(column).tolist()
    codes = {(Fraction(edge) - lower) // step for edge in inner}
    edges = np.array(sorted(codes), dtype=np.int32)
    edges.flags.writeable = False
    return edges


def count_by_edge(
    edges: Int32Array,
    y: Int32Array,
) -> Int64Array:
    """Rows by cell between edges; a row is in one cell, which follows from its code
    alone.

    Args:
        edges: public, ascending; a code on an edge is below it.
        y: PRIVATE, int32 ``(n_rows,)``.

    Returns:
        PRIVATE int64 ``(n_edges + 1,)``.
    """
    cells = np.searchsorted(edges, y, side="left")
    n_cells = len(edges) + 1
    counts = np.bincount(cells, minlength=n_cells)
    return counts.astype(np.int64)


def target_counts(edges: Int32Array, y: Int32Array, middle: int | None) -> Int64Array:
    """Rows by their code, or by its distance from ``middle``, a released code, between
    edges: PRIVATE int64 ``(n_edges + 1,)``.
    """
    if middle is not None:
        # codes are below 2³¹, and so are their distances
        y = np.abs(y - np.int32(middle))
    return count_by_edge(edges, y)


def middle_utilities(by_cell: Int64Array) -> Int64Array:
    """−|rows up to the edge − rows above it| of every edge: PRIVATE int64
    ``(n_edges,)``. The range sensitivity is :data:`MIDDLE_SENSITIVITY`.

    Args:
        by_cell: PRIVATE; see :func:`count_by_edge`.
    """
    up_to = by_cell.cumsum()
    n_rows = up_to[-1]
    # left − right = left − (rows − left)
    differences = 2 * up_to[:-1] - n_rows
    utilities: Int64Array = -np.abs(differences)
    return utilities


def spreads() -> Int32Array:
    """The candidates of the spread, as codes, ascending: int32 ``(N_SPREADS,)``."""
    numerator, denominator = _SPREAD_OF_DISTANCE.as_integer_ratio()
    return distances()[1:] // denominator * numerator


def distances() -> Int32Array:
    """The distances from the median by which rows are counted: half of the smallest
    candidate, then the candidates.
    """
    halvings = np.arange(N_SPREADS + 1, 0, -1)
    return (TARGET_STEPS >> halvings).astype(np.int32)


def spread_utilities(by_distance: Int64Array, inverse_scale: Fraction) -> Int64Array:
    """The utilities of the spreads: PRIVATE int64 ``(N_SPREADS,)``. The range sensitivity
    is :data:`SPREAD_SENSITIVITY`.

    A distance has its largest utility, 0, where it covers half of the rows and half of
    it does not. Else twice the number of rows that it covers too few, or its half too
    many, is subtracted. A public handicap, which is equal for all rows, is subtracted, too:
    that of a base measure of 2^−k, k steps from the likely distance, log 2^k / inverse
    scale, rounded.

    Args:
        by_distance: PRIVATE rows by distance from the median; see
            :func:`count_by_edge` at the edges :func:`distances`.
        inverse_scale: public, of the selection.
    """
    covered = 2 * by_distance.cumsum()[:-1]
    n_rows = by_distance.sum()
    too_few = n_rows - covered[1:]
    of_half = covered[:-1] - n_rows
    misses = np.maximum(too_few, of_half)
    misses = np.maximum(misses, 0)
    likely = N_SPREADS - _LIKELY_HALVINGS
    steps = np.abs(np.arange(N_SPREADS) - likely)
    handicap = round(_LOG_2 / inverse_scale)  # below 2^32
    utilities: Int64Array = -misses - handicap * steps
    return utilities
