"""Collects trees of any shape, grown one after another, in the arrays of their
artifact.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, eq=False)
class NodeTree:
    """One tree in preorder, as in
    :class:`research.papers.forests.trees.node_routing.NodeTrees`.

    Attributes:
        shares: class shares of every node, of which those of leaves count; ``(n_nodes,
            n_classes)``.
    """

    feature: NDArray[np.int32]
    threshold: NDArray[np.float64]
    right: NDArray[np.int32]
    shares: NDArray[np.floating[Any]]


def collected(trees: Iterable[NodeTree]) -> dict[str, NDArray[Any]]:
    """The arrays of a forest, leaves numbered through all trees."""
    features, thresholds, rights, values = [], [], [], []
    sizes, n_leaves = [0], 0
    for tree in trees:
        leaf = tree.feature < 0
        of_tree = int(leaf.sum())
        right = tree.right.astype(np.int32)
        right[leaf] = n_leaves + np.arange(of_tree)
        n_leaves += of_tree
        features.append(tree.feature.astype(np.int32))
        thresholds.append(np.where(leaf, 0.0, tree.threshold))
        rights.append(right)
        values.append(tree.shares[leaf].astype(np.float32))
        sizes.append(len(leaf))
    return {
        "root": np.cumsum(sizes, dtype=np.int64),
        "feature": np.concatenate(features),
        "threshold": np.concatenate(thresholds),
        "right": np.concatenate(rights),
        "values": np.concatenate(values),
    }
