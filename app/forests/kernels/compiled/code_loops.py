"""Finds the codes of values between edges, as ``numpy.searchsorted`` does, and adds two codes, in compiled loops."""

import numpy as np
from numpy.typing import NDArray

from app.forests.compilation.compiler import compiled, compiled_for, integer, read, written


@compiled
def _n_below(edges: NDArray[np.float64], value: np.float64) -> int:
    """The number of edges below a value, by a search without branches; ``edges`` ascend and are not empty."""
    base = 0
    n_left = edges.size
    while n_left > 1:
        half = n_left >> 1
        base += half if edges[base + half - 1] < value else 0
        n_left -= half
    return base + (1 if edges[base] < value else 0)


@compiled
def _code(
    value: np.float64, edges: NDArray[np.float64], highest: np.float64, missing: np.float64, last: np.float64
) -> int:
    """The code of a value; see ``app.forests.kernels.codes.ColumnRule``."""
    if np.isnan(value) or value == missing:
        return int(last)
    if edges.size == 0:
        return int(max(0.0, min(value, highest)))
    return _n_below(edges, min(value, highest))


@compiled_for(
    read("float64", 2), read("float64", 1), read("int64", 1), read("float64", 2), integer, written("uint8", 2)
)
def fill_codes(
    values: NDArray[np.float64],
    edges: NDArray[np.float64],
    first_edge: NDArray[np.int64],
    rules: NDArray[np.float64],
    start: int,
    codes: NDArray[np.uint8],
) -> None:
    """Fills ``codes[:, start : start + n_rows]`` from ``values`` ``(n_columns, n_rows)``; indices were checked.

    ``rules`` has three numbers per column: the highest value, the value that is missing, and the last code.
    """
    n_columns, n_rows = values.shape
    for column in range(n_columns):
        of_column = edges[first_edge[column] : first_edge[column + 1]]
        highest, missing, last = rules[column]
        for i in range(n_rows):
            codes[column, start + i] = np.uint8(_code(values[column, i], of_column, highest, missing, last))


@compiled_for(read("float64", 1), read("float64", 1), read("float64", 1), written("uint16", 1))
def fill_wide_codes(
    values: NDArray[np.float64], edges: NDArray[np.float64], rule: NDArray[np.float64], codes: NDArray[np.uint16]
) -> None:
    """Does what :func:`fill_codes` does, for one column with any number of codes."""
    highest, missing, last = rule
    for i in range(values.size):
        codes[i] = np.uint16(_code(values[i], edges, highest, missing, last))


@compiled_for(read("uint8", 2), read("int64", 2), read("uint8", 3), written("uint8", 2))
def fill_sums(
    codes: NDArray[np.uint8], features: NDArray[np.int64], tables: NDArray[np.uint8], sums: NDArray[np.uint8]
) -> None:
    """Fills ``sums`` ``(n_columns, n_rows)`` from ``codes`` ``(n_features, n_rows)``; indices were checked."""
    for column in range(sums.shape[0]):
        first, second = codes[features[column, 0]], codes[features[column, 1]]
        for i in range(sums.shape[1]):
            sums[column, i] = tables[column, 0, first[i]] + tables[column, 1, second[i]]
