"""Finds codes of values, adds two codes, walks down trees and normalises sums, in
compiled loops.

A code is the number of edges below a value, as ``numpy.searchsorted`` finds it.

A split is a set of codes that go right. A few rows walk one by one. Other rows walk
together, 64 in a word: for every distinct split, one bit per row says whether the row
goes right. At each level, the direction of the rows is a choice between the bits of the
nodes of this level, by the directions at the levels above. The directions of a row are
the binary digits of the number of the node that it reaches. Below the first eight
levels, rows walk one by one again.
"""

import numpy as np

from grovekeeper_forests.array_types import (
    Float64Array,
    Int64Array,
    UInt8Array,
    UInt16Array,
    UInt32Array,
    UInt64Array,
)
from grovekeeper_forests.compiler import (
    compiled,
    compiled_for,
    integer,
    pair,
    read,
    triple,
    written,
)

_FEW_ROWS = 10
_TREES_TOGETHER = 8
_ROWS_TOGETHER = 64
_LEVELS_TOGETHER = 8
_ONE = np.uint32(1)
_TWO = np.uint32(2)
_BIT = np.uint64(1)
_SIX_BITS = np.uint8(6)
_LOWEST_SIX = np.uint8(63)
_NO_FEATURE = 2**32 - 1
_EIGHT_BITS = np.uint64(255)
_SPREAD = np.array(
    [sum((byte >> i & 1) << 8 * i for i in range(8)) for byte in range(256)],
    dtype=np.uint64,
)
"""For every byte, a word whose byte i is bit i."""

Bins = tuple[Float64Array, Int64Array, Float64Array]
"""The edges of all columns; where those of every column begin, with one number more;
and three numbers per column: the highest value, the value that is missing, and the last
code.
"""
Splits = tuple[UInt32Array, UInt64Array]
"""Of distinct splits: the features, ascending, and the sets of codes that go right as
bits, ``(n_distinct, 4)``.
"""
Turns = tuple[Int64Array, UInt16Array]
"""Where the turns of every distinct split begin, with one number more, and the codes at
which membership changes.
"""

_BINS = triple(read("float64", 1), read("int64", 1), read("float64", 2))
_SPLITS = pair(read("uint32", 1), read("uint64", 2))
_TURNS = pair(read("int64", 1), read("uint16", 1))


@compiled
def _n_below(edges: Float64Array, value: np.float64) -> int:
    """The number of edges below a value, by a search without branches; ``edges`` ascend
    and are not empty.
    """
    base = 0
    n_left = edges.size
    while n_left > 1:
        half = n_left >> 1
        base += half if edges[base + half - 1] < value else 0
        n_left -= half
    return base + (1 if edges[base] < value else 0)


@compiled
def _code(
    value: np.float64,
    edges: Float64Array,
    highest: np.float64,
    missing: np.float64,
    last: np.float64,
) -> int:
    """The code of a value; see ``grovekeeper_forests.kernels.prediction.ColumnRule``."""
    if np.isnan(value) or value == missing:
        return int(last)
    if edges.size == 0:
        return int(max(0.0, min(value, highest)))
    return _n_below(edges, min(value, highest))


@compiled_for(read("float64", 2), _BINS, integer, written("uint8", 2))
def fill_codes(values: Float64Array, bins: Bins, start: int, codes: UInt8Array) -> None:
    """Fills ``codes[:, start : start + n_rows]`` from ``values`` ``(n_columns,
    n_rows)``; indices were checked.
    """
    edges, first_edge, rules = bins
    n_columns, n_rows = values.shape
    for column in range(n_columns):
        of_column = edges[first_edge[column] : first_edge[column + 1]]
        highest, missing, last = rules[column]
        for i in range(n_rows):
            codes[column, start + i] = np.uint8(
                _code(values[column, i], of_column, highest, missing, last)
            )


@compiled_for(
    read("float64", 1), read("float64", 1), read("float64", 1), written("uint16", 1)
)
def fill_wide_codes(
    values: Float64Array,
    edges: Float64Array,
    rule: Float64Array,
    codes: UInt16Array,
) -> None:
    """Does what :func:`fill_codes` does, for one column with any number of codes."""
    highest, missing, last = rule
    for i in range(values.size):
        codes[i] = np.uint16(_code(values[i], edges, highest, missing, last))


@compiled_for(read("uint8", 2), read("int64", 2), read("uint8", 3), written("uint8", 2))
def fill_sums(
    codes: UInt8Array,
    features: Int64Array,
    tables: UInt8Array,
    sums: UInt8Array,
) -> None:
    """Fills ``sums`` ``(n_columns, n_rows)`` from ``codes`` ``(n_features, n_rows)``;
    indices were checked.
    """
    for column in range(sums.shape[0]):
        first, second = codes[features[column, 0]], codes[features[column, 1]]
        for i in range(sums.shape[1]):
            sums[column, i] = tables[column, 0, first[i]] + tables[column, 1, second[i]]


