"""Stacked forests without privacy: layers against a walk in plain Python, and rows that
do not depend on others.
"""

import numpy as np
import pytest
from numpy.typing import NDArray

from grovekeeper_forests.data.sanitiser import SanitisedColumns
from research.papers.forests import catalogue
from research.papers.forests.bms_rf_plain.read import layer_sizes
from research.papers.forests.contract import PlainForest
from research.papers.forests.trees.node_routing import NodeTrees
from tests.pure.research.papers.reference_forests import (
    IRIS,
    grown,
    iris,
    leaf_of,
    public_rows,
)


def _forest(**parameters: object) -> tuple[PlainForest, NDArray[np.float64]]:
    X, y = iris()
    rows = public_rows(*X[:100].T, y=y[:100])
    return grown("bms-rf-plain", IRIS, rows, **{"n_estimators": 12, **parameters}), X[
        100:
    ]


def _columns(X: NDArray[np.float64]) -> SanitisedColumns:
    return SanitisedColumns(tuple(X.T), len(X))


@pytest.mark.parametrize("strength", ["0", "2"])
def test_a_later_layer_sees_the_columns_shifted_by_the_shares_of_the_layer_before(
    strength: str,
) -> None:
    """With labels, too, which count as the answers of all layers."""
    forest, X = _forest(n_estimators=18, n_layers=3, b3=strength)
    trees, weights = (
        NodeTrees.of(forest.arrays),
        forest.arrays["projection"].astype(np.float64),
    )
    answers = forest.arrays.get("labels", trees.values)
    assert ("labels" in forest.arrays) == (strength != "0")
    got = catalogue.probabilities(forest, IRIS, _columns(X), read_out="ta")
    for row, expected in zip(
        X[:10].astype(np.float32).astype(np.float64) / 10.0, got, strict=False
    ):
        seen, sums = row.astype(np.float32), np.zeros(3)
        for layer in range(3):
            leaves = [
                leaf_of(trees, tree, seen)[0]
                for tree in range(6 * layer, 6 * layer + 6)
            ]
            shares = trees.values[leaves].sum(axis=0, dtype=np.float64)
            sums += answers[leaves].sum(axis=0, dtype=np.float64)
            if layer < 2:
                seen = (
                    row.astype(np.float32) + 0.35 * (shares / 6) @ weights[layer]
                ).astype(np.float32)
        assert np.allclose(sums / 18, expected)


def test_labels_are_one_class_each_and_nearly_coins_at_a_small_budget() -> None:
    labels = _forest(n_estimators=60, b3="0.001")[0].arrays["labels"]
    assert set(np.unique(labels)) == {0.0, 1.0}
    assert (labels.sum(axis=1) == 1).all()
    # 5 deviations of a share of a third
    assert np.abs(labels.mean(axis=0) - 1 / 3).max() < 5 * np.sqrt(2 / 9 / len(labels))


def test_a_row_does_not_depend_on_the_others_and_layers_differ() -> None:
    forest, X = _forest()
    whole, one = (
        catalogue.probabilities(forest, IRIS, _columns(part), read_out=None)
        for part in (X, X[3:4])
    )
    assert np.array_equal(whole[3:4], one)
    assert len(forest.arrays["root"]) == 13
    assert forest.arrays["projection"].shape == (1, 3, 4)


def test_no_path_is_longer_than_the_depth() -> None:
    forest, X = _forest(n_estimators=6, max_depth=2, n_layers=1)
    trees = NodeTrees.of(forest.arrays)
    assert (
        max(
            leaf_of(trees, tree, row)[1]
            for tree in range(6)
            for row in X.astype(np.float32)
        )
        == 2
    )


def test_layers_divide_the_trees_as_evenly_as_possible() -> None:
    forest, X = _forest(n_estimators=5, n_layers=3)
    assert layer_sizes(forest.plan.parameters) == (2, 2, 1)
    assert len(forest.arrays["root"]) == 6
    assert catalogue.probabilities(forest, IRIS, _columns(X), read_out=None).shape == (
        50,
        3,
    )
