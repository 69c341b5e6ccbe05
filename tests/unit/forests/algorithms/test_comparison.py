"""Comparison-based forests: splits by distance, pivots, leaves and artifacts against plain NumPy."""

import numpy as np
import pytest

from app.forests import artifacts
from app.forests.algorithms.comparison import grow as comparison
from app.forests.contract.forest import Forest
from app.forests.kernels.node_routing import NodeTrees
from app.forests.trees.grow.oblique_trees import PublicTable
from tests.support.reference_forests import IRIS, grown, iris, leaf_of, public_rows


def _table() -> PublicTable:
    X, y = iris()
    return PublicTable(X.astype(np.float32), y.astype(np.int32), 3)


def test_a_row_goes_left_iff_the_first_pivot_is_at_least_as_close() -> None:
    table, random = _table(), np.random.default_rng(5)
    exact = table.X.astype(np.float64)
    for _ in range(50):
        first, second = random.choice(len(exact), 2, replace=False)
        plane = comparison._between(table, first, second)
        gap = np.linalg.norm(exact - exact[second], axis=1) - np.linalg.norm(exact - exact[first], axis=1)
        is_clear = np.abs(gap) > 1e-5
        assert np.array_equal(plane.goes_left(table.X, np.arange(len(exact)))[is_clear], gap[is_clear] > 0)


def test_pivots_of_two_classes_are_uniform_among_such_pairs(monkeypatch: pytest.MonkeyPatch) -> None:
    y = np.array([0, 0, 0, 0, 1, 2, 2], dtype=np.int32)
    table, random = PublicTable(np.zeros((7, 1), dtype=np.float32), y, 3), np.random.default_rng(6)
    pairs = np.zeros((7, 7))

    def count(_table: PublicTable, first: int, second: int) -> None:
        pairs[first, second] += 1

    monkeypatch.setattr(comparison, "_between", count)
    for _ in range(6_000):
        comparison._opposed(table, np.arange(7), random)
    is_pair = y[:, None] != y
    assert not pairs[~is_pair].any()
    expected = 6_000 / is_pair.sum()
    assert np.square(pairs[is_pair] - expected).sum() / expected < 60  # χ² with 27 degrees of freedom


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
    assert np.allclose(trees.sums(exact), trees.values[np.array(reached)].sum(axis=1, dtype=np.float64))


def test_the_consistent_version_leaves_estimation_points_on_both_sides() -> None:
    X, y = iris()
    trees = NodeTrees.of(grown("comprf-c", IRIS, public_rows(*X.T, y=y), min_samples_leaf=10).arrays)
    # Shares of at least 10 of 75 estimation points.
    assert len(trees.values) / 20 <= 7.5
    assert trees.projections.count > 0


@pytest.mark.parametrize(
    ("name", "at", "value"),
    [
        ("column", 0, 4),
        ("column", 0, -1),
        ("weight", 0, np.nan),
        ("first_term", 0, 1),
        ("first_term", 1, 10**9),
        ("first_term", -1, 10**9),
        ("feature", 0, 10**6),
    ],
)
def test_an_artifact_with_an_impossible_projection_is_invalid(name: str, at: int, value: float) -> None:
    X, y = iris()
    forest = grown("comprf-i", IRIS, public_rows(*X.T, y=y), n_estimators=2)
    changed = forest.arrays[name].copy()
    changed[at] = value
    broken = Forest(forest.plan, {**forest.arrays, name: changed})
    artifacts.loads(artifacts.dumps(forest, {"schema": IRIS.to_json()}))
    with pytest.raises(artifacts.ArtifactInvalid):
        artifacts.loads(artifacts.dumps(broken, {"schema": IRIS.to_json()}))


def test_equal_rows_of_different_classes_are_one_leaf() -> None:
    X, y = iris()
    forest = grown("comprf-i", IRIS, public_rows(*(0 * X).T, y=y))
    assert len(NodeTrees.of(forest.arrays).feature) == 20
    assert NodeTrees.of(forest.arrays).projections.count == 0
