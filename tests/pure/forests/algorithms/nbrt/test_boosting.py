"""Boosting in integers: each function against exact rationals or the mathematics
library.
"""

import inspect
import math
import re
from fractions import Fraction

import numba
import numpy as np
import pytest

from grovekeeper_forests.algorithms.nbrt.read import leaf_scores, start_scores
from grovekeeper_forests.algorithms.nbrt.scales import Scales, loss_of
from grovekeeper_forests.bins.noisy_counts import SCALE_BITS, VARIANCE
from grovekeeper_forests.kernels import boosting, node_rows
from grovekeeper_forests.kernels.compiled import boosting_loops, node_row_loops
from grovekeeper_forests.privacy.events import UnknownPrivacyEvent

NUMBER, TWO, THREE, MANY = 0, 2, 3, 26


def scales_of(
    n_classes: int, *, mu_squared: str = "0.05", n_trees: int = 400
) -> Scales:
    return Scales.of(
        int(Fraction(mu_squared) * VARIANCE / n_trees),
        n_trees=n_trees,
        n_classes=n_classes,
    )


# --- the exponential table ----------------------------------------------------------------------------------------


def test_the_table_is_the_exponential_function_to_nearest() -> None:
    coarse, fine = boosting.tables()
    for table, steps_per_unit in ((coarse, 16), (fine, 65_536)):
        exact = np.exp(-np.arange(len(table)) / steps_per_unit) * 2.0**31
        assert np.all(np.abs(table - exact) < 0.500_01)
    assert int(coarse[-1]) > 0
    assert math.exp(-len(coarse) / 16) < 2.0**-31


def test_the_tables_cannot_be_written_to() -> None:
    for table in boosting.tables():
        with pytest.raises(ValueError, match="read-only"):
            table[0] = 1


# --- scales -------------------------------------------------------------------------------------------------------


def test_scales_of_a_length_that_no_tree_has_are_refused() -> None:
    largest = boosting.LARGEST_SQUARED_LENGTH
    for priced in (1, largest):
        assert Scales.of(priced, n_trees=1, n_classes=2).squared_length <= priced
    for priced in (0, largest + 1):
        with pytest.raises(UnknownPrivacyEvent):
            Scales.of(priced, n_trees=1, n_classes=2)


@pytest.mark.parametrize("n_classes", [TWO, THREE, MANY])
@pytest.mark.parametrize(
    "priced", [101, 10_000, 2**33 + 12_345, boosting.LARGEST_SQUARED_LENGTH]
)
def test_scales_use_up_what_was_priced_and_no_more(priced: int, n_classes: int) -> None:
    scales = Scales.of(priced, n_trees=400, n_classes=n_classes)

    assert scales.squared_length + scales.count**2 == priced
    assert scales.length**2 <= scales.squared_length < (scales.length + 1) ** 2
    assert scales.count**2 * 101 <= priced < (scales.count + 1) ** 2 * 101
    assert scales.clip >= loss_of(n_classes).clip * 2**24 > scales.clip - 1


def test_scales_state_the_leaf_rule_of_the_paper() -> None:
    """v = G/(h · max(N, 0) + λ), λ = 2 + κ · √T · σ_G, in standard deviations of the
    noise.
    """
    rules = ((TWO, 0.35, 0.25, 0.8), (MANY, 0.495, 0.15, 0.8), (NUMBER, 0.25, 0.5, 3))
    for n_classes, clip, hessian, ridge in rules:
        scales = scales_of(n_classes)
        assert float(loss_of(n_classes).clip) == clip
        # sensitivity of G over its noise
        per_tree = math.sqrt(scales.squared_length) / 2**24
        deviation = clip / per_tree
        gradient_sum, rows = 31.7, 812.0
        expected = gradient_sum / (
            hessian * rows + 2 + ridge * math.sqrt(400) * deviation
        )
        released = [gradient_sum / deviation * 2**24] * scales.n_scores + [
            rows * scales.count
        ]
        scores = leaf_scores(np.rint(released).astype(np.int64), scales) / 2**16
        assert scores == pytest.approx(expected, abs=2.0**-16)


