"""Routes training rows down trees in compiled loops.

A split is stored as the interval of codes [low, low + span] that goes left: [0, threshold] for an ordered split,
[threshold, threshold] for a category split. A row goes right if (code − low) mod 256 > span. This needs one word per
node and no branch; the processor would mispredict half of such branches.
"""

import numpy as np
from numpy.typing import NDArray

from app.forests.compilation.compiler import compiled, compiled_for, integer, read, written

_BLOCK_ROWS = 2**10
_NOWHERE = np.int32(-1)
_LOWEST_BYTE = np.uint32(255)
_ONE_BYTE = np.uint32(8)
_TWO_BYTES = np.uint32(16)
_ONE = np.uint32(1)

_SPLITS_OF_A_LEVEL = (read("int32", 1), read("uint8", 1), read("boolean", 1))
_SPLITS_OF_TREES = (read("int32", 2), read("uint8", 2), read("boolean", 2))


@compiled
def _split(feature: np.int32, threshold: np.uint8, equals: np.bool_, n_features: int) -> np.uint32:
    """Packs feature, low and span of a node in one word; an unknown feature becomes ``n_features``, at most 2¹⁶ − 1."""
    known = 0 <= feature < n_features
    number = np.uint32(feature if known else n_features) << _TWO_BYTES
    bin_ = np.uint32(threshold)
    return np.uint32(number | (bin_ << _ONE_BYTE if equals else bin_))


@compiled
def _goes_right(bin_: np.uint8, split: np.uint32) -> np.uint32:
    low = split >> _ONE_BYTE
    return np.uint32(((np.uint32(bin_) - low) & _LOWEST_BYTE) > (split & _LOWEST_BYTE))


@compiled_for(read("uint8", 2), read("int32", 1), *_SPLITS_OF_A_LEVEL, written("int32", 1))
def descend(
    X: NDArray[np.uint8],
    node: NDArray[np.int32],
    feature: NDArray[np.int32],
    threshold: NDArray[np.uint8],
    equals: NDArray[np.bool_],
    child: NDArray[np.int32],
) -> None:
    """Fills ``child`` with the nodes of the next level; ``X`` is ``(n_features, n_rows)`` and indices were checked."""
    splits = np.empty(feature.size, dtype=np.uint32)
    for v in range(feature.size):
        splits[v] = _split(feature[v], threshold[v], equals[v], X.shape[0])
    for i in range(node.size):
        if node[i] < 0:
            child[i] = _NOWHERE
        else:
            split = splits[node[i]]
            child[i] = 2 * node[i] + _goes_right(X[split >> _TWO_BYTES, i], split)


@compiled_for(read("uint8", 2), *_SPLITS_OF_TREES, integer, written("int32", 2))
def leaves(
    X: NDArray[np.uint8],
    feature: NDArray[np.int32],
    threshold: NDArray[np.uint8],
    equals: NDArray[np.bool_],
    depth: int,
    reached: NDArray[np.int32],
) -> None:
    """Fills ``reached``; ``X`` is ``(n_features, n_rows)`` and indices were checked.

    A block of rows goes down level by level. The nodes of level l are numbered from 0, as in :func:`descend`, and start
    at index 2ˡ − 1 of the arrays, so numbers at the last level are leaf numbers.
    """
    n_trees, n_rows = reached.shape
    splits = np.empty(feature.shape[1], dtype=np.uint32)
    for tree in range(n_trees):
        for v in range(splits.size):
            splits[v] = _split(feature[tree, v], threshold[tree, v], equals[tree, v], X.shape[0])
        for start in range(0, n_rows, _BLOCK_ROWS):
            at = reached[tree, start : start + _BLOCK_ROWS]
            at[:] = 0
            for level in range(depth):
                first = 2**level - 1
                for i in range(at.size):
                    split = splits[first + at[i]]
                    at[i] = 2 * at[i] + _goes_right(X[split >> _TWO_BYTES, start + i], split)


@compiled_for(read("int32", 2), read("int32", 3), written("int64", 2))
def add_leaf_scores(reached: NDArray[np.int32], leaf_scores: NDArray[np.int32], scores: NDArray[np.int64]) -> None:
    """Adds the scores of every row's leaves to ``scores`` ``(n_rows, n_scores)``; indices were checked."""
    n_trees, n_rows = reached.shape
    n_scores = scores.shape[1]
    for tree in range(n_trees):
        for i in range(n_rows):
            leaf = np.uint32(reached[tree, i])
            for k in range(n_scores):
                scores[i, k] += leaf_scores[tree, leaf, k]
