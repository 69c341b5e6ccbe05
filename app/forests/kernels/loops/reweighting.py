"""Compiled loops over weighted rows: integers only, so that a row's numbers are the same whatever rows come with it."""

import numpy as np
from numpy.typing import NDArray

from app.forests.kernels import exponential
from app.forests.kernels.compiler import compiled_for, read, written

_BLOCK_ROWS = 2**14
_FINE_BITS = exponential.FINE_BITS
_FINE_MASK = 2**exponential.FINE_BITS - 1
_UNIT_BITS = exponential.UNIT_BITS


@compiled_for(
    read("uint8", 2),
    read("int32", 1),
    read("uint16", 1),
    read("int32", 1),
    read("uint32", 1),
    written("int64", 3),
)
def class_histogram(
    X: NDArray[np.uint8],
    y: NDArray[np.int32],
    weight: NDArray[np.uint16],
    slot: NDArray[np.int32],
    first_bin: NDArray[np.uint32],
    counts: NDArray[np.int64],
) -> None:
    """Adds the weight of every row to ``counts`` ``(n_slots, n_all_bins, n_classes)``."""
    n_features, n_rows = X.shape
    n_all_bins, n_classes = counts.shape[1:]
    cells = counts.reshape(counts.size)
    base = np.empty(min(n_rows, _BLOCK_ROWS), dtype=np.uint32)
    for start in range(0, n_rows, _BLOCK_ROWS):
        n_block = min(_BLOCK_ROWS, n_rows - start)
        for i in range(n_block):
            base[i] = slot[start + i] * n_all_bins * n_classes + y[start + i]
        for f in range(n_features):
            column = X[f, start : start + n_block]
            offset = first_bin[f] * np.uint32(n_classes)
            for i in range(n_block):
                cells[base[i] + offset + column[i] * np.uint32(n_classes)] += weight[start + i]


@compiled_for(read("int32", 1), read("int32", 1), read("uint16", 1), written("int64", 2))
def leaf_histogram(
    leaf: NDArray[np.int32], y: NDArray[np.int32], weight: NDArray[np.uint16], counts: NDArray[np.int64]
) -> None:
    """Adds the weight of every row to ``counts`` ``(n_leaves, n_classes)``."""
    for i in range(leaf.size):
        counts[leaf[i], y[i]] += weight[i]


@compiled_for(read("int32", 1), read("int64", 2), written("int64", 2))
def add_scores(leaf: NDArray[np.int32], scores: NDArray[np.int64], sums: NDArray[np.int64]) -> None:
    """Adds the scores of its leaf to the sums of every row."""
    for i in range(leaf.size):
        for k in range(sums.shape[1]):
            sums[i, k] += scores[leaf[i], k]


@compiled_for(
    read("int64", 2), read("int32", 1), read("int64", 1), read("int64", 1), read("int64", 1), written("uint16", 1)
)
def weights(
    sums: NDArray[np.int64],
    y: NDArray[np.int32],
    coarse: NDArray[np.int64],
    fine: NDArray[np.int64],
    margin: NDArray[np.int64],
    result: NDArray[np.uint16],
) -> None:
    """Fills ``result`` with min(256, ⌊256 · (1 − p_y) / margin⌋), p the softmax of a row's sums.

    exp of a difference of d / 2¹⁶ is a product of two entries of the tables, both at most 2³¹; shifting the product
    back keeps it at most 2³¹. With at most 2¹⁰ classes the total is at most 2⁴¹, so nothing passes 2⁵⁷.
    """
    last = coarse.size * fine.size - 1
    n_classes = sums.shape[1]
    for i in range(y.size):
        largest = sums[i, 0]
        for k in range(1, n_classes):
            largest = max(largest, sums[i, k])
        others, own = np.int64(0), np.int64(0)
        for k in range(n_classes):
            gap = min(largest - sums[i, k], last)
            share = (coarse[gap >> _FINE_BITS] * fine[gap & _FINE_MASK]) >> _UNIT_BITS
            if k == y[i]:
                own = share
            else:
                others += share
        result[i] = min(np.int64(256), 256 * others * margin[1] // (margin[0] * (others + own)))
