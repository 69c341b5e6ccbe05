"""Printed median trees: budgets, utilities, the law of a cut, stops, and answers on
iris.
"""

from fractions import Fraction

import numpy as np
import pytest

from grovekeeper_forests.trees import tree_price
from research import bundled
from research.papers import median_trees, synthetic
from research.papers.median_trees import (
    GEOMETRIC,
    MEDIANS,
    PRIVATE,
    RANDOM,
    TRUE,
    UNIFORM,
    MedianRule,
    Table,
)


@pytest.mark.parametrize(
    ("ratio", "exact"), [(GEOMETRIC, Fraction(3, 2)), (UNIFORM, Fraction(1))]
)
def test_budgets_of_levels_are_those_of_the_service(
    ratio: float, exact: Fraction
) -> None:
    budgets = MedianRule(PRIVATE, 6, 2.0, ratio).budgets
    assert budgets == pytest.approx(
        [float(loss) for loss in tree_price.geometric_losses(Fraction(2), 6, exact)]
    )
    assert budgets.sum() == pytest.approx(2.0)


@pytest.mark.parametrize("depth", [1, 4, 10])
def test_the_first_budget_has_the_constant_of_equation_7(depth: int) -> None:
    assert MedianRule(PRIVATE, depth, 1.0).budgets[0] == pytest.approx(
        1 / (2 * 1.5**depth - 2)
    )


@pytest.mark.parametrize("are_equal", [True, False])
def test_utilities_count_rows_in_plain_python(are_equal: bool) -> None:
    random = np.random.default_rng(1)
    values, candidates = (
        np.sort(random.integers(0, 6, 25).astype(float)),
        np.arange(-1.0, 7.0),
    )
    ranks = [
        sum(value == at if are_equal else value <= at for value in values)
        for at in candidates
    ]
    expected = [-abs(rank - 12.5) for rank in ranks]
    assert (
        median_trees.utilities(values, candidates, are_equal=are_equal).tolist()
        == expected
    )


def test_a_private_category_follows_the_exponential_mechanism() -> None:
    values = np.repeat(np.arange(4.0), [1, 2, 5, 4])
    random, n_draws = np.random.default_rng(2), 4_000
    drawn = [
        median_trees.median_cut(values, 4, PRIVATE, 0.7, random) for _ in range(n_draws)
    ]
    weights = np.exp(0.7 * -np.abs(np.array([1, 2, 5, 4]) - 6))
    assert (
        np.abs(
            np.bincount(np.array(drawn, dtype=int)) / n_draws - weights / weights.sum()
        ).max()
        < 0.04
    )
    assert median_trees.median_cut(values, 4, TRUE, 0.7, random) == 2.0


def test_private_medians_come_closer_with_a_larger_budget_and_random_ones_do_not() -> (
    None
):
    values, random = (
        np.sort(np.random.default_rng(3).exponential(size=500)),
        np.random.default_rng(4),
    )

    def distance(medians: str, epsilon: float) -> float:
        cuts = [
            median_trees.median_cut(values, 0, medians, epsilon, random)
            for _ in range(200)
        ]
        return float(np.mean(np.abs(np.array(cuts) - np.median(values))))

    assert distance(TRUE, 0.01) == 0
    assert distance(PRIVATE, 1.0) < distance(PRIVATE, 0.01) / 2
    assert distance(RANDOM, 1.0) > 2 * distance(PRIVATE, 1.0)


@pytest.mark.parametrize("medians", MEDIANS)
def test_nodes_divide_their_rows_and_stop_at_ten_or_at_the_depth(medians: str) -> None:
    dataset = bundled.read("wdbc")
    table, rows = Table.of(dataset), np.arange(300)
    nodes = median_trees.grow_tree(
        table, rows, MedianRule(medians, 4, 1.0), np.random.default_rng(5)
    )
    leaves = [node for node in nodes if node.feature < 0]
    assert sorted(np.concatenate([leaf.rows for leaf in leaves])) == list(range(300))
    for node in nodes:
        if node.feature >= 0:
            assert node.level < 4
            assert len(node.rows) > 10
            assert sorted(
                [*nodes[node.left].rows, *nodes[node.left + 1].rows]
            ) == sorted(node.rows)
        else:
            assert node.level == 4 or len(node.rows) <= 10
    reached = median_trees.leaf_places(nodes, table, rows)
    for place in np.unique(reached):
        assert np.array_equal(np.sort(nodes[place].rows), rows[reached == place])


@pytest.mark.parametrize("repeats", [True, False])
def test_a_path_repeats_features_unless_the_rule_forbids_it(repeats: bool) -> None:
    random = np.random.default_rng(10)
    table = Table.of_numbers(random.normal(size=(2_000, 3)))
    rule = MedianRule(PRIVATE, 6, 50.0, repeats_features=repeats)
    nodes = median_trees.grow_tree(table, np.arange(2_000), rule, random)
    paths: list[tuple[int, ...]] = [()] * len(nodes)
    for place, node in enumerate(nodes):
        if node.feature >= 0:
            paths[node.left] = paths[node.left + 1] = (*paths[place], node.feature)
    assert any(len(set(path)) < len(path) for path in paths) == repeats
    assert max(map(len, paths)) == (6 if repeats else 3)


def test_true_medians_have_no_distance_and_halve_their_rows() -> None:
    table = Table.of_numbers(np.random.default_rng(6).normal(size=(512, 3)))
    nodes = median_trees.grow_tree(
        table, np.arange(512), MedianRule(TRUE, 4, 1.0), np.random.default_rng(7)
    )
    assert {distance for _, distance in median_trees.distances(nodes, table)} == {0.0}
    assert [len(node.rows) for node in nodes if node.level == 4] == [32] * 16
    private = median_trees.grow_tree(
        table, np.arange(512), MedianRule(PRIVATE, 4, 1.0), np.random.default_rng(8)
    )
    assert min(distance for _, distance in median_trees.distances(private, table)) > 0


@pytest.mark.parametrize(
    ("leaf_epsilon", "at_least", "at_most"), [(100.0, 0.8, 1.0), (1e-6, 0.0, 0.7)]
)
def test_an_ensemble_learns_iris_unless_its_counts_are_noise(
    leaf_epsilon: float, at_least: float, at_most: float
) -> None:
    dataset, random = bundled.read("iris"), np.random.default_rng(9)
    order = random.permutation(150)
    labels = median_trees.ensemble_labels(
        dataset,
        (order[:120], order[120:]),
        MedianRule(TRUE, 4, 1.0),
        n_trees=2,
        leaf_epsilon=leaf_epsilon,
        random=random,
    )
    assert at_least <= np.mean(labels == dataset.y[order[120:]]) <= at_most


def test_other_medians_are_an_error() -> None:
    with pytest.raises(ValueError, match="not mean"):
        MedianRule("mean", 3, 1.0)


def test_a_synthetic_set_has_the_printed_size_and_depends_on_its_seed() -> None:
    first, second = synthetic.read("syn10d-0"), synthetic.read("syn10d-1")
    assert (len(first.y), len(first.columns), set(first.y)) == (3_000, 10, {0, 1})
    assert not np.array_equal(first.y, second.y)
    for feature, column in zip(first.schema.features, first.columns, strict=True):
        assert feature.lower == -feature.upper
        assert feature.upper / 2 < np.abs(column).max() <= feature.upper
