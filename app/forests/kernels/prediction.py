"""Sums the leaf values that rows reach over the trees of a forest: floats for prediction, integers for growth too."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from types import ModuleType
from typing import Final

import numpy as np
from numpy.typing import NDArray

from app.forests.kernels.arrays import require, require_range, require_result, require_splits
from app.forests.kernels.codes import BLOCK, CodeTables

_SETS_AT_ONCE: Final = 2**14
"""Sets of codes whose bits are in memory at once: 4 MiB."""


@dataclass(frozen=True, eq=False)
class PackedTrees:
    """Complete binary trees prepared for prediction, with every distinct split once.

    Attributes:
        number: the split of every node, uint32 ``(n_trees, 2**depth − 1)``; nodes in heap order: the children of node v
            are ``2 · v + 1`` and ``2 · v + 2``.
        feature: of every distinct split, ascending; uint32 ``(n_distinct,)``.
        right: the codes of the feature that go right, one bit each; uint64 ``(n_distinct, 4)``.
        first_turn: the turns of split s are ``turn[first_turn[s] : first_turn[s + 1]]``; int64 ``(n_distinct + 1,)``.
        turn: codes at which going right begins or ends; uint16.
        values: of the leaves, float64 ``(n_trees, n_outputs, 2**depth)``.
        n_features: above the feature of every split.
    """

    number: NDArray[np.uint32]
    feature: NDArray[np.uint32]
    right: NDArray[np.uint64]
    first_turn: NDArray[np.int64]
    turn: NDArray[np.uint16]
    values: NDArray[np.float64]
    n_features: int

    @classmethod
    def of_thresholds(
        cls,
        feature: NDArray[np.int32],
        threshold: NDArray[np.uint8],
        equals: NDArray[np.bool_],
        *,
        values: NDArray[np.float64],
        n_features: int,
    ) -> PackedTrees:
        """Prepares trees whose splits have one threshold each.

        Args:
            feature: public; int32 ``(n_trees, 2**depth − 1)``; depth 0 is a single leaf.
            threshold: public; uint8, same shape.
            equals: public; bool, same shape: if true, a row goes right if its code differs from the threshold;
                otherwise if its code is above the threshold.
            values: public; float64 ``(n_trees, 2**depth, n_outputs)``.
            n_features: number of features of the rows.

        Raises:
            ValueError: a wrong type or shape, or a split on a feature that the rows do not have.
        """
        feature, threshold, equals = require_splits(
            (feature, threshold, equals), shape=(None, None), n_features=n_features
        )
        require_range(feature, lowest=0, below=n_features, name="feature")
        rules = (feature.astype(np.int64) << 9) | np.where(equals, 256, 0) | threshold
        distinct, number = np.unique(rules, return_inverse=True)
        sets = _threshold_sets()[distinct & 511]
        return cls._of(number.reshape(feature.shape), distinct >> 9, sets, values, n_features)

    @classmethod
    def of_sets(
        cls, feature: NDArray[np.int32], right: NDArray[np.uint64], *, values: NDArray[np.float64], n_features: int
    ) -> PackedTrees:
        """Prepares trees whose splits are sets of codes.

        Args:
            feature: public; int32 ``(n_trees, 2**depth − 1)``.
            right: public; the codes that go right, one bit each; uint64 ``(n_trees, 2**depth − 1, 4)``.
            values: public; float64 ``(n_trees, 2**depth, n_outputs)``.
            n_features: number of features of the rows.

        Raises:
            ValueError: a wrong type or shape, or a split on a feature that the rows do not have.
        """
        feature = require(feature, np.int32, shape=(None, None), name="feature")
        right = require(right, np.uint64, shape=(*feature.shape, 4), name="right")
        require_range(feature, lowest=0, below=n_features, name="feature")
        order = np.argsort(feature, axis=None, kind="stable")
        number = np.empty(feature.size, dtype=np.int64)
        number[order] = np.arange(feature.size)
        sets = right.reshape(-1, 4)[order]
        return cls._of(number.reshape(feature.shape), feature.ravel()[order], sets, values, n_features)

    @classmethod
    def _of(
        cls,
        number: NDArray[np.integer],
        feature: NDArray[np.integer],
        right: NDArray[np.uint64],
        values: NDArray[np.float64],
        n_features: int,
    ) -> PackedTrees:
        n_trees, n_nodes = number.shape
        values = require(values, np.float64, shape=(n_trees, n_nodes + 1, None), name="values")
        n_turns, turn = _turns(right)
        return cls(
            number.astype(np.uint32),
            feature.astype(np.uint32),
            right,
            np.concatenate([[0], np.cumsum(n_turns)]).astype(np.int64),
            turn,
            np.ascontiguousarray(values.transpose(0, 2, 1)),
            n_features,
        )


@cache
def _threshold_sets() -> NDArray[np.uint64]:
    """The codes above every threshold, then the codes that differ from it; uint64 ``(512, 4)``, one bit per code."""
    code, threshold = np.arange(256), np.arange(256)[:, np.newaxis]
    sets = np.concatenate([code > threshold, code != threshold])
    return np.packbits(sets, axis=1, bitorder="little").view(np.uint64)


def _turns(right: NDArray[np.uint64]) -> tuple[NDArray[np.int64], NDArray[np.uint16]]:
    """How many turns each set of codes has, and the turns of all sets: codes at which membership changes."""
    n_turns, turns = [np.empty(0, dtype=np.int64)], [np.empty(0, dtype=np.uint16)]
    for start in range(0, len(right), _SETS_AT_ONCE):
        words = np.ascontiguousarray(right[start : start + _SETS_AT_ONCE])
        changes = np.diff(np.unpackbits(words.view(np.uint8), axis=1, bitorder="little"), axis=1, prepend=0) != 0
        n_turns.append(np.count_nonzero(changes, axis=1))
        turns.append(np.nonzero(changes)[1].astype(np.uint16))
    return np.concatenate(n_turns), np.concatenate(turns)


@cache
def _loops() -> ModuleType:
    """The compiled loops, which load the compiler: 0.5 s of CPU."""
    from app.forests.kernels.compiled import prediction_loops

    return prediction_loops


def sum_leaf_values(X: NDArray[np.uint8], trees: PackedTrees) -> NDArray[np.float64]:
    """Adds up, tree by tree, the values of the leaves that each row reaches.

    Values are added in the order of the trees, so the sum of a row does not depend on the other rows.

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
    columns: tuple[NDArray[np.float64] | NDArray[np.int32], ...], n_rows: int, bins: CodeTables, trees: PackedTrees
) -> NDArray[np.float64]:
    """Adds up leaf values as :func:`sum_leaf_values` does, for rows that are not encoded yet.

    Args:
        columns: sanitised values of the caller's rows, one array ``(n_rows,)`` for every column of ``trees``.
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
    blocks = (bins.block(columns, start, min(BLOCK, n_rows - start)) for start in range(0, n_rows, BLOCK) or (0,))
    return np.concatenate([sum_leaf_values_of_table(block, bins, trees) for block in blocks])


def sum_leaf_values_of_table(table: NDArray[np.float64], bins: CodeTables, trees: PackedTrees) -> NDArray[np.float64]:
    """Adds up leaf values as :func:`sum_leaf_values_of` does, for rows in one array.

    Args:
        table: sanitised values of the caller's rows, contiguous ``(n_features, n_rows)``, in the order of the columns
            of ``trees``; codes of categories as numbers.
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
    _loops().sum_leaf_values_of(table, bins.bins, (trees.number, trees.values), splits, turns, sums)
    return np.ascontiguousarray(sums.T)


