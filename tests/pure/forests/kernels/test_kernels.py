"""Compiled kernels against slow NumPy implementations."""

import os
import shutil
import stat
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from grovekeeper_forests import code_cache
from grovekeeper_forests.kernels import boosting, node_rows, prediction
from grovekeeper_forests.kernels.compiled import node_row_loops
from grovekeeper_forests.kernels.prediction import BLOCK, CodeTables, ColumnRule
from tests.support import walks

# --- oracles ------------------------------------------------------------------------------------------------------


def _class_histogram(
    X: NDArray[np.uint8],
    y: NDArray[np.int32],
    node: NDArray[np.int32],
    *,
    n_bins: NDArray[np.int32],
    shape: tuple[int, int],
    weight: NDArray[np.uint16] | None = None,
) -> NDArray[np.int64]:
    n_nodes, n_classes = shape
    blocks = []
    for f, bins in enumerate(n_bins):
        block = np.zeros((n_nodes, bins, n_classes), dtype=np.int64)
        counted = node >= 0
        np.add.at(
            block,
            (node[counted], X[f][counted], y[counted]),
            1 if weight is None else weight[counted],
        )
        blocks.append(block)
    return np.concatenate(blocks, axis=1)


def _weights(rng: np.random.Generator, n_rows: int) -> NDArray[np.uint16]:
    return rng.integers(0, boosting.UNIT + 1, n_rows, dtype=np.uint16)


def _leaf(row: NDArray[np.uint8], forest: dict[str, Any], tree: int) -> int:
    v = 0
    for _ in range(forest["depth"]):
        x, t = row[forest["feature"][tree, v]], forest["threshold"][tree, v]
        v = 2 * v + 1 + int(x != t if forest["equals"][tree, v] else x > t)
    return v - (2 ** forest["depth"] - 1)


# --- inputs -------------------------------------------------------------------------------------------------------


def _forest(
    rng: np.random.Generator, *, n_trees: int, depth: int, n_features: int, n_bins: int
) -> dict[str, Any]:
    shape = (n_trees, 2**depth - 1)
    return {
        "feature": rng.integers(0, n_features, shape, dtype=np.int32),
        "threshold": rng.integers(0, n_bins, shape).astype(np.uint8),
        "equals": rng.random(shape) < 0.4,
        "depth": depth,
    }


def _packed(
    forest: Mapping[str, Any], values: NDArray[Any], n_features: int
) -> prediction.PackedTrees:
    splits = (forest[name] for name in ("feature", "threshold", "equals"))
    return prediction.PackedTrees.of_thresholds(
        *splits, values=values, n_features=n_features
    )


