"""Grows the reweighted forest: releases bins, then trees, each on rows weighted by the scores of earlier trees."""

from collections.abc import Callable
from dataclasses import fields
from functools import partial

import numpy as np

from app.forests.algorithms.rpf import joint_limits, leaf_scores, node_splits
from app.forests.algorithms.rpf.level_splits import LevelTrees
from app.forests.algorithms.rpf.node_splits import ReweightedTree
from app.forests.algorithms.rpf.path_event import events_of
from app.forests.algorithms.rpf.price import widest_encoding
from app.forests.algorithms.rpf.read import BY_LEVEL, encoding_of
from app.forests.algorithms.rpf.reweighted_rows import LocalReweightedRows, PartedReweightedRows, ReweightedRows
from app.forests.bins.grow import quantile_cuts
from app.forests.contract.forest import Forest
from app.forests.contract.plan import Plan
from app.forests.data.coded_rows import TrainingRows
from app.forests.data.schema import Schema
from app.forests.noise.randomness import Randomness
from app.forests.trees.row_parts import parts_of


def grow_forest(
    plan: Plan,
    schema: Schema,
    rows: TrainingRows,
    randomness: Randomness,
    *,
    on_tree_done: Callable[[], None],
) -> Forest:
    """Releases bins, then grows the trees one after another on the PRIVATE rows. One call is one release.

    Privacy:
        ε-DP under add/remove, 2ε under replace-one, ε being the request's. Bins of numbers are released first (Theorem
        1 of docs/proofs/bins.md). A row's weight, at most 256 units, is a bit-exact function of the row and of released
        scores (lemma L6). A row raises the utility ‖left‖₄ + ‖right‖₄, in whole units, of every candidate of its node
        by 0 to 256, and so their sum over a level: range sensitivity 256, so permute-and-flip at inverse scale ε_k/256
        is ε_k-DP (lemma L2). Sums and differences of columns are functions of the row. A row raises one weight of one
        leaf by at most 256: L1 sensitivity 256, so discrete Laplace noise at inverse scale ε_v/256 is ε_v-DP (lemma
        L3). If a node stops early, its leaf gets the budget that its path did not spend, so every path has the same
        loss (lemma L4). The losses of trees and bins add up. *Not covered:* running time.

    Source:
        Theorem 1 of docs/proofs/rpf.md. Permute-and-flip: McKenna and Sheldon 2020; the max operator, the ℓ∞ relative
        of the utility: Breiman et al. 1984.
    """
    bins, scales = events_of(plan.event)
    cuts = quantile_cuts.cuts(bins, schema, rows, randomness, reused=plan.profile)
    encoding = encoding_of(plan, schema, cuts)
    weighted = PartedReweightedRows(parts_of(rows, encoding, LocalReweightedRows))
    by_level = plan.parameters["splits"] == BY_LEVEL
    grow: Callable[[ReweightedRows, Randomness], ReweightedTree] = partial(node_splits.grow, scales, encoding)
    if by_level:
        grow = LevelTrees(
            scales,
            encoding,
            depth=int(plan.parameters["max_depth"]),
            at_once=int(plan.parameters["at_once"]),
            joint_columns=joint_limits.n_columns(widest_encoding(plan.parameters, schema)),
        ).grow
    trees: list[ReweightedTree] = []
    for _ in range(plan.n_trees):
        tree = grow(weighted, randomness)
        trees.append(tree)
        if len(trees) < plan.n_trees:  # weights are not read after the last tree
            weighted.finish_tree(
                leaf_scores.of_tree(
                    tree.counts, tree.selections, scales.leaves, is_first=len(trees) == 1, by_level=by_level
                )
            )
        on_tree_done()
    arrays = {field.name: np.stack([getattr(tree, field.name) for tree in trees]) for field in fields(ReweightedTree)}
    return Forest(plan, {**arrays, "cuts": cuts})
