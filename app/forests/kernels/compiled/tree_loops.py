"""Walks down trees in compiled loops: prediction for a caller's rows, routing for training rows.

Routing stores a split as the interval of codes [low, low + span] that goes left: [0, threshold] for an ordered split,
[threshold, threshold] for a category split. A row goes right if (code − low) mod 256 > span. This needs one word per
node and no branch; the processor would mispredict half of such branches.

In prediction, a split is a set of codes that go right. A few rows walk one by one. Other rows walk together, 64 in a
word: for every distinct split, one bit per row says whether the row goes right. At each level, the direction of the
rows is a choice between the bits of the nodes of this level, by the directions at the levels above. The directions of a
row are the binary digits of the number of the node that it reaches. Below the first eight levels, rows walk one by one
again.
"""

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from app.forests.compilation.compiler import compiled, compiled_for, integer, pair, read, written

_BLOCK_ROWS = 2**10
_FEW_ROWS = 10
_TREES_TOGETHER = 8
_ROWS_TOGETHER = 64
_LEVELS_TOGETHER = 8
_NOWHERE = np.int32(-1)
_LOWEST_BYTE = np.uint32(255)
_ONE_BYTE = np.uint32(8)
_TWO_BYTES = np.uint32(16)
_ONE = np.uint32(1)
_TWO = np.uint32(2)
_BIT = np.uint64(1)
_SIX_BITS = np.uint8(6)
_LOWEST_SIX = np.uint8(63)
_NO_FEATURE = 2**32 - 1
_EIGHT_BITS = np.uint64(255)
_SPREAD = np.array([sum((byte >> i & 1) << 8 * i for i in range(8)) for byte in range(256)], dtype=np.uint64)
"""For every byte, a word whose byte i is bit i."""

Splits: TypeAlias = tuple[NDArray[np.uint32], NDArray[np.uint64]]
"""Of distinct splits: the features, ascending, and the sets of codes that go right as bits, ``(n_distinct, 4)``."""

_SPLITS_OF_A_LEVEL = (read("int32", 1), read("uint8", 1), read("boolean", 1))
_SPLITS_OF_TREES = (read("int32", 2), read("uint8", 2), read("boolean", 2))


@compiled
def _split(feature: np.int32, threshold: np.uint8, equals: np.bool_, n_features: int) -> np.uint32:
    """Packs feature, low and span of a node in one word; an unknown feature becomes ``n_features``, at most 2¹⁶ − 1."""
    known = 0 <= feature < n_features
    number = np.uint32(feature if known else n_features) << _TWO_BYTES
    bin_ = np.uint32(threshold)
    return np.uint32(number | (bin_ << _ONE_BYTE if equals else bin_))


@compiled
def _goes_right(bin_: np.uint8, split: np.uint32) -> np.uint32:
    low = split >> _ONE_BYTE
    return np.uint32(((np.uint32(bin_) - low) & _LOWEST_BYTE) > (split & _LOWEST_BYTE))


@compiled
def _is_in(code: np.uint8, codes: NDArray[np.uint64]) -> np.uint32:
    return np.uint32((codes[code >> _SIX_BITS] >> np.uint64(code & _LOWEST_SIX)) & _BIT)


@compiled
def _leaf(X: NDArray[np.uint8], row: int, number: NDArray[np.uint32], splits: Splits, node: np.uint32) -> np.uint32:
    """The leaf that a row reaches from a node of a tree."""
    feature, right = splits
    while node < number.size:
        split = number[node]
        node = _TWO * node + _ONE + _is_in(X[feature[split], row], right[split])
    return np.uint32(node - np.uint32(number.size))


