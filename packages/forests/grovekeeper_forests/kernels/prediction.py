"""Finds the codes of values between public edges, and sums the leaf values that rows
reach over the trees of a forest.

Leaf values are floats; sums of tabulated codes of two columns are codes of further
columns.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from types import ModuleType

import numpy as np
from numpy.typing import NDArray

from grovekeeper_forests.array_types import (
    BoolArray,
    Float64Array,
    Int32Array,
    Int64Array,
    UInt8Array,
    UInt16Array,
    UInt32Array,
    UInt64Array,
)
from grovekeeper_forests.kernels.arrays import require, require_range, require_splits

BLOCK = 2**16
"""Rows whose values are copied at once: at most 512 KiB per column."""


@cache
def _loops() -> ModuleType:
    """The compiled loops, which load the compiler: 0.5 s of CPU."""
    from grovekeeper_forests.kernels.compiled import prediction_loops

    return prediction_loops


@dataclass(frozen=True)
class ColumnRule:
    """How the values of a column become codes.

    Attributes:
        edges: ascending; the code is the number of edges below the value. ``None``: the
            value is the code.
        highest: larger values count as this value.
        missing: this value counts as NaN; NaN: no other value does.
        last: code of NaN, the largest code; at most 255, or 65,535 for wide codes.
    """

    edges: Float64Array | None
    highest: float
    missing: float
    last: int


class CodeTables:
    """The rules of all columns as arrays for the compiled loop.

    Attributes:
        bins: the arrays, for a compiled loop over a :meth:`block`.
    """

    def __init__(self, rules: Iterable[ColumnRule]) -> None:
        edges: list[Float64Array] = [np.empty(0)]
        first_edge, numbers = [0], []
        for rule in rules:
            highest, n_edges = rule.highest, 0
            if rule.edges is not None:
                edges.append(rule.edges)
                n_edges = len(rule.edges)
                if n_edges == 0:  # without edges, a number has code 0
                    highest = 0.0
            first_edge.append(first_edge[-1] + n_edges)
            numbers.append((highest, rule.missing, rule.last))
        self._edges = np.concatenate(edges)
        self._first_edge = np.array(first_edge, dtype=np.int64)
        self._rules = np.array(numbers, dtype=np.float64).reshape(-1, 3)
        self.bins = self._edges, self._first_edge, self._rules

    def codes(
        self, columns: tuple[Float64Array | Int32Array, ...], n_rows: int
    ) -> UInt8Array:
        """The codes of PRIVATE or caller's rows; a row's codes depend on no other row.

        Args:
            columns: float64 or int32 ``(n_rows,)`` each, one per rule.
            n_rows: also where there is no column.

        Returns:
            uint8 ``(n_columns, n_rows)``.

        Raises:
            ValueError: another number of columns, or a column of another length.
        """
        codes = np.empty((len(self._rules), n_rows), dtype=np.uint8)
        for start in range(0, n_rows, BLOCK):
            block = self.block(columns, start, min(BLOCK, n_rows - start))
            _loops().fill_codes(block, self.bins, start, codes)
        return codes

    def block(
        self,
        columns: tuple[Float64Array | Int32Array, ...],
        start: int,
        n_rows: int,
    ) -> Float64Array:
        """Consecutive rows of all columns, float64 ``(n_columns, n_rows)``.

        Raises:
            ValueError: another number of columns, or a column of another length.
        """
        block = np.empty((len(self._rules), n_rows))
        for row, column in zip(block, columns, strict=True):
            row[:] = column[start : start + n_rows]
        return block

    def wide_codes(self, column: int, values: Float64Array | Int32Array) -> UInt16Array:
        """The codes of the PRIVATE sanitised values of one column, which may have more
        than 256 codes, as in a public grid: uint16 ``(n_rows,)``.
        """
        codes = np.empty(len(values), dtype=np.uint16)
        edges = self._edges[self._first_edge[column] : self._first_edge[column + 1]]
        _loops().fill_wide_codes(
            values.astype(np.float64), edges, self._rules[column], codes
        )
        return codes


class CodeSums:
    """Columns that are sums of two tabulated codes, as arrays for the compiled loop."""

    def __init__(
        self, features: Sequence[tuple[int, int]], tables: Sequence[Int32Array]
    ) -> None:
        """Stores what the columns are.

        Args:
            features: the two features of every column.
            tables: for every column, the summands of all codes of both features; int32
                ``(2, 256)``, each from 0, with sums up to 255.
        """
        self._features = np.array(features, dtype=np.int64).reshape(len(features), 2)
        self._tables = np.array(tables, dtype=np.uint8).reshape(len(features), 2, 256)

    def of(
        self, codes: UInt8Array, chosen: NDArray[np.integer] | None = None
    ) -> UInt8Array:
        """The columns of PRIVATE or caller's rows.

        Args:
            codes: of the features, uint8 ``(n_features, n_rows)``.
            chosen: indices of columns; all by default.

        Returns:
            uint8 ``(n_chosen, n_rows)``.

        Raises:
            ValueError: a wrong type or shape, or fewer features than the columns need.
        """
        codes = require(codes, np.uint8, shape=(None, None), name="codes")
        features, tables = self._features, self._tables
        if chosen is not None:
            features, tables = features[chosen], tables[chosen]
        require_range(features, lowest=0, below=len(codes), name="features")
        sums = np.empty((len(features), codes.shape[1]), dtype=np.uint8)
        _loops().fill_sums(codes, features, tables, sums)
        return sums


_SETS_AT_ONCE = 2**14  # sets of codes whose bits are in memory at once: 4 MiB


@dataclass(frozen=True, eq=False)
class PackedTrees:
    """Complete binary trees prepared for prediction, with every distinct split once.

    Attributes:
        number: the split of every node, uint32 ``(n_trees, 2**depth − 1)``; nodes in
            heap order: the children of node v are ``2 · v + 1`` and ``2 · v + 2``.
        feature: of every distinct split, ascending; uint32 ``(n_distinct,)``.
        right: the codes of the feature that go right, one bit each; uint64
            ``(n_distinct, 4)``.
        first_turn: the turns of split s are ``turn[first_turn[s] : first_turn[s +
            1]]``; int64 ``(n_distinct + 1,)``.
        turn: codes at which going right begins or ends; uint16.
        values: of the leaves, float64 ``(n_trees, n_outputs, 2**depth)``.
        n_features: above the feature of every split.
    """

    number: UInt32Array
    feature: UInt32Array
    right: UInt64Array
    first_turn: Int64Array
    turn: UInt16Array
    values: Float64Array
    n_features: int

    @classmethod
    def of_thresholds(
        cls,
        feature: Int32Array,
        threshold: UInt8Array,
        equals: BoolArray,
        *,
        values: Float64Array,
        n_features: int,
    ) -> PackedTrees:
        """Prepares trees whose splits have one threshold each.

        Args:
            feature: public; int32 ``(n_trees, 2**depth − 1)``; depth 0 is a single
                leaf.
            threshold: public; uint8, same shape.
            equals: public; bool, same shape: if true, a row goes right if its code
                differs from the threshold; otherwise if its code is above the
                threshold.
            values: public; float64 ``(n_trees, 2**depth, n_outputs)``.
            n_features: number of features of the rows.

        Raises:
            ValueError: a wrong type or shape, or a split on a feature that the rows do
                not have.
        """
        feature, threshold, equals = require_splits(
            (feature, threshold, equals), shape=(None, None), n_features=n_features
        )
        require_range(feature, lowest=0, below=n_features, name="feature")
        # One number for each split; its lowest nine bits are a row of
        # ``_threshold_sets``.
        rules = (feature.astype(np.int64) << 9) | np.where(equals, 256, 0) | threshold
        distinct, number = np.unique(rules, return_inverse=True)
        sets = _threshold_sets()[distinct & 511]
        return cls._of(
            number.reshape(feature.shape), distinct >> 9, sets, values, n_features
        )

    @classmethod
    def of_sets(
        cls,
        feature: Int32Array,
        right: UInt64Array,
        *,
        values: Float64Array,
        n_features: int,
    ) -> PackedTrees:
        """Prepares trees whose splits are sets of codes.

        Args:
            feature: public; int32 ``(n_trees, 2**depth − 1)``.
            right: public; the codes that go right, one bit each; uint64 ``(n_trees,
                2**depth − 1, 4)``.
            values: public; float64 ``(n_trees, 2**depth, n_outputs)``.
            n_features: number of features of the rows.

        Raises:
            ValueError: a wrong type or shape, or a split on a feature that the rows do
                not have.
        """
        feature = require(feature, np.int32, shape=(None, None), name="feature")
        right = require(right, np.uint64, shape=(*feature.shape, 4), name="right")
        require_range(feature, lowest=0, below=n_features, name="feature")
        order = np.argsort(feature, axis=None, kind="stable")
        number = np.empty(feature.size, dtype=np.int64)
        number[order] = np.arange(feature.size)
        sets = right.reshape(-1, 4)[order]
        return cls._of(
            number.reshape(feature.shape),
            feature.ravel()[order],
            sets,
            values,
            n_features,
        )

    @classmethod
    def _of(
        cls,
        number: NDArray[np.integer],
        feature: NDArray[np.integer],
        right: UInt64Array,
        values: Float64Array,
        n_features: int,
    ) -> PackedTrees:
        n_trees, n_nodes = number.shape
        values = require(
            values.swapaxes(1, 2),
            np.float64,
            shape=(n_trees, None, n_nodes + 1),
            name="values",
        )
        n_turns, turn = _turns(right)
        return cls(
            number.astype(np.uint32),
            feature.astype(np.uint32),
            right,
            np.concatenate([[0], np.cumsum(n_turns)]).astype(np.int64),
            turn,
            values,
            n_features,
        )


@cache
def _threshold_sets() -> UInt64Array:
    """The codes above every threshold, then the codes that differ from it; uint64
    ``(512, 4)``, one bit per code.
    """
    code, threshold = np.arange(256), np.arange(256)[:, np.newaxis]
    sets = np.concatenate([code > threshold, code != threshold])
    return np.packbits(sets, axis=1, bitorder="little").view(np.uint64)


def _turns(right: UInt64Array) -> tuple[Int64Array, UInt16Array]:
    """How many turns each set of codes has, and the turns of all sets: codes at which
    membership changes.
    """
    n_turns, turns = [np.empty(0, dtype=np.int64)], [np.empty(0, dtype=np.uint16)]
    for start in range(0, len(right), _SETS_AT_ONCE):
        words = np.ascontiguousarray(right[start : start + _SETS_AT_ONCE])
        bits = np.unpackbits(words.view(np.uint8), axis=1, bitorder="little")
        changes = np.diff(bits, axis=1, prepend=0) != 0
        n_turns.append(np.count_nonzero(changes, axis=1))
        turns.append(np.nonzero(changes)[1].astype(np.uint16))
    return np.concatenate(n_turns), np.concatenate(turns)


def sum_leaf_values(X: UInt8Array, trees: PackedTrees) -> Float64Array:
    """Adds up, tree by tree, the values of the leaves that each row reaches.

    Values are added in the order of the trees, so the sum of a row does not depend on
    the other rows.

    Args:
        X: codes of the caller's rows, uint8 ``(n_features, n_rows)``.
        trees: public.

    Returns:
        float64 ``(n_rows, n_outputs)``.

    Raises:
        ValueError: a wrong type or shape.
    """
    X = require(X, np.uint8, shape=(trees.n_features, None), name="X")
    sums = np.zeros((trees.values.shape[1], X.shape[1]), dtype=np.float64)
    splits, turns = (trees.feature, trees.right), (trees.first_turn, trees.turn)
    _loops().sum_leaf_values(X, trees.number, splits, turns, trees.values, sums)
    return np.ascontiguousarray(sums.T)


def sum_leaf_values_of(
    columns: tuple[Float64Array | Int32Array, ...],
    n_rows: int,
    bins: CodeTables,
    trees: PackedTrees,
) -> Float64Array:
    """Adds up leaf values as :func:`sum_leaf_values` does, for rows that are not
    encoded yet.

    Args:
        columns: sanitised values of the caller's rows, one array ``(n_rows,)`` for
            every column of ``trees``.
        n_rows: also where there is no column.
        bins: of these columns.
        trees: public.

    Returns:
        float64 ``(n_rows, n_outputs)``.

    Raises:
        ValueError: another number of columns, or a column of another length.
    """
    if len(columns) != trees.n_features:
        raise ValueError("another number of columns than the trees have")
    sums = []
    # One empty block for no rows, which gives the result its shape.
    for start in range(0, n_rows, BLOCK) or (0,):
        block = bins.block(columns, start, min(BLOCK, n_rows - start))
        sums.append(sum_leaf_values_of_table(block, bins, trees))
    return np.concatenate(sums)


def sum_leaf_values_of_table(
    table: Float64Array, bins: CodeTables, trees: PackedTrees
) -> Float64Array:
    """Adds up leaf values as :func:`sum_leaf_values_of` does, for rows in one array.

    Args:
        table: sanitised values of the caller's rows, contiguous ``(n_features,
            n_rows)``, in the order of the columns of ``trees``; codes of categories as
            numbers.
        bins: of these columns.
        trees: public.

    Returns:
        float64 ``(n_rows, n_outputs)``.

    Raises:
        ValueError: another number of columns.
        TypeError: an array of another type or layout.
    """
    if len(table) != trees.n_features:
        raise ValueError("another number of columns than the trees have")
    sums = np.zeros((trees.values.shape[1], table.shape[1]))
    splits, turns = (trees.feature, trees.right), (trees.first_turn, trees.turn)
    _loops().sum_leaf_values_of(
        table, bins.bins, (trees.number, trees.values), splits, turns, sums
    )
    return np.ascontiguousarray(sums.T)


def bound_cells(table: Float64Array, rules: Float64Array) -> Int64Array | None:
    """Clamps and rounds the cells of requests in place; NaN stays.

    Args:
        table: contiguous ``(n_columns, n_rows)``.
        rules: contiguous ``(n_columns, 4)``: the two bounds; the code of an undeclared
            category, or NaN; and 1 where numbers are rounded to integers, ties to even.

    Returns:
        int64 ``(2, n_columns)``: the numbers out of the bounds, and the codes of
        undeclared categories; ``None`` if there are none.

    Raises:
        TypeError: an array of another type or layout.
    """
    changed = np.zeros((2, len(table)), dtype=np.int64)
    n_changed = _loops().bound_cells(table, rules, changed)
    return changed if n_changed else None


def normalised(evidence: Float64Array) -> Float64Array:
    """Divides by the sum over the last axis; uniform where the sum is not positive.
    Sums are added up in order.
    """
    shares = np.array(evidence, dtype=np.float64, order="C")
    _loops().normalise(shares.reshape(-1, shares.shape[-1]))
    return shares


def softmax(sums: Float64Array) -> Float64Array:
    """The shares of exponentials of numbers, float64 ``(n_rows, n_outputs)`` like
    ``sums``; rows sum to 1.
    """
    shares = np.array(sums, dtype=np.float64, order="C")
    _loops().subtract_largest(shares)
    # one function for all paths, because libraries round exponentials differently
    np.exp(shares, out=shares)
    _loops().normalise(shares)
    return shares
