"""Grows trees without privacy whose splits compare weighted sums of columns, level by
level, with compiled loops.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from research.papers.forests.loops import plane_loops
from research.papers.forests.trees.node_routing import Projections
from research.papers.forests.trees.node_trees import NodeTree, collected
from research.papers.forests.trees.plane_rules import NodeMoments, Proposal

_MOST_NUMBERS = 2**21
"""Numbers of the class scatters of the nodes that are split together."""


@dataclass(frozen=True, eq=False)
class PublicTable:
    """Rows for growth.

    Attributes:
        X: float32 ``(n_rows, n_columns)``, in C order.
        y: classes, int32 ``(n_rows,)``.
        n_classes: number of declared classes.
    """

    X: NDArray[np.float32]
    y: NDArray[np.int32]
    n_classes: int

    @cached_property
    def by_column(self) -> NDArray[np.float32]:
        """The transposed columns: a node that looks at few of them reads less memory."""
        return np.ascontiguousarray(self.X.T)


@dataclass(frozen=True, eq=False)
class Nodes:
    """Nodes that wait for a split, in the form of
    :mod:`research.papers.forests.loops.plane_loops`.

    Attributes:
        table: columns and points.
        rows: order of the rows, bounds of the nodes and their columns.
        moments: of their classes.
    """

    table: plane_loops.Table
    rows: plane_loops.Nodes
    moments: NodeMoments


Propose: TypeAlias = Callable[[Nodes], Proposal]
"""Proposes splits for nodes of at least two classes."""


@dataclass(frozen=True)
class Limits:
    """The size of nodes.

    Attributes:
        min_leaf: a split leaves at least so many rows on both sides.
        n_drawn: random columns of a node.
    """

    min_leaf: int
    n_drawn: int


@dataclass(frozen=True, eq=False)
class ObliqueTree:
    """One tree in preorder.

    Attributes:
        nodes: ``feature`` is a column, or the number of columns plus the number of a
            projection of this tree.
        projections: of this tree.
    """

    nodes: NodeTree
    projections: Projections


@dataclass(frozen=True, eq=False)
class _Level:
    """The nodes of one depth, left children before right children of a parent.

    Attributes:
        counts: rows by class, float64 ``(n_nodes, n_classes)``.
        is_split: bool ``(n_nodes,)``; the split nodes have the following rows.
        columns: int32 ``(n_split, n_drawn)``.
        directions: weights in float32, float64 ``(n_split, n_drawn)``.
        thresholds: float64 ``(n_split,)``.
    """

    counts: NDArray[np.float64]
    is_split: NDArray[np.bool_]
    columns: NDArray[np.int32]
    directions: NDArray[np.float64]
    thresholds: NDArray[np.float64]


def grown(
    table: PublicTable,
    weights: NDArray[np.int32],
    propose: Propose,
    limits: Limits,
    random: np.random.Generator,
) -> ObliqueTree:
    """Grows one tree.

    Args:
        table: the rows.
        weights: how often every row counts, int32 ``(n_rows,)``.
        propose: the rule of the algorithm. The proposal that lowers the Gini impurity
            most splits the node.
        limits: the size of nodes.
        random: draws the columns of every node.
    """
    points = np.stack([table.y, weights])
    order = np.flatnonzero(weights).astype(np.int32)
    bounds, levels = np.array([[0, len(order)]], dtype=np.int64), list[_Level]()
    while len(bounds):
        counts = np.zeros((len(bounds), table.n_classes))
        plane_loops.count_classes(points, (order, bounds), counts)
        is_open = (counts.sum(axis=1) >= 2 * limits.min_leaf) & (
            np.count_nonzero(counts, axis=1) > 1
        )
        if limits.n_drawn == 0:
            is_open[:] = False
        chosen = _split(
            (table.by_column, points),
            (order, bounds[is_open]),
            counts[is_open],
            propose,
            limits,
            random,
        )
        is_split = is_open.copy()
        is_split[is_open] = chosen.is_split
        levels.append(
            _Level(
                counts, is_split, chosen.columns, chosen.directions, chosen.thresholds
            )
        )
        n_left = np.empty(len(chosen.thresholds), dtype=np.int64)
        parents = bounds[is_split]
        plane_loops.divide(
            table.by_column,
            (order, parents, chosen.columns),
            (chosen.directions, chosen.thresholds),
            n_left,
        )
        middle = parents[:, 0] + n_left
        bounds = np.stack(
            [parents[:, 0], middle, middle, parents[:, 1]], axis=1
        ).reshape(-1, 2)
    return _in_preorder(levels, n_columns=table.X.shape[1])


@dataclass(frozen=True, eq=False)
class _Chosen:
    """Which open nodes are split, and the splits of those; see :class:`_Level`."""

    is_split: NDArray[np.bool_]
    columns: NDArray[np.int32]
    directions: NDArray[np.float64]
    thresholds: NDArray[np.float64]


def _split(
    table: plane_loops.Table,
    rows: tuple[NDArray[np.int32], NDArray[np.int64]],
    counts: NDArray[np.float64],
    propose: Propose,
    limits: Limits,
    random: np.random.Generator,
) -> _Chosen:
    """Chooses the splits of open nodes, so many at a time that their moments fit into
    memory.
    """
    order, bounds = rows
    n_together = max(_MOST_NUMBERS // max(counts.shape[1] * limits.n_drawn**2, 1), 1)
    n_columns = table[0].shape[0]
    parts = [
        _Chosen(
            np.empty(0, dtype=np.bool_),
            np.empty((0, limits.n_drawn), dtype=np.int32),
            np.empty((0, limits.n_drawn)),
            np.empty(0),
        )
    ]
    for first in range(0, len(bounds), n_together):
        some = slice(first, first + n_together)
        every = np.broadcast_to(
            np.arange(n_columns, dtype=np.int32), (len(bounds[some]), n_columns)
        )
        columns = np.ascontiguousarray(
            random.permuted(every, axis=1)[:, : limits.n_drawn]
        )
        parts.append(
            _choose(
                table,
                (order, bounds[some], columns),
                counts[some],
                propose,
                limits.min_leaf,
            )
        )
    return _Chosen(
        *(
            np.concatenate([getattr(part, name) for part in parts])
            for name in _Chosen.__dataclass_fields__
        )
    )


def _choose(
    table: plane_loops.Table,
    rows: plane_loops.Nodes,
    counts: NDArray[np.float64],
    propose: Propose,
    min_leaf: int,
) -> _Chosen:
    order, bounds, columns = rows
    n_nodes, n_classes = counts.shape
    n_drawn, smallest = columns.shape[1], np.array([float(min_leaf)])
    means, scatters = (
        np.zeros((n_nodes, n_classes, n_drawn)),
        np.zeros((n_nodes, n_classes, n_drawn, n_drawn)),
    )
    plane_loops.class_moments(table, rows, counts, (means, scatters))
    proposal = propose(Nodes(table, rows, NodeMoments(counts, means, scatters)))
    gains, directions, thresholds = (
        np.full(n_nodes, -1.0),
        np.zeros((n_nodes, n_drawn)),
        np.zeros(n_nodes),
    )
    at = np.flatnonzero(proposal.is_rotated)
    if len(at):
        along, found = _in_single(proposal.directions[at]), np.empty((len(at), 3))
        plane_loops.best_cuts(
            table,
            (order, bounds[at], columns[at]),
            (counts[at], along, smallest),
            found,
        )
        gains[at], thresholds[at] = found[:, 2], found[:, 1]
        directions[at] = along[np.arange(len(at)), found[:, 0].astype(np.int64)]
    at = np.flatnonzero(~proposal.is_rotated)
    if len(at):
        planes, of_planes = (
            proposal.planes[at],
            np.empty((len(at), proposal.planes.shape[1])),
        )
        planes[:, :, :-1] = _in_single(planes[:, :, :-1])
        plane_loops.plane_gains(
            table,
            (order, bounds[at], columns[at]),
            (counts[at], planes, smallest),
            of_planes,
        )
        best = of_planes.argmax(axis=1)
        gains[at] = of_planes.max(axis=1)
        directions[at], thresholds[at] = (
            planes[np.arange(len(at)), best, :-1],
            planes[np.arange(len(at)), best, -1],
        )
    unsplit = np.square(counts).sum(axis=1) / counts.sum(axis=1)
    is_split = gains > unsplit * (1.0 + 1e-12)
    return _Chosen(
        is_split, columns[is_split], directions[is_split], thresholds[is_split]
    )


def _in_single(weights: NDArray[np.float64]) -> NDArray[np.float64]:
    """The weights as the artifact stores them."""
    return weights.astype(np.float32).astype(np.float64)


def _in_preorder(levels: list[_Level], *, n_columns: int) -> ObliqueTree:
    """Numbers the nodes in preorder: the left child of a node is the next node."""
    sizes = [np.ones(len(level.counts), dtype=np.int64) for level in levels]
    for above, below, level in zip(
        reversed(sizes[:-1]), reversed(sizes[1:]), reversed(levels[:-1]), strict=True
    ):
        above[level.is_split] += below[::2] + below[1::2]
    places = [np.zeros(1, dtype=np.int64)]
    for level, below in zip(levels[:-1], sizes[1:], strict=True):
        parents = places[-1][level.is_split]
        places.append(np.stack([parents + 1, parents + 1 + below[::2]], axis=1).ravel())
    n_nodes, place = int(sizes[0][0]), np.concatenate(places)
    feature, right = (
        np.full(n_nodes, -1, dtype=np.int32),
        np.zeros(n_nodes, dtype=np.int32),
    )
    threshold = np.zeros(n_nodes)
    counts = np.empty((n_nodes, levels[0].counts.shape[1]))
    counts[place] = np.concatenate([level.counts for level in levels])
    parents = place[np.concatenate([level.is_split for level in levels])]
    right[parents] = place[2::2]
    threshold[parents] = np.concatenate([level.thresholds for level in levels])
    in_order = np.argsort(parents)
    columns = np.concatenate([level.columns for level in levels])[in_order]
    weights = np.concatenate([level.directions for level in levels])[in_order]
    is_used = weights != 0.0
    terms = columns[is_used], weights[is_used].astype(np.float32)
    feature[parents[in_order]], projections = as_projections(
        is_used.sum(axis=1), *terms, n_columns=n_columns
    )
    shares = counts / counts.sum(axis=1, keepdims=True)
    return ObliqueTree(NodeTree(feature, threshold, right, shares), projections)


def as_projections(
    n_terms: NDArray[np.int64],
    columns: NDArray[np.int32],
    weights: NDArray[np.float32],
    *,
    n_columns: int,
) -> tuple[NDArray[np.int32], Projections]:
    """The features of splits in an artifact: a column where it is alone and has weight
    1, else a projection.

    Args:
        n_terms: number of terms of every split, int64 ``(n_splits,)``.
        columns: of the terms, split by split.
        weights: of the terms.
        n_columns: of the table.
    """
    feature = np.zeros(len(n_terms), dtype=np.int32)
    single = np.flatnonzero(n_terms == 1)
    at = np.cumsum(n_terms)[single] - 1
    is_column = np.zeros(len(n_terms), dtype=np.bool_)
    is_column[single] = weights[at] == 1.0
    feature[single] = columns[at]
    feature[~is_column] = n_columns + np.arange(
        np.count_nonzero(~is_column), dtype=np.int32
    )
    is_term = np.repeat(~is_column, n_terms)
    first_term = np.cumsum(np.concatenate([[0], n_terms[~is_column]]), dtype=np.int64)
    return feature, Projections(first_term, columns[is_term], weights[is_term])


def collected_planes(
    trees: Iterable[ObliqueTree], *, n_columns: int
) -> dict[str, NDArray[Any]]:
    """The arrays of a forest of oblique trees; see
    :class:`research.papers.forests.trees.node_routing.NodeTrees`.
    """
    parts, n_before = [Projections.none()], [0, 0]

    def node_trees() -> Iterator[NodeTree]:
        for tree in trees:
            nodes, projections = tree.nodes, tree.projections
            feature = nodes.feature + np.where(
                nodes.feature >= n_columns, n_before[0], 0
            ).astype(np.int32)
            parts.append(
                Projections(
                    projections.first_term[1:] + n_before[1],
                    projections.column,
                    projections.weight,
                )
            )
            n_before[0] += projections.count
            n_before[1] += len(projections.column)
            yield NodeTree(feature, nodes.threshold, nodes.right, nodes.shares)

    nodes = collected(node_trees())
    return {
        **nodes,
        "first_term": np.concatenate([part.first_term for part in parts]),
        "column": np.concatenate([part.column for part in parts]),
        "weight": np.concatenate([part.weight for part in parts]),
    }
