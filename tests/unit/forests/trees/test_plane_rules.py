"""Splits of oblique forests against plain NumPy: best cuts, rotations, proximal planes, groups of classes."""

from itertools import pairwise

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.datasets import load_iris

from app.forests.trees.grow import plane_rules
from app.forests.trees.grow.plane_rules import Cut, NodeRows


def _iris(columns: slice = slice(0, 4), min_leaf: int = 5) -> NodeRows:
    X, y = load_iris(return_X_y=True)
    return NodeRows(X[:, columns], y.astype(np.int32), 3, min_leaf)


def _impurity(y: NDArray[np.int32], left: NDArray[np.bool_]) -> float:
    sides = (y[left], y[~left])
    return sum(len(side) * (1.0 - np.square(np.bincount(side) / len(side)).sum()) for side in sides) / len(y)


def _lowest(rows: NodeRows, values: NDArray[np.float64]) -> float:
    """The lowest impurity of a legal split of any column of values, by trying all of them."""
    found = []
    for column in values.T:
        for low, high in pairwise(np.unique(column)):
            left = column <= (low + high) / 2
            if rows.min_leaf <= left.sum() <= len(left) - rows.min_leaf:
                found.append(_impurity(rows.y, left))
    return min(found)


def _reached(rows: NodeRows, cut: Cut | None) -> float:
    assert cut is not None
    left = rows.X @ cut.direction <= cut.threshold
    assert rows.min_leaf <= left.sum() <= len(left) - rows.min_leaf
    return _impurity(rows.y, left)


def test_the_best_cut_is_the_lowest_of_all() -> None:
    random = np.random.default_rng(7)
    for min_leaf in (1, 5, 20):
        rows = NodeRows(random.integers(0, 9, (80, 3)) * 1.0, random.integers(0, 3, 80).astype(np.int32), 3, min_leaf)
        assert _reached(rows, plane_rules.best_cut(rows)) == pytest.approx(_lowest(rows, rows.X))


def test_columns_without_a_cut_that_helps_give_none() -> None:
    rows = NodeRows(np.array([[0.0], [0.0], [1.0], [1.0]]), np.array([0, 1, 0, 1], dtype=np.int32), 2, 1)
    assert plane_rules.best_cut(rows) is None
    assert plane_rules.best_cut(NodeRows(np.zeros((4, 2)), rows.y, 2, 1)) is None


def test_the_cut_of_principal_components_is_the_best_of_numpy() -> None:
    rows = _iris()
    components = np.linalg.eigh(np.cov(rows.X.T))[1]
    cut = plane_rules.principal_cut(rows)
    assert _reached(rows, cut) == pytest.approx(_lowest(rows, rows.X @ components))
    assert cut is not None
    assert np.abs(components.T @ cut.direction).max() == pytest.approx(1.0)


def test_discriminants_solve_the_problem_of_scatters() -> None:
    rows = _iris()
    within = sum(49 * np.cov(rows.X[rows.y == label].T) for label in range(3)) / 147
    between = sum(
        50 * np.outer(gap, gap) for gap in (rows.X[rows.y == label].mean(0) - rows.X.mean(0) for label in range(3))
    )
    cut = plane_rules.discriminant_cut(rows)
    assert cut is not None
    ratio = cut.direction @ between @ cut.direction / (cut.direction @ within @ cut.direction)
    assert np.allclose(between @ cut.direction, ratio * (within @ cut.direction), atol=1e-6 * np.abs(between).max())
    assert _reached(rows, cut) <= _lowest(rows, rows.X) + 1e-12


def test_proximal_planes_are_close_to_their_group_and_far_from_the_other() -> None:
    rows, random = _iris(), np.random.default_rng(8)
    first, second = plane_rules._group_matrices(rows)
    best = plane_rules._directions(second, first)[:, -1]

    def ratio(plane: NDArray[np.float64]) -> float:
        return float(plane @ second @ plane / (plane @ first @ plane))

    assert all(ratio(best) >= ratio(random.normal(size=5)) for _ in range(200))
    assert all(ratio(best) >= ratio(best + 0.01 * random.normal(size=5)) for _ in range(200))


def test_a_bisector_is_as_far_from_one_plane_as_from_the_other() -> None:
    rows = _iris()
    one, other = np.array([1.0, 2.0, -1.0, 0.5, 3.0]), np.array([0.5, -1.0, 2.0, 1.0, 2.5])
    cut = plane_rules._better_bisector(rows, one, 4.0 * other)
    assert cut is not None
    gap = (rows.X @ cut.direction - cut.threshold) / np.square(cut.direction).sum()
    on_plane = rows.X - np.outer(gap, cut.direction)
    far = [np.abs(on_plane @ plane[:-1] - plane[-1]) / np.linalg.norm(plane[:-1]) for plane in (one, other)]
    assert np.allclose(far[0], far[1], atol=1e-5)


def test_classes_are_grouped_with_the_nearer_of_the_two_most_distant() -> None:
    random = np.random.default_rng(9)
    centres = np.array([[0.0, 0.0], [9.0, 9.0], [1.0, 0.0], [8.0, 9.0]])
    y = np.repeat(np.arange(4, dtype=np.int32), 30)
    rows = NodeRows(centres[y] + random.normal(size=(120, 2)), y, 4, 5)
    assert set(plane_rules._first_group(rows)) in ({0, 2}, {1, 3})
    one, other = ((rows.X[y == label].mean(0), np.cov(rows.X[y == label].T)) for label in (0, 1))
    gap, middle = one[0] - other[0], (one[1] + other[1]) / 2
    written_out = gap @ np.linalg.inv(middle) @ gap / 8 + 0.5 * np.log(
        np.linalg.det(middle) / np.sqrt(np.linalg.det(one[1]) * np.linalg.det(other[1]))
    )
    assert plane_rules._distance(one, other) == pytest.approx(written_out)


def test_singular_matrices_are_handled_as_the_name_says() -> None:
    rows = _iris(slice(0, 2))
    doubled = NodeRows(np.column_stack([rows.X, rows.X]), rows.y, 3, 5)
    axis = plane_rules.axis_parallel_cut(doubled)
    assert axis is not None
    assert np.count_nonzero(axis.direction) == 1
    first, second = plane_rules._group_matrices(doubled)
    null = plane_rules._null_direction(first, second)
    assert np.allclose(first @ null, 0.0, atol=1e-9)
    for rule in (plane_rules.tikhonov_cut, plane_rules.null_space_cut, plane_rules.discriminant_cut):
        cut = rule(doubled)
        assert cut is None or np.isfinite([*cut.direction, cut.threshold]).all()
