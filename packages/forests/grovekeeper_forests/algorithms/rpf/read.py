"""Validates ``rpf`` forests, turns noisy weights into leaf scores and reads class
probabilities out of them.

Scores are post-processing of releases (lemma L7).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from functools import partial
from typing import Final, Protocol

import numpy as np

from grovekeeper_forests.algorithms.rpf.price import (
    BY_LEVEL,
    BY_NODE,
    LEAF_CLIP,
    MEAN_CLIP,
    PAIRS,
    TEMPERED,
    by_sides,
    events_of,
    stages,
)
from grovekeeper_forests.array_types import (
    BoolArray,
    Float64Array,
    Int32Array,
    Int64Array,
    UInt8Array,
    UInt16Array,
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
from grovekeeper_forests.data.schema import TARGET_STEPS, Schema
from grovekeeper_forests.kernels.boosting import SCORE_BITS, UNIT
from grovekeeper_forests.trees.leaf_read_out import LeafSums, PooledSums, by_output
from grovekeeper_forests.trees.number_read_out import (
    START_AND_SPREAD,
    LeafNumbers,
    is_legal_start,
)


class ReweightedFamily:
    """Turns noisy weights into additive scores; probabilities are the softmax of a
    row's summed scores.
    """

    def layouts(self, plan: Plan, schema: Schema) -> Layouts:
        """Splits; noisy weights in units of 1/256; selections on the path to every
        leaf; cuts of private bins; the start and the spread of a number.
        """
        leaves = (plan.n_trees, n_leaves_of(plan))
        private = len(quantile_bins.private_features(schema))
        start: Layouts = {}
        if schema.label.is_number:
            start = {"start": Layout(np.int64, (START_AND_SPREAD,))}
        return {
            **split_layouts(plan),
            "counts": Layout(np.int64, (*leaves, by_sides(schema).n_classes)),
            "selections": Layout(np.uint8, leaves),
            "cuts": Layout(np.uint16, (private, quantile_bins.MAX_CUTS)),
            **start,
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
            and (not schema.label.is_number or is_legal_start(forest.arrays["start"]))
        )

    def reader(self, forest: Forest, schema: Schema, read_out: str) -> Reader:
        """The softmax of summed scores, divided by T^¼ if the plan says so.

        Each tree is grown on rows that earlier trees doubt and repeats part of their
        scores, so the sum of T trees is overconfident. Division by T^¼ does not change
        labels (docs/results/rpf.md). Where the label is a number, the reader returns
        numbers, whatever the read-out is.
        """
        sums = self.leaf_sums(forest, schema)
        if schema.label.is_number:
            return LeafNumbers(sums, forest.arrays, schema.label)
        if forest.plan.parameters["calibration"] == TEMPERED:
            sums = replace(sums, values=sums.values / forest.plan.n_trees**0.25)
        return PooledSums(sums, read_out)

    def leaf_sums(self, forest: Forest, schema: Schema) -> LeafSums:
        """Scores of all leaves, equal to the integers (in units of 2⁻¹⁶) from which
        growth computed row weights.
        """
        score = scoring(forest.plan, schema)
        trees = zip(forest.arrays["counts"], forest.arrays["selections"], strict=True)
        scored = [
            score(counts, selections, is_first=index == 0)
            for index, (counts, selections) in enumerate(trees)
        ]
        encoding = encoding_of(forest.plan, schema, forest.arrays["cuts"])
        # numbers are read from whole scores, whose sums are exact
        unit = 1.0 if schema.label.is_number else 2.0**SCORE_BITS
        return LeafSums(encoding, forest.arrays, by_output(np.stack(scored) / unit))


def encoding_of(plan: Plan, schema: Schema, cuts: UInt16Array) -> Encoding:
    """The encoding that a plan's splits refer to: post-processing of released cuts and
    of the declaration.
    """
    encoding = quantile_bins.encoding(schema, cuts, plan.grid)
    if plan.parameters["pairs"] == PAIRS:
        return encoding.paired(pairs_of_schema(schema))
    return encoding


def n_pair_columns(plan: Plan, schema: Schema) -> int:
    """The number of columns that a plan adds to the columns of the schema."""
    if plan.parameters["pairs"] == PAIRS:
        return COLUMNS_PER_PAIR * len(pairs_of_schema(schema))
    return 0


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


def reached_leaves(forest: Forest) -> tuple[BoolArray, Int64Array]:
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


class Scoring(Protocol):
    """Scores of one tree's leaves from released weights; see :func:`scores_of_tree`."""

    def __call__(
        self,
        counts: Int64Array,
        selections: UInt8Array,
        *,
        is_first: bool,
    ) -> Int32Array: ...


def scoring(plan: Plan, schema: Schema) -> Scoring:
    """How the trees of a plan are scored, in growth and in reading alike."""
    _, scales = events_of(plan.event)
    if schema.label.is_number:
        return partial(steps_of_tree, scales=scales.leaves)
    by_level = plan.parameters["splits"] == BY_LEVEL
    return partial(scores_of_tree, scales=scales.leaves, by_level=by_level)


