"""Exports trees that scikit-learn grew to the arrays of artifacts."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from research.papers.forests.trees.node_trees import NodeTree


def exported(
    tree: Any, classes: NDArray[np.integer[Any]], *, n_classes: int
) -> NodeTree:
    """The nodes of a fitted tree, which scikit-learn lists in preorder.

    Args:
        tree: the ``tree_`` of a fitted classifier.
        classes: the classes that occur in the rows, as the classifier orders them.
        n_classes: number of declared classes.
    """
    is_leaf = tree.children_left < 0
    assert np.array_equal(tree.children_left[~is_leaf], np.flatnonzero(~is_leaf) + 1), (
        "the left child is the next node"
    )
    counts = tree.value[:, 0, :]
    shares = np.zeros((len(counts), n_classes))
    shares[:, classes] = counts / counts.sum(axis=1, keepdims=True)
    return NodeTree(
        feature=np.where(is_leaf, -1, tree.feature).astype(np.int32),
        threshold=tree.threshold,
        right=np.where(is_leaf, 0, tree.children_right).astype(np.int32),
        shares=shares,
    )