def _sums(
    X: NDArray[np.uint8], forest: Mapping[str, Any], values: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Sums of rows of ``X``, ``(n_rows, n_features)``."""
    return prediction.sum_leaf_values(X.T, _packed(forest, values, X.shape[1]))


def _counted(
    *rows: NDArray[Any], n_bins: NDArray[np.int32], shape: tuple[int, int], **named: Any
) -> NDArray[np.int64]:
    """The histogram of some rows."""
    return node_rows.class_histogram(
        *rows, n_bins=n_bins, onto=node_rows.no_sums(*shape, n_bins=n_bins), **named
    )


def _counted_by(arguments: dict[str, Any]) -> NDArray[np.int64]:
    X, y, node, *_ = arguments.values()
    return _counted(
        X,
        y,
        node,
        **{
            name: value
            for name, value in arguments.items()
            if name not in ("X", "y", "node")
        },
    )


_seeds = st.integers(0, 2**32 - 1)


# --- histograms ---------------------------------------------------------------------------------------------------


@settings(max_examples=60, deadline=None)
@given(
    seed=_seeds,
    n_rows=st.integers(0, 60),
    n_nodes=st.integers(1, 5),
    n_classes=st.integers(1, 4),
    n_bins=st.lists(st.integers(1, 256), min_size=1, max_size=5),
    unused=st.sampled_from([0.0, 0.3, 1.0]),
    is_weighted=st.booleans(),
)
def test_class_histogram_adds_up_every_row(
    seed: int,
    n_rows: int,
    n_nodes: int,
    n_classes: int,
    n_bins: list[int],
    unused: float,
    is_weighted: bool,
) -> None:
    rng = np.random.default_rng(seed)
    bins = np.array(n_bins, dtype=np.int32)
    X = (rng.random((bins.size, n_rows)) * bins[:, np.newaxis]).astype(np.uint8)
    y = rng.integers(0, n_classes, n_rows, dtype=np.int32)
    node = np.where(
        rng.random(n_rows) < unused, -1, rng.integers(0, n_nodes, n_rows)
    ).astype(np.int32)
    cells = {
        "n_bins": bins,
        "shape": (n_nodes, n_classes),
        "weight": _weights(rng, n_rows) if is_weighted else None,
    }
    histogram = _counted(X, y, node, **cells)
    assert (histogram.dtype, histogram.flags.c_contiguous) == (np.int64, True)
    np.testing.assert_array_equal(histogram, _class_histogram(X, y, node, **cells))


def test_class_histogram_over_more_rows_than_a_block_and_many_features() -> None:
    rng = np.random.default_rng(1)
    n_rows, n_features = 2 * node_row_loops._SUMMED_AT_ONCE + 5, 3
    X = rng.integers(0, 4, (n_features, n_rows), dtype=np.uint8)
    y = rng.integers(0, 2, n_rows, dtype=np.int32)
    node = rng.integers(-1, 3, n_rows, dtype=np.int32)
    bins = np.full(n_features, 4, dtype=np.int32)
    for weight in (None, _weights(rng, n_rows)):
        histogram = _counted(X, y, node, n_bins=bins, shape=(3, 2), weight=weight)
        np.testing.assert_array_equal(
            histogram,
            _class_histogram(X, y, node, n_bins=bins, shape=(3, 2), weight=weight),
        )

    wide = rng.integers(0, 256, (2_000, 50), dtype=np.uint8)
    bins = np.full(2_000, 256, dtype=np.int32)
    histogram = _counted(wide, y[:50], node[:50], n_bins=bins, shape=(3, 2))
    np.testing.assert_array_equal(
        histogram, _class_histogram(wide, y[:50], node[:50], n_bins=bins, shape=(3, 2))
    )


@pytest.mark.parametrize("is_weighted", [False, True])
def test_a_joint_histogram_tells_rows_apart_by_a_column(is_weighted: bool) -> None:
    rng = np.random.default_rng(4)
    X, own = (
        rng.integers(0, 5, (3, 400), dtype=np.uint8),
        rng.integers(0, 4, 400, dtype=np.uint8),
    )
    y, node = (
        rng.integers(0, 2, 400, dtype=np.int32),
        rng.integers(-1, 3, 400, dtype=np.int32),
    )
    bins, weight = (
        np.full(3, 5, dtype=np.int32),
        _weights(rng, 400) if is_weighted else None,
    )
    histogram = node_rows.joint_histogram(
        X,
        y,
        (node, own),
        n_bins=bins,
        weight=weight,
        onto=node_rows.no_sums(3, 4, 2, n_bins=bins),
    )
    apart = np.where(node < 0, -1, node * 4 + own).astype(np.int32)
    expected = _class_histogram(X, y, apart, n_bins=bins, shape=(12, 2), weight=weight)
    np.testing.assert_array_equal(histogram, expected.reshape(3, 4, 15, 2))
    with pytest.raises(ValueError, match="out of range"):
        node_rows.joint_histogram(
            X, y, (node, own), n_bins=bins, onto=node_rows.no_sums(3, 3, 2, n_bins=bins)
        )


def test_sums_above_32_bits_do_not_wrap() -> None:
    rows = (
        np.zeros((1, 3), dtype=np.uint8),
        np.zeros(3, dtype=np.int32),
        np.zeros(3, dtype=np.int32),
    )
    weight = np.full(3, boosting.UNIT, dtype=np.uint16)
    onto = np.full((1, 1, 1), 2**32 - 1, dtype=np.int64)
    assert (
        node_rows.class_histogram(
            *rows, n_bins=np.ones(1, dtype=np.int32), weight=weight, onto=onto
        )
        is onto
    )
    assert onto.tolist() == [[[2**32 - 1 + 3 * boosting.UNIT]]]


def test_sums_of_the_largest_weights_and_gradients_of_many_rows_do_not_wrap() -> None:
    """70,000 rows in one cell: past 2^32 in weights, past 2^31 in gradients, and past a
    block and 2^16 in rows.
    """
    n_rows, largest = 70_000, 2**31 - 1
    cell, weight = (
        np.zeros(n_rows, dtype=np.int32),
        np.full(n_rows, 2**16 - 1, dtype=np.uint16),
    )
    X, no_codes = np.zeros((3, n_rows), dtype=np.uint8), np.zeros(0, dtype=np.uint8)
    bins = np.array([[0, 1], [1, 1], [2, 1]])
    for own, of_row in (
        (weight[:0], 1),
        (weight, 2**16 - 1),
    ):  # weights above a row's unit, so that few rows are enough
        counts, sums = np.zeros((2, 1), dtype=np.int64), np.zeros(3, dtype=np.int64)
        node_row_loops.leaf_histogram(cell, cell, own, counts)
        assert counts.tolist() == [[n_rows * of_row], [0]]
        assert node_row_loops.class_histogram(
            X, (cell, cell), (no_codes, own), bins, (1, 1, 1, of_row), sums
        )
        assert sums.tolist() == [n_rows * of_row] * 3
    for gradient in (largest, -largest):
        gradients = np.full((n_rows, 2), gradient, dtype=np.int32)
        sums = node_rows.leaf_gradients(cell, gradients, count=largest, n_leaves=1)
        assert sums.tolist() == [
            [n_rows * gradient, n_rows * gradient, n_rows * largest]
        ]


def test_histograms_add_up_over_any_partition_of_the_rows() -> None:
    rng = np.random.default_rng(2)
    X = rng.integers(0, 7, (4, 500), dtype=np.uint8)
    y, node = (rng.integers(0, 3, 500, dtype=np.int32) for _ in range(2))
    bins = np.full(4, 7, dtype=np.int32)

    def count(rows: slice) -> NDArray[np.int64]:
        return _counted(X[:, rows], y[rows], node[rows], n_bins=bins, shape=(3, 3))

    np.testing.assert_array_equal(
        count(slice(0, 123)) + count(slice(123, 500)), count(slice(None))
    )


@settings(max_examples=30, deadline=None)
@given(
    seed=_seeds,
    n_rows=st.integers(0, 80),
    n_leaves=st.integers(1, 9),
    n_classes=st.integers(1, 4),
    is_weighted=st.booleans(),
)
def test_leaf_histogram_adds_up_every_row(
    seed: int, n_rows: int, n_leaves: int, n_classes: int, is_weighted: bool
) -> None:
    rng = np.random.default_rng(seed)
    leaf = rng.integers(-1, n_leaves, n_rows, dtype=np.int32)
    y = rng.integers(0, n_classes, n_rows, dtype=np.int32)
    expected = np.zeros((n_leaves, n_classes), dtype=np.int64)
    weight = _weights(rng, n_rows) if is_weighted else None
    np.add.at(
        expected,
        (leaf[leaf >= 0], y[leaf >= 0]),
        1 if weight is None else weight[leaf >= 0],
    )
    histogram = node_rows.leaf_histogram(
        leaf, y, n_leaves=n_leaves, n_classes=n_classes, weight=weight
    )
    assert histogram.dtype == np.int64
    np.testing.assert_array_equal(histogram, expected)


# --- routing ------------------------------------------------------------------------------------------------------


@settings(max_examples=40, deadline=None)
@given(
    seed=_seeds,
    n_rows=st.integers(0, 80),
    n_nodes=st.integers(1, 9),
    n_bins=st.sampled_from([1, 2, 5, 256]),
)
def test_descend_goes_right_above_the_threshold_or_off_the_category(
    seed: int, n_rows: int, n_nodes: int, n_bins: int
) -> None:
    rng = np.random.default_rng(seed)
    X = rng.integers(0, n_bins, (3, n_rows)).astype(np.uint8)
    node = rng.integers(-1, n_nodes, n_rows, dtype=np.int32)
    feature = rng.integers(0, 3, n_nodes, dtype=np.int32)
    threshold = rng.integers(0, n_bins, n_nodes).astype(np.uint8)
    equals = rng.random(n_nodes) < 0.5
    x, t = X[feature[node], np.arange(n_rows)], threshold[node]
    expected = np.where(node < 0, -1, 2 * node + np.where(equals[node], x != t, x > t))
    result = node_rows.descend(
        X, node, feature=feature, threshold=threshold, equals=equals
    )
    assert result.dtype == np.int32
    np.testing.assert_array_equal(result, expected)


def test_every_bin_against_every_threshold() -> None:
    bins = np.arange(256, dtype=np.uint8)
    node = np.zeros(256, dtype=np.int32)
    for equals in (False, True):
        for threshold in range(256):
            result = node_rows.descend(
                bins[np.newaxis],
                node,
                feature=np.zeros(1, dtype=np.int32),
                threshold=np.array([threshold], dtype=np.uint8),
                equals=np.array([equals]),
            )
            np.testing.assert_array_equal(
                result, bins != threshold if equals else bins > threshold
            )


# --- prediction ---------------------------------------------------------------------------------------------------


@settings(max_examples=60, deadline=None)
@given(
    seed=_seeds,
    n_rows=st.one_of(st.integers(0, 12), st.integers(60, 140)),
    n_trees=st.integers(0, 20),
    depth=st.integers(0, 10),
    n_classes=st.integers(1, 3),
    n_bins=st.sampled_from([2, 6, 256]),
)
def test_sums_of_leaf_values_are_those_of_walks_in_tree_order(
    seed: int, n_rows: int, n_trees: int, depth: int, n_classes: int, n_bins: int
) -> None:
    rng = np.random.default_rng(seed)
    X = rng.integers(0, n_bins, (n_rows, 4), dtype=np.uint8)
    forest = _forest(rng, n_trees=n_trees, depth=depth, n_features=4, n_bins=n_bins)
    values = rng.normal(size=(n_trees, 2**depth, n_classes))
    expected = np.zeros((n_rows, n_classes))
    for tree in range(n_trees):
        for i in range(n_rows):
            expected[i] += values[tree, _leaf(X[i], forest, tree)]
    result = _sums(X, forest, values)
    assert result.dtype == np.float64
    np.testing.assert_array_equal(result, expected)


@pytest.mark.parametrize("n_rows", [0, 1, 11, 70, BLOCK + 3])
def test_values_are_encoded_and_walked_in_one_call_as_in_two(n_rows: int) -> None:
    rng = np.random.default_rng(n_rows)
    rules = [
        ColumnRule(np.sort(rng.random(200)), np.inf, np.nan, 201),
        ColumnRule(None, 6.0, 6.0, 6),
    ]
    bins, forest = (
        CodeTables(rules),
        _forest(rng, n_trees=3, depth=5, n_features=2, n_bins=200),
    )
    trees = _packed(forest, rng.normal(size=(3, 32, 2)), 2)
    columns = (
        np.where(rng.random(n_rows) < 0.1, np.nan, rng.random(n_rows)),
        rng.integers(0, 7, n_rows, np.int32),
    )
    expected = prediction.sum_leaf_values(bins.codes(columns, n_rows), trees)
    np.testing.assert_array_equal(
        prediction.sum_leaf_values_of(columns, n_rows, bins, trees), expected
    )
    table = np.array(columns, dtype=np.float64)
    np.testing.assert_array_equal(
        prediction.sum_leaf_values_of_table(table, bins, trees), expected
    )
    with pytest.raises(ValueError, match="number of columns"):
        prediction.sum_leaf_values_of(columns[:1], n_rows, bins, trees)
    with pytest.raises(ValueError, match="number of columns"):
        prediction.sum_leaf_values_of_table(table[:1], bins, trees)


@pytest.mark.parametrize("shape", [(0, 2), (1, 2), (5, 3, 20)])
def test_shares_are_evidence_over_its_sum_and_uniform_without_evidence(
    shape: tuple[int, ...],
) -> None:
    evidence = np.random.default_rng(3).random(shape)
    evidence[-1:] = 0.0
    shares = prediction.normalised(evidence)
    total = evidence.sum(axis=-1, keepdims=True)
    expected = np.divide(
        evidence, total, out=np.full(shape, 1 / shape[-1]), where=total > 0
    )
    np.testing.assert_allclose(shares, expected, rtol=1e-14)
    assert not evidence[-1:].any(), "the argument is not changed"


@pytest.mark.parametrize("shape", [(0, 2), (1, 2), (70, 3)])
def test_softmax_equals_the_shares_of_exponentials_bit_by_bit(
    shape: tuple[int, int],
) -> None:
    sums = np.random.default_rng(5).normal(scale=300.0, size=shape)
    before = sums.copy()
    exponentials = np.exp(sums - sums.max(axis=1, keepdims=True, initial=-np.inf))
    np.testing.assert_array_equal(
        prediction.softmax(sums), prediction.normalised(exponentials)
    )
    np.testing.assert_array_equal(sums, before, "the argument is not changed")


@settings(max_examples=30, deadline=None)
@given(
    seed=_seeds,
    n_rows=st.sampled_from([1, 10, 11, 64, 65, 200]),
    depth=st.integers(0, 9),
)
def test_splits_that_are_sets_of_codes_send_rows_where_growth_sends_them(
    seed: int, n_rows: int, depth: int
) -> None:
    rng = np.random.default_rng(seed)
    X = rng.integers(0, 256, (n_rows, 3), dtype=np.uint8)
    feature = rng.integers(0, 3, (4, 2**depth - 1), dtype=np.int32)
    right = rng.integers(0, 2**64, (4, 2**depth - 1, 4), dtype=np.uint64)
    values = rng.normal(size=(4, 2**depth, 2))
    trees = prediction.PackedTrees.of_sets(feature, right, values=values, n_features=3)
    reached = boosting.leaves(X, feature=feature, right=right, depth=depth)
    expected = sum(values[tree][reached[tree]] for tree in range(4))
    np.testing.assert_array_equal(prediction.sum_leaf_values(X.T, trees), expected)


def test_a_row_is_predicted_alike_alone_and_in_any_batch() -> None:
    rng = np.random.default_rng(4)
    X = rng.integers(0, 6, (2_100, 7), dtype=np.uint8)
    forest = _forest(rng, n_trees=33, depth=4, n_features=7, n_bins=6)
    values = rng.normal(size=(33, 16, 3))
    together = _sums(X, forest, values)
    for rows in (slice(0, 1), slice(2_093, 2_100), slice(5, 1_100)):
        np.testing.assert_array_equal(_sums(X[rows], forest, values), together[rows])


def test_two_thousand_features_and_the_deepest_trees() -> None:
    rng = np.random.default_rng(5)
    X = rng.integers(0, 256, (600, 2_000), dtype=np.uint8)
    forest = _forest(rng, n_trees=2, depth=12, n_features=2_000, n_bins=256)
    reached = walks.leaves(X.T, **forest)
    np.testing.assert_array_equal(
        reached[1, :20], [_leaf(X[i], forest, 1) for i in range(20)]
    )
    values = rng.integers(0, 100, (2, 2**12, 2)).astype(np.float64)
    expected = values[0, reached[0]] + values[1, reached[1]]
    np.testing.assert_array_equal(_sums(X, forest, values), expected)
    np.testing.assert_array_equal(_sums(X[:3], forest, values), expected[:3])


def test_arrays_may_be_read_only_strided_or_unaligned() -> None:
    rng = np.random.default_rng(6)
    X = rng.integers(0, 6, (64, 5), dtype=np.uint8)
    forest = _forest(rng, n_trees=3, depth=3, n_features=5, n_bins=6)
    values = rng.normal(size=(3, 8, 2))
    expected = _sums(X, forest, values)
    forest["feature"].setflags(write=False)
    shifted = np.frombuffer(
        b"?" + values.tobytes(), dtype=np.float64, offset=1
    ).reshape(values.shape)
    assert not shifted.flags.aligned
    result = _sums(np.asfortranarray(X), forest, shifted)
    np.testing.assert_array_equal(result, expected)


# --- arguments ----------------------------------------------------------------------------------------------------


def _histogram_arguments() -> dict[str, Any]:
    return {
        "X": np.zeros((2, 4), dtype=np.uint8),
        "y": np.zeros(4, dtype=np.int32),
        "node": np.zeros(4, dtype=np.int32),
        "n_bins": np.array([3, 1], dtype=np.int32),
        "shape": (2, 2),
    }


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("X", np.array([[0, 0, 0, 3], [0, 0, 0, 0]], dtype=np.uint8)),
        ("X", np.array([[0, 0, 0, 0], [0, 0, 0, 1]], dtype=np.uint8)),
        ("X", np.zeros((2, 4), dtype=np.int64)),
        ("X", np.zeros((3, 4), dtype=np.uint8)),
        ("X", np.zeros(4, dtype=np.uint8)),
        ("y", np.array([0, 0, 0, 2], dtype=np.int32)),
        ("y", np.array([0, 0, 0, -1], dtype=np.int32)),
        ("y", np.zeros(3, dtype=np.int32)),
        ("y", np.zeros(4, dtype=np.int64)),
        ("node", np.array([0, 0, 0, 2], dtype=np.int32)),
        ("node", np.array([0, 0, 0, -2], dtype=np.int32)),
        ("node", np.zeros(5, dtype=np.int32)),
        ("n_bins", np.array([0, 1], dtype=np.int32)),
        ("n_bins", np.array([257, 1], dtype=np.int32)),
        ("shape", (2, 2**31)),
        ("weight", np.array([0, 0, 0, boosting.UNIT + 1], dtype=np.uint16)),
        ("weight", np.zeros(3, dtype=np.uint16)),
        ("weight", np.zeros(4, dtype=np.int64)),
    ],
)
def test_a_histogram_refuses_what_it_cannot_index(name: str, value: object) -> None:
    arguments = _histogram_arguments()
    assert _counted_by(arguments).sum() == 8
    with pytest.raises(ValueError, match=r"X|y|node|n_bins|cells|weight|out of range"):
        _counted_by(arguments | {name: value})


@pytest.mark.parametrize(
    ("leaf", "y"), [([2], [0]), ([-2], [0]), ([0], [3]), ([0], [-1]), ([0, 0], [0])]
)
def test_a_leaf_histogram_refuses_what_it_cannot_index(
    leaf: list[int], y: list[int]
) -> None:
    with pytest.raises(ValueError, match=r"leaf|y"):
        node_rows.leaf_histogram(
            np.array(leaf, dtype=np.int32),
            np.array(y, dtype=np.int32),
            n_leaves=2,
            n_classes=3,
        )


@pytest.mark.parametrize("feature", [-1, 5, 2**31 - 1, -(2**31)])
def test_a_forest_that_asks_for_an_unknown_feature_is_refused(feature: int) -> None:
    rng = np.random.default_rng(7)
    forest = _forest(rng, n_trees=3, depth=2, n_features=5, n_bins=6)
    forest["feature"][1] = feature
    with pytest.raises(ValueError, match="feature"):
        _packed(forest, np.zeros((3, 4, 2)), 5)


def test_a_forest_of_another_shape_is_refused() -> None:
    rng = np.random.default_rng(8)
    X = np.zeros((2, 5), dtype=np.uint8)
    forest = _forest(rng, n_trees=3, depth=2, n_features=5, n_bins=6)
    values = np.zeros((3, 4, 2))
    mistakes: list[dict[str, Any]] = [
        {"values": values[:2]},
        {"values": values[:, :3]},
        {"values": values.astype(np.float32)},
        {"threshold": forest["threshold"][:, :2]},
        {"equals": forest["equals"].astype(np.uint8)},
        {"feature": forest["feature"].astype(np.int64)},
    ]
    for wrong in mistakes:
        with pytest.raises(ValueError, match=r"feature|threshold|equals|values"):
            _packed(forest | wrong, wrong.get("values", values), 5)
    with pytest.raises(ValueError, match="too many features"):
        _packed(forest, values, 2**16)
    with pytest.raises(ValueError, match="X"):
        prediction.sum_leaf_values(X, _packed(forest, values, 5))
    with pytest.raises(ValueError, match="node"):
        node_rows.descend(
            X, np.array([0, 0, 0, 0, 3], dtype=np.int32),
            feature=np.zeros(3, dtype=np.int32), threshold=np.zeros(3, dtype=np.uint8), equals=np.zeros(3, dtype=bool),
        )  # fmt: skip


def test_no_message_contains_a_private_value() -> None:
    arguments = _histogram_arguments()
    arguments["y"] = np.array([0, 0, 0, 77], dtype=np.int32)
    with pytest.raises(ValueError, match="out of range") as caught:
        _counted_by(arguments)
    assert "77" not in str(caught.value)


# --- where compiled code lives ------------------------------------------------------------------------------------


def test_the_api_loads_neither_the_compiler_nor_growth() -> None:
    code = (
        "import sys, app.api.main\n"
        "from grovekeeper_forests.kernels import boosting, fourth_roots, node_rows, prediction\n"
        "assert 'numba' not in sys.modules\n"
        "growth = ('.grow', '.medians', 'bins.releases', '.draw', '.tree_growth', '.tree_histograms', '.remote')\n"
        "loaded = [name for name in sys.modules if name.startswith('grovekeeper_forests')]\n"
        "assert not [name for name in loaded if name.startswith('grovekeeper_forests.noise') or name.endswith(growth)]"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_the_operators_choice_of_cache_folder_is_kept(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(code_cache, "_PACKAGE", tmp_path / "missing")
    code_cache.choose()
    assert os.environ["NUMBA_CACHE_DIR"] == str(tmp_path)


def test_a_writable_package_keeps_its_own_compiled_code(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("NUMBA_CACHE_DIR", raising=False)
    code_cache.choose()
    assert "NUMBA_CACHE_DIR" not in os.environ


def _choose_for_a_read_only_package(
    monkeypatch: pytest.MonkeyPatch, home: Path
) -> Path:
    # setenv comes first, so that monkeypatch restores the variable that choose() sets.
    monkeypatch.setenv("NUMBA_CACHE_DIR", "")
    monkeypatch.setenv("XDG_CACHE_HOME", str(home))
    monkeypatch.setattr(code_cache, "_writable", lambda _package: False)
    code_cache.choose()
    return Path(os.environ["NUMBA_CACHE_DIR"])


def test_a_read_only_package_uses_a_private_folder_of_the_user(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    folder = _choose_for_a_read_only_package(monkeypatch, tmp_path / "cache")
    assert folder.parent == tmp_path / "cache" / "grovekeeper" / "numba"
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


@pytest.mark.parametrize(
    "name",
    [
        "noise/draws.py",
        "kernels/compiled/node_row_loops.py",
        "kernels/arrays.py",
        "compiler.py",
    ],
)
def test_code_of_another_version_is_not_used_although_its_files_have_one_size_and_time(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str
) -> None:
    package = tmp_path / "grovekeeper_forests"
    shutil.copytree(code_cache._PACKAGE, package)
    monkeypatch.setattr(code_cache, "_PACKAGE", package)
    before = _choose_for_a_read_only_package(monkeypatch, tmp_path / "cache")
    path = package / name
    status, text = path.stat(), path.read_text(encoding="utf-8")
    path.write_text(text.replace("e", "a", 1), encoding="utf-8")
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert path.stat().st_size == status.st_size

    after = _choose_for_a_read_only_package(monkeypatch, tmp_path / "cache")

    assert before != after


def test_code_of_files_that_changed_their_names_is_not_used(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    package = tmp_path / "grovekeeper_forests"
    loops = package / "kernels" / "compiled"
    loops.mkdir(parents=True)
    (loops / "a.py").write_text("x = 1\n", encoding="utf-8")
    (loops / "b.py").write_text("x = 2\n", encoding="utf-8")
    monkeypatch.setattr(code_cache, "_PACKAGE", package)
    before = _choose_for_a_read_only_package(monkeypatch, tmp_path / "cache")
    (loops / "b.py").rename(loops / "c.py")

    after = _choose_for_a_read_only_package(monkeypatch, tmp_path / "cache")

    assert before != after


def test_a_folder_that_others_may_write_to_is_not_used(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The index of compiled code is a pickle: a user who can write it can run code in
    this process.
    """
    shared = _choose_for_a_read_only_package(monkeypatch, tmp_path)
    assert shared.is_relative_to(tmp_path)
    shared.chmod(0o777)
    folder = _choose_for_a_read_only_package(monkeypatch, tmp_path)
    assert folder != shared
    assert folder.is_dir()
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_a_user_without_a_folder_gets_one_for_the_life_of_the_process(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    folder = _choose_for_a_read_only_package(monkeypatch, blocked)
    assert folder.is_dir()
    assert blocked not in folder.parents