# --- gradients ----------------------------------------------------------------------------------------------------


def _exact_gradient(
    scores: list[int], y: int, scales: Scales, n_classes: int
) -> list[float]:
    """The clipped gradient divided by the unit of gradients, computed by the
    mathematics library.
    """
    logits = (
        [0.0, scores[0] / 2**16]
        if n_classes == TWO
        else [score / 2**16 for score in scores]
    )
    weights = [math.exp(logit - max(logits)) for logit in logits]
    raw = [float(k == y) - weight / sum(weights) for k, weight in enumerate(weights)]
    if n_classes == TWO:
        raw = raw[1:]
    norm = math.hypot(*raw)
    clip = scales.clip / 2**24
    return [scales.length * value / max(norm, clip) for value in raw]


@pytest.mark.parametrize("n_classes", [TWO, THREE, MANY])
def test_gradients_are_those_of_the_softmax_clipped(n_classes: int) -> None:
    rng = np.random.default_rng(n_classes)
    scales = scales_of(n_classes, mu_squared="1")
    scores = (rng.normal(0, 3, (600, scales.n_scores)) * 2**16).astype(np.int64)
    y = rng.integers(0, n_classes, 600, dtype=np.int32)
    gradients = boosting.gradients(scores, y, scales)
    exact = [
        _exact_gradient(row, int(label), scales, n_classes)
        for row, label in zip(scores.tolist(), y, strict=True)
    ]

    assert np.all(
        np.abs(gradients - np.array(exact)) < 2 + scales.length * n_classes * 2.0**-22
    )
    squares = np.square(gradients.astype(object)).sum(axis=1)
    assert max(squares) <= scales.squared_length
    # clipped gradients have the largest allowed length
    assert max(squares) > 0.999 * scales.squared_length


@pytest.mark.parametrize("n_classes", [TWO, THREE])
def test_hostile_scores_stay_inside_the_norm(n_classes: int) -> None:
    scales = scales_of(n_classes)
    extremes = [
        0,
        1,
        -1,
        2**16,
        -(2**16),
        22 * 2**16 - 1,
        22 * 2**16,
        2**40,
        -(2**40),
        2**61,
        -(2**61),
    ]
    grids = (
        np.array(np.meshgrid(*[extremes] * scales.n_scores))
        .reshape(scales.n_scores, -1)
        .T
    )
    for label in range(n_classes):
        gradients = boosting.gradients(
            np.ascontiguousarray(grids, dtype=np.int64),
            np.full(len(grids), label, dtype=np.int32),
            scales,
        )
        assert (
            np.square(gradients.astype(object)).sum(axis=1).max()
            <= scales.squared_length
        )