_ROWS_IN_PRIOR: Final = 1.5
"""How many rows a leaf's prior around 0 counts for, beside the noise."""

_PRIOR_VARIANCE: Final = 0.2
"""Prior variance of a leaf's residual, as a share of the squared clip; with much noise,
the leaf stays near 0.
"""

_MEAN_VARIANCE: Final = 0.03
"""That of the mean of all residuals, as a share of the squared spread."""


def steps_of_tree(
    counts: Int64Array,
    selections: UInt8Array,
    *,
    scales: Sequence[Fraction],
    is_first: bool,
) -> Int32Array:
    """Scores of one tree's leaves, whose label is a number, in units of 2⁻¹⁶ spreads.

    A leaf of N rows whose clipped residuals sum to S scores S · N / (N² + 20 b² + 1.5 N),
    where 2 b² is the variance of its noise in rows.

    Args:
        counts: released; noisy units below and above, int64 ``(n_leaves, 2)``.
        selections: released; see :func:`scores_of_tree`.
        scales: public; see :func:`scores_of_tree`.
        is_first: whether this tree is the first of the forest.

    Returns:
        int32 ``(n_leaves, 1)``; 0 in leaves that no row can reach.
    """
    is_reached = selections != UNREACHED
    noise = np.array([float(1 / (UNIT * scale)) for scale in scales])
    of_leaf = noise[selections[is_reached]]
    # Both sides carry noise of variance 2 b², and the sum of a leaf is their difference.
    variance = 4.0 * np.square(of_leaf)
    mean = shrunk_mean(
        counts[is_reached],
        variance / _PRIOR_VARIANCE,
        in_prior=_ROWS_IN_PRIOR,
    )
    clip = float(LEAF_CLIP)
    step = clip * mean
    # Noise may show a sum that is longer than its number of rows allows.
    step = np.clip(step, -clip, clip)
    # Later trees correct what earlier trees left, noise included.
    if not is_first:
        step *= LATER_STEP
    scores = np.zeros((len(counts), 1), dtype=np.int32)
    scores[is_reached, 0] = np.rint(step * 2**SCORE_BITS)
    return scores


def shrunk_mean(
    counts: Int64Array,
    noise: Float64Array | float,
    *,
    in_prior: float = 0.0,
) -> Float64Array:
    """S · N / (N² + noise + in_prior · N) of noisy units below and above, in clips.

    Args:
        counts: released; int64 ``(n, 2)``.
        noise: positive; float64 ``(n,)``, squared rows.
        in_prior: rows that a prior of the mean counts as.
    """
    below, above = counts.T / UNIT
    total = above - below
    # each row adds one to both sides together
    rows = above + below
    rows = np.maximum(rows, 0.0)
    shrinkage = noise + in_prior * rows
    squared = np.square(rows)
    mean: Float64Array = total * rows / (squared + shrinkage)
    return mean


def moved(
    start: Int64Array, released: Int64Array, inverse_scale: Fraction
) -> Int64Array:
    """The start of a number moved by a noisy mean of all residuals: post-processing.

    Args:
        start: released; int64 ``(2,)``: the start and the spread, as codes.
        released: noisy units below and above, int64 ``(1, 2)``.
        inverse_scale: public; of the noise.

    Returns:
        int64 ``(2,)``: a start from 0 to 2^30, and the same spread.
    """
    clip = float(MEAN_CLIP)
    noise = float(1 / (UNIT * inverse_scale))
    variance = 4.0 * (clip * noise) ** 2
    [mean] = shrunk_mean(released, variance / _MEAN_VARIANCE).tolist()
    middle, spread = start.tolist()
    # in spreads, as scores are
    shift = clip * mean * spread
    shifted = middle + round(shift)
    # the range is public, so a start beyond it is noise
    inside = min(max(shifted, 0), TARGET_STEPS)
    return np.array([inside, spread], dtype=np.int64)


NEIGHBOUR: Final = 0.2
"""Weight, in a leaf's neighbourhood, of a leaf on the other side of one split; of k
splits, its k-th power.
"""


def scores_of_tree(
    counts: Int64Array,
    selections: UInt8Array,
    scales: Sequence[Fraction],
    *,
    is_first: bool,
    by_level: bool = False,
) -> Int32Array:
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
    if is_first:
        real = np.log(shares)
    else:
        real = LATER_STEP * (np.log(shares) - np.log(prior))
    real -= real.mean(axis=1, keepdims=True)
    scores = np.zeros(counts.shape, dtype=np.int32)
    scores[is_reached] = np.rint(real * 2**SCORE_BITS)
    return scores


def _neighbourhood(
    evidence: Float64Array,
    noise: Float64Array,
    prior: Float64Array,
) -> Float64Array:
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
    evidence: Float64Array,
    deviation: Float64Array,
    prior: Float64Array,
) -> Float64Array:
    """Class shares of leaves, shrunk toward ``prior``; a larger standard deviation of
    the noise shrinks more.
    """
    shares = (
        np.maximum(evidence, 0.0) + (1.0 + SHRINKAGE * deviation[:, np.newaxis]) * prior
    )
    shares /= shares.sum(axis=1, keepdims=True)
    return shares
