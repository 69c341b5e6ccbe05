"""Sends private rows down released splits. The results, the nodes that rows reach, are PRIVATE."""

import numpy as np
from numpy.typing import NDArray

from app.forests.kernels.arrays import require, require_range, require_splits


def descend(
    X: NDArray[np.uint8],
    node: NDArray[np.int32],
    *,
    feature: NDArray[np.int32],
    threshold: NDArray[np.uint8],
    equals: NDArray[np.bool_],
) -> NDArray[np.int32]:
    """Moves every row from its node of one level to a node of the next.

    The new node is ``2 · node + go_right``. At an ordered split a row goes right if its bin is above the threshold, at
    a category split (``equals``) if its bin differs from the threshold.

    Args:
        X: PRIVATE bins, uint8 ``(n_features, n_rows)``.
        node: PRIVATE node of this level, int32 ``(n_rows,)``; −1 stays −1.
        feature: public; feature of every node's split, int32 ``(n_nodes,)``.
        threshold: public; uint8 ``(n_nodes,)``.
        equals: public; bool ``(n_nodes,)``.

    Returns:
        PRIVATE int32 ``(n_rows,)``.

    Raises:
        ValueError: a type, a shape or an index out of its range.
    """
    from app.forests.kernels.compiled import routing_loops as loops

    X = require(X, np.uint8, shape=(None, None), name="X")
    n_features, n_rows = X.shape
    node = require(node, np.int32, shape=(n_rows,), name="node")
    splits = require_splits((feature, threshold, equals), shape=(None,), n_features=n_features)
    require_range(node, lowest=-1, below=feature.size, name="node")
    require_range(splits[0], lowest=0, below=n_features, name="feature")
    child = np.empty(n_rows, dtype=np.int32)
    loops.descend(X, node, *splits, child)
    return child


def leaves(
    X: NDArray[np.uint8],
    *,
    feature: NDArray[np.int32],
    threshold: NDArray[np.uint8],
    equals: NDArray[np.bool_],
    depth: int,
) -> NDArray[np.int32]:
    """Finds the leaf that every row reaches in every tree.

    Args:
        X: PRIVATE bins, uint8 ``(n_features, n_rows)``.
        feature: public; int32 ``(n_trees, 2**depth − 1)``, nodes in heap order: the children of node v are
            ``2 · v + 1`` and ``2 · v + 2``.
        threshold: public; uint8, same shape.
        equals: public; bool, same shape. See :func:`descend`.
        depth: public; 0 is a single leaf.

    Returns:
        PRIVATE int32 ``(n_trees, n_rows)``: 0 to ``2**depth − 1``, from left to right.

    Raises:
        ValueError: a type, a shape or an index out of its range.
    """
    from app.forests.kernels.compiled import routing_loops as loops

    X = require(X, np.uint8, shape=(None, None), name="X")
    n_features, n_rows = X.shape
    splits = require_splits((feature, threshold, equals), shape=(None, 2**depth - 1), n_features=n_features)
    require_range(splits[0], lowest=0, below=n_features, name="feature")
    reached = np.empty((feature.shape[0], n_rows), dtype=np.int32)
    loops.leaves(X, *splits, depth, reached)
    return reached
