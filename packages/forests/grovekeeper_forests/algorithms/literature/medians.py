"""Chooses splits at medians of random features: private medians of a level, and the cuts
closest to medians of public features.

Cuts chosen by exact counts, with exact stopping sizes, are for accounts that protect labels alone.
There, two neighbouring datasets have the same rows with the same features. A function
of features alone has the same value on both, so its exact value may be used and
published at no privacy cost (docs/proofs/sspe-2.md). The functions that choose such
splits receive rows *without* labels, so they cannot read a label.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from grovekeeper_forests.array_types import BoolArray, Int64Array
from grovekeeper_forests.bins.quantile_bins import Selection
from grovekeeper_forests.contract.algorithm import Parameters
from grovekeeper_forests.contract.plan import Plan
from grovekeeper_forests.data.coded_rows import CodedPart
from grovekeeper_forests.data.encoding import Encoding
from grovekeeper_forests.data.sanitiser import SanitisedRows
from grovekeeper_forests.data.schema import Schema
from grovekeeper_forests.kernels.arrays import Splits
from grovekeeper_forests.noise.randomness import Randomness
from grovekeeper_forests.trees import tree_growth, tree_parameters
from grovekeeper_forests.trees.tree_growth import ReleasedTree
from grovekeeper_forests.trees.tree_histograms import (
    Assignment,
    LocalHistograms,
    TreeHistograms,
    TwoParts,
)
from grovekeeper_forests.trees.tree_price import TreePrice


def choose_medians(
    selection: Selection,
    encoding: Encoding,
    rows: TreeHistograms,
    *,
    level_boxes: list[BoolArray],
    randomness: Randomness,
) -> list[int | None]:
    """Releases the split of every node of a level: a random feature, cut at its private
    median in the node's box.

    Args:
        selection: the selection of a node, as priced.
        encoding: public bins and candidates.
        rows: PRIVATE; in the nodes of the level.
        level_boxes: public; the candidates of every node.
        randomness: source of the random features and of the selections.
    """
    candidates = encoding.candidates
    groups = [_random_feature(encoding, box, randomness) for box in level_boxes]
    features = {int(candidates.feature[group[0]]) for group in groups if len(group)}
    evenness = {
        feature: split_evenness(rows, encoding, feature) for feature in sorted(features)
    }
    picked: list[int | None] = []
    for node, group in enumerate(groups):
        if len(group) == 0:
            tree_growth.forfeit_selections((selection,), randomness)
            picked.append(None)
            continue
        feature = int(candidates.feature[group[0]])
        first = int(np.searchsorted(candidates.feature, feature))
        scores = evenness[feature][node, group - first]
        picked.append(int(group[tree_growth.select(selection, scores, randomness)]))
    return picked


def _random_feature(
    encoding: Encoding, box: BoolArray, randomness: Randomness
) -> Int64Array:
    """Draws a feature uniformly among those with a split in the box; returns its
    splits, or an empty array.
    """
    alive = np.flatnonzero(box)
    if len(alive) == 0:
        return alive
    groups = tree_growth.by_feature(encoding.candidates, alive)
    return groups[randomness.uniform(len(groups))]


def split_evenness(
    rows: TreeHistograms, encoding: Encoding, feature: int
) -> Int64Array:
    """Computes −|2·#{left} − #{rows}| of every public split of one feature, in every
    node of the current level.

    Returns:
        PRIVATE int64 ``(n_nodes, n_splits)``; larger is better. An added row changes
        each number of its node by +1 or −1.
    """
    per_code = rows.class_histogram(slice(feature, feature + 1)).sum(axis=2)
    return _evenness(
        encoding, encoding.candidates.of(slice(feature, feature + 1)), per_code
    )


def _evenness(encoding: Encoding, splits: slice, per_code: Int64Array) -> Int64Array:
    """−|2·#{left} − #{rows}| of every split of a feature, from the rows by node and
    code of the feature.
    """
    left = per_code
    if not encoding.candidates.equals[splits].any():
        left = per_code.cumsum(axis=1)
    result: Int64Array = -np.abs(
        2 * left[:, encoding.candidates.threshold[splits]]
        - per_code.sum(axis=1, keepdims=True)
    )
    return result


def grow_at_exact_medians(
    encoding: Encoding,
    parameters: Parameters,
    rows: TreeHistograms,
    randomness: Randomness,
) -> Splits:
    """Chooses the splits of one tree: in every node, a random feature that separates
    rows, cut closest to its median.

    Args:
        encoding: public bins.
        parameters: settled, with ``max_depth`` and ``min_rows``.
        rows: public features with equal labels; at the root before the call, in the
            leaves after it.
        randomness: source of the random features.
    """

    def choose(_: int, level_boxes: list[BoolArray]) -> list[int | None]:
        evenness, n_rows = exact_evenness(rows, encoding, n_nodes=len(level_boxes))
        choices: list[int | None] = []
        for box, even, size in zip(level_boxes, evenness, n_rows, strict=True):
            choice = None
            # An exact size may decide here: it is the same on neighbours, which differ in
            # a label alone.
            if size >= int(parameters["min_rows"]):
                choice = _median(encoding, box & (even > -size), even, randomness)
            choices.append(choice)
        return choices

    return tree_growth.grow_levels(
        encoding.candidates, int(parameters["max_depth"]), rows, choose
    )


def exact_evenness(
    rows: TreeHistograms, encoding: Encoding, *, n_nodes: int
) -> tuple[Int64Array, Int64Array]:
    """Computes −|#{left} − #{right}| of every public split in every node of the level,
    and the size of every node.

    Returns:
        int64 ``(n_nodes, n_candidates)``: larger is more even, and −size where a side is empty; int64 ``(n_nodes,)``.
    """
    candidates = encoding.candidates
    evenness = np.empty((n_nodes, len(candidates)), dtype=np.int64)
    n_rows = np.zeros(n_nodes, dtype=np.int64)
    for block in tree_parameters.feature_blocks(encoding, n_nodes):
        histogram = rows.class_histogram(block).sum(axis=2)
        begin = end = 0
        for feature in range(block.start, block.stop):
            begin, end = end, end + int(encoding.n_codes[feature])
            splits = encoding.candidates.of(slice(feature, feature + 1))
            evenness[:, splits] = _evenness(encoding, splits, histogram[:, begin:end])
        n_rows = histogram[:, begin:end].sum(axis=1)
    return evenness, n_rows


def _median(
    encoding: Encoding,
    parting: BoolArray,
    evenness: Int64Array,
    randomness: Randomness,
) -> int | None:
    """Draws a random feature among those that separate rows, and returns its most even
    split; ``None`` without one.
    """
    splits = _random_feature(encoding, parting, randomness)
    if len(splits):
        return int(splits[evenness[splits].argmax()])
    return None


def label_trees(
    plan: Plan,
    schema: Schema,
    rows: SanitisedRows,
    randomness: Randomness,
    *,
    n_trees: int,
) -> Iterator[ReleasedTree]:
    """Releases trees one by one: splits by the features of all rows, leaves by the
    labels of the tree's rows.
    """
    encoding = Encoding.of(schema, int(plan.parameters["n_bins"]))
    codes = encoding.encode(rows.features)
    priced = TreePrice.of(plan.event).leaves
    # Rows without a label take part in splits, by their features, and in no leaf.
    known = np.flatnonzero(rows.y >= 0)
    assigned = Assignment.drawn(
        randomness,
        n_shards=n_trees if tree_parameters.is_sharded(plan.parameters) else 0,
    )
    without = LocalHistograms(
        CodedPart(encoding, codes, rows.y, rows.row_ids), Assignment(), has_labels=False
    )
    labelled = LocalHistograms(
        CodedPart(
            encoding,
            np.ascontiguousarray(codes[:, known]),
            rows.y[known],
            rows.row_ids[known],
        ),
        assigned,
    )
    for index in range(n_trees):
        tree_rows = TwoParts(without.of_tree(index), labelled.of_tree(index))
        splits = grow_at_exact_medians(encoding, plan.parameters, tree_rows, randomness)
        yield tree_growth.release_leaves(splits, priced, tree_rows, randomness)