@compiled
def _fill_right(
    X: NDArray[np.uint8],
    start: int,
    n_rows: int,
    feature: NDArray[np.uint32],
    turns: tuple[NDArray[np.int64], NDArray[np.uint16]],
    goes_right: NDArray[np.uint64],
) -> None:
    """Fills ``goes_right``: for every distinct split, the rows of a word that go right, one bit each.

    A set of codes is the exclusive or of the sets "code ≥ c" over the codes c at which membership changes.
    """
    first_turn, turn = turns
    at_least = np.empty(257, dtype=np.uint64)
    seen = np.uint32(_NO_FEATURE)
    above = np.intp(0)
    for split in range(feature.size):
        if feature[split] != seen:
            seen = feature[split]
            column = X[seen, start : start + n_rows]
            above = np.intp(column.max()) + 1
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
    goes_right: NDArray[np.uint64],
    number: NDArray[np.uint32],
    directions: NDArray[np.uint64],
    nodes: NDArray[np.uint64],
) -> None:
    """Fills ``directions``: for each of the first levels of a tree, the rows of a word that go right.

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
            nodes[i] = _choice(goes_right[children[2 * i]], goes_right[children[2 * i + 1]], directions[level - 1])
        for above in range(level - 2, -1, -1):
            n_parents >>= 1
            for i in range(n_parents):
                nodes[i] = _choice(nodes[2 * i], nodes[2 * i + 1], directions[above])
        directions[level] = nodes[0]


@compiled
def _add_row(
    X: NDArray[np.uint8],
    row: int,
    number: NDArray[np.uint32],
    splits: Splits,
    values: NDArray[np.float64],
    sums: NDArray[np.float64],
) -> None:
    """Adds the leaf values of one row, eight trees at a time: a step down waits for loads, so walks are interleaved."""
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
                at[i] = _TWO * at[i] + _ONE + _is_in(X[feature[split], row], right[split])
            n_above = 2 * n_above + 1
        for i in range(n_group):
            for k in range(sums.shape[0]):
                sums[k, row] += values[first + i, k, at[i] - np.uint32(n_nodes)]


@compiled
def _fill_reached(directions: NDArray[np.uint64], reached: NDArray[np.uint64]) -> None:
    """Fills ``reached``, as 64 bytes: the number that every row's directions spell, the first level's digit first."""
    for byte in range(reached.size):
        digits = np.uint64(0)
        for level in range(directions.size):
            eight_rows = (directions[level] >> np.uint64(8 * byte)) & _EIGHT_BITS
            digits = (digits << _BIT) | _SPREAD[eight_rows]
        reached[byte] = digits


@compiled
def _add_values(sums: NDArray[np.float64], values: NDArray[np.float64], leaf: NDArray[np.uint32]) -> None:
    for i in range(sums.size):
        sums[i] += values[leaf[i]]


@compiled_for(
    read("uint8", 2),
    read("uint32", 2),
    pair(read("uint32", 1), read("uint64", 2)),
    pair(read("int64", 1), read("uint16", 1)),
    read("float64", 3),
    written("float64", 2),
)
def sum_leaf_values(
    X: NDArray[np.uint8],
    number: NDArray[np.uint32],
    splits: Splits,
    turns: tuple[NDArray[np.int64], NDArray[np.uint16]],
    values: NDArray[np.float64],
    sums: NDArray[np.float64],
) -> None:
    """Adds leaf values to ``sums`` ``(n_outputs, n_rows)``; ``X`` is ``(n_features, n_rows)``, indices were checked."""
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
                leaf[:] = reached
            else:
                for i in range(n_here):
                    leaf[i] = _leaf(X, start + i, number[tree], splits, first_below + np.uint32(reached[i]))
            for k in range(sums.shape[0]):
                _add_values(sums[k, start : start + n_here], values[tree, k], leaf)


@compiled_for(read("uint8", 2), read("int32", 1), *_SPLITS_OF_A_LEVEL, written("int32", 1))
def descend(
    X: NDArray[np.uint8],
    node: NDArray[np.int32],
    feature: NDArray[np.int32],
    threshold: NDArray[np.uint8],
    equals: NDArray[np.bool_],
    child: NDArray[np.int32],
) -> None:
    """Fills ``child`` with the nodes of the next level; ``X`` is ``(n_features, n_rows)`` and indices were checked."""
    splits = np.empty(feature.size, dtype=np.uint32)
    for v in range(feature.size):
        splits[v] = _split(feature[v], threshold[v], equals[v], X.shape[0])
    for i in range(node.size):
        if node[i] < 0:
            child[i] = _NOWHERE
        else:
            split = splits[node[i]]
            child[i] = 2 * node[i] + _goes_right(X[split >> _TWO_BYTES, i], split)


@compiled_for(read("uint8", 2), *_SPLITS_OF_TREES, integer, written("int32", 2))
def leaves(
    X: NDArray[np.uint8],
    feature: NDArray[np.int32],
    threshold: NDArray[np.uint8],
    equals: NDArray[np.bool_],
    depth: int,
    reached: NDArray[np.int32],
) -> None:
    """Fills ``reached``; ``X`` is ``(n_features, n_rows)`` and indices were checked.

    A block of rows goes down level by level. The nodes of level l are numbered from 0, as in :func:`descend`, and start
    at index 2ˡ − 1 of the arrays, so numbers at the last level are leaf numbers.
    """
    n_trees, n_rows = reached.shape
    splits = np.empty(feature.shape[1], dtype=np.uint32)
    for tree in range(n_trees):
        for v in range(splits.size):
            splits[v] = _split(feature[tree, v], threshold[tree, v], equals[tree, v], X.shape[0])
        for start in range(0, n_rows, _BLOCK_ROWS):
            at = reached[tree, start : start + _BLOCK_ROWS]
            at[:] = 0
            for level in range(depth):
                first = 2**level - 1
                for i in range(at.size):
                    split = splits[first + at[i]]
                    at[i] = 2 * at[i] + _goes_right(X[split >> _TWO_BYTES, start + i], split)


@compiled_for(read("int32", 2), read("int32", 3), written("int64", 2))
def add_leaf_scores(reached: NDArray[np.int32], leaf_scores: NDArray[np.int32], scores: NDArray[np.int64]) -> None:
    """Adds the scores of every row's leaves to ``scores`` ``(n_rows, n_scores)``; indices were checked."""
    n_trees, n_rows = reached.shape
    n_scores = scores.shape[1]
    for tree in range(n_trees):
        for i in range(n_rows):
            leaf = np.uint32(reached[tree, i])
            for k in range(n_scores):
                scores[i, k] += leaf_scores[tree, leaf, k]
