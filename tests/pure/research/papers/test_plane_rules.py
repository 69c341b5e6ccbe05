"""Splits of oblique forests against plain NumPy: rotations, proximal planes, groups of
classes, and whole trees.
"""

from collections.abc import Callable
from math import comb, isqrt
from pathlib import Path
from typing import TypeAlias

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.datasets import load_iris

from grovekeeper_forests.data.schema import Feature, Label, Schema
from research.papers.forests.trees import oblique_trees, plane_rules
from research.papers.forests.trees.design import Design
from research.papers.forests.trees.node_routing import NodeTrees
from research.papers.forests.trees.oblique_trees import Limits, Nodes, PublicTable
from research.papers.forests.trees.plane_rules import NodeMoments, Proposal
from tests.pure.research.papers.plane_splits import gini, lowest_impurity, moments_of
from tests.pure.research.papers.reference_forests import leaf_of

Rule: TypeAlias = Callable[[NodeMoments], Proposal]


def _iris(
    columns: slice = slice(0, 4),
) -> tuple[NDArray[np.float64], NDArray[np.int32]]:
    X, y = load_iris(return_X_y=True)
    return X.astype(np.float32).astype(np.float64)[:, columns], y.astype(np.int32)


def _chosen(
    X: NDArray[np.float64], y: NDArray[np.int32], rule: Rule, min_leaf: int = 5
) -> NDArray[np.bool_] | None:
    """Which rows go left at the root of a tree that looks at all columns; ``None`` if
    the root is a leaf.
    """
    table = PublicTable(X.astype(np.float32), y, int(y.max()) + 1)
    ones, random = np.ones(len(y), dtype=np.int32), np.random.default_rng(1)

    def propose(nodes: Nodes) -> Proposal:
        return rule(nodes.moments)

    tree = oblique_trees.grown(
        table, ones, propose, Limits(min_leaf, X.shape[1]), random
    )
    if tree.nodes.feature[0] < 0:
        return None
    feature, projections = int(tree.nodes.feature[0]), tree.projections
    values = X[:, feature] if feature < X.shape[1] else np.zeros(len(y))
    if feature >= X.shape[1]:
        for term in range(*projections.first_term[feature - X.shape[1] :][:2]):
            values = values + X[:, projections.column[term]] * float(
                projections.weight[term]
            )
    left = values <= tree.nodes.threshold[0]
    assert min_leaf <= left.sum() <= len(left) - min_leaf
    return np.asarray(left)


def _columns_of(nodes: NodeMoments) -> Proposal:
    """Splits of one column."""
    n_nodes, size = len(nodes.counts), nodes.n_columns
    columns = np.broadcast_to(np.eye(size), (n_nodes, size, size))
    return Proposal(
        np.ones(n_nodes, dtype=np.bool_), columns, np.empty((n_nodes, 0, size + 1))
    )


def test_the_split_along_columns_is_the_lowest_of_all() -> None:
    random = np.random.default_rng(7)
    for min_leaf in (1, 5, 20):
        X, y = (
            random.integers(0, 9, (80, 3)) * 1.0,
            random.integers(0, 3, 80).astype(np.int32),
        )
        left = _chosen(X, y, _columns_of, min_leaf)
        assert left is not None
        assert gini(y, left) == pytest.approx(lowest_impurity(X, y, min_leaf))


def test_columns_without_a_split_that_helps_give_a_leaf() -> None:
    y = np.array([0, 1, 0, 1], dtype=np.int32)
    for X in (np.array([[0.0], [0.0], [1.0], [1.0]]), np.zeros((4, 2))):
        assert _chosen(X, y, _columns_of, 1) is None


def test_the_split_of_principal_components_is_the_best_of_numpy() -> None:
    X, y = _iris()
    components = np.linalg.eigh(np.cov(X.T))[1]
    proposed = plane_rules.principal(moments_of(X, y, 3)).directions[0]
    assert np.allclose(np.abs(proposed @ components), np.eye(4), atol=1e-9)
    left = _chosen(X, y, plane_rules.principal)
    assert left is not None
    assert gini(y, left) == pytest.approx(
        lowest_impurity(X @ components.astype(np.float32).astype(float), y, 5)
    )


def test_discriminants_solve_the_problem_of_scatters() -> None:
    X, y = _iris()
    within = sum(49 * np.cov(X[y == label].T) for label in range(3)) / 147
    gaps = [X[y == label].mean(0) - X.mean(0) for label in range(3)]
    between = sum(50 * np.outer(gap, gap) for gap in gaps)
    for direction in plane_rules.discriminant(moments_of(X, y, 3)).directions[0]:
        ratio = direction @ between @ direction / (direction @ within @ direction)
        assert np.allclose(
            between @ direction,
            ratio * (within @ direction),
            atol=1e-6 * np.abs(between).max(),
        )
    left = _chosen(X, y, plane_rules.discriminant)
    assert left is not None
    assert gini(y, left) <= lowest_impurity(X, y, 5) + 1e-12


