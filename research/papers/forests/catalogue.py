"""Lists the algorithms without privacy, and plans, grows and reads their forests."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from app.core.errors import InvalidRequest
from grovekeeper_forests.contract.algorithm import read_all
from grovekeeper_forests.contract.plan import Reader
from grovekeeper_forests.data.sanitiser import SanitisedColumns, SanitisedRows
from grovekeeper_forests.data.schema import Schema
from research.papers.forests import parameters
from research.papers.forests.bms_rf_plain import grow as bms_rf_plain
from research.papers.forests.bms_rf_plain import read as stacked
from research.papers.forests.bms_rf_plain.describe import StackedReference
from research.papers.forests.breiman import grow as breiman
from research.papers.forests.breiman.describe import RandomForest
from research.papers.forests.cart import grow as cart
from research.papers.forests.cart.describe import GreedyTree, PrunedTree
from research.papers.forests.comparison import grow as comparison
from research.papers.forests.comparison.describe import (
    ConsistentComparisons,
    SupervisedComparisons,
)
from research.papers.forests.consistent import grow as consistent
from research.papers.forests.consistent.describe import (
    BernoulliForest,
    GreedyOnStructure,
    MultinomialOnBootstrap,
    MultinomialReference,
    PooledForest,
)
from research.papers.forests.contract import (
    GrowReference,
    PlainForest,
    PlainPlan,
    Reference,
)
from research.papers.forests.oblique import describe as oblique_planes
from research.papers.forests.oblique import grow as oblique
from research.papers.forests.rdt_plain import describe as random_trees
from research.papers.forests.rdt_plain import grow as rdt_plain
from research.papers.forests.trees import node_read_out

_SEED_BITS = 32
ReadForest: TypeAlias = Callable[[PlainForest, Schema, str], Reader]

_TABLE: tuple[tuple[Reference, GrowReference, ReadForest], ...] = (
    (RandomForest(), breiman.grow_forest, node_read_out.reader),
    (GreedyTree(), cart.grow_forest, node_read_out.reader),
    (PrunedTree(), cart.grow_forest, node_read_out.reader),
    (MultinomialReference(), consistent.grow_forest, node_read_out.reader),
    (GreedyOnStructure(), consistent.grow_forest, node_read_out.reader),
    (MultinomialOnBootstrap(), consistent.grow_forest, node_read_out.reader),
    (PooledForest(), consistent.grow_forest, node_read_out.reader),
    (BernoulliForest(), consistent.grow_forest, node_read_out.reader),
    (ConsistentComparisons(), comparison.grow_forest, node_read_out.reader),
    (SupervisedComparisons(), comparison.grow_forest, node_read_out.reader),
    (random_trees.VotingTrees(), rdt_plain.grow_forest, node_read_out.reader),
    (random_trees.AveragedTrees(), rdt_plain.grow_forest, node_read_out.reader),
    (random_trees.DrawnTrees(), rdt_plain.grow_forest, node_read_out.reader),
    (StackedReference(), bms_rf_plain.grow_forest, stacked.reader),
    (oblique_planes.PrincipalComponents(), oblique.grow_forest, node_read_out.reader),
    (oblique_planes.LinearDiscriminants(), oblique.grow_forest, node_read_out.reader),
    (oblique_planes.TikhonovPlanes(), oblique.grow_forest, node_read_out.reader),
    (oblique_planes.AxisParallelPlanes(), oblique.grow_forest, node_read_out.reader),
    (oblique_planes.NullSpacePlanes(), oblique.grow_forest, node_read_out.reader),
    (oblique_planes.HeterogeneousPlanes(), oblique.grow_forest, node_read_out.reader),
)

REFERENCES: Mapping[str, Reference] = MappingProxyType(
    {known.slug: known for known, *_ in _TABLE}
)
"""Every algorithm without privacy, by slug."""

_GROWTH = {known.slug: grow_forest for known, grow_forest, _ in _TABLE}
_READERS = {known.slug: reader for known, _, reader in _TABLE}


def plan(slug: str, requested: Mapping[str, object]) -> PlainPlan:
    """Settles the parameters of an algorithm without privacy.

    Raises:
        InvalidRequest: unknown parameter, or a value outside its range.
    """
    reference = REFERENCES[slug]
    settled = read_all(reference.parameters, requested)
    return PlainPlan(slug, settled, reference.n_trees(settled))


def grow(
    plan: PlainPlan,
    schema: Schema,
    rows: SanitisedRows,
    *,
    on_tree_done: Callable[[], None],
    seed: int | None = None,
) -> PlainForest:
    """Runs a plan.

    Args:
        plan: made by :func:`plan`.
        schema: of the rows.
        rows: of a table that everybody has; every label is known. No row: growth sees
            one row of the first class at the lower bounds.
        on_tree_done: called after each tree.
        seed: of the pseudo-random generator; ``None``: a random one.
    """
    if not len(rows.y):
        rows = _one_row(schema)
    seed = secrets.randbits(_SEED_BITS) if seed is None else seed
    return _GROWTH[plan.algorithm](
        plan, schema, rows, seed=seed, on_tree_done=on_tree_done
    )


def probabilities(
    forest: PlainForest,
    schema: Schema,
    columns: SanitisedColumns,
    *,
    read_out: str | None = None,
) -> NDArray[np.float64]:
    """Class probabilities of rows, float64 ``(n_rows, n_classes)``, by a read-out of
    the algorithm or its default.

    Raises:
        InvalidRequest: the algorithm has no such read-out.
    """
    offered = REFERENCES[forest.plan.algorithm].read_outs
    if read_out is not None and read_out not in offered:
        raise InvalidRequest.at("/read_out", "unknown-choice", accepted=offered)
    return _READERS[forest.plan.algorithm](forest, schema, read_out or offered[0])(
        columns
    )


def labels(
    plan: PlainPlan, shares: NDArray[np.float64], random: np.random.Generator
) -> NDArray[np.int32]:
    """The class of the largest share of every row, int32 ``(n_rows,)``. Of several, the
    first one, or a random one if the plan draws ties.

    Args:
        plan: of the forest.
        shares: of votes, ``(n_rows, n_classes)``.
        random: draws ties.
    """
    if plan.parameters.get("ties") != parameters.DRAWN:
        return shares.argmax(axis=1).astype(np.int32)
    is_largest = shares == shares.max(axis=1, keepdims=True)
    order = np.where(is_largest, random.random(shares.shape), -1.0)
    return order.argmax(axis=1).astype(np.int32)


def _one_row(schema: Schema) -> SanitisedRows:
    columns = tuple(
        np.zeros(1, dtype=np.int32)
        if feature.is_categorical
        else np.full(1, feature.lower)
        for feature in schema.features
    )
    return SanitisedRows(
        SanitisedColumns(columns, 1),
        np.zeros(1, dtype=np.int32),
        np.zeros((1, 16), dtype=np.uint8),
    )
