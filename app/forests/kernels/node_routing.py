"""Sums the leaf values that rows reach in trees of any shape."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, eq=False)
class NodeTrees:
    """Trees whose nodes are listed in preorder: the left child of a node is the next node.

    Attributes:
        root: the first node of every tree, and the number of nodes; int64 ``(n_trees + 1,)``.
        feature: the column that a node compares, −1 for a leaf; int32 ``(n_nodes,)``.
        threshold: a row goes left if its value is at most this; float64 ``(n_nodes,)``.
        right: the right child, counted from the root of its tree; for a leaf, its row in ``values``; int32.
        values: of the leaves, float32 ``(n_leaves, n_outputs)``.
    """

    root: NDArray[np.int64]
    feature: NDArray[np.int32]
    threshold: NDArray[np.float64]
    right: NDArray[np.int32]
    values: NDArray[np.float32]

    def is_valid(self, *, n_columns: int) -> bool:
        """Whether every walk from a root ends at a leaf of the same tree, and every column exists."""
        n_nodes, n_trees = len(self.feature), len(self.root) - 1
        if n_trees < 1 or self.root[0] != 0 or self.root[-1] != n_nodes or np.any(np.diff(self.root) < 1):
            return False
        if np.any(self.feature < -1) or np.any(self.feature >= n_columns) or not np.all(np.isfinite(self.threshold)):
            return False
        tree = np.repeat(np.arange(n_trees), np.diff(self.root))
        place = np.arange(n_nodes) - self.root[:-1][tree]
        size = np.diff(self.root)[tree]
        inner = self.feature >= 0
        # A child has a larger place than its parent, so a walk is finite; both children lie in the tree.
        is_inside = (place + 1 < size) & (self.right > place) & (self.right < size)
        is_leaf = (self.right >= 0) & (self.right < len(self.values))
        return bool(np.all(np.where(inner, is_inside, is_leaf)))

    def sums(self, X: NDArray[np.float32]) -> NDArray[np.float64]:
        """The sums of the values of the leaves that rows reach: float64 ``(n_rows, n_outputs)``.

        Args:
            X: float32 ``(n_rows, n_columns)``, C order, with every column that a node compares.
        """
        from app.forests.kernels.compiled import node_loops  # numba: not at the start of a process

        sums = np.zeros((len(X), self.values.shape[1]))
        node_loops.add_leaf_values(X, self.root, (self.feature, self.right), self.threshold, self.values, sums)
        return sums
