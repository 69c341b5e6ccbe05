"""PRIVATE rows whose weights follow the released trees: a protocol, and rows that this process holds in memory."""

import copy
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from app.forests.data.pairs import Pair, columns
from app.forests.kernels import cell_sums, prediction, reweighting, routing

MARGIN = (7, 20)
"""A row has its whole weight while 1 − p_y, the released trees' doubt in its class, is at least 0.35."""


_SLAB = 64
"""Columns that are held beside the rows at once."""


class ReweightedRows(Protocol):
    """All PRIVATE rows of a job in the nodes of the current tree, with integer weights in units of 1/256.

    Every number is an exact private sum; a mechanism releases selections and noisy sums only. Sums over parts of the
    rows add up, so rows may live on one machine or on many.
    """

    def class_histogram(self, features: slice, open_nodes: NDArray[np.int32]) -> NDArray[np.int64]:
        """Weights by open node, code of feature and class: int64 ``(n_open, Σ codes, n_classes)``."""

    def joint_histogram(self, feature: int, others: slice) -> NDArray[np.int64]:
        """Weights by node of the current level, code of one feature, code of others, and class.

        Returns:
            PRIVATE int64 ``(n_nodes, codes of the feature, Σ codes of the others, n_classes)``.
        """

    def descend(self, *, feature: NDArray[np.int32], threshold: NDArray[np.uint8], equals: NDArray[np.bool_]) -> None:
        """Moves every row one level down by the released splits, one per node of the current level."""

    def below(
        self, *, feature: NDArray[np.int32], threshold: NDArray[np.uint8], equals: NDArray[np.bool_]
    ) -> "ReweightedRows":
        """The same rows one level down, as :meth:`descend` would move them; these stay where they are."""

    def leaf_histogram(self) -> NDArray[np.int64]:
        """Weights by node of the current level and class: int64 ``(n_nodes, n_classes)``."""

    def finish_tree(self, scores: NDArray[np.int32]) -> None:
        """Adds a released tree's scores, weighs all rows anew, and puts them back at the root."""


class LocalReweightedRows:
    """Rows in this process's memory."""

    def __init__(
        self,
        X: NDArray[np.uint8],
        y: NDArray[np.int32],
        *,
        n_codes: NDArray[np.int32],
        n_classes: int,
        pairs: tuple[Pair, ...] = (),
    ) -> None:
        """Keeps references to the PRIVATE arrays; every row starts with its whole weight.

        Args:
            X: uint8 ``(n_features, n_rows)`` codes.
            y: int32 ``(n_rows,)`` classes.
            n_codes: int32 ``(n_columns,)``: of the features, then of the columns of pairs.
            n_classes: public number of classes.
            pairs: features whose sums and differences are columns too. They are made once where all columns fit beside
                the rows at once, else whenever they are asked for.
        """
        self._y, self._n_codes, self._n_classes, self._pairs = y, n_codes, n_classes, pairs
        self._n_own = len(X)
        fit = pairs and len(n_codes) <= _SLAB
        self._X = columns(X, n_codes[: len(X)], pairs, range(len(n_codes))) if fit else X
        self._sums = np.zeros((len(y), n_classes), dtype=np.int64)
        self._weight = np.full(len(y), reweighting.UNIT, dtype=np.uint16)
        self._node, self._n_nodes = np.zeros(len(y), dtype=np.int32), 1

    def class_histogram(self, features: slice, open_nodes: NDArray[np.int32]) -> NDArray[np.int64]:
        """See :class:`ReweightedRows`. Rows of closed nodes are left out."""
        place = np.full(self._n_nodes, -1, dtype=np.int32)
        place[open_nodes] = np.arange(len(open_nodes), dtype=np.int32)
        node = place[self._node]
        counts = [
            cell_sums.class_histogram(
                self._columns(some),
                self._y,
                node,
                n_bins=self._n_codes[some],
                shape=(len(open_nodes), self._n_classes),
                weight=self._weight,
            )
            for some in _slabs(features)
        ]
        return counts[0] if len(counts) == 1 else np.concatenate(counts, axis=1)

    def joint_histogram(self, feature: int, others: slice) -> NDArray[np.int64]:
        """See :class:`ReweightedRows`: every code of the feature in every node counts as a node."""
        n_own = int(self._n_codes[feature])
        own = self._columns(np.array([feature]))[0]
        histogram = cell_sums.class_histogram(
            self._columns(np.arange(others.start, others.stop)),
            self._y,
            self._node * np.int32(n_own) + own,
            n_bins=self._n_codes[others],
            shape=(self._n_nodes * n_own, self._n_classes),
            weight=self._weight,
        )
        return histogram.reshape(self._n_nodes, n_own, *histogram.shape[1:])

    def descend(self, *, feature: NDArray[np.int32], threshold: NDArray[np.uint8], equals: NDArray[np.bool_]) -> None:
        """See :class:`ReweightedRows`."""
        asked, place = np.unique(feature, return_inverse=True)
        self._node = routing.descend(
            self._columns(asked),
            self._node,
            feature=place.reshape(feature.shape).astype(np.int32),
            threshold=threshold,
            equals=equals,
        )
        self._n_nodes *= 2

    def below(
        self, *, feature: NDArray[np.int32], threshold: NDArray[np.uint8], equals: NDArray[np.bool_]
    ) -> "LocalReweightedRows":
        """See :class:`ReweightedRows`: codes, classes and weights are shared, which nothing changes in place."""
        found = copy.copy(self)
        found.descend(feature=feature, threshold=threshold, equals=equals)
        return found

    def _columns(self, wanted: NDArray[np.integer]) -> NDArray[np.uint8]:
        """PRIVATE codes of some columns."""
        if np.all(wanted < len(self._X)):
            held: NDArray[np.uint8] = self._X[wanted]
            return held
        return columns(self._X, self._n_codes[: self._n_own], self._pairs, wanted.tolist())

    def leaf_histogram(self) -> NDArray[np.int64]:
        """See :class:`ReweightedRows`."""
        return cell_sums.leaf_histogram(
            self._node, self._y, n_leaves=self._n_nodes, n_classes=self._n_classes, weight=self._weight
        )

    def finish_tree(self, scores: NDArray[np.int32]) -> None:
        """See :class:`ReweightedRows`."""
        prediction.add_leaf_scores(self._sums, self._node[np.newaxis], scores[np.newaxis])
        self._weight = reweighting.weights(self._sums, self._y, margin=MARGIN)
        self._node, self._n_nodes = np.zeros(len(self._y), dtype=np.int32), 1


def _slabs(features: slice) -> list[NDArray[np.int64]]:
    """The numbers of some columns, a few at a time."""
    return [
        np.arange(start, min(start + _SLAB, features.stop), dtype=np.int64)
        for start in range(features.start, features.stop, _SLAB)
    ]