def test_a_contribution_that_would_be_too_long_is_dropped() -> None:
    """The check follows the clip: if the bound is below the length of a clipped
    gradient, long gradients become 0.
    """
    for n_classes in (TWO, THREE):
        fitting = scales_of(n_classes)
        tight = Scales(**{**vars(fitting), "squared_length": fitting.length**2 // 2})
        scores = np.zeros((2, fitting.n_scores), dtype=np.int64)
        scores[1, 0] = 4 * 2**16
        y = np.array([0, 0 if n_classes == THREE else 1], dtype=np.int32)
        gradients = boosting.gradients(scores, y, tight)
        # an uncertain row: a gradient of the largest length
        assert not gradients[0].any()
        assert gradients[1].any()  # a row that is nearly certain: a short gradient
        assert boosting.gradients(scores, y, fitting)[0].any()


def test_certain_rows_contribute_nothing_and_signs_are_right() -> None:
    scales = scales_of(TWO)
    scores = np.array(
        [[30 * 2**16], [30 * 2**16], [-30 * 2**16], [0], [0]], dtype=np.int64
    )
    y = np.array([1, 0, 0, 1, 0], dtype=np.int32)
    gradients = boosting.gradients(scores, y, scales)[:, 0].tolist()
    assert gradients[0] == 0
    assert gradients[2] == 0
    assert gradients[1] == -gradients[3] == gradients[4]
    assert scales.length - 2 <= gradients[3] <= scales.length


@pytest.mark.parametrize(
    "square",
    [
        1,
        2,
        3,
        4,
        2**20,
        2**24 - 1,
        2**46 + 1,
        (2**24 + 3) ** 2,
        (2**24 + 3) ** 2 + 1,
        2**49,
    ],
)
def test_square_roots_are_rounded_up_exactly(square: int) -> None:
    result = int(boosting_loops._root_up(np.uint64(square)))
    assert (result - 1) ** 2 < square <= result**2


# --- leaf scores --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n_classes", [TWO, MANY])
def test_leaf_scores_equal_exact_rational_arithmetic(n_classes: int) -> None:
    rng = np.random.default_rng(7)
    for mu_squared in ("0.0001", "0.05", "60"):
        scales = scales_of(n_classes, mu_squared=mu_squared)
        exponents = rng.uniform(
            0, [54] * scales.n_scores + [51], (400, scales.n_scores + 1)
        )
        released = (rng.choice([-1, 1], exponents.shape) * np.exp2(exponents)).astype(
            np.int64
        )
        scores = leaf_scores(released, scales)
        for row, own in zip(released.tolist(), scores.tolist(), strict=True):
            divisor = scales.count_factor * max(row[-1], 0) + scales.ridge
            exact = [
                Fraction(scales.score_factor * value * 2**16, divisor)
                for value in row[:-1]
            ]
            expected = [
                min(max(math.floor(value + Fraction(1, 2)), -3 * 2**16), 3 * 2**16)
                for value in exact
            ]
            assert own == expected
        assert scores.dtype == np.int32


def test_a_leaf_score_falls_with_the_count_but_not_with_a_negative_one() -> None:
    scales = scales_of(TWO)
    gradient = 50 * 2**SCALE_BITS
    few, more, negative, zero = (
        int(leaf_scores(np.array([gradient, count], dtype=np.int64), scales)[0])
        for count in (10**9, 10**11, -(10**11), 0)
    )
    assert more < few < zero == negative


def test_start_scores_are_the_logarithms_of_the_smoothed_prior() -> None:
    one = 2**SCALE_BITS
    assert start_scores(np.array([3 * one, 7 * one])).tolist() == [
        round(math.log(8 / 4) * 2**16)
    ]
    assert start_scores(np.array([-(10**12), 5])).tolist() == [0]
    scores = start_scores(np.array([0, 1 * one, 9 * one])).tolist()
    logs = [math.log(1), math.log(2), math.log(10)]
    assert scores == [round((log - sum(logs) / 3) * 2**16) for log in logs]


# --- rows on their own --------------------------------------------------------------------------------------------


def test_sums_over_parts_of_the_rows_add_up() -> None:
    rng = np.random.default_rng(3)
    leaf = rng.integers(0, 8, 333, dtype=np.int32)
    gradients = rng.integers(-(2**20), 2**20, (333, 3), dtype=np.int32)
    whole = node_rows.leaf_gradients(leaf, gradients, count=17, n_leaves=8)
    parts = [
        node_rows.leaf_gradients(leaf[own], gradients[own], count=17, n_leaves=8)
        for own in np.array_split(rng.permutation(333), 4)
    ]
    assert np.array_equal(sum(parts), whole)
    assert whole[:, -1].sum() == 333 * 17
    assert np.array_equal(whole[4, :3], gradients[leaf == 4].sum(axis=0))


@pytest.mark.parametrize("n_rows", [0, 1, 7, 8, 9, 100])
@pytest.mark.parametrize("depth", [0, 1, 4])
def test_rows_reach_the_leaves_that_the_masks_say(depth: int, n_rows: int) -> None:
    rng = np.random.default_rng(depth)
    n_trees, n_nodes = 3, 2**depth - 1
    X = rng.integers(0, 256, (n_rows, 5), dtype=np.uint8)
    feature = rng.integers(0, 5, (n_trees, n_nodes), dtype=np.int32)
    right = rng.integers(0, 2**64, (n_trees, n_nodes, 4), dtype=np.uint64)
    leaves = boosting.leaves(X, feature=feature, right=right, depth=depth)
    for tree in range(n_trees):
        for i, row in enumerate(X.tolist()):
            node = 0
            while node < n_nodes:
                code = row[int(feature[tree, node])]
                node = (
                    2 * node + 1 + (int(right[tree, node, code // 64]) >> code % 64 & 1)
                )
            assert leaves[tree, i] == node - n_nodes


def test_scores_of_all_trees_are_added_in_place() -> None:
    scores = np.arange(6, dtype=np.int64).reshape(3, 2)
    leaf = np.array([[[1, 2], [3, 4]], [[10, 20], [30, 40]]], dtype=np.int32)
    reached = np.array([[0, 1, 1], [1, 0, 1]], dtype=np.int32)
    node_rows.add_leaf_scores(scores, reached, leaf)
    assert scores.tolist() == [[31, 43], [15, 27], [37, 49]]
    for copied in (scores.astype(np.int32), np.asfortranarray(scores), scores[:2]):
        with pytest.raises(ValueError, match="scores must be"):
            node_rows.add_leaf_scores(copied, reached, leaf)


def test_indices_outside_an_array_are_refused() -> None:
    scales = scales_of(THREE)
    scores = np.zeros((2, 3), dtype=np.int64)
    with pytest.raises(ValueError, match="range"):
        boosting.gradients(scores, np.array([0, 3], dtype=np.int32), scales)
    with pytest.raises(ValueError, match="int64"):
        boosting.gradients(
            scores.astype(np.float64), np.zeros(2, dtype=np.int32), scales
        )
    with pytest.raises(ValueError, match="range"):
        node_rows.leaf_gradients(
            np.full(2, 4, dtype=np.int32),
            np.zeros((2, 1), dtype=np.int32),
            count=1,
            n_leaves=4,
        )
    with pytest.raises(ValueError, match="range"):
        boosting.leaves(
            np.zeros((1, 2), dtype=np.uint8),
            feature=np.full((1, 1), 2, dtype=np.int32),
            right=np.zeros((1, 1, 4), dtype=np.uint64),
            depth=1,
        )
    with pytest.raises(ValueError, match="range"):
        node_rows.add_leaf_scores(
            scores,
            np.full((1, 2), 2, dtype=np.int32),
            np.zeros((1, 2, 3), dtype=np.int32),
        )


def test_no_float_in_the_compiled_loops() -> None:
    compiled = [
        loop
        for name, loop in vars(boosting_loops).items()
        if hasattr(loop, "signatures") and name[0] != "_"
    ]
    assert {loop.__name__ for loop in compiled} == {
        "gradients_of_two",
        "gradients_of_many",
        "gradients_of_numbers",
        "leaves",
        "weights",
    }
    for loop in (
        *compiled,
        node_row_loops.leaf_gradients,
        node_row_loops.add_leaf_scores,
    ):
        (types,) = loop.signatures
        fresh = numba.njit(loop.py_func)
        fresh.compile(types)
        match = re.search(
            r"\b(half|float|double|fp128|sitofp|uitofp|fptosi|fptoui)\b",
            fresh.inspect_llvm(types),
        )
        assert match is None, f"{loop.__name__} computes with floats: {match}"
    assert "float" not in inspect.getsource(boosting_loops).replace(
        "No float anywhere", ""
    )
