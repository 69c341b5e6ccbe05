"""Stores the boosting scores of PRIVATE rows and sums their gradients: a protocol and an in-memory implementation."""

from typing import Protocol, Self

import numpy as np
from numpy.typing import NDArray

from app.forests.algorithms.nbrt import temperature
from app.forests.algorithms.nbrt.random_trees import Trees
from app.forests.algorithms.nbrt.scales import Scales
from app.forests.data.parts import CodedPart, Parts
from app.forests.kernels import boosting as kernels
from app.forests.kernels import cell_sums, prediction


class BoostedRows(Protocol):
    """All PRIVATE rows of a job with their scores so far.

    Every method returns exact PRIVATE sums; a mechanism releases noisy sums only. Sums of integers over parts of the
    rows add up, so an implementation may keep rows on one machine or on several.
    """

    def class_counts(self) -> NDArray[np.int64]:
        """Rows per class: int64 ``(n_classes,)``."""

    def code_counts(self, features: slice, *, n_codes: NDArray[np.int32]) -> NDArray[np.int64]:
        """Rows per code of consecutive features and class: int64 ``(Σ n_codes[features], n_classes)``."""

    def leaf_counts(self, tree: Trees) -> NDArray[np.int64]:
        """Rows per leaf of a tree and class: int64 ``(n_leaves, n_classes)``."""

    def start(self, scores: NDArray[np.int64], scales: Scales) -> None:
        """Sets the scores of every row to the released start scores, int64 ``(n_scores,)``, and keeps the scales."""

    def sums(self, tree: Trees) -> NDArray[np.int64]:
        """Gradient sums and scaled counts of every leaf of a tree: int64 ``(n_leaves, n_scores + 1)``."""

    def add_scores(self, tree: Trees, leaf_scores: NDArray[np.int32]) -> None:
        """Adds the released scores of the leaves of a tree, int32 ``(n_leaves, n_scores)``."""

    def tally(self, shift: NDArray[np.int64]) -> NDArray[np.int64]:
        """Rows by the margin of their scores, int64; see ``app.forests.algorithms.nbrt.temperature``.

        Args:
            shift: released; int64 ``(n_scores,)``; added to the scores of every row, as in the read-out.
        """


class LocalBoostedRows:
    """Boosted rows in this process's memory."""

    def __init__(self, X: NDArray[np.uint8], y: NDArray[np.int32], *, n_classes: int) -> None:
        """Keeps references to the PRIVATE arrays.

        Args:
            X: uint8 ``(n_rows, n_features)`` codes, one row after another.
            y: int32 ``(n_rows,)`` classes.
            n_classes: public number of classes.
        """
        self._X, self._y, self._n_classes = X, y, n_classes
        self._last: tuple[Trees, NDArray[np.int32]] | None = None

    @classmethod
    def of(cls, part: CodedPart) -> Self:
        """A part of the rows without scores."""
        return cls(np.ascontiguousarray(part.codes.T), part.y, n_classes=part.encoding.schema.n_classes)

    def class_counts(self) -> NDArray[np.int64]:
        """See :class:`BoostedRows`."""
        return np.bincount(self._y, minlength=self._n_classes).astype(np.int64)

    def code_counts(self, features: slice, *, n_codes: NDArray[np.int32]) -> NDArray[np.int64]:
        """See :class:`BoostedRows`."""
        counts = cell_sums.class_histogram(
            np.ascontiguousarray(self._X[:, features].T),
            self._y,
            np.zeros(len(self._y), dtype=np.int32),
            n_bins=n_codes[features],
            onto=cell_sums.no_sums(1, self._n_classes, n_bins=n_codes[features]),
        )
        of_root: NDArray[np.int64] = counts[0]
        return of_root

    def leaf_counts(self, tree: Trees) -> NDArray[np.int64]:
        """See :class:`BoostedRows`."""
        leaf = self._leaves(tree)[0]
        return cell_sums.leaf_histogram(leaf, self._y, n_leaves=tree.n_leaves, n_classes=self._n_classes)

    def start(self, scores: NDArray[np.int64], scales: Scales) -> None:
        """See :class:`BoostedRows`."""
        self._scales = scales
        self._scores = np.tile(scores, (len(self._y), 1))

    def sums(self, tree: Trees) -> NDArray[np.int64]:
        """See :class:`BoostedRows`."""
        gradients = kernels.gradients(self._scores, self._y, self._scales)
        leaf = self._leaves(tree)[0]
        return cell_sums.leaf_gradients(leaf, gradients, count=self._scales.count, n_leaves=tree.n_leaves)

    def add_scores(self, tree: Trees, leaf_scores: NDArray[np.int32]) -> None:
        """See :class:`BoostedRows`."""
        prediction.add_leaf_scores(self._scores, self._leaves(tree), leaf_scores[np.newaxis])

    def _leaves(self, tree: Trees) -> NDArray[np.int32]:
        """The leaf of every row, int32 ``(1, n_rows)``; kept for the next call, which usually has the same tree."""
        if self._last is None or not self._last[0].equals(tree):
            reached = kernels.leaves(self._X, feature=tree.feature, right=tree.right, depth=tree.depth)
            self._last = tree, reached
        return self._last[1]

    def tally(self, shift: NDArray[np.int64]) -> NDArray[np.int64]:
        """See :class:`BoostedRows`."""
        return temperature.tally(self._scores + shift, self._y)


class PartedBoostedRows:
    """Boosted rows in several parts, in this process or on other machines."""

    def __init__(self, parts: Parts) -> None:
        """Keeps parts in the form of :class:`LocalBoostedRows`."""
        self._parts = parts

    def class_counts(self) -> NDArray[np.int64]:
        """See :class:`BoostedRows`."""
        return self._parts.total("class_counts")

    def code_counts(self, features: slice, *, n_codes: NDArray[np.int32]) -> NDArray[np.int64]:
        """See :class:`BoostedRows`."""
        return self._parts.total("code_counts", features, n_codes=n_codes)

    def leaf_counts(self, tree: Trees) -> NDArray[np.int64]:
        """See :class:`BoostedRows`."""
        return self._parts.total("leaf_counts", tree)

    def start(self, scores: NDArray[np.int64], scales: Scales) -> None:
        """See :class:`BoostedRows`."""
        self._parts.each("start", scores, scales)

    def sums(self, tree: Trees) -> NDArray[np.int64]:
        """See :class:`BoostedRows`."""
        return self._parts.total("sums", tree)

    def add_scores(self, tree: Trees, leaf_scores: NDArray[np.int32]) -> None:
        """See :class:`BoostedRows`."""
        self._parts.each("add_scores", tree, leaf_scores)

    def tally(self, shift: NDArray[np.int64]) -> NDArray[np.int64]:
        """See :class:`BoostedRows`."""
        return self._parts.total("tally", shift)
