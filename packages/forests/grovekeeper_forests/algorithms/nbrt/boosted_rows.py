"""Stores the boosting scores of PRIVATE rows, sums their gradients, and computes the
first tree of a forest.

Random trees learn a single rule slowly: each tree splits at other thresholds, and steps
are shrunk because of noise. A private selection on all rows therefore chooses the split
that best separates the classes. Noisy class counts on its two sides replace the noisy
class counts of all rows. Random trees start from the scores of this first tree.
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import ROUND_HALF_EVEN, Decimal, localcontext
from math import isqrt
from typing import Final, Self

import numpy as np

from grovekeeper_forests.algorithms.nbrt import read
from grovekeeper_forests.algorithms.nbrt.price import N_SIDES
from grovekeeper_forests.algorithms.nbrt.random_trees import Trees, no_trees
from grovekeeper_forests.algorithms.nbrt.read import centred_logs, start_scores
from grovekeeper_forests.algorithms.nbrt.scales import SCORE_LIMIT, SCORE_UNIT, Scales
from grovekeeper_forests.array_types import Int32Array, Int64Array, UInt8Array
from grovekeeper_forests.bins import number_targets
from grovekeeper_forests.bins.noisy_counts import SCALE_BITS
from grovekeeper_forests.data.coded_rows import CodedPart, Parts
from grovekeeper_forests.data.encoding import Encoding
from grovekeeper_forests.kernels import boosting as kernels
from grovekeeper_forests.kernels import fourth_roots, node_rows
from grovekeeper_forests.kernels.boosting import MASK_WORDS


class LocalBoostedRows:
    """Boosted rows in this process's memory."""

    def __init__(self, X: UInt8Array, y: Int32Array, *, n_classes: int) -> None:
        """Keeps references to the PRIVATE arrays.

        Args:
            X: uint8 ``(n_rows, n_features)`` codes, one row after another.
            y: int32 ``(n_rows,)`` classes, or codes of a number.
        """
        self._X, self._y, self._n_classes = X, y, n_classes
        self._last: tuple[Trees, Int32Array] | None = None

    @classmethod
    def of(cls, part: CodedPart) -> Self:
        """A part of the rows without scores."""
        return cls(
            np.ascontiguousarray(part.codes.T),
            part.y,
            n_classes=part.encoding.schema.n_classes,
        )

    def class_counts(self) -> Int64Array:
        """See :class:`BoostedRows`."""
        return np.bincount(self._y, minlength=self._n_classes).astype(np.int64)

    def code_counts(self, features: slice, *, n_codes: Int32Array) -> Int64Array:
        """See :class:`BoostedRows`."""
        counts = node_rows.class_histogram(
            np.ascontiguousarray(self._X[:, features].T),
            self._y,
            np.zeros(len(self._y), dtype=np.int32),
            n_bins=n_codes[features],
            onto=node_rows.no_sums(1, self._n_classes, n_bins=n_codes[features]),
        )
        of_root: Int64Array = counts[0]
        return of_root

    def leaf_counts(self, tree: Trees) -> Int64Array:
        """See :class:`BoostedRows`."""
        leaf = self._leaves(tree)[0]
        return node_rows.leaf_histogram(
            leaf, self._y, n_leaves=tree.n_leaves, n_classes=self._n_classes
        )

    def start(self, scores: Int64Array, scales: Scales) -> None:
        """See :class:`BoostedRows`."""
        self._scales = scales
        self._scores = np.tile(scores, (len(self._y), 1))

    def sums(self, tree: Trees) -> Int64Array:
        """See :class:`BoostedRows`."""
        gradients = self._gradients()
        leaf = self._leaves(tree)[0]
        return node_rows.leaf_gradients(
            leaf, gradients, count=self._scales.count, n_leaves=tree.n_leaves
        )

    def add_scores(self, tree: Trees, leaf_scores: Int32Array) -> None:
        """See :class:`BoostedRows`."""
        node_rows.add_leaf_scores(
            self._scores, self._leaves(tree), leaf_scores[np.newaxis]
        )

    def _gradients(self) -> Int32Array:
        """The gradient of every row, int32 ``(n_rows, n_scores)``."""
        return kernels.gradients(self._scores, self._y, self._scales)

    def _leaves(self, tree: Trees) -> Int32Array:
        """The leaf of every row, int32 ``(1, n_rows)``; kept for the next call, which
        usually has the same tree.
        """
        if self._last is None or not self._last[0].equals(tree):
            reached = kernels.leaves(
                self._X, feature=tree.feature, right=tree.right, depth=tree.depth
            )
            self._last = tree, reached
        return self._last[1]

    def tally(self, shift: Int64Array) -> Int64Array:
        """See :class:`BoostedRows`."""
        return read.tally_margins(self._scores + shift, self._y)


