"""Grows forests with oblique splits on public rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from math import isqrt
from types import MappingProxyType

import numpy as np

from grovekeeper_forests.data.sanitiser import SanitisedRows
from grovekeeper_forests.data.schema import Schema
from research.papers.forests.contract import PlainForest, PlainPlan
from research.papers.forests.trees import linear_planes, oblique_trees, plane_rules
from research.papers.forests.trees.design import Design
from research.papers.forests.trees.oblique_trees import (
    Limits,
    ObliqueTree,
    Propose,
    PublicTable,
)
from research.papers.forests.trees.split_trees import Weights

_RULES: Mapping[str, Propose] = MappingProxyType(
    {
        "rof-pca": lambda nodes: plane_rules.principal(nodes.moments),
        "rof-lda": lambda nodes: plane_rules.discriminant(nodes.moments),
        "mpsvm-t": lambda nodes: plane_rules.tikhonov(nodes.moments),
        "mpsvm-p": lambda nodes: plane_rules.axis_parallel(nodes.moments),
        "mpsvm-n": lambda nodes: plane_rules.null_space(nodes.moments),
        "hobraf": linear_planes.heterogeneous,
    }
)


def grow_forest(
    plan: PlainPlan,
    schema: Schema,
    rows: SanitisedRows,
    *,
    seed: int,
    on_tree_done: Callable[[], None],
) -> PlainForest:
    """Grows the forest; every tree sees a bootstrap sample, and every node √D random
    columns.

    Privacy:
        None.

    Source:
        Zhang and Suganthan (2014, 2015), and their code; Katuwal, Suganthan and Zhang
        (2020). docs/references.md says what the code adds to the papers, and which
        settings are ours.
    """
    design, random = Design.of(schema), np.random.default_rng(seed)
    table = PublicTable(design.matrix(rows.features), rows.y, schema.n_classes)
    rule = _RULES[plan.algorithm]
    limits = Limits(
        int(plan.parameters["min_samples_leaf"]),
        min(max(isqrt(design.n_columns), 1), design.n_columns),
    )

    def trees() -> Iterator[ObliqueTree]:
        for _ in range(plan.n_trees):
            drawn = Weights.bootstrapped(len(rows.y), random).structure
            yield oblique_trees.grown(table, drawn, rule, limits, random)
            on_tree_done()

    return PlainForest(
        plan, oblique_trees.collected_planes(trees(), n_columns=design.n_columns)
    )
