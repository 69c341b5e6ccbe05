"""Defines the in-memory form of sanitised rows, which ingestion stores, growth reads and prediction encodes."""

from dataclasses import dataclass

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
        table: the columns once more, as one float64 array ``(n_features, n_rows)``, where a reader of requests made it:
            a small prediction takes less time from one array than from many.
    """

    columns: tuple[NDArray[np.float64] | NDArray[np.int32], ...]
    n_rows: int
    table: NDArray[np.float64] | None = None


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


@dataclass(frozen=True)
class PublicRows:
    """Rows of a dataset that its owner declared public; attributes as in :class:`SanitisedRows`.

    The two types are unrelated, so that no function that takes public rows accepts private ones.
    """

    features: SanitisedColumns
    y: NDArray[np.int32]
    row_ids: NDArray[np.uint8]
