"""Chooses the oblique split of one node without privacy: rotations, and bisectors of proximal planes.

Definitions: Zhang and Suganthan, Random forests with ensemble of feature spaces (2014), and Oblique decision tree
ensemble via multisurface proximal support vector machine (2015).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from app.forests.trees.grow.oblique_trees import Plane

_TIKHONOV = 0.01
_SMALLEST_COVARIANCE = 1e-5


@dataclass(frozen=True, eq=False)
class NodeRows:
    """The rows of a node.

    Attributes:
        X: the drawn columns, float64 ``(n_rows, n_drawn)``.
        y: int32 ``(n_rows,)``.
        n_classes: number of declared classes.
        min_leaf: smallest number of rows on both sides of a split.
    """

    X: NDArray[np.float64]
    y: NDArray[np.int32]
    n_classes: int
    min_leaf: int


@dataclass(frozen=True, eq=False)
class Cut:
    """A row goes left if ``X @ direction`` is at most the threshold.

    Attributes:
        direction: float64 ``(n_drawn,)``.
        threshold: a finite number.
    """

    direction: NDArray[np.float64]
    threshold: float

    def plane(self, columns: NDArray[np.int32]) -> Plane:
        """The split over the drawn columns of a table."""
        used = np.flatnonzero(self.direction)
        return Plane(columns[used], self.direction[used].astype(np.float32), self.threshold)


def best_cut(rows: NodeRows, rotation: NDArray[np.float64] | None = None) -> Cut | None:
    """The split of one column, or of one column of ``X @ rotation``, that lowers the Gini impurity most."""
    rotation = np.eye(rows.X.shape[1]) if rotation is None else rotation
    values = rows.X @ rotation.astype(np.float32).astype(np.float64)  # weights of planes are float32
    n_rows = len(values)
    one_hot = np.eye(rows.n_classes)[rows.y]
    total = one_hot.sum(axis=0)
    best, chosen = np.square(total).sum() / n_rows, None
    n_left = np.arange(1, n_rows)
    for column in range(values.shape[1]):
        order = np.argsort(values[:, column], kind="stable")
        ordered = values[order, column]
        left = one_hot[order].cumsum(axis=0)[:-1]
        gain = np.square(left).sum(axis=1) / n_left + np.square(total - left).sum(axis=1) / (n_rows - n_left)
        is_legal = (ordered[1:] > ordered[:-1]) & (n_left >= rows.min_leaf) & (n_rows - n_left >= rows.min_leaf)
        gain[~is_legal] = -1.0
        at = int(gain.argmax()) if len(gain) else -1
        if at >= 0 and gain[at] > best * (1.0 + 1e-12):
            best, chosen = gain[at], Cut(rotation[:, column], float((ordered[at] + ordered[at + 1]) / 2.0))
    return chosen


def principal_cut(rows: NodeRows) -> Cut | None:
    """The best split of the principal components."""
    n_rows, n_drawn = rows.X.shape
    if n_rows <= n_drawn:
        return best_cut(rows)
    centred = rows.X - rows.X.mean(axis=0)
    return best_cut(rows, np.linalg.eigh(centred.T @ centred / (n_rows - 1))[1])


def discriminant_cut(rows: NodeRows) -> Cut | None:
    """The best split of the linear discriminants."""
    n_rows, n_drawn = rows.X.shape
    if n_rows <= n_drawn:
        return best_cut(rows)
    mean = rows.X.mean(axis=0)
    between, within = np.zeros((n_drawn, n_drawn)), np.zeros((n_drawn, n_drawn))
    labels = np.unique(rows.y)
    for label in labels:
        of_class = rows.X[rows.y == label]
        gap, centred = of_class.mean(axis=0) - mean, of_class - of_class.mean(axis=0)
        between += len(of_class) * np.outer(gap, gap)
        within += centred.T @ centred / max(n_rows - len(labels), 1)
    if np.linalg.matrix_rank(within) < n_drawn:
        return best_cut(rows)
    directions = _directions(between, within)
    return best_cut(rows, directions / np.linalg.norm(directions, axis=0))


def tikhonov_cut(rows: NodeRows) -> Cut | None:
    """The better bisector of proximal planes; 0.01 on the diagonal of a singular matrix."""
    first, second = _group_matrices(rows)
    ridge = 0.0 if _is_regular(first) and _is_regular(second) else _TIKHONOV * np.eye(len(first))
    return _better_bisector(rows, _directions(second, first + ridge)[:, -1], _directions(first, second + ridge)[:, -1])


def axis_parallel_cut(rows: NodeRows) -> Cut | None:
    """The better bisector of proximal planes; the best split of one column where a matrix is singular."""
    first, second = _group_matrices(rows)
    if not (_is_regular(first) and _is_regular(second)):
        return best_cut(rows)
    return _better_bisector(rows, _directions(second, first)[:, -1], _directions(first, second)[:, -1])


def null_space_cut(rows: NodeRows) -> Cut | None:
    """The better bisector of proximal planes, which lie in the null space of singular matrices."""
    first, second = _group_matrices(rows)
    if _is_regular(first):
        directions = _directions(second, first)
        return _better_bisector(rows, directions[:, -1], directions[:, 0])
    other = _directions(first, second)[:, -1] if _is_regular(second) else _null_direction(second, first)
    return _better_bisector(rows, _null_direction(first, second), other)


def _directions(numerator: NDArray[np.float64], denominator: NDArray[np.float64]) -> NDArray[np.float64]:
    """Eigenvectors of numerator · w = λ · denominator · w in columns, λ ascending."""
    try:
        half = np.linalg.cholesky(denominator)
    except np.linalg.LinAlgError:  # regular only up to rounding
        half = np.linalg.cholesky(denominator + 1e-9 * np.trace(denominator) * np.eye(len(denominator)))
    inverse = np.linalg.inv(half)
    symmetric = inverse @ numerator @ inverse.T
    vectors: NDArray[np.float64] = inverse.T @ np.linalg.eigh((symmetric + symmetric.T) / 2.0)[1]
    return vectors


def _null_direction(singular: NDArray[np.float64], other: NDArray[np.float64]) -> NDArray[np.float64]:
    """The direction of a matrix's null space along which the other group is furthest from the plane."""
    values, vectors = np.linalg.eigh(singular)
    rank = int(np.linalg.matrix_rank(singular))
    null = vectors[:, np.argsort(values)[: len(values) - rank]]
    direction: NDArray[np.float64] = null @ np.linalg.eigh(null.T @ other @ null)[1][:, -1]
    return direction