@compiled
def _is_in(code: np.uint8, codes: UInt64Array) -> np.uint32:
    return np.uint32((codes[code >> _SIX_BITS] >> np.uint64(code & _LOWEST_SIX)) & _BIT)


@compiled
def _leaf(
    X: UInt8Array,
    row: int,
    number: UInt32Array,
    splits: Splits,
    node: np.uint32,
) -> np.uint32:
    """The leaf that a row reaches from a node of a tree."""
    feature, right = splits
    while node < number.size:
        split = number[node]
        node = _TWO * node + _ONE + _is_in(X[feature[split], row], right[split])
    return np.uint32(node - np.uint32(number.size))


@compiled
def _fill_right(
    X: UInt8Array,
    start: int,
    n_rows: int,
    feature: UInt32Array,
    turns: Turns,
    goes_right: UInt64Array,
) -> None:
    """Fills ``goes_right``: for every distinct split, the rows of a word that go right,
    one bit each.

    A set of codes is the exclusive or of the sets "code ≥ c" over the codes c at which
    membership changes.
    """
    first_turn, turn = turns
    at_least = np.empty(257, dtype=np.uint64)
    seen = np.uint32(_NO_FEATURE)
    above = np.intp(0)
    for split in range(feature.size):
        if feature[split] != seen:
            seen = feature[split]
            column = X[seen, start : start + n_rows]
            above = np.intp(1)
            for i in range(n_rows):
                above = max(above, np.intp(column[i]) + 1)
            at_least[: above + 1] = 0
            for i in range(n_rows):
                at_least[column[i]] |= _BIT << np.uint64(i)
            for code in range(above - 1, -1, -1):
                at_least[code] |= at_least[code + 1]
        rows = np.uint64(0)
        for i in range(first_turn[split], first_turn[split + 1]):
            rows ^= at_least[min(np.intp(turn[i]), above)]
        goes_right[split] = rows


@compiled
def _choice(left: np.uint64, right: np.uint64, goes_right: np.uint64) -> np.uint64:
    return np.uint64(left ^ ((left ^ right) & goes_right))


@compiled
def _fill_directions(
    goes_right: UInt64Array,
    number: UInt32Array,
    directions: UInt64Array,
    nodes: UInt64Array,
) -> None:
    """Fills ``directions``: for each of the first levels of a tree, the rows of a word
    that go right.

    Args:
        goes_right: from :func:`_fill_right`.
        number: the tree's splits, as positions in ``goes_right``.
        directions: the result; not empty.
        nodes: work space for half the nodes of the last level.
    """
    directions[0] = goes_right[number[0]]
    for level in range(1, directions.size):
        n_parents = 1 << (level - 1)
        children = number[2 * n_parents - 1 : 4 * n_parents - 1]
        for i in range(n_parents):
            nodes[i] = _choice(
                goes_right[children[2 * i]],
                goes_right[children[2 * i + 1]],
                directions[level - 1],
            )
        for above in range(level - 2, -1, -1):
            n_parents >>= 1
            for i in range(n_parents):
                nodes[i] = _choice(nodes[2 * i], nodes[2 * i + 1], directions[above])
        directions[level] = nodes[0]


@compiled
def _add_row(
    X: UInt8Array,
    row: int,
    number: UInt32Array,
    splits: Splits,
    values: Float64Array,
    sums: Float64Array,
) -> None:
    """Adds the leaf values of one row, eight trees at a time: a step down waits for
    loads, so walks are interleaved.
    """
    n_trees, n_nodes = number.shape
    feature, right = splits
    at = np.empty(_TREES_TOGETHER, dtype=np.uint32)
    for first in range(0, n_trees, _TREES_TOGETHER):
        n_group = min(_TREES_TOGETHER, n_trees - first)
        at[:] = 0
        n_above = 0
        while n_above < n_nodes:
            for i in range(n_group):
                split = number[first + i, at[i]]
                at[i] = (
                    _TWO * at[i] + _ONE + _is_in(X[feature[split], row], right[split])
                )
            n_above = 2 * n_above + 1
        for i in range(n_group):
            for k in range(sums.shape[0]):
                sums[k, row] += values[first + i, k, at[i] - np.uint32(n_nodes)]


@compiled
def _fill_reached(directions: UInt64Array, reached: UInt64Array) -> None:
    """Fills ``reached``, as 64 bytes: the number that every row's directions spell, the
    first level's digit first.
    """
    for byte in range(reached.size):
        digits = np.uint64(0)
        for level in range(directions.size):
            eight_rows = (directions[level] >> np.uint64(8 * byte)) & _EIGHT_BITS
            digits = (digits << _BIT) | _SPREAD[eight_rows]
        reached[byte] = digits


