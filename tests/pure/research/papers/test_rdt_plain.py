"""Random decision trees without privacy: heights, thresholds and leaves against a walk
in plain Python.
"""

import numpy as np

from grovekeeper_forests.data.schema import Feature, Label, Schema
from research.papers import printed_random_trees as printed
from research.papers import random_tree_theory as theory
from research.papers.forests.trees.node_routing import NodeTrees
from tests.pure.research.papers.reference_forests import (
    IRIS,
    UNIT,
    grown,
    iris,
    leaf_of,
    public_rows,
)


def test_every_row_ends_at_the_height_in_a_leaf_with_the_shares_of_its_rows() -> None:
    X, y = iris()
    trees = NodeTrees.of(
        grown("rdt-plain-ta", IRIS, public_rows(*X.T, y=y), max_depth=6).arrays
    )
    exact = X.astype(np.float32)
    for tree in range(5):
        walks = [leaf_of(trees, tree, row) for row in exact]
        assert {depth for _, depth in walks} == {6}
        leaf = np.array([at for at, _ in walks])
        for at in np.unique(leaf):
            assert np.allclose(
                trees.values[at],
                np.bincount(y[leaf == at], minlength=3) / np.sum(leaf == at),
            )


def test_columns_and_thresholds_are_uniform_at_every_depth() -> None:
    X, y = iris()
    trees = NodeTrees.of(
        grown(
            "rdt-plain-mv", IRIS, public_rows(*X.T, y=y), n_estimators=200, max_depth=4
        ).arrays
    )
    inner = trees.feature >= 0
    counted = np.bincount(trees.feature[inner], minlength=4)
    # χ² with 3 degrees of freedom
    assert np.square(counted - counted.mean()).sum() / counted.mean() < 20
    for nodes in (trees.root[:-1], np.flatnonzero(inner)):
        deciles = np.bincount((trees.threshold[nodes]).astype(int), minlength=10)
        # χ² with 9 degrees of freedom
        assert np.square(deciles - deciles.mean()).sum() / deciles.mean() < 35


def test_shares_of_leaves_without_rows_are_uniform() -> None:
    X, y = iris()
    forest = grown(
        "rdt-plain-pa", IRIS, public_rows(*X.T, y=y), n_estimators=200, max_depth=8
    )
    values = NodeTrees.of(forest.arrays).values
    # leaves of rows nearly always miss a class
    drawn = np.sort(values[(values > 0).all(axis=1)][:, 0])
    assert len(drawn) > 1_000
    assert (
        np.abs(np.linspace(0, 1, len(drawn)) - (1 - (1 - drawn) ** 2)).max() < 0.05
    )  # P(share ≤ s) = 1 − (1 − s)² for three classes


def test_leaves_hold_the_theta_of_the_paper() -> None:
    """The share of label 1, which is uniform on [0, 1] where a leaf has no rows:
    Algorithm 2's θ of exact counts.
    """
    random = np.random.default_rng(3)
    X, y = random.random((40, 2)), random.integers(0, 2, 40)
    trees = NodeTrees.of(
        grown(
            "rdt-plain-pa", UNIT, public_rows(*X.T, y=y), n_estimators=300, max_depth=7
        ).arrays
    )
    counts = np.zeros((len(trees.values), 2), dtype=np.int64)
    for tree in range(300):
        for row, label in zip(X.astype(np.float32), y, strict=True):
            counts[leaf_of(trees, tree, row)[0], label] += 1
    is_empty = (counts == 0).all(axis=1)
    expected = printed.printed_theta(counts[~is_empty], random)
    assert np.allclose(trees.values[~is_empty, 1], expected)
    drawn = np.sort(trees.values[is_empty, 1])
    assert len(drawn) > 1_000
    assert np.abs(drawn - np.linspace(0, 1, len(drawn))).max() < 0.06


def test_the_goodness_of_rows_is_that_of_enumerated_trees() -> None:
    """Five rows in 1,000 grown trees, at most six standard deviations from the exact
    goodness of every row.
    """
    points, labels, n_trees = (
        np.array([[0, 2], [1, 7], [4, 0], [4, 5], [9, 11]]),
        np.array([0, 1, 1, 0, 1]),
        1_000,
    )
    splits = theory.threshold_splits(points, lower=0, upper=11)
    exact = np.array(
        [
            float(value)
            for value in theory.goodness(theory.complete_trees(splits, 2), labels)
        ]
    )
    schema = Schema(
        tuple(Feature(name, "numeric", 0.0, 11.0) for name in "ab"),
        Label("y", ("no", "yes")),
    )
    rows = public_rows(*points.T.astype(np.float64), y=labels)
    trees = NodeTrees.of(
        grown("rdt-plain-mv", schema, rows, n_estimators=n_trees, max_depth=2).arrays
    )
    exact_rows = points.astype(np.float32)
    leaves = np.array(
        [
            [leaf_of(trees, tree, row)[0] for row in exact_rows]
            for tree in range(n_trees)
        ]
    )
    drawn = theory.is_right(leaves - leaves.min(axis=1, keepdims=True), labels).mean(
        axis=0
    )
    assert (
        np.abs(drawn - exact) <= 6 * np.sqrt(exact * (1 - exact) / n_trees)
    ).all(), (drawn, exact)