def _is_regular(matrix: NDArray[np.float64]) -> bool:
    return int(np.linalg.matrix_rank(matrix)) == len(matrix)


def _group_matrices(rows: NodeRows) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Mean outer products of the rows (x, −1) of both groups of classes."""
    in_first = np.isin(rows.y, _first_group(rows))
    extended = np.column_stack([rows.X, -np.ones(len(rows.X))])
    matrices = [part.T @ part / len(part) for part in (extended[in_first], extended[~in_first])]
    return matrices[0], matrices[1]


def _first_group(rows: NodeRows) -> NDArray[np.int32]:
    """The class of the first of the two most distant classes, and of all classes that are nearer to it."""
    labels = np.unique(rows.y)
    if len(labels) == 2:
        return labels[:1]
    moments = [_moments(rows.X[rows.y == label]) for label in labels]
    distance = np.array([[_distance(one, other) for other in moments] for one in moments])
    if not distance.any():
        return labels[: (len(labels) + 1) // 2]
    first, second = np.unravel_index(distance.argmax(), distance.shape)
    group: NDArray[np.int32] = labels[distance[first] < distance[second]]
    return group


def _moments(X: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    centred = X - X.mean(axis=0)
    covariance = centred.T @ centred / max(len(X) - 1, 1)
    covariance[covariance == 0.0] = _SMALLEST_COVARIANCE
    return X.mean(axis=0), covariance


def _distance(
    one: tuple[NDArray[np.float64], NDArray[np.float64]], other: tuple[NDArray[np.float64], NDArray[np.float64]]
) -> float:
    """The Bhattacharyya distance of two normal laws; the distance of their means where it does not exist."""
    gap, mean_covariance = one[0] - other[0], (one[1] + other[1]) / 2.0
    if len(gap) > 1 and _is_regular(mean_covariance):
        _, middle = np.linalg.slogdet(mean_covariance)
        first, second = np.linalg.slogdet(one[1]), np.linalg.slogdet(other[1])
        if first[0] > 0 and second[0] > 0:
            shape = (middle - (first[1] + second[1]) / 2.0) / 2.0
            return abs(float(gap @ np.linalg.solve(mean_covariance, gap) / 8.0 + shape))
    return float(np.linalg.norm(gap))


def _better_bisector(rows: NodeRows, first: NDArray[np.float64], second: NDArray[np.float64]) -> Cut | None:
    """The bisector of two planes (w, b) with the lower impurity; ``None`` if neither is legal and lowers it."""
    norms = np.linalg.norm(first[:-1]), np.linalg.norm(second[:-1])
    if min(norms) == 0.0:
        return None
    one, other = first / norms[0], second / norms[1]
    one_hot = np.eye(rows.n_classes)[rows.y]
    total = one_hot.sum(axis=0)
    best, chosen = np.square(total).sum() / len(rows.y), None
    for bisector in (one + other, one - other):
        direction = bisector[:-1].astype(np.float32).astype(np.float64)
        goes_left = rows.X @ direction <= bisector[-1]
        n_left = int(goes_left.sum())
        if not rows.min_leaf <= n_left <= len(rows.y) - rows.min_leaf:
            continue
        left = one_hot[goes_left].sum(axis=0)
        gain = np.square(left).sum() / n_left + np.square(total - left).sum() / (len(rows.y) - n_left)
        if gain > best * (1.0 + 1e-12):
            best, chosen = gain, Cut(direction, float(bisector[-1]))
    return chosen
