"""Defines the protocol of exact integer histograms of PRIVATE rows, which may be on one machine or several.

No result of these objects may be released: every number is an exact private count. Growth passes the counts to a
mechanism, which releases selections and noisy counts only. Integer sums commute, so the result does not depend on the
division of rows into blocks or machines.
"""

from typing import Protocol

import numpy as np
from numpy.typing import NDArray


class TreeHistograms(Protocol):
    """The PRIVATE rows of one tree, in the nodes of its current level."""

    def class_histogram(self, features: slice) -> NDArray[np.int64]:
        """Exact counts per (node, code of feature, class): int64 ``(n_nodes, Σ codes, n_classes)``."""

    def descend(self, *, feature: NDArray[np.int32], threshold: NDArray[np.uint8], equals: NDArray[np.bool_]) -> None:
        """Moves every row one level down by the released splits, one per node of the current level."""

    def leaf_histogram(self) -> NDArray[np.int64]:
        """Exact counts per (node of the current level, class): int64 ``(n_nodes, n_classes)``."""


class Histograms(Protocol):
    """All PRIVATE rows of a job."""

    def of_tree(self, tree: int) -> TreeHistograms:
        """The rows that belong to ``tree`` (all of them, or its shard), at the root."""
