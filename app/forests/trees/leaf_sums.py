"""Sums the values of the leaves that a row reaches, for trees with one feature and one threshold per node."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from app.forests.data.encoding import Encoding
from app.forests.data.rows import SanitisedColumns
from app.forests.kernels import prediction as kernels
from app.forests.trees import pooling


@dataclass(frozen=True, eq=False)
class LeafSums:
    """A forest prepared for prediction.

    Attributes:
        encoding: the bins that thresholds refer to.
        arrays: released; ``feature``, ``threshold`` and ``equals`` of every node.
        values: value of each leaf, float64 ``(n_trees, 2^depth, n_outputs)``.
    """

    encoding: Encoding
    arrays: Mapping[str, NDArray[Any]]
    values: NDArray[np.float64]

    def of(self, columns: SanitisedColumns) -> NDArray[np.float64]:
        """Sums of rows, float64 ``(n_rows, n_outputs)``, each added up in the order of the trees."""
        return kernels.sum_leaf_values(
            np.ascontiguousarray(self.encoding.encode_all(columns).T),
            feature=self.arrays["feature"],
            threshold=self.arrays["threshold"],
            equals=self.arrays["equals"],
            depth=self.values.shape[1].bit_length() - 1,
            values=self.values,
        )


@dataclass(frozen=True, eq=False)
class PooledSums:
    """A reader that turns the leaf sum of a row into class probabilities.

    Attributes:
        sums: the forest prepared for prediction.
        read_out: rule from sums to probabilities; see ``app.forests.trees.pooling``.
    """

    sums: LeafSums
    read_out: str

    def __call__(self, columns: SanitisedColumns) -> NDArray[np.float64]:
        """Class probabilities of rows, float64 ``(n_rows, n_classes)``."""
        return pooling.to_probabilities(self.sums.of(columns), self.read_out)
