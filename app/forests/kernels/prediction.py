"""Sums of leaf values over the trees of a forest, for one row or for many."""

import numpy as np
from numpy.typing import NDArray

from app.forests.kernels.arrays import require, require_splits


def sum_leaf_values(
    X: NDArray[np.uint8],
    *,
    feature: NDArray[np.int32],
    threshold: NDArray[np.uint8],
    equals: NDArray[np.bool_],
    depth: int,
    values: NDArray[np.float64],
) -> NDArray[np.float64]:
    """Adds up, tree by tree, the values of the leaves that each row reaches.

    The sum of a row is taken in the order of the trees, so it does not depend on the rows that come with it.

    Args:
        X: bins of the caller's rows, uint8 ``(n_rows, n_features)``, one row after another.
        feature: public; int32 ``(n_trees, 2**depth − 1)``, nodes in heap order: the children of node v are
            ``2 · v + 1`` and ``2 · v + 2``.
        threshold: public; uint8, same shape.
        equals: public; bool, same shape: go right if the bin is another one than the threshold; otherwise go right
            if it is above.
        depth: public; 0 is a single leaf.
        values: public; float64 ``(n_trees, 2**depth, n_classes)``.

    Returns:
        float64 ``(n_rows, n_classes)``.

    Raises:
        ValueError: a type, a shape, or a split that asks for a feature the rows do not have. A batch of rows finds
            such a split anywhere in the forest, a few rows only where they meet it.
    """
    from app.forests.kernels.loops import trees as loops

    X = require(X, np.uint8, shape=(None, None), name="X")
    splits = require_splits((feature, threshold, equals), shape=(None, 2**depth - 1), n_features=X.shape[1])
    values = require(values, np.float64, shape=(feature.shape[0], 2**depth, None), name="values")
    sums = np.zeros((X.shape[0], values.shape[2]), dtype=np.float64)
    if not loops.sum_leaf_values(X, *splits, values, sums):
        raise ValueError("feature has a value out of range")
    return sums
