"""PRIVATE rows whose weights follow the released trees: a protocol, and rows that this process holds in memory."""

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from app.forests.kernels import reweighting as kernels
from app.forests.kernels import routing

MARGIN = (7, 20)
"""A row has its whole weight while 1 − p_y, the released trees' doubt in its class, is at least 0.35."""


class ReweightedRows(Protocol):
    """All PRIVATE rows of a job in the nodes of the current tree, with integer weights in units of 1/256.

    Every number is an exact private sum; a mechanism releases selections and noisy sums only. Sums over parts of the
    rows add up, so rows may live on one machine or on many.
    """

    def class_histogram(self, features: slice, open_nodes: NDArray[np.int32]) -> NDArray[np.int64]:
        """Weights by open node, code of feature and class: int64 ``(n_open, Σ codes, n_classes)``."""

    def descend(self, *, feature: NDArray[np.int32], threshold: NDArray[np.uint8], equals: NDArray[np.bool_]) -> None:
        """Moves every row one level down by the released splits, one per node of the current level."""

    def leaf_histogram(self) -> NDArray[np.int64]:
        """Weights by node of the current level and class: int64 ``(n_nodes, n_classes)``."""

    def finish_tree(self, scores: NDArray[np.int64]) -> None:
        """Adds a released tree's scores, weighs all rows anew, and puts them back at the root."""


class LocalReweightedRows:
    """Rows in this process's memory."""

    def __init__(
        self, X: NDArray[np.uint8], y: NDArray[np.int32], *, n_codes: NDArray[np.int32], n_classes: int
    ) -> None:
        """Keeps references to the PRIVATE arrays; every row starts with its whole weight.

        Args:
            X: uint8 ``(n_features, n_rows)`` codes.
            y: int32 ``(n_rows,)`` classes.
            n_codes: int32 ``(n_features,)``.
            n_classes: public number of classes.
        """
        self._X, self._y, self._n_codes, self._n_classes = X, y, n_codes, n_classes
        self._sums = np.zeros((len(y), n_classes), dtype=np.int64)
        self._weight = np.full(len(y), kernels.UNIT, dtype=np.uint16)
        self._node, self._n_nodes = np.zeros(len(y), dtype=np.int32), 1

    def class_histogram(self, features: slice, open_nodes: NDArray[np.int32]) -> NDArray[np.int64]:
        """See :class:`ReweightedRows`. Rows of closed nodes are added to a table of their own, which is dropped."""
        slots = np.full(self._n_nodes, len(open_nodes), dtype=np.int32)
        slots[open_nodes] = np.arange(len(open_nodes), dtype=np.int32)
        counts = kernels.class_histogram(
            self._X[features],
            self._y,
            self._weight,
            slot=slots[self._node],
            n_bins=self._n_codes[features],
            shape=(len(open_nodes) + 1, self._n_classes),
        )
        return counts[:-1]

    def descend(self, *, feature: NDArray[np.int32], threshold: NDArray[np.uint8], equals: NDArray[np.bool_]) -> None:
        """See :class:`ReweightedRows`."""
        self._node = routing.descend(self._X, self._node, feature=feature, threshold=threshold, equals=equals)
        self._n_nodes *= 2

    def leaf_histogram(self) -> NDArray[np.int64]:
        """See :class:`ReweightedRows`."""
        return kernels.leaf_histogram(
            self._node, self._y, self._weight, n_leaves=self._n_nodes, n_classes=self._n_classes
        )

    def finish_tree(self, scores: NDArray[np.int64]) -> None:
        """See :class:`ReweightedRows`."""
        kernels.add_scores(self._sums, self._node, scores)
        self._weight = kernels.weights(self._sums, self._y, margin=MARGIN)
        self._node, self._n_nodes = np.zeros(len(self._y), dtype=np.int32), 1