def normalised(evidence: NDArray[np.float64]) -> NDArray[np.float64]:
    """Divides by the sum over the last axis; uniform where the sum is not positive. Sums are added up in order."""
    shares = np.array(evidence, dtype=np.float64, order="C")
    _loops().normalise(shares.reshape(-1, shares.shape[-1]))
    return shares


def softmax(sums: NDArray[np.float64]) -> NDArray[np.float64]:
    """The shares of exponentials of numbers, float64 ``(n_rows, n_outputs)`` like ``sums``; rows sum to 1."""
    shares = np.array(sums, dtype=np.float64, order="C")
    _loops().subtract_largest(shares)
    np.exp(shares, out=shares)  # one function for all paths, because libraries round exponentials differently
    _loops().normalise(shares)
    return shares


def add_leaf_scores(scores: NDArray[np.int64], reached: NDArray[np.int32], leaf_scores: NDArray[np.int32]) -> None:
    """Adds the integer scores of the leaves that rows reached to the scores of the rows, in place.

    Args:
        scores: int64 ``(n_rows, n_scores)``, contiguous, in units of 2⁻¹⁶; PRIVATE where ``reached`` is.
        reached: leaf of every tree that the row reached, int32 ``(n_trees, n_rows)``.
        leaf_scores: public; int32 ``(n_trees, n_leaves, n_scores)``.

    Raises:
        ValueError: a type, a shape or a leaf out of its range.
    """
    from app.forests.kernels.compiled import routing_loops as loops

    leaf_scores = require(leaf_scores, np.int32, shape=(None, None, None), name="leaf_scores")
    reached = require(reached, np.int32, shape=(leaf_scores.shape[0], None), name="reached")
    require_range(reached, lowest=0, below=leaf_scores.shape[1], name="reached")
    require_result(scores, np.int64, shape=(reached.shape[1], leaf_scores.shape[2]), name="scores")
    loops.add_leaf_scores(reached, leaf_scores, scores)
