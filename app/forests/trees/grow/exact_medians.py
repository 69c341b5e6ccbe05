"""Grows trees at exact medians, with exact stopping sizes, on accounts that protect labels alone.

On such an account, two neighbouring datasets have the same rows with the same features. A function of features alone
has the same value on both, so its exact value may be used and published at no privacy cost (docs/proofs/sspe-2.md). The
functions that choose splits receive rows *without* labels, so they cannot read a label.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from app.forests.contract.algorithm import Parameters
from app.forests.contract.plan import Plan
from app.forests.data.encoding import Encoding
from app.forests.data.rows import SanitisedRows
from app.forests.data.schema import Schema
from app.forests.noise.randomness import Randomness
from app.forests.trees import shapes, tree_parameters
from app.forests.trees.grow import assignment, exact_medians, leaves, structure
from app.forests.trees.grow.histograms import TreeHistograms
from app.forests.trees.grow.in_memory_histograms import LabelsApart, LocalHistograms, without_labels
from app.forests.trees.grow.leaves import ReleasedTree
from app.forests.trees.grow.structure import Splits
from app.forests.trees.tree_price import TreePrice


def grow(encoding: Encoding, parameters: Parameters, rows: TreeHistograms, randomness: Randomness) -> Splits:
    """Chooses the splits of one tree: in every node, a random feature that separates rows, cut closest to its median.

    Args:
        encoding: public bins.
        parameters: settled, with ``max_depth`` and ``min_rows``.
        rows: public features with equal labels; at the root before the call, in the leaves after it.
        randomness: source of the random features.
    """

    def choose(_: int, level_boxes: list[NDArray[np.bool_]]) -> list[int | None]:
        evenness, n_rows = split_evenness(rows, encoding, n_nodes=len(level_boxes))
        return [
            _median(encoding, box & (even > -size), even, randomness) if size >= int(parameters["min_rows"]) else None
            for box, even, size in zip(level_boxes, evenness, n_rows, strict=True)
        ]

    return structure.grow_levels(encoding.candidates, int(parameters["max_depth"]), rows, choose)


def split_evenness(
    rows: TreeHistograms, encoding: Encoding, *, n_nodes: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Computes −|#{left} − #{right}| of every public split in every node of the level, and the size of every node.

    Returns:
        int64 ``(n_nodes, n_candidates)``: larger is more even, and −size where a side is empty; int64 ``(n_nodes,)``.
    """
    candidates = encoding.candidates
    evenness = np.empty((n_nodes, len(candidates)), dtype=np.int64)
    n_rows = np.zeros(n_nodes, dtype=np.int64)
    for block in shapes.feature_blocks(encoding, n_nodes):
        histogram = rows.class_histogram(block).sum(axis=2)
        end = 0
        for feature in range(block.start, block.stop):
            begin, end = end, end + int(encoding.n_codes[feature])
            of_feature = slice(*np.searchsorted(candidates.feature, [feature, feature + 1]))
            counts = histogram[:, begin:end]
            n_rows = counts.sum(axis=1)
            left = (
                counts
                if len(candidates.equals[of_feature]) and candidates.equals[of_feature][0]
                else counts.cumsum(axis=1)
            )
            evenness[:, of_feature] = -np.abs(2 * left[:, candidates.threshold[of_feature]] - n_rows[:, np.newaxis])
    return evenness, n_rows


def _median(
    encoding: Encoding, parting: NDArray[np.bool_], evenness: NDArray[np.int64], randomness: Randomness
) -> int | None:
    """Draws a random feature among those that separate rows, and returns its most even split; ``None`` without one."""
    alive = np.flatnonzero(parting)
    if len(alive) == 0:
        return None
    groups = structure.by_feature(encoding.candidates, alive)
    feature_splits = groups[randomness.uniform(len(groups))]
    return int(feature_splits[evenness[feature_splits].argmax()])


def label_trees(
    plan: Plan, schema: Schema, rows: SanitisedRows, randomness: Randomness, *, n_trees: int
) -> Iterator[ReleasedTree]:
    """Releases trees one by one: splits by the features of all rows, leaves by the labels of the tree's rows."""
    encoding = Encoding.of(schema, int(plan.parameters["n_bins"]))
    codes = encoding.encode(rows.features)
    priced = TreePrice.of(plan.event).leaves
    labelled = np.flatnonzero(rows.y >= 0)
    shard = None
    if tree_parameters.is_sharded(plan.parameters):
        key = assignment.fresh_key(randomness)
        shard = assignment.shards(key, rows.row_ids[labelled], n_shards=n_trees)
    of_labels = LocalHistograms(
        np.ascontiguousarray(codes[:, labelled]),
        rows.y[labelled],
        n_codes=encoding.n_codes,
        n_classes=schema.n_classes,
        shard=shard,
    )
    apart = LabelsApart(without_labels(codes, n_codes=encoding.n_codes), of_labels)
    for index in range(n_trees):
        tree_rows = apart.of_tree(index)
        splits = exact_medians.grow(encoding, plan.parameters, tree_rows, randomness)
        yield leaves.release(splits, priced, tree_rows, randomness)
