"""Theorems 5.1 to 5.9 of Bojarski et al. (2014): exact on enumerated trees, then bounds
on rows of scikit-learn.
"""

import csv
from collections import Counter
from collections.abc import Sequence
from fractions import Fraction
from itertools import product
from math import exp, log
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from research import bundled
from research.papers import __main__ as papers
from research.papers import printed_random_trees as printed
from research.papers import random_tree_bounds
from research.papers import random_tree_theory as theory
from research.papers.printed_random_trees import Columns
from research.papers.random_tree_bounds import Pool
from research.papers.random_tree_theory import TreeSet

Labels = NDArray[np.int64]

CUBE = np.array(list(product([False, True], repeat=3)))
"""The eight rows of three binary columns."""

POINTS = np.array([[0, 2], [1, 7], [4, 0], [4, 5], [9, 11]])
"""Five rows of two columns between 0 and 11, with a tie and with rows at both bounds."""


def labellings(n_rows: int) -> list[Labels]:
    return [np.array(labels) for labels in product([0, 1], repeat=n_rows)]


def mean(values: Sequence[Fraction]) -> Fraction:
    return sum(values, start=Fraction(0)) / len(values)


def binary_trees(height: int) -> TreeSet:
    return theory.complete_trees(theory.binary_splits(CUBE), height)


@pytest.mark.parametrize("height", [0, 1, 2])
def test_5_1_and_5_2_hold_exactly_for_every_labelling_of_the_cube(height: int) -> None:
    trees = binary_trees(height)
    assert len(trees.chances) == 3 ** (2**height - 1)
    _check_both_theorems(trees, labellings(8))


def test_5_1_and_5_2_hold_exactly_for_trees_of_height_three() -> None:
    trees = binary_trees(3)
    assert len(trees.chances) == 2187
    parity = CUBE.sum(axis=1) % 2
    _check_both_theorems(
        trees, [parity, np.array([0, 0, 0, 1, 0, 1, 1, 1]), CUBE[:, 0].astype(np.int64)]
    )


def test_5_1_and_5_2_hold_exactly_for_uniform_thresholds() -> None:
    trees = theory.complete_trees(theory.threshold_splits(POINTS, lower=0, upper=11), 2)
    assert sum(trees.chances) == 1
    assert len(set(trees.chances)) > 10, "trees differ in their chances"
    _check_both_theorems(trees, labellings(5))


def _check_both_theorems(trees: TreeSet, every_labels: list[Labels]) -> None:
    n_strict = 0
    for labels in every_labels:
        accuracy = theory.average_accuracy(trees, labels)
        assert mean(theory.goodness(trees, labels)) == accuracy
        weight, least = (
            mean(theory.weights(trees, labels)),
            theory.mean_weight_bound(1 - accuracy),
        )
        assert weight >= least
        n_strict += weight > least
    assert n_strict or len(every_labels) == 2 ** len(every_labels[0]), (
        "somewhere the inequality is strict"
    )


def test_5_2_is_an_equality_where_leaves_have_equal_shares_and_no_larger_bound_holds() -> (
    None
):
    """The accuracy itself is no bound of the average weight, so Theorem 5.1 is the
    stronger one, as the paper says.
    """
    labels = np.array([1, 0, 0, 0, 1, 0, 0, 0])
    trees = theory.complete_trees([(Fraction(1), CUBE[:, 0])], 1)
    accuracy, weight = (
        theory.average_accuracy(trees, labels),
        mean(theory.weights(trees, labels)),
    )
    assert accuracy == Fraction(3, 4)
    assert weight == theory.mean_weight_bound(1 - accuracy) == Fraction(5, 8)
    assert weight < accuracy


def test_5_2_needs_two_classes() -> None:
    """One leaf of three classes, a third each: e is 1/3, e² + (1 − e)² is 5/9, and the
    weight of every row is 1/3.
    """
    assert Fraction(1, 3) < theory.mean_weight_bound(Fraction(2, 3))


