"""Grows comparison-based random forests on public rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
from numpy.typing import NDArray

from grovekeeper_forests.data.sanitiser import SanitisedRows
from grovekeeper_forests.data.schema import Schema
from research.papers.forests.contract import PlainForest, PlainPlan
from research.papers.forests.loops import comparison_loops
from research.papers.forests.trees import oblique_trees
from research.papers.forests.trees.design import Design
from research.papers.forests.trees.node_routing import Projections
from research.papers.forests.trees.node_trees import NodeTree
from research.papers.forests.trees.oblique_trees import ObliqueTree, PublicTable
from research.papers.forests.trees.split_trees import Weights

_N_TRIES = 6
"""Pairs of pivots for a node. The authors' code takes any pair after five without a
split; see ``price``.
"""


def grow_forest(
    plan: PlainPlan,
    schema: Schema,
    rows: SanitisedRows,
    *,
    seed: int,
    on_tree_done: Callable[[], None],
) -> PlainForest:
    """Grows the forest.

    Privacy:
        None.

    Source:
        Haghiri, Garreau and von Luxburg, Comparison-Based Random Forests (2018). In
        Euclidean distance, a row x is at least as close to a as to b iff (b − a) · x ≤
        (b − a) · (a + b) / 2, so that a split is a plane.
    """
    design, random = Design.of(schema), np.random.default_rng(seed)
    table = PublicTable(design.matrix(rows.features), rows.y, schema.n_classes)
    everything, parameters = np.ones(len(rows.y), dtype=np.int32), plan.parameters

    def tree() -> ObliqueTree:
        if plan.algorithm == "comprf-i":
            max_leaf = int(parameters["max_samples_leaf"])
            return grown(
                table,
                Weights(everything, everything),
                (1, max_leaf, _N_TRIES, 1),
                random,
            )
        parts = Weights.parted(
            len(rows.y), random, structure_share=float(parameters["structure_share"])
        )
        return grown(
            table, parts, (int(parameters["min_samples_leaf"]), 1, _N_TRIES, 0), random
        )

    def trees() -> Iterator[ObliqueTree]:
        for _ in range(plan.n_trees):
            yield tree()
            on_tree_done()

    return PlainForest(
        plan, oblique_trees.collected_planes(trees(), n_columns=design.n_columns)
    )


def grown(
    table: PublicTable,
    weights: Weights,
    rule: tuple[int, int, int, int],
    random: np.random.Generator,
) -> ObliqueTree:
    """Grows one tree; the numbers of the rule are those of
    :func:`comparison_loops.grow_tree`.
    """
    n_most = 2 * len(table.y)
    nodes, threshold = np.empty((n_most, 3), dtype=np.int32), np.zeros(n_most)
    counts = np.empty((n_most, table.n_classes))
    n_nodes = comparison_loops.grow_tree(
        (table.X, np.stack([table.y, weights.structure, weights.estimation])),
        (np.array(rule, dtype=np.int64), int(random.integers(2**31))),
        (nodes, threshold, counts),
    )
    nodes, counts = nodes[:n_nodes], counts[:n_nodes]
    is_inner = nodes[:, 0] >= 0
    feature = np.full(n_nodes, -1, dtype=np.int32)
    feature[is_inner], projections = planes_between(table.X, nodes[is_inner, :2])
    right = np.where(is_inner, nodes[:, 2], 0).astype(np.int32)
    shares = counts / counts.sum(axis=1, keepdims=True)
    return ObliqueTree(
        NodeTree(feature, np.where(is_inner, threshold[:n_nodes], 0.0), right, shares),
        projections,
    )


def planes_between(
    X: NDArray[np.float32], pivots: NDArray[np.int32]
) -> tuple[NDArray[np.int32], Projections]:
    """The planes of points at equal distance from two rows, of which the first row is
    on the left.

    Args:
        X: float32 ``(n_rows, n_columns)``.
        pivots: rows of the pairs, int32 ``(n_planes, 2)``.

    Returns:
        The feature of every split, as in :class:`ObliqueTree`, and the projections.
    """
    pivots, ends = np.ascontiguousarray(pivots), np.zeros(len(pivots), dtype=np.int64)
    columns, weights = np.empty(0, dtype=np.int32), np.empty(0, dtype=np.float32)
    comparison_loops.write_terms(X, pivots, (ends, columns, weights))
    n_terms = np.diff(ends, prepend=0)
    columns, weights = (
        np.empty(n_terms.sum(), dtype=np.int32),
        np.empty(n_terms.sum(), dtype=np.float32),
    )
    comparison_loops.write_terms(X, pivots, (ends, columns, weights))
    return oblique_trees.as_projections(n_terms, columns, weights, n_columns=X.shape[1])
