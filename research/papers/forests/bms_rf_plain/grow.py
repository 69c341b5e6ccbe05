"""Grows ``bms-rf-plain`` layer by layer on public rows."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from grovekeeper_forests.data.sanitiser import SanitisedRows
from grovekeeper_forests.data.schema import Schema
from research.papers.forests.bms_rf_plain.read import (
    LABELS,
    PROJECTION,
    layer_sizes,
    scaled,
    shifted,
)
from research.papers.forests.consistent.grow import with_labels
from research.papers.forests.contract import PlainForest, PlainPlan
from research.papers.forests.loops import split_loops
from research.papers.forests.trees.design import Design
from research.papers.forests.trees.node_routing import NodeTrees
from research.papers.forests.trees.node_trees import NodeTree, collected
from research.papers.forests.trees.split_trees import CodedRows, Rule, Weights, grown


def grow_forest(
    plan: PlainPlan,
    schema: Schema,
    rows: SanitisedRows,
    *,
    seed: int,
    on_tree_done: Callable[[], None],
) -> PlainForest:
    """Grows the forest; every tree divides all rows anew into structure and estimation
    points. With a B3, a leaf votes for one drawn label, while the next layer still sees
    its exact class shares (equation 5).

    Privacy:
        None.

    Source:
        Song and Wang (2024), Algorithms 1 and 2, equations (4) to (7).
    """
    parameters, design, random = (
        plan.parameters,
        Design.of(schema),
        np.random.default_rng(seed),
    )
    n_layers = int(parameters["n_layers"])
    weights = random.random((n_layers - 1, schema.n_classes, design.n_columns)).astype(
        np.float32
    )
    rule = Rule(
        split_loops.MULTINOMIAL,
        int(parameters["min_samples_leaf"]),
        0,
        strengths=(float(parameters["b1"]), float(parameters["b2"])),
        rates=(float(parameters["p1"]), float(parameters["p2"])),
        max_depth=int(parameters["max_depth"]),
        stop=str(parameters["stop"]),
    )
    X = scaled(design, rows.features)
    forest, seen = list[NodeTree](), X
    for layer, n_trees in enumerate(layer_sizes(parameters)):
        coded, trees = _coded(design, rows, seen, is_first=layer == 0), list[NodeTree]()
        for _ in range(n_trees):
            parts = Weights.parted(
                coded.n_rows,
                random,
                structure_share=float(parameters["structure_share"]),
            )
            trees.append(grown(coded, parts, rule, random))
            on_tree_done()
        forest += trees
        if layer < len(weights):
            shares = NodeTrees.of(collected(trees)).sums(seen) / n_trees
            seen = shifted(X, shares, weights[layer], float(parameters["shift"]))
    arrays = {**collected(forest), PROJECTION: weights}
    strength = float(parameters["b3"])
    if strength > 0:
        labelled = [with_labels(tree, strength, random) for tree in forest]
        arrays[LABELS] = collected(labelled)["values"]
    return PlainForest(plan, arrays)


def _coded(
    design: Design, rows: SanitisedRows, seen: NDArray[np.float32], *, is_first: bool
) -> CodedRows:
    """The columns of a layer; later layers shift the columns of categories, so that
    these are numbers, too.
    """
    if is_first:
        return CodedRows.of_columns(design, rows, seen)
    return CodedRows.of_numbers(seen, rows.y, design.schema.n_classes)
