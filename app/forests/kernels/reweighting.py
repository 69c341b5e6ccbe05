"""Histograms of weighted private rows, and the integer weights themselves.

A weight is a bit-exact function of its own row and of released numbers: scores are integers in units of 2⁻¹⁶, the
exponential is a table made of exact decimals, the softmax an integer division. No floating-point number, no library of
the platform and no order of rows has a say, so adding a row leaves every other row's weight as it is.
"""

from functools import cache
from typing import Final

import numpy as np
from numpy.typing import NDArray

from app.forests.kernels import exponential
from app.forests.kernels.arrays import require, require_range, require_result
from app.forests.kernels.histograms import MAX_CELLS

UNIT: Final = 256
"""A whole row's weight."""

_MAX_SCORE: Final = 2**48


def class_histogram(
    X: NDArray[np.uint8],
    y: NDArray[np.int32],
    weight: NDArray[np.uint16],
    *,
    slot: NDArray[np.int32],
    n_bins: NDArray[np.int32],
    shape: tuple[int, int],
) -> NDArray[np.int64]:
    """Adds up weights by slot, by feature and bin, and by class.

    Args:
        X: PRIVATE bins, uint8 ``(n_features, n_rows)``, one feature after another.
        y: PRIVATE class codes, int32 ``(n_rows,)``.
        weight: PRIVATE, uint16 ``(n_rows,)``, at most :data:`UNIT`.
        slot: PRIVATE table that the row counts in, int32 ``(n_rows,)``.
        n_bins: public; bins of every feature, int32 ``(n_features,)``, 1 to 256.
        shape: public; number of slots and of classes.

    Returns:
        PRIVATE int64 ``(n_slots, sum(n_bins), n_classes)``.

    Raises:
        ValueError: a type, a shape or a code out of its range, or more than ``MAX_CELLS`` cells.
    """
    from app.forests.kernels.loops import reweighting as loops

    n_slots, n_classes = shape
    X = require(X, np.uint8, shape=(None, None), name="X")
    n_features, n_rows = X.shape
    y, weight = _require_rows(y, weight, n_rows=n_rows, n_classes=n_classes)
    slot = require(slot, np.int32, shape=(n_rows,), name="slot")
    n_bins = require(n_bins, np.int32, shape=(n_features,), name="n_bins")
    require_range(n_bins, lowest=1, below=257, name="n_bins")
    require_range(slot, lowest=0, below=n_slots, name="slot")
    if n_rows and (X.max(axis=1) >= n_bins).any():
        raise ValueError("X has a value out of range")
    total_bins = int(n_bins.sum(dtype=np.int64))
    if n_slots * total_bins * n_classes > MAX_CELLS:
        raise ValueError("the histogram has too many cells")
    counts = np.zeros((n_slots, total_bins, n_classes), dtype=np.int64)
    first_bin = np.zeros(n_features, dtype=np.uint32)
    np.cumsum(n_bins[:-1], out=first_bin[1:], dtype=np.uint32)
    loops.class_histogram(X, y, weight, slot, first_bin, counts)
    return counts


def leaf_histogram(
    leaf: NDArray[np.int32], y: NDArray[np.int32], weight: NDArray[np.uint16], *, n_leaves: int, n_classes: int
) -> NDArray[np.int64]:
    """Adds up weights by leaf and class.

    Args:
        leaf: PRIVATE, int32 ``(n_rows,)``.
        y: PRIVATE class codes, int32 ``(n_rows,)``.
        weight: PRIVATE, uint16 ``(n_rows,)``, at most :data:`UNIT`.
        n_leaves: public.
        n_classes: public.

    Returns:
        PRIVATE int64 ``(n_leaves, n_classes)``.

    Raises:
        ValueError: a type, a shape or a code out of its range.
    """
    from app.forests.kernels.loops import reweighting as loops

    leaf = require(leaf, np.int32, shape=(None,), name="leaf")
    y, weight = _require_rows(y, weight, n_rows=leaf.size, n_classes=n_classes)
    require_range(leaf, lowest=0, below=n_leaves, name="leaf")
    counts = np.zeros((n_leaves, n_classes), dtype=np.int64)
    loops.leaf_histogram(leaf, y, weight, counts)
    return counts


def add_scores(sums: NDArray[np.int64], leaf: NDArray[np.int32], scores: NDArray[np.int64]) -> None:
    """Adds a released tree's scores to every row's sums, in place.

    Args:
        sums: PRIVATE int64 ``(n_rows, n_classes)``, contiguous, in units of 2⁻¹⁶.
        leaf: PRIVATE leaf that the row reached, int32 ``(n_rows,)``.
        scores: public; int64 ``(n_leaves, n_classes)``.

    Raises:
        ValueError: a type, a shape, an index or a score out of its range.
    """
    from app.forests.kernels.loops import reweighting as loops

    leaf = require(leaf, np.int32, shape=(None,), name="leaf")
    scores = require(scores, np.int64, shape=(None, None), name="scores")
    require_range(leaf, lowest=0, below=len(scores), name="leaf")
    require_range(scores, lowest=-_MAX_SCORE, below=_MAX_SCORE, name="scores")
    require_result(sums, np.int64, shape=(leaf.size, scores.shape[1]), name="sums")
    loops.add_scores(leaf, scores, sums)


def weights(sums: NDArray[np.int64], y: NDArray[np.int32], *, margin: tuple[int, int]) -> NDArray[np.uint16]:
    """min(1, (1 − p_y) / margin) of every row in units of 1/256, rounded down; p = softmax(sums).

    Args:
        sums: PRIVATE int64 ``(n_rows, n_classes)``, in units of 2⁻¹⁶.
        y: PRIVATE class codes, int32 ``(n_rows,)``.
        margin: public numerator and denominator, positive and below 2⁸.

    Returns:
        PRIVATE uint16 ``(n_rows,)``, 0 to :data:`UNIT`.

    Raises:
        ValueError: a type, a shape or a class out of its range.
    """
    from app.forests.kernels.loops import reweighting as loops

    if min(margin) <= 0 or max(margin) >= 2**8:
        raise ValueError("a margin out of its range")
    y = require(y, np.int32, shape=(None,), name="y")
    sums = require(sums, np.int64, shape=(y.size, None), name="sums")
    require_range(y, lowest=0, below=sums.shape[1], name="y")
    result = np.empty(y.size, dtype=np.uint16)
    loops.weights(sums, y, *_exponentials(), np.array(margin, dtype=np.int64), result)
    return result


@cache
def _exponentials() -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The tables as signed integers: one type in the loop, which a sum of two types would turn into floats."""
    coarse, fine = exponential.tables()
    return coarse.astype(np.int64), fine.astype(np.int64)


def _require_rows(
    y: NDArray[np.int32], weight: NDArray[np.uint16], *, n_rows: int, n_classes: int
) -> tuple[NDArray[np.int32], NDArray[np.uint16]]:
    y = require(y, np.int32, shape=(n_rows,), name="y")
    weight = require(weight, np.uint16, shape=(n_rows,), name="weight")
    require_range(y, lowest=0, below=n_classes, name="y")
    require_range(weight, lowest=0, below=UNIT + 1, name="weight")
    return y, weight
