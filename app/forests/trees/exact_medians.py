"""Structure where features and membership are public: exact medians, and a stop on exact sizes, at no cost.

On an account that protects labels alone two neighbouring datasets have the same rows and the same features. Whatever is
a function of those is the same for both, so it may be used exactly and published (docs/proofs/sspe-2.md). What is here
is handed rows *without* labels, so it cannot look at one.
"""

from __future__ import annotations

from fractions import Fraction
from math import ceil, log2
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from app.core import amounts, limits
from app.forests.contract.algorithm import Parameters, PublicFacts
from app.forests.contract.parameters import Parameter, Value
from app.forests.data.encoding import Encoding
from app.forests.trees import shapes, structure
from app.forests.trees.histograms import TreeHistograms
from app.forests.trees.structure import Splits

if TYPE_CHECKING:
    from app.forests.noise.randomness import Randomness

ROWS_OF_A_LEAF = 8
"""Labelled rows times ε that a rule wants in a leaf of one tree: four times the scale of the noise on its counts."""

DEEPEST_BY_RULE = 10

MIN_ROWS = Parameter(
    "min_rows",
    "integer",
    "A node with fewer rows is not split; sizes are public where labels alone are protected. By default a rule of "
    "ε, the number of trees and labelled_share.",
    minimum=Fraction(2),
    maximum=Fraction(limits.MAX_ROWS_PER_DATASET),
)

LABELLED_SHARE = Parameter(
    "labelled_share",
    "number",
    "Share of the rows that are thought to have a known label: a public guess, never counted. Rules make larger leaves "
    "where it is small.",
    default="1",
    minimum=Fraction(1, 1000),
    maximum=Fraction(1),
)


def settle(settled: dict[str, Value], facts: PublicFacts, *, n_noisy_trees: int) -> tuple[str, ...]:
    """Fills in where nodes stop and how deep trees may become, by public rules.

    Args:
        settled: with ``n_estimators``, ``n_bins`` and ``labelled_share``; gains ``min_rows`` and ``max_depth``.
        facts: public.
        n_noisy_trees: trees among which the labels, or ε, are divided.

    Returns:
        Warnings.
    """
    share = amounts.parse(settled["labelled_share"])
    of_a_leaf = ROWS_OF_A_LEAF * n_noisy_trees / (facts.epsilon * share)
    settled.setdefault("min_rows", min(max(ceil(2 * of_a_leaf), 2), limits.MAX_ROWS_PER_DATASET))
    depth = min(max(ceil(log2(max(float(facts.size / of_a_leaf), 1.0))), 1), DEEPEST_BY_RULE)
    encoding = Encoding.of(facts.schema, int(settled["n_bins"]))
    return shapes.settle_depth(settled, depth, encoding, tables=True)


def grow(encoding: Encoding, parameters: Parameters, rows: TreeHistograms, randomness: Randomness) -> Splits:
    """Splits of one tree: in every node a random feature among those that part its rows, cut nearest its median.

    Args:
        encoding: public bins.
        parameters: settled; ``max_depth`` and ``min_rows``.
        rows: public features, all labels alike; left in the leaves.
        randomness: source of the features.
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
    """−|#{left} − #{right}| of every public split in every node of the level, and the size of every node.

    Returns:
        int64 ``(n_nodes, n_candidates)``, larger is more even, −size where a side is empty; int64 ``(n_nodes,)``.
    """
    candidates = encoding.candidates
    evenness = np.empty((n_nodes, len(candidates)), dtype=np.int64)
    n_rows = np.zeros(n_nodes, dtype=np.int64)
    for block in shapes.feature_blocks(encoding, n_nodes):
        histogram = rows.class_histogram(block).sum(axis=2)
        end = 0
        for feature in range(block.start, block.stop):
            begin, end = end, end + int(encoding.n_codes[feature])
            mine = slice(*np.searchsorted(candidates.feature, [feature, feature + 1]))
            counts = histogram[:, begin:end]
            n_rows = counts.sum(axis=1)
            left = counts if len(candidates.equals[mine]) and candidates.equals[mine][0] else counts.cumsum(axis=1)
            evenness[:, mine] = -np.abs(2 * left[:, candidates.threshold[mine]] - n_rows[:, np.newaxis])
    return evenness, n_rows


def _median(
    encoding: Encoding, parting: NDArray[np.bool_], evenness: NDArray[np.int64], randomness: Randomness
) -> int | None:
    """The most even split of a random feature among those with a split that leaves no side empty; ``None`` if none."""
    alive = np.flatnonzero(parting)
    if len(alive) == 0:
        return None
    groups = structure.by_feature(encoding.candidates, alive)
    mine = groups[randomness.uniform(len(groups))]
    return int(mine[evenness[mine].argmax()])
