"""Class histograms of private rows: exact integers, to be seen by mechanisms only."""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from app.forests.kernels.arrays import require, require_range

MAX_CELLS: Final = 2**32
"""Cells of one histogram: 32 GiB of counts, far above what a plan admits; keeps cell numbers inside 32 bits."""


def class_histogram(
    X: NDArray[np.uint8],
    y: NDArray[np.int32],
    node: NDArray[np.int32],
    *,
    n_nodes: int,
    n_bins: NDArray[np.int32],
    n_classes: int,
) -> NDArray[np.int64]:
    """Counts rows by open node, by feature and bin, and by class.

    Args:
        X: PRIVATE bins, uint8 ``(n_features, n_rows)``, one feature after another.
        y: PRIVATE class codes, int32 ``(n_rows,)``.
        node: PRIVATE node of this level that the row reached, int32 ``(n_rows,)``; −1 is not counted.
        n_nodes: public; nodes of this level.
        n_bins: public; bins of every feature, int32 ``(n_features,)``, 1 to 256.
        n_classes: public.

    Returns:
        PRIVATE int64 ``(n_nodes, sum(n_bins), n_classes)``: the bins of feature 0, then those of feature 1, ….

    Raises:
        ValueError: a type, a shape or a code out of its range, or more than :data:`MAX_CELLS` cells.
    """
    from app.forests.kernels.loops import histograms as loops

    X = require(X, np.uint8, shape=(None, None), name="X")
    n_features, n_rows = X.shape
    y = require(y, np.int32, shape=(n_rows,), name="y")
    node = require(node, np.int32, shape=(n_rows,), name="node")
    n_bins = require(n_bins, np.int32, shape=(n_features,), name="n_bins")
    require_range(n_bins, lowest=1, below=257, name="n_bins")
    require_range(y, lowest=0, below=n_classes, name="y")
    require_range(node, lowest=-1, below=n_nodes, name="node")
    if n_rows and (X.max(axis=1) >= n_bins).any():
        raise ValueError("X has a value out of range")
    total_bins = int(n_bins.sum(dtype=np.int64))
    # Rows that are not counted go to a node of their own behind the others, without a branch in the loop.
    n_slots = n_nodes + int(n_rows > 0 and node.min() < 0)
    if n_slots * total_bins * n_classes > MAX_CELLS:
        raise ValueError("the histogram has too many cells")
    counts = np.zeros((n_slots, total_bins, n_classes), dtype=np.int64)
    first_bin = np.zeros(n_features, dtype=np.uint32)
    np.cumsum(n_bins[:-1], out=first_bin[1:], dtype=np.uint32)
    loops.class_histogram(X, y, node, first_bin, counts)
    return counts[:n_nodes]


def leaf_histogram(
    leaf: NDArray[np.int32], y: NDArray[np.int32], *, n_leaves: int, n_classes: int
) -> NDArray[np.int64]:
    """Counts rows by leaf and class.

    Args:
        leaf: PRIVATE leaf that the row reached, int32 ``(n_rows,)``; −1 is not counted.
        y: PRIVATE class codes, int32 ``(n_rows,)``.
        n_leaves: public.
        n_classes: public.

    Returns:
        PRIVATE int64 ``(n_leaves, n_classes)``.

    Raises:
        ValueError: a type, a shape or a code out of its range.
    """
    from app.forests.kernels.loops import histograms as loops

    leaf = require(leaf, np.int32, shape=(None,), name="leaf")
    y = require(y, np.int32, shape=leaf.shape, name="y")
    require_range(leaf, lowest=-1, below=n_leaves, name="leaf")
    require_range(y, lowest=0, below=n_classes, name="y")
    counts = np.zeros((n_leaves + 1, n_classes), dtype=np.int64)
    loops.leaf_histogram(leaf, y, counts)
    return counts[:n_leaves]
