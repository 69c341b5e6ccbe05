"""Defines the in-memory form of sanitised rows, which ingestion stores, growth reads and prediction encodes."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class SanitisedColumns:
    """Sanitised feature values: PRIVATE in training, the caller's in prediction.

    Attributes:
        columns: one array per schema feature, in schema order. Numbers: float64 ``(n_rows,)``, inside the bounds,
            NaN = MISSING (only where the schema allows it). Categories: int32 ``(n_rows,)`` codes, ``other_code`` for
            an undeclared value and ``missing_code`` for an empty cell.
        n_rows: number of rows, also where the schema has no features.
    """

    columns: tuple[NDArray[np.float64] | NDArray[np.int32], ...]
    n_rows: int


class SanitisedTable(SanitisedColumns):
    """Sanitised values of a request in one array, from which a small prediction takes less time than from columns.

    Attributes:
        table: float64 ``(n_features, n_rows)``, codes of categories as numbers.
    """

    table: NDArray[np.float64]

    def __init__(self, table: NDArray[np.float64], is_categorical: tuple[bool, ...]) -> None:
        vars(self).update(n_rows=table.shape[1], table=table, _is_categorical=is_categorical)

    @cached_property
    def columns(self) -> tuple[NDArray[np.float64] | NDArray[np.int32], ...]:
        """The columns, made of the table when a reader asks for them."""
        pairs = zip(self.table, vars(self)["_is_categorical"], strict=True)
        return tuple(values.astype(np.int32) if is_categorical else values for values, is_categorical in pairs)


@dataclass(frozen=True)
class SanitisedRows:
    """PRIVATE training rows of one job.

    Attributes:
        features: see :class:`SanitisedColumns`.
        y: int32 ``(n_rows,)`` class codes; rows with an undeclared label are already dropped, record-wise.
        row_ids: uint8 ``(n_rows, 16)``: the stable random id that ingestion gives to each row; never published.
    """

    features: SanitisedColumns
    y: NDArray[np.int32]
    row_ids: NDArray[np.uint8]