class LocalNumberRows(LocalBoostedRows):
    """Boosted rows, whose label is a number, in this process's memory."""

    def target_counts(self, edges: Int32Array, middle: int | None = None) -> Int64Array:
        """See :class:`BoostedRows`."""
        return number_targets.target_counts(edges, self._y, middle)

    def residual_sums(self, scales: Scales) -> Int64Array:
        """See :class:`BoostedRows`."""
        residuals = self._residuals(scales)
        total = residuals.sum(dtype=np.int64)
        count = scales.count * len(residuals)
        return np.array([total, count], dtype=np.int64)

    def start(self, scores: Int64Array, scales: Scales) -> None:
        """See :class:`BoostedRows`; the scores of all rows begin at 0."""
        self._scales, self._start = scales, scores
        self._scores = np.zeros((len(self._y), 1), dtype=np.int64)

    def _gradients(self) -> Int32Array:
        return self._residuals(self._scales)

    def _residuals(self, scales: Scales) -> Int32Array:
        return kernels.gradients_of_numbers(self._scores, self._y, self._start, scales)


class BoostedRows:
    """All PRIVATE rows of a job with their scores so far, in parts in this process or
    on other machines.

    Every method returns exact PRIVATE sums; a mechanism releases noisy sums only. Sums
    of integers over parts of the rows add up.
    """

    def __init__(self, parts: Parts) -> None:
        """Keeps parts in the form of :class:`LocalBoostedRows`."""
        self._parts = parts

    def class_counts(self) -> Int64Array:
        """Rows per class: int64 ``(n_classes,)``."""
        return self._parts.total("class_counts")

    def target_counts(self, edges: Int32Array, middle: int | None = None) -> Int64Array:
        """Rows by the code of a label that is a number, or by its distance from
        ``middle``, a released code, between edges: int64 ``(n_edges + 1,)``.
        """
        return self._parts.total("target_counts", edges, middle)

    def residual_sums(self, scales: Scales) -> Int64Array:
        """The sum of the clipped residuals of all rows, and their scaled count: int64
        ``(2,)``; of a label that is a number.
        """
        return self._parts.total("residual_sums", scales)

    def code_counts(self, features: slice, *, n_codes: Int32Array) -> Int64Array:
        """Rows per code of consecutive features and class: int64 ``(Σ
        n_codes[features], n_classes)``.
        """
        return self._parts.total("code_counts", features, n_codes=n_codes)

    def leaf_counts(self, tree: Trees) -> Int64Array:
        """Rows per leaf of a tree and class: int64 ``(n_leaves, n_classes)``."""
        return self._parts.total("leaf_counts", tree)

    def start(self, scores: Int64Array, scales: Scales) -> None:
        """Sets the scores of every row to the released start scores, int64
        ``(n_scores,)``, and keeps the scales. Where the label is a number, ``scores``
        are its start and spread.
        """
        self._parts.each("start", scores, scales)

    def sums(self, tree: Trees) -> Int64Array:
        """Gradient sums and scaled counts of every leaf of a tree: int64 ``(n_leaves,
        n_scores + 1)``.
        """
        return self._parts.total("sums", tree)

    def add_scores(self, tree: Trees, leaf_scores: Int32Array) -> None:
        """Adds the released scores of the leaves of a tree, int32 ``(n_leaves,
        n_scores)``.
        """
        self._parts.each("add_scores", tree, leaf_scores)

    def tally(self, shift: Int64Array) -> Int64Array:
        """Rows by the margin of their scores, int64; see
        ``grovekeeper_forests.algorithms.nbrt.read``.

        Args:
            shift: released; int64 ``(n_scores,)``; added to the scores of every row, as
                in the read-out.
        """
        return self._parts.total("tally", shift)


_STEP: Final = Decimal("0.75")
"""Step from the class prior toward a side's class proportions; random trees correct the
rest.
"""

_SHRINKAGE: Final = Decimal("2.5")
"""Each side gets this many standard deviations of its noise, plus one, as rows of the
class prior.
"""