@compiled
def _add_values(sums: Float64Array, values: Float64Array, leaf: UInt32Array) -> None:
    for i in range(sums.size):
        sums[i] += values[leaf[i]]


@compiled_for(
    read("uint8", 2),
    read("uint32", 2),
    _SPLITS,
    _TURNS,
    read("float64", 3),
    written("float64", 2),
)
def sum_leaf_values(
    X: UInt8Array,
    number: UInt32Array,
    splits: Splits,
    turns: Turns,
    values: Float64Array,
    sums: Float64Array,
) -> None:
    """Adds leaf values to ``sums`` ``(n_outputs, n_rows)``; ``X`` is ``(n_features,
    n_rows)``, indices were checked.
    """
    n_rows, (n_trees, n_nodes) = X.shape[1], number.shape
    n_levels = 0
    while n_levels < _LEVELS_TOGETHER and (1 << n_levels) <= n_nodes:
        n_levels += 1
    goes_right = np.empty(splits[0].size, dtype=np.uint64)
    directions = np.empty(n_levels, dtype=np.uint64)
    nodes = np.empty(1 << n_levels, dtype=np.uint64)
    words = np.empty(8, dtype=np.uint64)
    reached = words.view(np.uint8)
    leaf = np.empty(_ROWS_TOGETHER, dtype=np.uint32)
    first_below = np.uint32((1 << n_levels) - 1)
    for start in range(0, n_rows, _ROWS_TOGETHER):
        n_here = min(_ROWS_TOGETHER, n_rows - start)
        if n_here <= _FEW_ROWS or n_levels == 0:
            for row in range(start, start + n_here):
                _add_row(X, row, number, splits, values, sums)
            continue
        _fill_right(X, start, n_here, splits[0], turns, goes_right)
        for tree in range(n_trees):
            _fill_directions(goes_right, number[tree], directions, nodes)
            _fill_reached(directions, words)
            if first_below == n_nodes:
                # a loop: ``leaf[:] = reached`` takes a second to compile
                for i in range(_ROWS_TOGETHER):
                    leaf[i] = reached[i]
            else:
                for i in range(n_here):
                    leaf[i] = _leaf(
                        X,
                        start + i,
                        number[tree],
                        splits,
                        first_below + np.uint32(reached[i]),
                    )
            for k in range(sums.shape[0]):
                _add_values(sums[k, start : start + n_here], values[tree, k], leaf)


@compiled_for(
    read("float64", 2),
    _BINS,
    pair(read("uint32", 2), read("float64", 3)),
    _SPLITS,
    _TURNS,
    written("float64", 2),
)
def sum_leaf_values_of(
    columns: Float64Array,
    bins: Bins,
    trees: tuple[UInt32Array, Float64Array],
    splits: Splits,
    turns: Turns,
    sums: Float64Array,
) -> None:
    """Does :func:`fill_codes` and then :func:`sum_leaf_values`: for one row, a call
    takes longer than its loops.
    """
    number, values = trees
    X = np.empty(columns.shape, dtype=np.uint8)
    fill_codes(columns, bins, 0, X)
    sum_leaf_values(X, number, splits, turns, values, sums)


@compiled_for(written("float64", 2), read("float64", 2), written("int64", 2))
def bound_cells(table: Float64Array, rules: Float64Array, changed: Int64Array) -> int:
    """Bounds and rounds cells in place, and counts; see
    ``grovekeeper_forests.kernels.prediction.bound_cells``.
    """
    n_changed = 0
    for column in range(table.shape[0]):
        lower, upper, other, is_whole = rules[column]
        for row in range(table.shape[1]):
            value = table[column, row]
            if value < lower or value > upper:
                value = lower if value < lower else upper
                changed[0, column] += 1
                n_changed += 1
            elif value == other:
                changed[1, column] += 1
                n_changed += 1
            if is_whole > 0.0:
                value = np.rint(value)
            table[column, row] = value + 0.0  # a negative zero becomes a positive zero
    return n_changed


@compiled_for(written("float64", 2))
def normalise(evidence: Float64Array) -> None:
    """Divides every row by its sum, in place; uniform where the sum is not positive."""
    n_outputs = evidence.shape[1]
    for row in range(evidence.shape[0]):
        total = 0.0
        for k in range(n_outputs):
            total += evidence[row, k]
        for k in range(n_outputs):
            evidence[row, k] = (
                evidence[row, k] / total if total > 0.0 else 1.0 / n_outputs
            )


@compiled_for(written("float64", 2))
def subtract_largest(sums: Float64Array) -> None:
    """Subtracts from every row its largest number, in place."""
    for row in range(sums.shape[0]):
        largest = -np.inf
        for k in range(sums.shape[1]):
            largest = max(largest, sums[row, k])
        for k in range(sums.shape[1]):
            sums[row, k] -= largest
