"""Validates ``rpf`` forests, turns noisy weights into leaf scores and reads class
probabilities out of them.

Scores are post-processing of releases (lemma L7).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Final

import numpy as np
from numpy.typing import NDArray

from grovekeeper_forests.algorithms.rpf.price import (
    BY_LEVEL,
    BY_NODE,
    PAIRS,
    TEMPERED,
    events_of,
    stages,
)
from grovekeeper_forests.bins import quantile_bins
from grovekeeper_forests.contract.plan import (
    Forest,
    Layout,
    Layouts,
    Plan,
    Reader,
    n_leaves_of,
    split_layouts,
    splits_are_valid,
)
from grovekeeper_forests.data.encoding import (
    COLUMNS_PER_PAIR,
    NO_SPLIT,
    Encoding,
    pairs_of_schema,
)
from grovekeeper_forests.data.schema import Schema
from grovekeeper_forests.kernels.boosting import SCORE_BITS, UNIT
from grovekeeper_forests.trees.leaf_read_out import LeafSums, PooledSums, by_output


class ReweightedFamily:
    """Turns noisy weights into additive scores; probabilities are the softmax of a
    row's summed scores.
    """

    def layouts(self, plan: Plan, schema: Schema) -> Layouts:
        """Splits; noisy weights in units of 1/256; selections on the path to every
        leaf; cuts of private bins.
        """
        leaves = (plan.n_trees, n_leaves_of(plan))
        private = len(quantile_bins.private_features(schema))
        return {
            **split_layouts(plan),
            "counts": Layout(np.int64, (*leaves, schema.n_classes)),
            "selections": Layout(np.uint8, leaves),
            "cuts": Layout(np.uint16, (private, quantile_bins.MAX_CUTS)),
        }

    def is_valid(self, forest: Forest, schema: Schema) -> bool:
        """Whether cuts lie on the public grid and exactly the reachable leaves state a
        valid number of selections.
        """
        selections = forest.arrays["selections"]
        reached, n_splits = reached_leaves(forest)
        n_columns = len(schema.features) + n_pair_columns(forest.plan, schema)
        at_once = stages(forest.depth, int(forest.plan.parameters["at_once"]))
        fewest = np.searchsorted(np.cumsum((0, *at_once)), n_splits)
        most = np.minimum(fewest + 1, len(at_once))
        _, scales = events_of(forest.plan.event)
        is_legal = np.where(
            reached,
            (selections >= fewest) & (selections <= most),
            selections == UNREACHED,
        )
        return (
            len(scales.levels) == len(at_once)
            and (forest.plan.parameters["splits"] == BY_NODE or _is_by_level(forest))
            and splits_are_valid(forest, schema, n_columns=n_columns)
            and quantile_bins.is_valid(schema, forest.arrays["cuts"], forest.plan.grid)
            and bool(np.all(is_legal))
            and not forest.arrays["counts"][~reached].any()
        )

    def reader(self, forest: Forest, schema: Schema, read_out: str) -> Reader:
        """The softmax of summed scores, divided by T^¼ if the plan says so.

        Each tree is grown on rows that earlier trees doubt and repeats part of their
        scores, so the sum of T trees is overconfident. Division by T^¼ does not change
        labels (docs/results/rpf.md).
        """
        sums = self.leaf_sums(forest, schema)
        if forest.plan.parameters["calibration"] == TEMPERED:
            sums = replace(sums, values=sums.values / forest.plan.n_trees**0.25)
        return PooledSums(sums, read_out)

    def leaf_sums(self, forest: Forest, schema: Schema) -> LeafSums:
        """Scores of all leaves, equal to the integers (in units of 2⁻¹⁶) from which
        growth computed row weights.
        """
        _, scales = events_of(forest.plan.event)
        by_level = forest.plan.parameters["splits"] == BY_LEVEL
        trees = zip(forest.arrays["counts"], forest.arrays["selections"], strict=True)
        scored = [
            scores_of_tree(
                counts,
                selections,
                scales.leaves,
                is_first=index == 0,
                by_level=by_level,
            )
            for index, (counts, selections) in enumerate(trees)
        ]
        encoding = encoding_of(forest.plan, schema, forest.arrays["cuts"])
        return LeafSums(
            encoding, forest.arrays, by_output(np.stack(scored) / 2**SCORE_BITS)
        )


def encoding_of(plan: Plan, schema: Schema, cuts: NDArray[np.uint16]) -> Encoding:
    """The encoding that a plan's splits refer to: post-processing of released cuts and
    of the declaration.
    """
    encoding = quantile_bins.encoding(schema, cuts, plan.grid)
    return (
        encoding.paired(pairs_of_schema(schema))
        if plan.parameters["pairs"] == PAIRS
        else encoding
    )


def n_pair_columns(plan: Plan, schema: Schema) -> int:
    """The number of columns that a plan adds to the columns of the schema."""
    return (
        COLUMNS_PER_PAIR * len(pairs_of_schema(schema))
        if plan.parameters["pairs"] == PAIRS
        else 0
    )


def _is_by_level(forest: Forest) -> bool:
    """Whether all nodes of a level have the same split."""
    levels = [
        slice((1 << level) - 1, (2 << level) - 1) for level in range(forest.depth)
    ]
    splits = [forest.arrays[name] for name in ("feature", "threshold", "equals")]
    return all(
        bool(np.all(codes[:, level] == codes[:, level.start, np.newaxis]))
        for level in levels
        for codes in splits
    )


def reached_leaves(forest: Forest) -> tuple[NDArray[np.bool_], NDArray[np.int64]]:
    """Whether a row can reach each leaf, and the number of splits on the path to each
    leaf.

    Returns:
        bool and int64, both ``(n_trees, 2^depth)``.
    """
    passes = (forest.arrays["threshold"] == NO_SPLIT) & ~forest.arrays["equals"]
    reached = np.ones((len(passes), 1), dtype=np.bool_)
    n_splits = np.zeros((len(passes), 1), dtype=np.int64)
    for level in range(forest.depth):
        splits = ~passes[:, (1 << level) - 1 : (2 << level) - 1]
        reached = np.stack((reached, reached & splits), axis=2).reshape(len(passes), -1)
        n_splits = np.repeat(n_splits + splits, 2, axis=1)
    return reached, n_splits


UNREACHED: Final = 255
"""Stored instead of the number of selections for a leaf that no row can reach, below a
node that stopped early.
"""

LATER_STEP: Final = 0.8
"""Factor on the scores of every tree after the first."""

SHRINKAGE: Final = 2.5
"""Smoothing adds this many standard deviations of a leaf's noise, plus one, as rows of
the class prior.
"""


NEIGHBOUR: Final = 0.2
"""Weight, in a leaf's neighbourhood, of a leaf on the other side of one split; of k
splits, its k-th power.
"""


def scores_of_tree(
    counts: NDArray[np.int64],
    selections: NDArray[np.uint8],
    scales: Sequence[Fraction],
    *,
    is_first: bool,
    by_level: bool = False,
) -> NDArray[np.int32]:
    """Class scores of one tree's leaves, in units of 2⁻¹⁶.

    A leaf's class proportions are shrunk toward the tree's class prior, or toward the
    proportions of neighbouring leaves, which are shrunk toward that prior; more noise
    means more shrinkage. The first tree scores log p. A later tree scores log p − log
    prior, because it corrects the scores of earlier trees on reweighted rows.

    Args:
        counts: released noisy weights in units of 1/256, int64 ``(n_leaves,
            n_classes)``.
        selections: released; selections on the path to each leaf, uint8
            ``(n_leaves,)``, or :data:`UNREACHED`.
        scales: public; inverse scale of the noise on a leaf's weights, by number of
            selections.
        is_first: whether this tree is the first of the forest.
        by_level: whether all nodes of a level share a split; if so, leaves are shrunk
            toward their neighbourhood.

    Returns:
        int32 ``(n_leaves, n_classes)``; the mean over classes is about 0; 0 in leaves
        that no row can reach.
    """
    is_reached = selections != UNREACHED
    evidence = counts[is_reached] / UNIT
    noise = np.array([float(1 / (UNIT * scale)) for scale in scales])[
        selections[is_reached]
    ]
    prior = np.maximum(evidence.sum(axis=0), 0.0) + np.sqrt(
        2.0 * np.square(noise).sum()
    )
    prior /= prior.sum()
    around = _neighbourhood(evidence, noise, prior) if by_level else prior
    shares = _shrunk(evidence, np.sqrt(2.0) * noise, around)
    real = np.log(shares) if is_first else LATER_STEP * (np.log(shares) - np.log(prior))
    real -= real.mean(axis=1, keepdims=True)
    scores = np.zeros(counts.shape, dtype=np.int32)
    scores[is_reached] = np.rint(real * 2**SCORE_BITS)
    return scores


def _neighbourhood(
    evidence: NDArray[np.float64],
    noise: NDArray[np.float64],
    prior: NDArray[np.float64],
) -> NDArray[np.float64]:
    """Class shares around every leaf of a tree with one split per level, float64
    ``(n_leaves, n_classes)``.

    Bit k of a leaf's index is its side of one level's split. For each bit, the weights
    of the leaf with that bit flipped are added, times :data:`NEIGHBOUR`. So a leaf that
    differs in k bits has weight :data:`NEIGHBOUR` ** k.
    """
    spread = evidence
    n_bits = len(evidence).bit_length() - 1
    for bit in range(n_bits):
        halves = spread.reshape(-1, 2, 1 << bit, evidence.shape[1])
        spread = (halves + NEIGHBOUR * halves[:, ::-1]).reshape(evidence.shape)
    deviation = np.sqrt(2.0 * (1.0 + NEIGHBOUR**2) ** n_bits) * noise
    return _shrunk(spread, deviation, prior)


def _shrunk(
    evidence: NDArray[np.float64],
    deviation: NDArray[np.float64],
    prior: NDArray[np.float64],
) -> NDArray[np.float64]:
    """Class shares of leaves, shrunk toward ``prior``; a larger standard deviation of
    the noise shrinks more.
    """
    shares = (
        np.maximum(evidence, 0.0) + (1.0 + SHRINKAGE * deviation[:, np.newaxis]) * prior
    )
    shares /= shares.sum(axis=1, keepdims=True)
    return shares
