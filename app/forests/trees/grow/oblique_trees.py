"""Grows trees without privacy whose splits compare weighted sums of columns; an algorithm proposes the splits."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from app.forests.trees.grow.node_trees import NodeTree, collected

Rows: TypeAlias = NDArray[np.int64]
"""Row numbers, int64 ``(n,)``; a row may occur several times."""


@dataclass(frozen=True, eq=False)
class Plane:
    """A row goes left if the weighted sum of its columns is at most the threshold.

    Attributes:
        columns: int32 ``(n_terms,)``; a single column of weight 1 is a split on that column.
        weights: float32 ``(n_terms,)``.
        threshold: a finite number.
    """

    columns: NDArray[np.int32]
    weights: NDArray[np.float32]
    threshold: float

    @classmethod
    def of_column(cls, column: int, threshold: float) -> Plane:
        """A split on one column."""
        return cls(np.array([column], dtype=np.int32), np.ones(1, dtype=np.float32), threshold)

    @property
    def is_column(self) -> bool:
        """Whether the split compares one column."""
        return len(self.columns) == 1 and self.weights[0] == 1.0

    def goes_left(self, X: NDArray[np.float32], rows: Rows) -> NDArray[np.bool_]:
        """Whether each row goes left. Sums are double, as in prediction."""
        values = X[rows[:, np.newaxis], self.columns].astype(np.float64)
        return values @ self.weights.astype(np.float64) <= self.threshold


Propose: TypeAlias = Callable[[Rows], Plane | None]
"""Proposes a split for a node's structure points, which have at least two classes; ``None``: it has no split."""


@dataclass(frozen=True)
class Stop:
    """When a node becomes a leaf, beyond nodes whose structure points have one class.

    Attributes:
        min_leaf: a split leaves at least so many estimation points, and a structure point, on both sides.
        max_leaf: a node of at most so many structure points is a leaf.
        n_tries: proposals for a node before it becomes a leaf.
    """

    min_leaf: int
    max_leaf: int = 1
    n_tries: int = 1


@dataclass(frozen=True, eq=False)
class ObliqueTree:
    """One tree in preorder.

    Attributes:
        planes: the split of every node; ``None`` for a leaf.
        right: the right child of every node.
        counts: estimation points by class, of every node; float64 ``(n_nodes, n_classes)``.
    """

    planes: list[Plane | None]
    right: list[int]
    counts: list[NDArray[np.float64]]


@dataclass(frozen=True, eq=False)
class PublicTable:
    """Rows of a public dataset for growth.

    Attributes:
        X: float32 ``(n_rows, n_columns)``.
        y: classes, int32 ``(n_rows,)``.
        n_classes: number of declared classes.
    """

    X: NDArray[np.float32]
    y: NDArray[np.int32]
    n_classes: int

    def counts(self, rows: Rows) -> NDArray[np.float64]:
        """Rows by class."""
        return np.bincount(self.y[rows], minlength=self.n_classes).astype(np.float64)


def grown(table: PublicTable, structure: Rows, estimation: Rows, propose: Propose, stop: Stop) -> ObliqueTree:
    """Grows one tree: structure points choose the splits, estimation points fill the leaves."""
    tree = ObliqueTree([], [], [])
    waiting = [(structure, estimation, -1)]
    while waiting:
        structure, estimation, parent = waiting.pop()
        node = len(tree.planes)
        if parent >= 0:
            tree.right[parent] = node
        tree.counts.append(table.counts(estimation))
        tree.right.append(0)
        split = _split(table, structure, estimation, propose, stop)
        if split is None:
            tree.planes.append(None)
            continue
        plane, left, goes_left = split
        tree.planes.append(plane)
        is_same = estimation is structure
        for side, side_of_estimation, parent in ((~left, ~goes_left, node), (left, goes_left, -1)):
            points = structure[side]
            waiting.append((points, points if is_same else estimation[side_of_estimation], parent))
    return tree


def _split(
    table: PublicTable, structure: Rows, estimation: Rows, propose: Propose, stop: Stop
) -> tuple[Plane, NDArray[np.bool_], NDArray[np.bool_]] | None:
    """The first legal proposal, and which structure and estimation points go left."""
    if len(structure) <= stop.max_leaf or len(estimation) < 2 * stop.min_leaf:
        return None
    labels = table.y[structure]
    if (labels == labels[0]).all():
        return None
    for _ in range(stop.n_tries):
        plane = propose(structure)
        if plane is None:
            return None
        left = plane.goes_left(table.X, structure)
        goes_left = left if estimation is structure else plane.goes_left(table.X, estimation)
        n_left = int(goes_left.sum())
        if 0 < left.sum() < len(left) and stop.min_leaf <= n_left <= len(goes_left) - stop.min_leaf:
            return plane, left, goes_left
    return None


def collected_planes(trees: Iterable[ObliqueTree], *, n_columns: int) -> dict[str, NDArray[Any]]:
    """The arrays of a forest of oblique trees; see :class:`app.forests.kernels.node_routing.NodeTrees`."""
    columns, weights, sizes = [], [], [0]

    def node_trees() -> Iterator[NodeTree]:
        for tree in trees:
            feature = np.full(len(tree.planes), -1, dtype=np.int32)
            threshold = np.zeros(len(tree.planes))
            for node, plane in enumerate(tree.planes):
                if plane is None:
                    continue
                threshold[node] = plane.threshold
                if plane.is_column:
                    feature[node] = plane.columns[0]
                    continue
                feature[node] = n_columns + len(sizes) - 1
                columns.append(plane.columns)
                weights.append(plane.weights)
                sizes.append(len(plane.columns))
            counts = np.array(tree.counts)
            shares = counts / counts.sum(axis=1, keepdims=True)
            yield NodeTree(feature, threshold, np.array(tree.right, dtype=np.int32), shares)

    nodes = collected(node_trees())
    return {
        **nodes,
        "first_term": np.cumsum(sizes, dtype=np.int64),
        "column": np.concatenate([np.empty(0, dtype=np.int32), *columns]),
        "weight": np.concatenate([np.empty(0, dtype=np.float32), *weights]),
    }
