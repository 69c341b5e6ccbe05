"""Validates ``rpf`` forests and reads class probabilities out of their noisy class weights."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from app.forests.algorithms.rpf import leaf_scores
from app.forests.algorithms.rpf.leaf_scores import UNREACHED
from app.forests.algorithms.rpf.path_event import events_of, stages
from app.forests.bins import quantile_bins
from app.forests.contract import family
from app.forests.contract.forest import Forest
from app.forests.contract.plan import Plan
from app.forests.data import pairs
from app.forests.data.encoding import Encoding
from app.forests.data.schema import Schema
from app.forests.kernels.exponential import SCORE_BITS
from app.forests.trees import boxes
from app.forests.trees.leaf_sums import LeafSums, PooledSums

BY_LEVEL, BY_NODE = "level", "node"
"""One split for all nodes of a level, or one split per node."""

PAIRS, NO_PAIRS = "ordered", "none"
"""Splits on columns and on sums and differences of ordered columns, or on columns only."""


TEMPERED, PLAIN = "temperature", "none"
"""How sums of scores become probabilities: softmax of the sums divided by T^¼, or softmax of the sums."""


class ReweightedFamily:
    """Turns noisy weights into additive scores; probabilities are the softmax of a row's summed scores."""

    def layouts(self, plan: Plan, schema: Schema) -> family.Layouts:
        """Splits; noisy weights in units of 1/256; selections on the path to every leaf; cuts of private bins."""
        leaves = (plan.n_trees, family.n_leaves(plan))
        private = len(quantile_bins.private_features(schema))
        return {
            **family.split_layouts(plan),
            "counts": family.Layout(np.int64, (*leaves, schema.n_classes)),
            "selections": family.Layout(np.uint8, leaves),
            "cuts": family.Layout(np.uint16, (private, quantile_bins.MAX_CUTS)),
        }

    def is_valid(self, forest: Forest, schema: Schema) -> bool:
        """Whether cuts lie on the public grid and exactly the reachable leaves state a valid number of selections."""
        selections = forest.arrays["selections"]
        reached, n_splits = reached_leaves(forest)
        n_columns = len(schema.features) + n_pair_columns(forest.plan, schema)
        at_once = stages(forest.depth, int(forest.plan.parameters["at_once"]))
        fewest = np.searchsorted(np.cumsum((0, *at_once)), n_splits)
        most = np.minimum(fewest + 1, len(at_once))
        is_legal = np.where(reached, (selections >= fewest) & (selections <= most), selections == UNREACHED)
        return (
            (forest.plan.parameters["splits"] == BY_NODE or _is_by_level(forest))
            and family.splits_are_valid(forest, schema, n_columns=n_columns)
            and quantile_bins.is_valid(schema, forest.arrays["cuts"])
            and bool(np.all(is_legal))
            and not forest.arrays["counts"][~reached].any()
        )

    def reader(self, forest: Forest, schema: Schema, read_out: str) -> family.Reader:
        """The softmax of summed scores, divided by T^¼ if the plan says so.

        Each tree is grown on rows that earlier trees doubt and repeats part of their scores, so the sum of T trees is
        overconfident. Division by T^¼ does not change labels (docs/results/rpf.md).
        """
        sums = self.leaf_sums(forest, schema)
        if forest.plan.parameters["calibration"] == TEMPERED:
            sums = replace(sums, values=sums.values / forest.plan.n_trees**0.25)
        return PooledSums(sums, read_out)

    def leaf_sums(self, forest: Forest, schema: Schema) -> LeafSums:
        """Scores of all leaves, equal to the integers (in units of 2⁻¹⁶) from which growth computed row weights."""
        _, scales = events_of(forest.plan.event)
        by_level = forest.plan.parameters["splits"] == BY_LEVEL
        trees = zip(forest.arrays["counts"], forest.arrays["selections"], strict=True)
        scored = [
            leaf_scores.of_tree(counts, selections, scales.leaves, is_first=index == 0, by_level=by_level)
            for index, (counts, selections) in enumerate(trees)
        ]
        encoding = encoding_of(forest.plan, schema, forest.arrays["cuts"])
        return LeafSums(encoding, forest.arrays, np.stack(scored) / 2**SCORE_BITS)


def encoding_of(plan: Plan, schema: Schema, cuts: NDArray[np.uint16]) -> Encoding:
    """The encoding that a plan's splits refer to: post-processing of released cuts and of the declaration."""
    encoding = quantile_bins.encoding(schema, cuts)
    return encoding.paired(pairs.of_schema(schema)) if plan.parameters["pairs"] == PAIRS else encoding


def n_pair_columns(plan: Plan, schema: Schema) -> int:
    """The number of columns that a plan adds to the columns of the schema."""
    return pairs.COLUMNS_PER_PAIR * len(pairs.of_schema(schema)) if plan.parameters["pairs"] == PAIRS else 0


def _is_by_level(forest: Forest) -> bool:
    """Whether all nodes of a level have the same split."""
    levels = [slice((1 << level) - 1, (2 << level) - 1) for level in range(forest.depth)]
    splits = [forest.arrays[name] for name in ("feature", "threshold", "equals")]
    return all(
        bool(np.all(codes[:, level] == codes[:, level.start, np.newaxis])) for level in levels for codes in splits
    )


def reached_leaves(forest: Forest) -> tuple[NDArray[np.bool_], NDArray[np.int64]]:
    """Whether a row can reach each leaf, and the number of splits on the path to each leaf.

    Returns:
        bool and int64, both ``(n_trees, 2^depth)``.
    """
    passes = (forest.arrays["threshold"] == boxes.NO_SPLIT) & ~forest.arrays["equals"]
    reached = np.ones((len(passes), 1), dtype=np.bool_)
    n_splits = np.zeros((len(passes), 1), dtype=np.int64)
    for level in range(forest.depth):
        splits = ~passes[:, (1 << level) - 1 : (2 << level) - 1]
        reached = np.stack((reached, reached & splits), axis=2).reshape(len(passes), -1)
        n_splits = np.repeat(n_splits + splits, 2, axis=1)
    return reached, n_splits
