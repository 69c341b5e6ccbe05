"""Grows forests with oblique splits on the rows of a public dataset."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from math import isqrt
from types import MappingProxyType

import numpy as np

from app.forests.contract.forest import Forest
from app.forests.contract.plan import Plan
from app.forests.data.design import Design
from app.forests.data.rows import PublicRows
from app.forests.data.schema import Schema
from app.forests.trees.grow import oblique_trees, plane_rules
from app.forests.trees.grow.oblique_trees import ObliqueTree, Plane, PublicTable, Rows, Stop
from app.forests.trees.grow.plane_rules import NodeRows

_RULES: Mapping[str, Callable[[NodeRows], plane_rules.Cut | None]] = MappingProxyType(
    {
        "rof-pca": plane_rules.principal_cut,
        "rof-lda": plane_rules.discriminant_cut,
        "mpsvm-t": plane_rules.tikhonov_cut,
        "mpsvm-p": plane_rules.axis_parallel_cut,
        "mpsvm-n": plane_rules.null_space_cut,
    }
)


def grow_forest(plan: Plan, schema: Schema, rows: PublicRows, *, seed: int, on_tree_done: Callable[[], None]) -> Forest:
    """Grows the forest; every tree sees a bootstrap sample, and every node √D random columns.

    Privacy:
        None.

    Source:
        Zhang and Suganthan (2014, 2015), and their code; docs/references.md says what it adds to the papers.
    """
    design, random = Design.of(schema), np.random.default_rng(seed)
    table = PublicTable(design.matrix(rows.features), rows.y, schema.n_classes)
    min_leaf, cut_of = int(plan.parameters["min_samples_leaf"]), _RULES[plan.algorithm]
    n_drawn = max(isqrt(design.n_columns), 1)

    def propose(node: Rows) -> Plane | None:
        if design.n_columns == 0:
            return None
        columns = random.permutation(design.n_columns)[:n_drawn].astype(np.int32)
        X = table.X[node[:, np.newaxis], columns].astype(np.float64)
        cut = cut_of(NodeRows(X, table.y[node], schema.n_classes, min_leaf))
        return None if cut is None else cut.plane(columns)

    def trees() -> Iterator[ObliqueTree]:
        for _ in range(plan.n_trees):
            drawn = np.sort(random.integers(len(rows.y), size=len(rows.y)))
            yield oblique_trees.grown(table, drawn, drawn, propose, Stop(min_leaf))
            on_tree_done()

    return Forest(plan, oblique_trees.collected_planes(trees(), n_columns=design.n_columns))
