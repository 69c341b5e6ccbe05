"""Prepares the tables with which compiled loops read the rows of a prediction request from JSON text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from types import ModuleType
from typing import Final

import numpy as np
from numpy.typing import NDArray

_HASH_START: Final = 0xCBF29CE484222325
_HASH_FACTOR: Final = 0x100000001B3


@dataclass(frozen=True)
class ColumnText:
    """How the cells of a column are read.

    Attributes:
        name: of the column.
        categories: of a categorical column, in the order of their codes; ``None`` for numbers.
        lower: numbers below count as this bound.
        upper: numbers above count as this bound.
        is_whole: whether numbers are rounded to whole numbers, ties to even.
        missing: code of a missing cell; ``None`` if no cell may be missing.
    """

    name: str
    categories: tuple[str, ...] | None
    lower: float
    upper: float
    is_whole: bool
    missing: int | None


class RowText:
    """The columns of a schema, as arrays for the compiled loop."""

    def __init__(self, columns: Sequence[ColumnText]) -> None:
        names = [column.name.encode("utf-8") for column in columns]
        categories = [[text.encode("utf-8") for text in column.categories or ()] for column in columns]
        texts = [*names, *(text for listed in categories for text in listed)]
        self._texts = (
            np.frombuffer(b"".join(texts), dtype=np.uint8),
            np.cumsum([0, *map(len, texts)], dtype=np.int64),
            np.array([_key(text) for text in texts], dtype=np.uint64),
        )
        rules = [
            (it.lower, it.upper, it.is_whole, -1 if it.missing is None else it.missing, it.categories is not None)
            for it in columns
        ]
        firsts = np.cumsum([len(names), *map(len, categories)], dtype=np.int64)
        self._rules = firsts, np.array(rules, dtype=np.float64).reshape(len(columns), 5)
        self._is_categorical = tuple(column.categories is not None for column in columns)
        self._missing = tuple(column.missing for column in columns)

    def read(self, text: bytes, n_rows: int, *, by_columns: bool = False) -> NDArray[np.float64] | None:
        """Reads ``{"rows": [{name: value, …}, …]}`` or ``{"columns": {name: [value, …], …}}``.

        Args:
            text: of any content.
            n_rows: the number of rows that the text has if it is such a request; at least 1.
            by_columns: which of the two forms is read.

        Returns:
            Sanitised values, float64 ``(n_columns, n_rows)``, codes of categories as numbers; ``None`` if the text is
            not read, which says nothing about its validity.
        """
        values = np.empty((len(self._missing), n_rows))
        members = np.empty(len(self._missing), dtype=np.int64)
        body = np.frombuffer(b"\0%b\0" % text, dtype=np.uint8)
        scan = _loops().scan_columns if by_columns else _loops().scan_rows
        n_members: int = scan(body, self._texts, self._rules, members, values)
        if n_members < 0:
            return None
        if n_members < len(members):
            for column in set(range(len(members))).difference(members[:n_members].tolist()):
                missing = self._missing[column]
                if missing is None:
                    return None
                values[column] = missing if self._is_categorical[column] else np.nan
        return values


@cache
def _loops() -> ModuleType:
    """The compiled loops, which load the compiler: 0.5 s of CPU."""
    from app.forests.kernels.compiled import json_loops

    return json_loops


def _key(text: bytes) -> int:
    """The hash by which the loop finds a text (FNV-1a)."""
    key = _HASH_START
    for byte in text:
        key = (key ^ byte) * _HASH_FACTOR & 2**64 - 1
    return key
