"""Comparison-based forests: splits by distance, pivots, leaves and artifacts against
plain NumPy.
"""

import numpy as np
import pytest
from numpy.typing import NDArray

from research.papers.forests.comparison import grow as comparison
from research.papers.forests.loops import comparison_loops
from research.papers.forests.trees.node_routing import NodeTrees
from tests.pure.research.papers.reference_forests import (
    IRIS,
    grown,
    iris,
    leaf_of,
    public_rows,
)


def _grown(
    X: NDArray[np.float32], y: NDArray[np.int32], *, are_opposed: bool, seed: int
) -> NDArray[np.int32]:
    """The pivots of the nodes of a tree that is grown until every leaf has one class."""
    nodes, thresholds = np.empty((2 * len(y), 3), dtype=np.int32), np.empty(2 * len(y))
    ones = np.ones(len(y), dtype=np.int32)
    rule = np.array([1, 1, 6, are_opposed], dtype=np.int64)
    counts = np.empty((2 * len(y), int(y.max()) + 1))
    comparison_loops.grow_tree(
        (X, np.stack([y, ones, ones])), (rule, seed), (nodes, thresholds, counts)
    )
    return nodes[:, :2]


def test_a_row_goes_left_iff_the_first_pivot_is_at_least_as_close() -> None:
    X, random = iris()[0].astype(np.float32), np.random.default_rng(5)
    exact = X.astype(np.float64)
    pairs = np.array(
        [random.choice(len(exact), 2, replace=False) for _ in range(50)], dtype=np.int32
    )
    feature, projections = comparison.planes_between(X, pairs)
    for pair, split_on in zip(pairs, feature, strict=True):
        gap = np.linalg.norm(exact - exact[pair[1]], axis=1) - np.linalg.norm(
            exact - exact[pair[0]], axis=1
        )
        is_clear = np.abs(gap) > 1e-5
        if split_on < 4:
            column, weight = np.array([split_on]), np.ones(1)
        else:
            terms = slice(*projections.first_term[split_on - 4 :][:2])
            column, weight = (
                projections.column[terms],
                projections.weight[terms].astype(np.float64),
            )
        threshold = exact[pair][:, column].mean(axis=0) @ weight
        assert np.array_equal(
            (exact[:, column] @ weight <= threshold)[is_clear], gap[is_clear] > 0
        )


@pytest.mark.parametrize("are_opposed", [True, False])
def test_pivots_are_uniform_among_pairs(are_opposed: bool) -> None:
    y, X = (
        np.array([0, 0, 0, 0, 1, 2, 2], dtype=np.int32),
        np.arange(7, dtype=np.float32)[:, np.newaxis],
    )
    pairs = np.zeros((7, 7))
    for seed in range(6_000):
        first, second = _grown(X, y, are_opposed=are_opposed, seed=seed)[0]
        pairs[first, second] += 1
    is_pair = (y[:, None] != y) if are_opposed else ~np.eye(7, dtype=np.bool_)
    assert not pairs[~is_pair].any()
    expected = 6_000 / is_pair.sum()
    # χ² with 27 or 41 degrees of freedom
    assert np.square(pairs[is_pair] - expected).sum() / expected < 80


def test_leaves_hold_the_shares_of_their_rows() -> None:
    X, y = iris()
    trees = NodeTrees.of(grown("comprf-i", IRIS, public_rows(*X.T, y=y)).arrays)
    exact = X.astype(np.float32)
    for tree in range(3):
        leaf = np.array([leaf_of(trees, tree, row)[0] for row in exact])
        for at in np.unique(leaf):
            shares = np.bincount(y[leaf == at], minlength=3) / np.sum(leaf == at)
            assert np.allclose(trees.values[at], shares)
            assert shares.max() == 1.0 or np.sum(leaf == at) <= 5
    reached = [[leaf_of(trees, tree, row)[0] for tree in range(20)] for row in exact]
    assert np.allclose(
        trees.sums(exact), trees.values[np.array(reached)].sum(axis=1, dtype=np.float64)
    )


def test_the_consistent_version_leaves_estimation_points_on_both_sides() -> None:
    X, y = iris()
    trees = NodeTrees.of(
        grown("comprf-c", IRIS, public_rows(*X.T, y=y), min_samples_leaf=10).arrays
    )
    # Shares of at least 10 of 75 estimation points.
    assert len(trees.values) / 20 <= 7.5
    assert trees.projections.count > 0


def test_equal_rows_of_different_classes_are_one_leaf() -> None:
    X, y = iris()
    forest = grown("comprf-i", IRIS, public_rows(*(0 * X).T, y=y))
    assert len(NodeTrees.of(forest.arrays).feature) == 20
    assert NodeTrees.of(forest.arrays).projections.count == 0
