"""Sums rows by cell in compiled loops. Callers check every index.

Cell numbers are unsigned, so that the compiler tests no sign. An empty array of weights means weight 1 for every row.
"""

import numpy as np
from numpy.typing import NDArray

from app.forests.compilation.compiler import compiled_for, integer, read, written

_BLOCK_ROWS = 2**14


@compiled_for(
    read("uint8", 2),
    read("int32", 1),
    read("int32", 1),
    read("uint16", 1),
    read("uint32", 1),
    written("int64", 3),
)
def class_histogram(
    X: NDArray[np.uint8],
    y: NDArray[np.int32],
    node: NDArray[np.int32],
    weight: NDArray[np.uint16],
    first_bin: NDArray[np.uint32],
    counts: NDArray[np.int64],
) -> None:
    """Adds every row to ``counts`` ``(n_slots, n_all_bins, n_classes)``; rows of node −1 go to the last slot.

    The part of a cell number that does not depend on the feature is computed once per row, for blocks of rows that fit
    in the core's cache.
    """
    n_features, n_rows = X.shape
    n_slots, n_all_bins, n_classes = counts.shape
    cells = counts.reshape(counts.size)
    base = np.empty(min(n_rows, _BLOCK_ROWS), dtype=np.uint32)
    for start in range(0, n_rows, _BLOCK_ROWS):
        n_block = min(_BLOCK_ROWS, n_rows - start)
        for i in range(n_block):
            slot = node[start + i] if node[start + i] >= 0 else n_slots - 1
            base[i] = slot * n_all_bins * n_classes + y[start + i]
        for f in range(n_features):
            column = X[f, start : start + n_block]
            offset = first_bin[f] * np.uint32(n_classes)
            if weight.size:
                added = weight[start : start + n_block]
                for i in range(n_block):
                    cells[base[i] + offset + column[i] * np.uint32(n_classes)] += added[i]
            else:
                for i in range(n_block):
                    cells[base[i] + offset + column[i] * np.uint32(n_classes)] += 1


@compiled_for(read("int32", 1), read("int32", 1), read("uint16", 1), written("int64", 2))
def leaf_histogram(
    leaf: NDArray[np.int32], y: NDArray[np.int32], weight: NDArray[np.uint16], counts: NDArray[np.int64]
) -> None:
    """Adds every row to ``counts`` ``(n_leaves + 1, n_classes)``; rows of leaf −1 go to the last one."""
    n_slots, n_classes = counts.shape
    cells = counts.reshape(counts.size)
    for i in range(leaf.size):
        slot = leaf[i] if leaf[i] >= 0 else n_slots - 1
        cells[np.uint64(slot * n_classes + y[i])] += weight[i] if weight.size else np.uint16(1)


@compiled_for(read("int32", 1), read("int32", 2), integer, written("int64", 2))
def leaf_gradients(leaf: NDArray[np.int32], gradients: NDArray[np.int32], count: int, sums: NDArray[np.int64]) -> None:
    """Adds every row's gradient and ``count`` to its leaf in ``sums`` ``(n_leaves, n_scores + 1)``."""
    n_rows, n_scores = gradients.shape
    for i in range(n_rows):
        cell = np.uint32(leaf[i])
        for k in range(n_scores):
            sums[cell, k] += gradients[i, k]
        sums[cell, n_scores] += count
