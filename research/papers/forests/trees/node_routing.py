"""Sums the leaf values that rows reach in trees of any shape, which compare columns or
weighted sums of columns.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, eq=False)
class Projections:
    """Weighted sums of columns.

    Attributes:
        first_term: the terms of projection p are ``first_term[p] : first_term[p + 1]``;
            int64 ``(n_projections + 1,)``.
        column: of every term; int32 ``(n_terms,)``.
        weight: float32 ``(n_terms,)``.
    """

    first_term: NDArray[np.int64]
    column: NDArray[np.int32]
    weight: NDArray[np.float32]

    @classmethod
    def none(cls) -> Projections:
        """No projection: every split compares one column."""
        return cls(
            np.zeros(1, dtype=np.int64),
            np.empty(0, dtype=np.int32),
            np.empty(0, dtype=np.float32),
        )

    @property
    def count(self) -> int:
        """Number of projections."""
        return len(self.first_term) - 1


@dataclass(frozen=True, eq=False)
class NodeTrees:
    """Trees whose nodes are listed in preorder: the left child of a node is the next
    node.

    Attributes:
        root: the first node of every tree, and the number of nodes; int64 ``(n_trees +
            1,)``.
        feature: −1 for a leaf; the column that a node compares; from ``n_columns`` on,
            ``n_columns`` plus the number of a projection; int32 ``(n_nodes,)``.
        threshold: a row goes left if its value is at most this; float64 ``(n_nodes,)``.
        right: the right child, counted from the root of its tree; for a leaf, its row
            in ``values``; int32.
        values: of the leaves, float32 ``(n_leaves, n_outputs)``.
        projections: those that nodes compare.
    """

    root: NDArray[np.int64]
    feature: NDArray[np.int32]
    threshold: NDArray[np.float64]
    right: NDArray[np.int32]
    values: NDArray[np.float32]
    projections: Projections = field(default_factory=Projections.none)

    @classmethod
    def of(cls, arrays: Mapping[str, NDArray[Any]]) -> NodeTrees:
        """The trees of an artifact, with projections if it has any."""
        projections = Projections.none()
        if "first_term" in arrays:
            projections = Projections(
                arrays["first_term"], arrays["column"], arrays["weight"]
            )
        feature, threshold, right = (
            arrays["feature"],
            arrays["threshold"],
            arrays["right"],
        )
        return cls(
            arrays["root"], feature, threshold, right, arrays["values"], projections
        )

    def sums(self, X: NDArray[np.float32]) -> NDArray[np.float64]:
        """The sums of the values of the leaves that rows reach: float64 ``(n_rows,
        n_outputs)``.

        Args:
            X: float32 ``(n_rows, n_columns)``, C order, with every column that a node
                compares.
        """
        # numba: not at the start of a process
        from research.papers.forests.loops import node_loops

        sums = np.zeros((len(X), self.values.shape[1]))
        nodes = (self.feature, self.threshold, self.right)
        terms = (
            self.projections.first_term,
            self.projections.column,
            self.projections.weight,
        )
        node_loops.add_leaf_values(X, self.root, nodes, terms, self.values, sums)
        return sums
