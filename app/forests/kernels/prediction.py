"""Sums the leaf values that rows reach over the trees of a forest: floats for prediction, integers for growth too."""

import numpy as np
from numpy.typing import NDArray

from app.forests.kernels.arrays import require, require_range, require_result, require_splits


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

    Values are added in the order of the trees, so the sum of a row does not depend on the other rows.

    Args:
        X: bins of the caller's rows, uint8 ``(n_rows, n_features)``, one row after another.
        feature: public; int32 ``(n_trees, 2**depth − 1)``, nodes in heap order: the children of node v are
            ``2 · v + 1`` and ``2 · v + 2``.
        threshold: public; uint8, same shape.
        equals: public; bool, same shape: if true, a row goes right if its bin differs from the threshold; otherwise
            if its bin is above the threshold.
        depth: public; 0 is a single leaf.
        values: public; float64 ``(n_trees, 2**depth, n_classes)``.

    Returns:
        float64 ``(n_rows, n_classes)``.

    Raises:
        ValueError: a wrong type or shape, or a split on a feature that the rows do not have. A batch of rows detects
            such a split anywhere in the forest; a few rows detect it only on their paths.
    """
    from app.forests.kernels.compiled import tree_loops as loops

    X = require(X, np.uint8, shape=(None, None), name="X")
    splits = require_splits((feature, threshold, equals), shape=(None, 2**depth - 1), n_features=X.shape[1])
    values = require(values, np.float64, shape=(feature.shape[0], 2**depth, None), name="values")
    sums = np.zeros((X.shape[0], values.shape[2]), dtype=np.float64)
    if not loops.sum_leaf_values(X, *splits, values, sums):
        raise ValueError("feature has a value out of range")
    return sums


def add_leaf_scores(scores: NDArray[np.int64], reached: NDArray[np.int32], leaf_scores: NDArray[np.int32]) -> None:
    """Adds the integer scores of the leaves that rows reached to the scores of the rows, in place.

    Args:
        scores: int64 ``(n_rows, n_scores)``, contiguous, in units of 2⁻¹⁶; PRIVATE where ``reached`` is.
        reached: leaf of every tree that the row reached, int32 ``(n_trees, n_rows)``.
        leaf_scores: public; int32 ``(n_trees, n_leaves, n_scores)``.

    Raises:
        ValueError: a type, a shape or a leaf out of its range.
    """
    from app.forests.kernels.compiled import tree_loops as loops

    leaf_scores = require(leaf_scores, np.int32, shape=(None, None, None), name="leaf_scores")
    reached = require(reached, np.int32, shape=(leaf_scores.shape[0], None), name="reached")
    require_range(reached, lowest=0, below=leaf_scores.shape[1], name="reached")
    require_result(scores, np.int64, shape=(reached.shape[1], leaf_scores.shape[2]), name="scores")
    loops.add_leaf_scores(reached, leaf_scores, scores)