_BLOCK: Final = 16  # number of features that are tabulated at once

_DEVIATION: Final = 2**SCALE_BITS
_DIGITS: Final = 40
_WORD_BITS: Final = 64


def first_split_utilities(
    encoding: Encoding, code_counts: Callable[[slice], Int64Array]
) -> Int64Array:
    """The utility ‖left‖₄ + ‖right‖₄, in whole rows, of every split that the bins
    allow.

    Args:
        encoding: public or released bins.
        code_counts: PRIVATE rows by code of consecutive features and class, int64 ``(Σ
            n_codes, n_classes)``; called for a few features at a time, so that public
            numbers bound the memory.

    Returns:
        PRIVATE int64 ``(n_candidates,)``. An added row raises each utility by 0 or 1:
        the row adds one to a coordinate of one side, so the norm of that side, and its
        integer part, rise by at most 1.
    """
    norms = [np.zeros(0, dtype=np.int64)]
    for first in range(0, len(encoding.n_codes), _BLOCK):
        features = slice(first, min(first + _BLOCK, len(encoding.n_codes)))
        counts = code_counts(features)[np.newaxis]
        splits = encoding.candidates.splits_on(features)
        norms.append(
            fourth_roots.split_norms(
                counts, n_codes=encoding.n_codes[features], splits=splits
            )[0]
        )
    return np.concatenate(norms)


def first_tree(encoding: Encoding, choice: int | None, *, depth: int) -> Trees:
    """The chosen split as a tree of the forest's depth; below the root, or without a
    choice, all rows go left.

    Args:
        encoding: public or released bins.
        choice: released; the index of a candidate, or ``None``.
        depth: at least 1.
    """
    trees = no_trees(1, depth=depth)
    if choice is not None:
        candidates = encoding.candidates
        threshold = int(candidates.threshold[choice])
        every = (1 << _WORD_BITS * MASK_WORDS) - 1
        if candidates.equals[choice]:
            mask = every & ~(1 << threshold)
        else:
            mask = every >> threshold + 1 << threshold + 1
        trees.feature[0, 0] = candidates.feature[choice]
        trees.right[0, 0] = [
            mask >> _WORD_BITS * word & (2**_WORD_BITS - 1)
            for word in range(MASK_WORDS)
        ]
    return trees


def sides_of_first_split(n_leaves: int) -> list[int]:
    """The two leaves of a first tree that rows reach: left and right of the split."""
    return [0, n_leaves // N_SIDES]


def scores_of_first_tree(
    released: Int64Array, count: int, *, n_leaves: int
) -> tuple[Int64Array, Int32Array]:
    """Start scores and leaf scores of the first tree: post-processing (lemma L7), equal
    on every machine.

    The class proportions of a side are shrunk toward the class proportions of all rows.

    Args:
        released: int64 ``(2, n_classes)``: class counts of the sides times ``count``,
            with noise of deviation 2^24.
        count: the integer that one row adds.
        n_leaves: number of leaves of the tree.

    Returns:
        int64 ``(n_scores,)`` and int32 ``(n_leaves, n_scores)``, in units of 2^-16.
    """
    together = released.sum(axis=0)
    deviation = isqrt(N_SIDES * _DEVIATION**2)
    start = start_scores(together, deviation=deviation)
    prior = [max(rows, 0) + deviation for rows in together.tolist()]
    values = np.zeros((n_leaves, len(start)), dtype=np.int32)
    # Decimals of a fixed precision: logarithms of floats differ between machines.
    with localcontext() as context:
        context.prec = _DIGITS
        added = (count + _SHRINKAGE * _DEVIATION) / sum(prior)
        base = centred_logs(list(map(Decimal, prior)))
        for leaf, side in zip(
            sides_of_first_split(n_leaves), released.tolist(), strict=True
        ):
            logs = centred_logs(
                [
                    max(rows, 0) + added * share
                    for rows, share in zip(side, prior, strict=True)
                ]
            )
            steps = [
                _STEP * (log - base_log) * SCORE_UNIT
                for log, base_log in zip(logs, base, strict=True)
            ]
            limit = SCORE_LIMIT * SCORE_UNIT
            values[leaf] = [
                min(max(int(step.to_integral_value(ROUND_HALF_EVEN)), -limit), limit)
                for step in steps
            ]
    return start, values