def test_few_rows_and_singular_scatters_are_split_along_columns() -> None:
    X, y = _iris()
    few = moments_of(X[48:52], y[48:52], 3)
    doubled = moments_of(np.column_stack([X, X[:, 0]]), y, 3)
    for nodes in (few, doubled):
        assert np.array_equal(
            plane_rules.discriminant(nodes).directions[0], np.eye(nodes.n_columns)
        )
    assert np.array_equal(plane_rules.principal(few).directions[0], np.eye(4))


def _extended(X: NDArray[np.float64]) -> NDArray[np.float64]:
    extended = np.column_stack([X, -np.ones(len(X))])
    return extended.T @ extended / len(X)


def _distances(
    plane: NDArray[np.float64], X: NDArray[np.float64]
) -> NDArray[np.float64]:
    return np.abs(X @ plane[:-1] - plane[-1]) / np.linalg.norm(plane[:-1])


@pytest.mark.parametrize(
    "rule", [plane_rules.tikhonov, plane_rules.axis_parallel, plane_rules.null_space]
)
def test_planes_bisect_planes_that_are_close_to_one_group_and_far_from_the_other(
    rule: Rule,
) -> None:
    X, y = _iris()
    X, y = X[y > 0], y[y > 0] - 1
    proposal = rule(moments_of(X, y, 2))
    assert not proposal.is_rotated[0]
    first, second = _extended(X[y == 0]), _extended(X[y == 1])
    one, other = (
        proposal.planes[0].sum(axis=0) / 2,
        (proposal.planes[0, 0] - proposal.planes[0, 1]) / 2,
    )
    random = np.random.default_rng(8)
    for plane, near, far in ((one, first, second), (other, second, first)):
        assert np.linalg.norm(plane[:-1]) == pytest.approx(1.0)
        reached = plane @ far @ plane / (plane @ near @ plane)
        for scale in (1.0, 0.01):
            for _ in range(100):
                moved = plane + scale * random.normal(size=5)
                assert reached >= moved @ far @ moved / (moved @ near @ moved)
    for bisector in proposal.planes[0]:
        on_plane = X - np.outer(
            (X @ bisector[:-1] - bisector[-1]) / np.square(bisector[:-1]).sum(),
            bisector[:-1],
        )
        assert np.allclose(_distances(one, on_plane), _distances(other, on_plane))


def test_classes_are_grouped_with_the_nearer_of_the_two_most_distant() -> None:
    random = np.random.default_rng(9)
    centres = np.array([[0.0, 0.0], [9.0, 9.0], [1.0, 0.0], [8.0, 9.0]])
    y = np.repeat(np.arange(4, dtype=np.int32), 30)
    X = centres[y] + random.normal(size=(120, 2))
    assert set(np.flatnonzero(plane_rules.choose_groups(moments_of(X, y, 4))[0])) in (
        {0, 2},
        {1, 3},
    )


def test_groups_are_led_by_the_classes_of_the_largest_bhattacharyya_distance() -> None:
    random = np.random.default_rng(10)
    for _ in range(30):
        y = np.repeat(np.arange(5, dtype=np.int32), 12)
        X = (
            random.normal(size=(60, 3)) * (1.0 + y[:, np.newaxis])
            + random.normal(size=(5, 3))[y]
        )
        normal = [
            (X[y == label].mean(0), np.cov(X[y == label].T)) for label in range(5)
        ]
        distance = np.zeros((5, 5))
        for one, (mean, covariance) in enumerate(normal):
            for other, (mean_of_other, covariance_of_other) in enumerate(normal):
                gap, middle = (
                    mean - mean_of_other,
                    (covariance + covariance_of_other) / 2,
                )
                shape = np.linalg.det(middle) / np.sqrt(
                    np.linalg.det(covariance) * np.linalg.det(covariance_of_other)
                )
                distance[one, other] = gap @ np.linalg.inv(
                    middle
                ) @ gap / 8 + 0.5 * np.log(shape)
        first, second = np.unravel_index(distance.argmax(), distance.shape)
        expected = distance[first] < distance[second]
        assert np.array_equal(
            plane_rules.choose_groups(moments_of(X, y, 5))[0], expected
        )


def test_classes_of_one_mean_are_halved() -> None:
    y = np.repeat(np.arange(3, dtype=np.int32), 4)
    groups = plane_rules.choose_groups(moments_of(np.ones((12, 2)), y, 5))
    assert np.array_equal(groups[0], [True, True, False, False, False])


