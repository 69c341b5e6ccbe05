"""Random decision trees without privacy: heights, thresholds and leaves against a walk in plain Python."""

import numpy as np

from benchmarks.papers.forests.trees.node_routing import NodeTrees
from tests.unit.benchmarks.papers.reference_forests import IRIS, grown, iris, leaf_of, public_rows


def test_every_row_ends_at_the_height_in_a_leaf_with_the_shares_of_its_rows() -> None:
    X, y = iris()
    trees = NodeTrees.of(grown("rdt-plain-ta", IRIS, public_rows(*X.T, y=y), max_depth=6).arrays)
    exact = X.astype(np.float32)
    for tree in range(5):
        walks = [leaf_of(trees, tree, row) for row in exact]
        assert {depth for _, depth in walks} == {6}
        leaf = np.array([at for at, _ in walks])
        for at in np.unique(leaf):
            assert np.allclose(trees.values[at], np.bincount(y[leaf == at], minlength=3) / np.sum(leaf == at))


def test_columns_and_thresholds_are_uniform_at_every_depth() -> None:
    X, y = iris()
    trees = NodeTrees.of(grown("rdt-plain-mv", IRIS, public_rows(*X.T, y=y), n_estimators=200, max_depth=4).arrays)
    inner = trees.feature >= 0
    counted = np.bincount(trees.feature[inner], minlength=4)
    assert np.square(counted - counted.mean()).sum() / counted.mean() < 20  # χ² with 3 degrees of freedom
    for nodes in (trees.root[:-1], np.flatnonzero(inner)):
        deciles = np.bincount((trees.threshold[nodes]).astype(int), minlength=10)
        assert np.square(deciles - deciles.mean()).sum() / deciles.mean() < 35  # χ² with 9 degrees of freedom


def test_shares_of_leaves_without_rows_are_uniform() -> None:
    X, y = iris()
    forest = grown("rdt-plain-pa", IRIS, public_rows(*X.T, y=y), n_estimators=200, max_depth=8)
    values = NodeTrees.of(forest.arrays).values
    drawn = np.sort(values[(values > 0).all(axis=1)][:, 0])  # leaves of rows nearly always miss a class
    assert len(drawn) > 1_000
    assert (
        np.abs(np.linspace(0, 1, len(drawn)) - (1 - (1 - drawn) ** 2)).max() < 0.05
    )  # P(share ≤ s) = 1 − (1 − s)² for three classes
