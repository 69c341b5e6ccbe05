"""Finds the codes of values between public edges, and adds tabulated codes of two columns."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from app.forests.kernels.arrays import require, require_range

BLOCK: Final = 2**16
"""Rows whose values are copied at once: at most 512 KiB per column."""


@dataclass(frozen=True)
class ColumnRule:
    """How the values of a column become codes.

    Attributes:
        edges: ascending; the code is the number of edges below the value. ``None``: the value is the code.
        highest: larger values count as this value.
        missing: this value counts as NaN; NaN: no other value does.
        last: code of NaN, the largest code; at most 255, or 65,535 for wide codes.
    """

    edges: NDArray[np.float64] | None
    highest: float
    missing: float
    last: int


class CodeTables:
    """The rules of all columns as arrays for the compiled loop."""

    def __init__(self, rules: Iterable[ColumnRule]) -> None:
        listed = tuple(rules)
        edges = [np.empty(0) if rule.edges is None else rule.edges for rule in listed]
        self._edges = np.concatenate([np.empty(0), *edges])
        self._first_edge = np.cumsum([0, *map(len, edges)], dtype=np.int64)
        # Without edges, a number has code 0 and a category its value.
        self._rules = np.array(
            [(0.0 if _is_constant(rule) else rule.highest, rule.missing, rule.last) for rule in listed],
            dtype=np.float64,
        ).reshape(len(listed), 3)

    @property
    def bins(self) -> tuple[NDArray[np.float64], NDArray[np.int64], NDArray[np.float64]]:
        """The arrays, for a compiled loop over a :meth:`block`."""
        return self._edges, self._first_edge, self._rules

    def codes(self, columns: tuple[NDArray[np.float64] | NDArray[np.int32], ...], n_rows: int) -> NDArray[np.uint8]:
        """The codes of PRIVATE or caller's rows; a row's codes depend on no other row.

        Args:
            columns: float64 or int32 ``(n_rows,)`` each, one per rule.
            n_rows: also where there is no column.

        Returns:
            uint8 ``(n_columns, n_rows)``.

        Raises:
            ValueError: another number of columns, or a column of another length.
        """
        from app.forests.kernels.compiled import prediction_loops as loops

        codes = np.empty((len(self._rules), n_rows), dtype=np.uint8)
        for start in range(0, n_rows, BLOCK):
            block = self.block(columns, start, min(BLOCK, n_rows - start))
            loops.fill_codes(block, self.bins, start, codes)
        return codes

    def block(
        self, columns: tuple[NDArray[np.float64] | NDArray[np.int32], ...], start: int, n_rows: int
    ) -> NDArray[np.float64]:
        """Consecutive rows of all columns, float64 ``(n_columns, n_rows)``.

        Raises:
            ValueError: another number of columns, or a column of another length.
        """
        block = np.empty((len(self._rules), n_rows))
        for row, column in zip(block, columns, strict=True):
            row[:] = column[start : start + n_rows]
        return block

    def wide_codes(self, column: int, values: NDArray[np.float64] | NDArray[np.int32]) -> NDArray[np.uint16]:
        """The codes of the values of one column, which may have more than 256 codes: uint16 ``(n_rows,)``."""
        from app.forests.kernels.compiled import prediction_loops as loops

        codes = np.empty(len(values), dtype=np.uint16)
        edges = self._edges[self._first_edge[column] : self._first_edge[column + 1]]
        loops.fill_wide_codes(values.astype(np.float64), edges, self._rules[column], codes)
        return codes


def _is_constant(rule: ColumnRule) -> bool:
    return rule.edges is not None and not len(rule.edges)


class CodeSums:
    """Columns that are sums of two tabulated codes, as arrays for the compiled loop."""

    def __init__(self, features: Sequence[tuple[int, int]], tables: Sequence[NDArray[np.int32]]) -> None:
        """Stores what the columns are.

        Args:
            features: the two features of every column.
            tables: for every column, the summands of all codes of both features; int32 ``(2, 256)``, each from 0, with
                sums up to 255.
        """
        self._features = np.array(features, dtype=np.int64).reshape(len(features), 2)
        self._tables = np.array(tables, dtype=np.uint8).reshape(len(features), 2, 256)

    def of(self, codes: NDArray[np.uint8], chosen: NDArray[np.integer] | None = None) -> NDArray[np.uint8]:
        """The columns of PRIVATE or caller's rows.

        Args:
            codes: of the features, uint8 ``(n_features, n_rows)``.
            chosen: indices of columns; all by default.

        Returns:
            uint8 ``(n_chosen, n_rows)``.

        Raises:
            ValueError: a wrong type or shape, or fewer features than the columns need.
        """
        from app.forests.kernels.compiled import prediction_loops as loops

        codes = require(codes, np.uint8, shape=(None, None), name="codes")
        features, tables = self._features, self._tables
        if chosen is not None:
            features, tables = features[chosen], tables[chosen]
        require_range(features, lowest=0, below=len(codes), name="features")
        sums = np.empty((len(features), codes.shape[1]), dtype=np.uint8)
        loops.fill_sums(codes, features, tables, sums)
        return sums
