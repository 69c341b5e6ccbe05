"""Turns rows into a matrix of real columns, for algorithms without privacy, whose
splits compare real numbers.

A number is its value; an ordered category is its place in the order, with OTHER and
MISSING after the last one; every value of another category is a column of its own, 1 in
rows that have the value and 0 in others. A missing number lies below the declared
range, further away than the range is wide, so that a split can separate it from all
others.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from grovekeeper_forests.data.sanitiser import SanitisedColumns
from grovekeeper_forests.data.schema import Feature, Schema


@dataclass(frozen=True)
class Design:
    """The columns that a schema becomes.

    Attributes:
        schema: public.
        feature: the feature of every column, int64 ``(n_columns,)``.
        lower: the smallest value of every column that is not missing, float64
            ``(n_columns,)``.
        upper: the largest value.
    """

    schema: Schema
    feature: NDArray[np.int64]
    lower: NDArray[np.float64]
    upper: NDArray[np.float64]

    @classmethod
    def of(cls, schema: Schema) -> Design:
        """The columns of a schema, in the order of its features."""
        feature, lower, upper = [], [], []
        for index, declared in enumerate(schema.features):
            n_columns = columns_of(declared)
            feature += [index] * n_columns
            is_number = not declared.is_categorical
            last = declared.missing_code if declared.ordered else 1
            lower += [declared.lower if is_number else 0.0] * n_columns
            upper += [declared.upper if is_number else float(last)] * n_columns
        return cls(
            schema, np.array(feature, dtype=np.int64), np.array(lower), np.array(upper)
        )

    @property
    def n_columns(self) -> int:
        """Number of columns."""
        return len(self.feature)

    def matrix(self, rows: SanitisedColumns) -> NDArray[np.float32]:
        """The columns of rows: float32 ``(n_rows, n_columns)``, in C order. float32 is
        what scikit-learn compares.
        """
        X = np.empty((rows.n_rows, self.n_columns), dtype=np.float32)
        column = 0
        for declared, values in zip(self.schema.features, rows.columns, strict=True):
            n_columns = columns_of(declared)
            if n_columns > 1:
                X[:, column : column + n_columns] = values[:, None] == np.arange(
                    n_columns
                )
            elif declared.is_categorical:
                X[:, column] = values
            else:
                X[:, column] = np.where(
                    np.isnan(values), number_of_missing(declared), values
                )
            column += n_columns
        return X


def number_of_missing(feature: Feature) -> float:
    """The number that a missing number becomes."""
    return feature.lower - 2.0 * max(feature.upper - feature.lower, 1.0)


def columns_of(feature: Feature) -> int:
    """Number of columns of a feature: one, or one for every value of an unordered
    category.
    """
    return (
        feature.missing_code + 1
        if feature.is_categorical and not feature.ordered
        else 1
    )
