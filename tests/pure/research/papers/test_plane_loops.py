"""Compiled loops over the rows of many nodes against plain NumPy: counts, moments,
searches and divisions.
"""

from dataclasses import dataclass

import numpy as np
import pytest
from numpy.typing import NDArray

from research.papers.forests.loops import plane_loops
from tests.pure.research.papers.plane_splits import gini, lowest_impurity, moments_of

N_CLASSES = 4


@dataclass(frozen=True, eq=False)
class _Case:
    """Rows of three nodes, which look at three of five columns."""

    table: plane_loops.Table
    nodes: plane_loops.Nodes
    counts: NDArray[np.float64]

    def rows(self, node: int) -> tuple[NDArray[np.float64], NDArray[np.int32]]:
        """The columns and classes of a node's rows, each as often as its weight says."""
        (X, points), (order, bounds, columns) = self.table, self.nodes
        rows = order[bounds[node, 0] : bounds[node, 1]]
        rows = np.repeat(rows, points[1, rows])
        return X[columns[node]][:, rows].T.astype(np.float64), points[0, rows]


def _case(seed: int, *, are_few: bool = False, size: int = 200) -> _Case:
    random = np.random.default_rng(seed)
    X = (
        random.integers(0, 4, (5, 3 * size))
        if are_few
        else random.normal(size=(5, 3 * size)) * 10.0
    )
    X[4] = 7.0
    points = np.stack(
        [random.integers(0, N_CLASSES, 3 * size), random.integers(1, 4, 3 * size)]
    ).astype(np.int32)
    points[0] = (points[0] + (X[0] > 1.0)) % N_CLASSES
    order = random.permutation(3 * size).astype(np.int32)
    bounds = np.array(
        [[0, size // 2], [size // 2, 2 * size], [2 * size, 3 * size]], dtype=np.int64
    )
    columns = np.array([[2, 0, 1], [4, 1, 3], [3, 4, 0]], dtype=np.int32)
    counts = np.zeros((3, N_CLASSES))
    plane_loops.count_classes(points, (order, bounds), counts)
    return _Case((X.astype(np.float32), points), (order, bounds, columns), counts)


@pytest.mark.parametrize("seed", range(3))
def test_counts_and_moments_are_those_of_numpy(seed: int) -> None:
    case = _case(seed)
    means, scatters = np.zeros((3, N_CLASSES, 3)), np.zeros((3, N_CLASSES, 3, 3))
    plane_loops.class_moments(case.table, case.nodes, case.counts, (means, scatters))
    for node in range(3):
        expected = moments_of(*case.rows(node), N_CLASSES)
        assert np.array_equal(case.counts[node], expected.counts[0])
        assert np.allclose(means[node], expected.means[0])
        assert np.allclose(scatters[node], expected.scatters[0])


@pytest.mark.parametrize("size", [40, 1_500])
@pytest.mark.parametrize("are_few", [False, True])
def test_the_best_cut_is_the_lowest_of_all(size: int, are_few: bool) -> None:
    """Small nodes are sorted by the library, large ones digit by digit."""
    case, random = _case(size, are_few=are_few, size=size), np.random.default_rng(size)
    directions = random.normal(size=(3, 2, 3)).astype(np.float32).astype(np.float64)
    directions[1, 0] = [0.0, 1.0, 0.0]
    found = np.empty((3, 3))
    plane_loops.best_cuts(
        case.table, case.nodes, (case.counts, directions, np.array([9.0])), found
    )
    for node in range(3):
        X, y = case.rows(node)
        chosen = X @ directions[node, int(found[node, 0])] <= found[node, 1]
        assert min(chosen.sum(), (~chosen).sum()) >= 9
        sides = [
            np.bincount(y[side], minlength=N_CLASSES) for side in (chosen, ~chosen)
        ]
        assert found[node, 2] == pytest.approx(
            sum(np.square(side).sum() / side.sum() for side in sides)
        )
        if size < 100:
            assert gini(y, chosen) == pytest.approx(
                lowest_impurity(X @ directions[node].T, y, 9)
            )
            continue
        for values in (X @ directions[node].T).T:
            cuts = np.quantile(values, np.linspace(0.02, 0.98, 49))
            assert all(
                gini(y, chosen) <= gini(y, values <= cut) + 1e-12
                for cut in cuts
                if (values > cut).any()
            )


def test_constant_columns_and_large_leaves_have_no_cut() -> None:
    case = _case(1)
    along_constant = np.zeros((3, 1, 3))
    along_constant[1, 0, 0] = along_constant[2, 0, 1] = 1.0
    found = np.empty((3, 3))
    plane_loops.best_cuts(
        case.table, case.nodes, (case.counts, along_constant, np.array([1.0])), found
    )
    assert np.array_equal(found[:, 0], [-1.0, -1.0, -1.0])
    everything = np.broadcast_to(np.eye(3), (3, 3, 3)).copy()
    plane_loops.best_cuts(
        case.table, case.nodes, (case.counts, everything, np.array([1e6])), found
    )
    assert np.array_equal(found[:, 0], [-1.0, -1.0, -1.0])


def test_gains_of_planes_are_those_of_numpy() -> None:
    case, random = _case(2), np.random.default_rng(2)
    planes = random.normal(size=(3, 4, 4)).astype(np.float32).astype(np.float64)
    planes[:, 2, -1] = np.nan
    planes[:, 3, -1] = 1e9
    gains = np.empty((3, 4))
    plane_loops.plane_gains(
        case.table, case.nodes, (case.counts, planes, np.array([5.0])), gains
    )
    assert np.array_equal(gains[:, 2:], np.full((3, 2), -1.0))
    for node in range(3):
        X, y = case.rows(node)
        for plane in range(2):
            left = X @ planes[node, plane, :-1] <= planes[node, plane, -1]
            sides = [
                np.bincount(y[side], minlength=N_CLASSES) for side in (left, ~left)
            ]
            assert gains[node, plane] == pytest.approx(
                sum(np.square(side).sum() / side.sum() for side in sides)
            )


def test_rows_are_divided_by_the_plane() -> None:
    case, random = _case(3), np.random.default_rng(3)
    (X, _), (order, bounds, columns) = case.table, case.nodes
    directions, thresholds = random.normal(size=(3, 3)), random.normal(size=3)
    divided, n_left = order.copy(), np.empty(3, dtype=np.int64)
    plane_loops.divide(X, (divided, bounds, columns), (directions, thresholds), n_left)
    for node, (start, end) in enumerate(bounds):
        assert np.array_equal(np.sort(divided[start:end]), np.sort(order[start:end]))
        values = (
            X[columns[node]][:, divided[start:end]].T.astype(np.float64)
            @ directions[node]
        )
        goes_left = values <= thresholds[node]
        assert goes_left[: n_left[node]].all()
        assert not goes_left[n_left[node] :].any()


def test_sums_that_are_next_to_each_other_in_float64_are_separated() -> None:
    """The mean of two neighbouring doubles may be the larger one, and float32 rounds
    these two apart.
    """
    smaller = np.array(
        [[1.0] * 2, [3 * 2.0**-24] * 2, [-(2.0**-52), 0.0]], dtype=np.float32
    )
    table = smaller, np.array([[0, 1], [1, 1]], dtype=np.int32)
    order, bounds, columns = (
        np.arange(2, dtype=np.int32),
        np.array([[0, 2]], dtype=np.int64),
        np.array([[0, 1, 2]]),
    )
    nodes, direction, found = (
        (order, bounds, columns.astype(np.int32)),
        np.ones((1, 1, 3)),
        np.empty((1, 3)),
    )
    plane_loops.best_cuts(table, nodes, (np.ones((1, 2)), direction, np.ones(1)), found)
    n_left = np.empty(1, dtype=np.int64)
    plane_loops.divide(table[0], nodes, (direction[:, 0], found[:, 1]), n_left)
    assert (found[0, 0], n_left[0]) == (0.0, 1)
