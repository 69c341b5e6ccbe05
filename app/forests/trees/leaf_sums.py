"""Sums the values of the leaves that a row reaches, for trees with one feature and one threshold per node."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from app.forests.data.encoding import Encoding
from app.forests.data.rows import SanitisedColumns, SanitisedTable
from app.forests.kernels import prediction as kernels
from app.forests.trees import boxes, pooling


@dataclass(frozen=True, eq=False)
class PackedForest:
    """Trees prepared for prediction, which read only the columns that splits use.

    Attributes:
        encoding: the bins of these columns.
        features: the features of the whole schema that the encoding needs.
        trees: over the encoding's columns.
    """

    encoding: Encoding
    features: tuple[int, ...]
    trees: kernels.PackedTrees

    @classmethod
    def of(
        cls,
        encoding: Encoding,
        feature: NDArray[np.int32],
        pack: Callable[[NDArray[np.int32], int], kernels.PackedTrees],
    ) -> PackedForest:
        """Prepares trees.

        Args:
            encoding: the bins of the whole schema.
            feature: the column of every split.
            pack: makes trees from the columns of splits in a smaller encoding, and its number of columns.
        """
        used, position = np.unique(feature, return_inverse=True)
        smaller, features, number = encoding.of_columns(used)
        column = number[position].reshape(feature.shape).astype(np.int32)
        return cls(smaller, tuple(features.tolist()), pack(column, len(smaller.n_codes)))

    @cached_property
    def _rows_of_table(self) -> NDArray[np.int64] | slice:
        """The rows of a table with the features that the trees use."""
        first = slice(len(self.features))
        is_first = self.features == tuple(range(len(self.features)))
        return first if is_first else np.array(self.features, dtype=np.int64)

    def sums(self, columns: SanitisedColumns) -> NDArray[np.float64]:
        """Sums of leaf values of rows, float64 ``(n_rows, n_outputs)``."""
        if isinstance(columns, SanitisedTable) and not self.encoding.pairs:
            return kernels.sum_leaf_values_of_table(
                columns.table[self._rows_of_table], self.encoding.tables, self.trees
            )
        used = tuple(columns.columns[feature] for feature in self.features)
        if self.encoding.pairs:
            codes = self.encoding.encode_all(SanitisedColumns(used, columns.n_rows))
            return kernels.sum_leaf_values(codes, self.trees)
        return kernels.sum_leaf_values_of(used, columns.n_rows, self.encoding.tables, self.trees)


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
        return self.packed.sums(columns)

    @cached_property
    def packed(self) -> PackedForest:
        """The trees in the form that prediction reads."""
        feature, threshold, equals = (self.arrays[name] for name in ("feature", "threshold", "equals"))
        splits = equals | (threshold != boxes.NO_SPLIT)
        return PackedForest.of(
            self.encoding,
            np.where(splits, feature, feature[splits][:1]) if splits.any() else feature,
            lambda column, n_columns: kernels.PackedTrees.of_thresholds(
                column, threshold, equals, values=self.values, n_features=n_columns
            ),
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
