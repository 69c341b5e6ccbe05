"""Planes of heterogeneous oblique forests: classifiers against scikit-learn, and
partitions by trying all.
"""

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.linear_model import LogisticRegression, RidgeClassifier
from sklearn.svm import LinearSVC

from research.papers.forests.trees import linear_planes, plane_rules
from research.papers.forests.trees.oblique_trees import Nodes
from research.papers.forests.trees.plane_rules import NodeMoments
from tests.pure.research.papers.plane_splits import moments_of


def _nodes(
    X: NDArray[np.float64],
    y: NDArray[np.int32],
    weights: NDArray[np.int32],
    n_classes: int,
) -> Nodes:
    """One node that looks at all columns, in another order."""
    columns = np.arange(X.shape[1], dtype=np.int32)[::-1].copy()
    table = np.ascontiguousarray(X.T, dtype=np.float32), np.stack([y, weights])
    order, bounds = (
        np.arange(len(y), dtype=np.int32),
        np.array([[0, len(y)]], dtype=np.int64),
    )
    repeated = np.repeat(np.arange(len(y)), weights)
    moments = moments_of(X[repeated][:, columns], y[repeated], n_classes)
    return Nodes(table, (order, bounds, columns[np.newaxis]), moments)


def _rows(
    seed: int, n_rows: int = 90
) -> tuple[NDArray[np.float64], NDArray[np.int32], NDArray[np.int32]]:
    random = np.random.default_rng(seed)
    y = random.integers(0, 3, n_rows).astype(np.int32)
    X = random.normal(size=(n_rows, 4)) * [1.0, 50.0, 0.01, 3.0] + y[:, np.newaxis] * [
        0.5,
        10.0,
        0.0,
        9.0,
    ]
    return (
        X.astype(np.float32).astype(np.float64),
        y,
        random.integers(1, 4, n_rows).astype(np.int32),
    )


@pytest.mark.parametrize("seed", range(3))
def test_planes_are_those_of_scikit_learn(seed: int) -> None:
    X, y, weights = _rows(seed)
    nodes = _nodes(X, y, weights, 3)
    (in_first,) = linear_planes.partitions(nodes.moments)
    planes = linear_planes.heterogeneous(nodes).planes[0]
    n_partitions = len(in_first)
    repeated = np.repeat(np.arange(len(y)), weights)
    columns = X[repeated][:, ::-1]
    centre, deviation = columns.mean(axis=0), columns.std(axis=0)
    classifiers = (
        RidgeClassifier(alpha=1.0, tol=1e-10),
        LinearDiscriminantAnalysis(solver="lsqr"),
        LogisticRegression(C=1.0, tol=1e-10, max_iter=10_000),
        LinearSVC(C=1.0, dual=False, tol=1e-10, max_iter=100_000),
    )
    assert n_partitions == 3
    for partition in np.flatnonzero(in_first.any(axis=1)):
        target = in_first[partition][y[repeated]]
        for place, classifier in enumerate(classifiers):
            fitted = classifier.fit((columns - centre) / deviation, target)
            expected = np.append(np.ravel(fitted.coef_) / deviation, 0.0)
            expected[-1] = expected[:-1] @ centre - np.ravel(fitted.intercept_)[0]
            ours = planes.reshape(n_partitions, 6, -1)[partition, 2 + place]
            assert np.allclose(
                ours / np.linalg.norm(ours[:-1]),
                expected / np.linalg.norm(expected[:-1]),
                rtol=1e-3,
            )


def test_the_first_planes_of_a_partition_are_bisectors_of_proximal_planes() -> None:
    nodes = _nodes(*_rows(4), 3)
    in_first = linear_planes.partitions(nodes.moments)
    planes = linear_planes.heterogeneous(nodes).planes.reshape(1, 3, 6, -1)
    assert np.allclose(planes[:, 0, :2], plane_rules.tikhonov(nodes.moments).planes)
    for partition in np.flatnonzero(in_first[0].any(axis=1)):
        assert np.allclose(
            planes[:, partition, :2],
            plane_rules.tikhonov_planes(nodes.moments, in_first[:, partition]),
        )


def test_a_partition_that_is_there_already_has_no_plane() -> None:
    nodes = _nodes(*_rows(5), 3)
    in_first = linear_planes.partitions(nodes.moments)[0]
    # Three classes: the hyperclasses are one class and the two others, so one or no
    # single class is new.
    is_empty = ~in_first.any(axis=1)
    assert not is_empty[0]
    planes = linear_planes.heterogeneous(nodes).planes.reshape(3, 6, -1)
    assert np.array_equal(np.isnan(planes[:, :, -1]).all(axis=1), is_empty)
    assert np.array_equal(np.isnan(planes[:, :, -1]).any(axis=1), is_empty)


def test_a_constant_column_has_no_weight_and_does_not_change_the_others() -> None:
    X, y, weights = _rows(6)
    constant = (
        np.column_stack([X, np.full(len(X), 7.1)]).astype(np.float32).astype(np.float64)
    )
    ours = linear_planes.heterogeneous(_nodes(constant, y, weights, 3)).planes.reshape(
        3, 6, -1
    )[0, 2:]
    alone = linear_planes.heterogeneous(_nodes(X, y, weights, 3)).planes.reshape(
        3, 6, -1
    )[0, 2:]
    assert not ours[:, 0].any()
    assert np.allclose(ours[:, 1:], alone)
    nothing = linear_planes.heterogeneous(_nodes(0.0 * X, y, weights, 3)).planes
    assert not np.nan_to_num(nothing[0, :, :-1]).any()


def _gain(counts: NDArray[np.float64], chosen: NDArray[np.bool_]) -> float:
    return sum(
        float(np.square(side).sum() / side.sum())
        for side in (counts[chosen], counts[~chosen])
    )


def test_one_vs_all_partitions_are_ranked_by_their_ideal_impurity() -> None:
    random = np.random.default_rng(12)
    for _ in range(40):
        y = np.repeat(
            np.arange(6, dtype=np.int32),
            random.integers(0, 30, 6) + np.array([0, 0, 1, 1, 1, 1]),
        )
        nodes: NodeMoments = moments_of(
            random.normal(size=(len(y), 2)) + y[:, np.newaxis], y, 6
        )
        counts, present = nodes.counts[0], np.flatnonzero(nodes.counts[0])
        hyperclasses, *singles = linear_planes.partitions(nodes)[0]
        assert np.array_equal(hyperclasses, plane_rules.choose_groups(nodes)[0])
        ranked = sorted(
            present, key=lambda label: (-_gain(counts, np.arange(6) == label), label)
        )[:2]
        for label, single in zip(ranked, singles, strict=True):
            sides = {
                tuple(present[hyperclasses[present]]),
                tuple(present[~hyperclasses[present]]),
            }
            assert np.array_equal(
                np.flatnonzero(single), [] if (label,) in sides else [label]
            )


def test_two_classes_have_one_partition() -> None:
    random, y = (
        np.random.default_rng(13),
        np.repeat(np.array([1, 3], dtype=np.int32), 10),
    )
    X = random.normal(size=(20, 2))
    assert np.array_equal(
        linear_planes.partitions(moments_of(X, y, 4))[0].any(axis=1),
        [True, False, False],
    )
    assert linear_planes.partitions(moments_of(X, y // 3, 2)).shape == (1, 1, 2)