def test_singular_matrices_are_handled_as_the_name_says() -> None:
    X, y = _iris(slice(0, 2))
    doubled, first_group = np.column_stack([X, X]), y == 0
    nodes = moments_of(doubled, first_group.astype(np.int32), 2)
    axis = plane_rules.axis_parallel(nodes)
    assert axis.is_rotated[0]
    assert np.array_equal(axis.directions[0], np.eye(4))
    null = plane_rules.null_space(nodes).planes[0]
    one, other = null.sum(axis=0) / 2, (null[0] - null[1]) / 2
    assert np.allclose(_extended(doubled[~first_group]) @ one, 0.0, atol=1e-6)
    assert np.allclose(_extended(doubled[first_group]) @ other, 0.0, atol=1e-6)
    ridge = 0.01 * np.eye(5)
    near, far = (
        _extended(doubled[~first_group]) + ridge,
        _extended(doubled[first_group]),
    )
    values, vectors = np.linalg.eig(np.linalg.solve(near, far))
    best = np.real(vectors[:, np.real(values).argmax()])
    tikhonov = plane_rules.tikhonov(nodes).planes[0].sum(axis=0) / 2
    assert np.allclose(
        np.abs(tikhonov), np.abs(best / np.linalg.norm(best[:-1])), atol=1e-6
    )


def test_null_space_planes_contain_every_row_where_a_column_is_zero() -> None:
    """OTHER and MISSING are such columns; the page of ``mpsvm-n`` says so."""
    random = np.random.default_rng(3)
    codes = random.integers(0, 3, (500, 6))
    y = (codes.sum(axis=1) % 3 == random.integers(0, 2, 500)).astype(np.int32)
    drawn = (codes == random.integers(0, 3, 6)).astype(np.float64)
    for zero in (None, 2):
        if zero is not None:
            drawn[:, zero] = 0.0
        bisectors = plane_rules.null_space(moments_of(drawn, y, 2)).planes[0]
        one, other = bisectors.sum(axis=0) / 2, (bisectors[0] - bisectors[1]) / 2
        farthest = max(_distances(plane, drawn).max() for plane in (one, other))
        assert farthest > 0.1 if zero is None else farthest < 1e-9
    for plane in plane_rules.tikhonov(moments_of(drawn, y, 2)).planes[0]:
        assert _distances(plane, drawn).max() > 0.1


def test_six_columns_of_tic_tac_toe_hold_a_column_that_is_zero_nearly_always() -> None:
    """The numbers of docs/references.md: three values a square, OTHER and MISSING."""
    square = [
        Feature(f"{at}", "categorical", categories=("b", "o", "x")) for at in range(9)
    ]
    design = Design.of(Schema(tuple(square), Label("y", ("no", "yes"))))
    n_zero, n_drawn = 2 * len(square), isqrt(design.n_columns)
    share = 1 - comb(design.n_columns - n_zero, n_drawn) / comb(
        design.n_columns, n_drawn
    )
    text = (Path(__file__).parents[4] / "docs" / "references.md").read_text("utf-8")
    assert f"{n_zero} of {design.n_columns} on Tic-tac-toe" in text
    assert (n_drawn, f"where {100 * share:.0f} % of the draws of six" in text) == (
        6,
        True,
    )


def test_a_plane_without_direction_is_no_plane() -> None:
    planes = plane_rules.bisectors(
        np.array([[0.0, 0.0, 1.0]]), np.array([[1.0, 0.0, 1.0]])
    )
    assert np.isnan(planes[0, :, -1]).all()


@pytest.mark.parametrize(
    "rule", [plane_rules.principal, plane_rules.tikhonov, plane_rules.null_space]
)
@pytest.mark.parametrize("most_numbers", [1, 2**21])
def test_leaves_hold_the_shares_of_their_weighted_rows(
    rule: Rule, most_numbers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(oblique_trees, "_MOST_NUMBERS", most_numbers)
    X, y = load_iris(return_X_y=True)
    table, random = (
        PublicTable(X.astype(np.float32), y.astype(np.int32), 3),
        np.random.default_rng(11),
    )
    weights = random.integers(0, 3, len(y)).astype(np.int32)

    def propose(nodes: Nodes) -> Proposal:
        return rule(nodes.moments)

    grown = [
        oblique_trees.grown(table, weights, propose, Limits(4, 2), random)
        for _ in range(2)
    ]
    trees = NodeTrees.of(oblique_trees.collected_planes(iter(grown), n_columns=4))
    assert trees.projections.count > 2
    for tree in range(2):
        leaf = np.array([leaf_of(trees, tree, row)[0] for row in table.X])
        for at in np.unique(leaf[weights > 0]):
            counts = np.bincount(
                y[leaf == at], weights=weights[leaf == at], minlength=3
            )
            assert counts.sum() >= 4
            assert np.allclose(trees.values[at], counts / counts.sum())
