"""Grows comparison-based random forests on the rows of a public dataset."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from app.forests.contract.forest import Forest
from app.forests.contract.plan import Plan
from app.forests.data.design import Design
from app.forests.data.rows import PublicRows
from app.forests.data.schema import Schema
from app.forests.trees.grow import oblique_trees
from app.forests.trees.grow.oblique_trees import ObliqueTree, Plane, PublicTable, Rows, Stop
from app.forests.trees.grow.split_trees import Weights

_N_TRIES = 6
"""Pairs of pivots for a node. The authors' code takes any pair after five without a split; see ``price``."""


def grow_forest(plan: Plan, schema: Schema, rows: PublicRows, *, seed: int, on_tree_done: Callable[[], None]) -> Forest:
    """Grows the forest.

    Privacy:
        None.

    Source:
        Haghiri, Garreau and von Luxburg, Comparison-Based Random Forests (2018). In Euclidean distance, a row x is at
        least as close to a as to b iff (b − a) · x ≤ (b − a) · (a + b) / 2, so that a split is a plane.
    """
    design, random = Design.of(schema), np.random.default_rng(seed)
    table = PublicTable(design.matrix(rows.features), rows.y, schema.n_classes)
    everything = np.arange(len(rows.y))
    parameters = plan.parameters

    def tree() -> ObliqueTree:
        if plan.algorithm == "comprf-i":
            stop = Stop(1, max_leaf=int(parameters["max_samples_leaf"]), n_tries=_N_TRIES)
            return oblique_trees.grown(table, everything, everything, lambda node: _opposed(table, node, random), stop)
        parts = Weights.parted(len(everything), random, structure_share=float(parameters["structure_share"]))
        structure, estimation = np.flatnonzero(parts.structure), np.flatnonzero(parts.estimation)
        stop = Stop(int(parameters["min_samples_leaf"]), n_tries=_N_TRIES)
        return oblique_trees.grown(table, structure, estimation, lambda node: _any_two(table, node, random), stop)

    def trees() -> Iterator[ObliqueTree]:
        for _ in range(plan.n_trees):
            yield tree()
            on_tree_done()

    return Forest(plan, oblique_trees.collected_planes(trees(), n_columns=design.n_columns))


def _any_two(table: PublicTable, rows: Rows, random: np.random.Generator) -> Plane:
    first = int(random.integers(len(rows)))
    second = int(random.integers(len(rows) - 1))
    return _between(table, rows[first], rows[second + (second >= first)])


def _opposed(table: PublicTable, rows: Rows, random: np.random.Generator) -> Plane:
    """A uniform pair among those of different classes: the first row is drawn by its number of partners."""
    labels = table.y[rows]
    n_others = len(rows) - table.counts(rows)[labels]
    first = int(np.searchsorted(n_others.cumsum(), random.random() * n_others.sum(), side="right"))
    others = np.flatnonzero(labels != labels[first])
    return _between(table, rows[first], rows[others[random.integers(len(others))]])


def _between(table: PublicTable, first: int, second: int) -> Plane:
    """The plane of points at equal distance from two rows; the first row goes left."""
    one, other = table.X[[first, second]].astype(np.float64)
    columns = np.flatnonzero(one != other).astype(np.int32)
    weights = (other - one)[columns].astype(np.float32)
    middle = (one + other)[columns] / 2.0
    return Plane(columns, weights, float(middle @ weights.astype(np.float64)))