def test_the_enumerated_law_is_that_of_the_printed_forest() -> None:
    """The goodness of five rows in 4,000 grown trees, at most six standard deviations
    from the exact one.
    """
    labels, n_trees = np.array([0, 1, 1, 0, 1]), 4_000
    trees = theory.complete_trees(theory.threshold_splits(POINTS, lower=0, upper=11), 2)
    exact = np.array([float(value) for value in theory.goodness(trees, labels)])
    assert len(set(exact)) == 5, "the rows can be told apart"
    columns = Columns(POINTS.astype(np.float32), np.zeros(2), np.full(2, 11.0))
    leaves = printed.leaves_of(
        columns, n_trees=n_trees, height=2, random=np.random.default_rng(2)
    )
    drawn = theory.is_right(leaves.astype(np.int64), labels).mean(axis=0)
    assert (
        np.abs(drawn - exact) <= 6 * np.sqrt(exact * (1 - exact) / n_trees)
    ).all(), (drawn, exact)


def test_5_3_and_5_4_bound_the_exact_chance_that_a_vote_is_wrong() -> None:
    """Every outcome of k enumerated trees: the chance that some row of enough goodness
    is outvoted is at most 1/n.
    """
    labels, margin = np.array([0, 0, 0, 1, 0, 1, 1, 1]), 0.3
    trees = binary_trees(2)
    good = np.array([float(value) for value in theory.goodness(trees, labels)])
    is_safe = good >= 0.5 + margin
    n_trees = theory.enough_trees(8, margin, 1.0)
    assert n_trees == 24
    assert 0 < is_safe.sum() < 8

    right = theory.is_right(trees.leaves, labels)[:, is_safe]
    law: dict[tuple[int, ...], Fraction] = {(0,) * right.shape[1]: Fraction(1)}
    steps: Counter[tuple[int, ...]] = Counter(tuple(map(int, row)) for row in right)
    for _ in range(n_trees):
        after: dict[tuple[int, ...], Fraction] = {}
        for votes, chance in law.items():
            for step, count in steps.items():
                key = tuple(vote + one for vote, one in zip(votes, step, strict=True))
                after[key] = after.get(key, Fraction(0)) + chance * Fraction(
                    count, len(right)
                )
        law = after
    failure = float(
        sum(chance for votes, chance in law.items() if min(votes) <= n_trees // 2)
    )
    assert 0 < failure <= theory.voting_failure(good[is_safe], n_trees) <= 1 / 8
    assert failure < 8 * exp(-2 * n_trees * margin**2) <= 1 / 8

    tree_error = float(1 - theory.average_accuracy(trees, labels))
    assert 1 - is_safe.mean() <= theory.voting_error_bound(tree_error, margin)


PARITY = np.array([bits.sum() % 2 for bits in CUBE])


def parity_table(n_of_a_cell: int, corner: int) -> tuple[NDArray[np.bool_], Labels]:
    """Rows of three random bits whose label is their parity, with ``corner`` rows more
    for 000 and for 111.
    """
    n_rows = np.where((CUBE.sum(axis=1) % 3) == 0, n_of_a_cell + corner, n_of_a_cell)
    return np.repeat(CUBE, n_rows, axis=0), np.repeat(1 - PARITY, n_rows)


def test_5_3_does_not_bound_the_test_error_of_a_vote() -> None:
    """Leaves are nearly balanced: goodness, by the test rows, says nothing on votes by
    the training rows.

    Three quarters of the test rows have goodness 2/3, so the bound tends to 1/4; a vote
    is wrong about three quarters. Which side of a leaf is the larger one is chance for
    tables of any size, so larger tables do not help.
    """
    for n_of_a_cell in (10, 10_000):
        X, labels = parity_table(n_of_a_cell, -1)
        trees = theory.complete_trees(theory.binary_splits(X), 1)
        good = theory.goodness(trees, labels)
        assert 0 < 1 - theory.average_accuracy(trees, labels) < Fraction(1, 2)
        share = mean([Fraction(value >= Fraction(2, 3)) for value in good])
        assert share > Fraction(3, 4)

        training_X, training_labels = parity_table(n_of_a_cell, 1)
        n_wrong = 0
        for bits, label in zip(CUBE, 1 - PARITY, strict=True):
            votes = [
                np.mean(training_labels[training_X[:, column] == bits[column]]) > 0.5
                for column in range(3)
            ]
            n_wrong += (sum(votes) >= 2) != label
        assert n_wrong == 6, "of eight cells; more trees repeat the same three splits"


def test_signs_of_leaves_that_refute_5_3_have_a_chance_that_no_number_of_rows_lowers() -> (
    None
):
    """Each of the two tables has the signs with chance 1/32 in the limit: a threefold
    product of normal tails.
    """
    random = np.random.default_rng(5)
    for n_rows in (2_000, 200_000):
        counts = random.multinomial(n_rows, np.full(8, 1 / 8), size=20_000) * np.where(
            PARITY, -1, 1
        )
        zeros = np.stack(
            [counts[:, ~CUBE[:, column]].sum(axis=1) for column in range(3)], axis=1
        )
        ones = np.stack(
            [counts[:, CUBE[:, column]].sum(axis=1) for column in range(3)], axis=1
        )
        share = np.mean((zeros < 0).all(axis=1) & (ones > 0).all(axis=1))
        assert abs(share - 1 / 32) < 0.008, share


@pytest.fixture(scope="module")
def pool() -> tuple[NDArray[np.int32], Labels]:
    """The leaves of wdbc's 569 rows in 2,000 printed trees of height 8. The theorems
    hold for any set of trees.
    """
    dataset = bundled.read("wdbc")
    leaves = printed.leaves_of(
        Columns.of(dataset), n_trees=2_000, height=8, random=np.random.default_rng(0)
    )
    return leaves, dataset.y.astype(np.int64)


def test_5_3_and_5_4_hold_on_wdbc(pool: tuple[NDArray[np.int32], Labels]) -> None:
    leaves, labels = pool
    trees = Pool.of(leaves, labels)
    right, share, tree_error = trees.right, trees.shares, trees.tree_error
    n_rows, random = len(labels), np.random.default_rng(1)
    assert share.mean() >= (1 - tree_error) ** 2 + tree_error**2
    margin = 0.1
    n_trees = theory.enough_trees(n_rows, margin, 1.0)
    for of_rows, votes, bound in (
        (right.mean(axis=0), right, theory.voting_error_bound(tree_error, margin)),
        (share.mean(axis=0), share, theory.averaging_error_bound(tree_error, margin)),
    ):
        unsafe = float(np.mean(of_rows < 0.5 + margin))
        assert unsafe <= bound < 1, (
            "the bound of 5.4 follows from that of 5.3 and says something"
        )
        for _ in range(20):
            drawn = votes[random.integers(len(votes), size=n_trees)].mean(axis=0)
            assert np.mean(drawn <= 0.5) <= unsafe
    row = random_tree_bounds.bounds_row("wdbc", 8, trees, random)
    unsafe_votes, bound_of_votes, worst_vote = (float(cell) for cell in row[6:9])
    assert 0 < worst_vote <= unsafe_votes <= bound_of_votes
    assert (
        theory.voting_failure(right.mean(axis=0)[right.mean(axis=0) >= 0.6], n_trees)
        <= 1 / n_rows
    )


def test_bounds_of_the_file_are_rounded_to_the_safe_side(
    pool: tuple[NDArray[np.int32], Labels],
) -> None:
    trees = Pool.of(*pool)
    error, random = trees.tree_error, np.random.default_rng(1)
    row = random_tree_bounds.bounds_row("wdbc", 8, trees, random)
    assert 0 <= (1 - error) ** 2 + error**2 - float(row[4]) < 0.001
    for place, bound in (
        (7, theory.voting_error_bound(error, 0.1)),
        (10, theory.averaging_error_bound(error, 0.1)),
        (12, 2 * error),
    ):
        assert 0 <= float(row[place]) - 100 * bound < 0.1


def test_a_vote_errs_at_most_twice_as_often_as_its_trees(
    pool: tuple[NDArray[np.int32], Labels],
) -> None:
    """No theorem of the paper, and stronger than 5.4: half of the trees are wrong about
    an outvoted row.
    """
    leaves, labels = pool
    right = theory.is_right(leaves[:300].astype(np.int64), labels)
    for n_trees in (1, 2, 3, 5, 21, 100):
        forest = right[:n_trees]
        error = np.mean(2 * forest.sum(axis=0) <= n_trees)
        assert error <= 2 * (1 - forest.mean())


def test_averaging_errs_more_than_twice_as_often_as_its_trees() -> None:
    """Ten rows of each class beside 2,000 fillers: twenty trees are slightly wrong, and
    one outweighs them.
    """
    labels = np.array([1] * 10 + [0] * 10 + [1] * 1_000 + [0] * 1_000)
    # fillers have a pure leaf for each class; the twenty rows are in the other two
    leaves = np.tile(np.repeat([1, 1, 2, 3], [10, 10, 1_000, 1_000]), (21, 1))
    for tree in range(20):
        first = (tree // 2 + np.arange(10)) % 10
        leaves[tree, first[:6]] = leaves[tree, 10 + first[:4]] = 0
    leaves[20] = np.repeat([0, 1, 1, 0], [10, 10, 1_000, 1_000])

    same, total = theory.same_label_counts(leaves, labels)
    weights = (same / total).mean(axis=0)
    is_wrong = weights < 0.5
    tree_error = 1 - theory.is_right(leaves, labels).mean()

    assert is_wrong.sum() == 20
    assert is_wrong.mean() / tree_error == pytest.approx(2.33, abs=0.005)
    assert is_wrong.mean() <= 4 * tree_error * (1 - tree_error)


def test_5_5_holds_exactly_in_the_mean_and_on_wdbc(
    pool: tuple[NDArray[np.int32], Labels],
) -> None:
    labels = np.array([0, 0, 0, 1, 0, 1, 1, 1])
    trees = binary_trees(2)
    tree_error = 1 - theory.average_accuracy(trees, labels)
    expected_error = 1 - mean(theory.weights(trees, labels))
    assert expected_error <= 2 * tree_error * (1 - tree_error)

    leaves, labels = pool
    same, total = theory.same_label_counts(leaves.astype(np.int64), labels)
    error, slack = (
        float(1 - theory.is_right(leaves.astype(np.int64), labels).mean()),
        0.05,
    )
    random = np.random.default_rng(3)
    n_trees = theory.enough_trees(len(labels), slack, 1.0)
    theta = np.where(labels == 1, same / total, 1 - same / total)
    for _ in range(20):
        drawn = printed.predicted(
            theta[random.integers(len(theta), size=n_trees)], "pa", random
        )
        assert (
            np.mean(drawn != labels) <= theory.drawing_error_bound(error, slack) < 0.5
        )


def test_noise_moves_a_share_by_at_most_the_lemma() -> None:
    """|noisy share − share| ≤ z / (s − 2z) for the service's θ; the paper's θ has no such bound."""
    random = np.random.default_rng(4)
    rows = random.integers(20, 200, size=5_000)
    ones = (rows * random.choice([0.0, 0.3, 1.0], size=5_000)).astype(np.int64)
    exact = np.stack([rows - ones, ones], axis=1)
    noise = random.uniform(-4, 4, size=exact.shape)
    moved = np.abs(printed.clamped_theta(exact + noise) - exact[:, 1] / rows)
    assert (moved <= 4 / (rows - 8)).all()
    assert (
        np.abs(printed.printed_theta(exact + noise, random) - exact[:, 1] / rows).max()
        > 0.9
    )

    rate, n_rows, height = theory.noise_rate(0.1, 0.125, 3), 10_000, 3
    heavy = 0.1 * n_rows / 2**height
    assert rate * n_rows / (heavy - 2 * rate * n_rows) == pytest.approx(0.125)


def test_5_7_and_5_8_hold_with_the_service_s_theta_on_iris() -> None:
    """Setosa against the others at height 5. The bounds say something only at an ε of
    millions: noise below a row.
    """
    dataset = bundled.read("iris")
    y, height, margin, light, epsilon = (
        (dataset.y == 0).astype(np.int32),
        5,
        0.1,
        0.1,
        3e6,
    )
    rate, random = (
        theory.noise_rate(light, margin / 2, height),
        np.random.default_rng(6),
    )
    settings = {"margin": margin, "height": height, "rate": rate, "epsilon": epsilon}
    n_trees = theory.best_n_trees(len(y), **settings)
    assert exp(theory.log_private_failure(len(y), n_trees, **settings)) < 0.001
    pool = printed.leaves_of(
        Columns.of(dataset), n_trees=2_000, height=height, random=random
    ).astype(np.int64)
    tree_error = float(1 - theory.is_right(pool, y.astype(np.int64)).mean())
    bound = theory.averaging_error_bound(tree_error, margin, light_share=light)
    drawn_bound = theory.drawing_error_bound(
        tree_error, 0.12, light_share=light, noise_slack=margin / 2
    )
    assert max(bound, drawn_bound) < 0.5
    leaves = printed.leaves_of(
        Columns.of(dataset), n_trees=n_trees, height=height, random=random
    )
    counts = printed.class_counts(leaves, y, n_leaves=2**height)
    theta = printed.clamped_theta(
        printed.noisy_counts(counts, scale=n_trees / epsilon, random=random)
    )
    of_rows = np.take_along_axis(theta, leaves, axis=1)
    assert np.mean(printed.predicted(of_rows, "ta", random) != y) <= bound
    assert np.mean(printed.predicted(of_rows, "pa", random) != y) <= drawn_bound


def test_small_noise_adds_at_most_two_rows_for_a_unit_in_every_leaf_to_a_vote() -> None:
    """The part of 5.6 and 5.7 that stands for votes: 2 (mean tree error + 2^(h+1) z /
    n) for noise of at most z.
    """
    dataset, random, height, largest = (
        bundled.read("wdbc"),
        np.random.default_rng(9),
        2,
        5.0,
    )
    labels = dataset.y.astype(np.int64)
    for n_trees in (1, 5, 51):
        leaves = printed.leaves_of(
            Columns.of(dataset), n_trees=n_trees, height=height, random=random
        )
        counts = printed.class_counts(leaves, dataset.y, n_leaves=2**height)
        noisy = counts + random.uniform(-largest, largest, size=counts.shape)
        votes = np.take_along_axis(printed.larger_count(noisy), leaves, axis=1)
        tree_error = 1 - theory.is_right(leaves.astype(np.int64), labels).mean()
        error = np.mean(printed.predicted(votes, "mv", random) != labels)
        assert error <= 2 * (tree_error + 2 ** (height + 1) * largest / len(labels)) < 1


def test_a_vote_has_no_such_bound_with_the_printed_theta() -> None:
    """One tree of two pure leaves: a count of 0 is negative half of the time, and half
    of the drawn labels are wrong. Noise of at most one row adds at most 0.8 % otherwise.
    """
    random = np.random.default_rng(12)
    noise = random.uniform(-1.0, 1.0, size=(4_000, 2, 2))
    noisy = np.array([[500, 0], [0, 500]]) + noise
    votes = printed.printed_theta(noisy, random) >= 0.5
    assert np.mean(votes != [False, True]) == pytest.approx(0.25, abs=0.03)
    assert np.mean(printed.larger_count(noisy) != [0, 1]) == 0


def test_5_6_does_not_bound_the_error_of_a_vote() -> None:
    """Noise decides nearly balanced leaves: three quarters of the rows have goodness
    2/3, and half are right.
    """
    X, labels = parity_table(100_000, -1)
    n_trees, random = (
        theory.enough_trees(len(labels), 1 / 12, 1.0),
        np.random.default_rng(7),
    )
    settings = {
        "margin": 1 / 6,
        "height": 1,
        "rate": theory.noise_rate(0.05, 1 / 12, 1),
        "epsilon": 20.0,
    }
    assert exp(theory.log_private_failure(len(labels), n_trees, **settings)) < 0.01, (
        "the bound says something"
    )
    wrong = []
    counts = np.array(
        [
            [
                np.bincount(labels[X[:, column] == side], minlength=2)
                for side in (False, True)
            ]
            for column in range(3)
        ]
    )
    for _ in range(40):
        columns = random.integers(3, size=n_trees)
        theta = printed.clamped_theta(
            printed.noisy_counts(counts[columns], scale=n_trees / 20, random=random)
        )
        of_cells = theta[np.arange(n_trees)[:, np.newaxis], CUBE.T[columns].astype(int)]
        wrong.append(np.mean(printed.predicted(of_cells, "mv", random) != 1 - PARITY))
    assert np.mean(wrong) == pytest.approx(0.5, abs=0.05)
    assert np.mean(np.array(wrong) > 1 / 4) > 0.9, (
        "an error above 1 − μ = 1/4 is the rule, not a rare failure"
    )


def test_5_6_to_5_9_fail_with_the_printed_theta_where_leaves_are_pure() -> None:
    """A count of 0 is negative after noise half of the time, and the paper then draws
    θ, however many rows there are.

    A fifth of the rows have weight 3/5 and the others 9/10, so that Theorem 5.6 bounds
    the error by 0 and Theorem 5.8 by 2ε − 2ε² = 0.18 and a little. Threshold averaging
    is wrong about the fifth; probabilistic averaging errs more.
    """
    labels = np.repeat([1, 0], [100_000, 400_000])
    counts = np.array([[[400_000, 0], [0, 100_000]], [[400_000, 100_000], [0, 0]]])
    # the leaf of the first and of the other rows, for both trees
    sides = np.array([[1, 0], [0, 0]])
    random, n_trees = (
        np.random.default_rng(8),
        theory.enough_trees(len(labels), 0.05, 1.0),
    )
    settings = {
        "margin": 0.1,
        "height": 1,
        "rate": theory.noise_rate(0.05, 0.05, 1),
        "epsilon": 500.0,
    }
    assert exp(theory.log_private_failure(len(labels), n_trees, **settings)) < 1e-5, (
        "the bounds say something"
    )
    assert n_trees == 5_249
    # η, and whether the fifth is right by the service's θ; the means below are at 500
    for epsilon, is_right in ((0.02, False), (1.0, True), (1e6, True), (500.0, True)):
        columns = random.integers(2, size=n_trees)
        noisy = printed.noisy_counts(
            counts[columns], scale=n_trees / epsilon, random=random
        )
        printed_theta, clamped_theta = (
            np.take_along_axis(theta, sides[columns], axis=1)
            for theta in (
                printed.printed_theta(noisy, random),
                printed.clamped_theta(noisy),
            )
        )
        of_service = printed.predicted(clamped_theta, "ta", random).tolist()
        assert of_service == [is_right, False]
        of_paper = printed.predicted(printed_theta, "ta", random).tolist()
        assert of_paper == [False, False]
    assert printed_theta.mean(axis=0) == pytest.approx(
        [(3 / 4 + 1 / 5) / 2, (1 / 4 + 1 / 5) / 2], abs=0.03
    )
    assert clamped_theta.mean(axis=0) == pytest.approx(
        [(1 + 1 / 5) / 2, (0 + 1 / 5) / 2], abs=0.03
    )
    drawn_error = (
        0.2 * (1 - printed_theta[:, 0].mean()) + 0.8 * printed_theta[:, 1].mean()
    )
    assert drawn_error > 0.18 + 0.08
    assert labels.mean() == 0.2


def test_the_best_number_of_trees_is_that_of_a_complete_search() -> None:
    settings = {"margin": 0.2, "height": 2, "rate": 0.001, "epsilon": 1.0}
    for n_rows in (10**6, 10**7, 10**8):
        failures = [
            theory.log_private_failure(n_rows, n_trees, **settings)
            for n_trees in range(1, 20_000)
        ]
        assert theory.best_n_trees(n_rows, **settings) == 1 + int(np.argmin(failures))


def test_the_best_number_of_trees_grows_like_the_square_root_and_not_like_the_logarithm() -> (
    None
):
    settings = {"margin": 0.2, "height": 2, "rate": 0.001, "epsilon": 1.0}
    small, large = (
        theory.best_n_trees(n_rows, **settings) for n_rows in (10**8, 10**10)
    )
    assert 9 < large / small < 10
    assert large == pytest.approx((2 * 0.001 * 10**10) ** 0.5 / 0.2, rel=0.02)
    assert random_tree_bounds.private_row("wdbc", 8, 569) == (
        "wdbc", "8", "1", "1070", "2.6e+09", "2325",
    )  # fmt: skip
    enough = theory.enough_trees(10**10, 0.1, 1.0)
    assert enough < large / 9
    assert theory.log_private_failure(10**10, enough, **settings) < -0.99 * log(10**10)
    assert enough / theory.enough_trees(10**8, 0.1, 1.0) == pytest.approx(
        10 / 8, rel=0.01
    )


def test_a_run_keeps_the_rows_of_datasets_that_do_not_run(tmp_path: Path) -> None:
    path = tmp_path / random_tree_bounds.PRIVATE_BOUNDS
    path.write_text("dataset,h\nvote,4\nwdbc,4\n", encoding="utf-8")
    random_tree_bounds.main(["--heights", "1", "--results", str(tmp_path)])
    rows = list(csv.reader(path.read_text(encoding="utf-8").splitlines()))
    assert [row[:2] for row in rows] == [["dataset", "h"], ["vote", "4"], ["wdbc", "1"]]


def test_the_file_has_the_private_bounds_of_the_code() -> None:
    path = papers.RESULTS / random_tree_bounds.PRIVATE_BOUNDS
    _, *rows = csv.reader(path.read_text(encoding="utf-8").splitlines())
    n_rows = {
        "wdbc": 569,
        "vote": 435,
        "transfusion": 748,
        "mammographic": 961,
        "banknote": 1372,
    }
    for name, height in product(n_rows, (4, 8, 12)):
        row = random_tree_bounds.private_row(name, height, n_rows[name])
        assert list(row) in rows
        assert float(row[3]) > 1, "at nη = 1,000 the bound says nothing"
        assert float(row[4]) > 10**5 * 1_000
        failure = theory.log_private_failure(
            n_rows[name],
            int(row[5]),
            margin=0.1,
            height=height,
            rate=theory.noise_rate(0.1, 0.05, height),
            epsilon=float(row[4]) / n_rows[name],
        )
        assert failure <= log(0.01), "rounded to the safe side"


def test_the_test_error_of_averaging_is_bounded_where_leaves_are_large() -> None:
    """Tables of 10¹⁷ rows by their counts: the chance of failure vanishes with the
    rows, and not before.
    """
    n_rows, margin, random = 10**17, 0.1, np.random.default_rng(10)
    n_trees = theory.enough_trees(n_rows, margin / 2, 1.0)
    assert theory.generalization_failure(10**9, n_trees, 1, margin) > 1
    assert theory.generalization_failure(n_rows, n_trees, 1, margin) < 1e-6
    chances = np.array(
        [
            [0.02, 0.18],
            [0.02, 0.13],
            [0.05, 0.10],
            [0.10, 0.02],
            [0.03, 0.1],
            [0.1, 0.02],
            [0.05, 0.03],
            [0.04, 0.01],
        ]
    )
    test, training = random.multinomial(n_rows, chances.ravel(), size=2).reshape(
        2, 8, 2
    )

    def shares(counts: NDArray[np.int64]) -> NDArray[np.float64]:
        """Of both labels in the leaf of every cell, by the column of the split: ``(3,
        8, 2)``.
        """
        of_columns = []
        for column in CUBE.T:
            leaves = np.stack(
                [counts[column == side].sum(axis=0) for side in (False, True)]
            )
            of_columns.append(
                (leaves / leaves.sum(axis=1, keepdims=True))[column.astype(int)]
            )
        return np.stack(of_columns)

    safe = float(test[shares(test).mean(axis=0) >= 0.5 + margin].sum() / n_rows)
    columns = random.integers(3, size=n_trees)
    error = float(test[shares(training)[columns].mean(axis=0) <= 0.5].sum() / n_rows)
    assert 0.1 < error <= 1 - safe + margin < 0.9


def test_the_allowed_deviation_of_counts_is_that_of_the_derivation() -> None:
    """φ moves the share of the smallest leaf that counts by δ/2, and all smaller leaves
    hold a share of δ.
    """
    n_rows, n_trees, height, margin = 10**6, 3, 2, 0.2
    failure = theory.generalization_failure(n_rows, n_trees, height, margin)
    deviation = (log(2 ** (height + 3) * n_trees / failure) / (2 * n_rows)) ** 0.5
    least = 4 * deviation * (1 + margin) / margin
    assert 2 * deviation / (least - 4 * deviation) == pytest.approx(margin / 2)
    assert n_trees * 2**height * least == pytest.approx(margin)
