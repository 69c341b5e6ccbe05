"""Proposes oblique splits for many nodes at once, from the moments of their classes:
rotations, and proximal planes.

Definitions: Zhang and Suganthan, Random forests with ensemble of feature spaces (2014),
and Oblique decision tree ensemble via multisurface proximal support vector machine
(2015). The linear algebra is NumPy's, over stacked matrices.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from research.papers.forests.loops import plane_loops

_TIKHONOV = 0.01


@dataclass(frozen=True, eq=False)
class NodeMoments:
    """The classes of m nodes, each of which looks at d columns.

    Attributes:
        counts: rows by class, float64 ``(m, n_classes)``, of at least two classes in
            every node.
        means: means of the classes, float64 ``(m, n_classes, d)``; zero for a class
            without rows.
        scatters: sums of outer products of the rows less the mean of their class,
            float64 ``(m, n_classes, d, d)``.
    """

    counts: NDArray[np.float64]
    means: NDArray[np.float64]
    scatters: NDArray[np.float64]

    @property
    def n_columns(self) -> int:
        """Number of columns of a node: d."""
        return int(self.means.shape[2])

    @property
    def n_rows(self) -> NDArray[np.float64]:
        """Rows of every node, float64 ``(m,)``."""
        return np.asarray(self.counts.sum(axis=1))

    @property
    def between(self) -> NDArray[np.float64]:
        """Scatter of the class means about the mean of the node, float64 ``(m, d, d)``."""
        mean = (
            np.einsum("mk,mkd->md", self.counts, self.means)
            / self.n_rows[:, np.newaxis]
        )
        gaps = self.means - mean[:, np.newaxis]
        return np.asarray(
            (gaps * self.counts[:, :, np.newaxis]).transpose(0, 2, 1) @ gaps
        )

    @property
    def within(self) -> NDArray[np.float64]:
        """Scatter of the rows about the means of their classes, float64 ``(m, d, d)``."""
        return np.asarray(self.scatters.sum(axis=1))


@dataclass(frozen=True, eq=False)
class Proposal:
    """Splits to choose from, for m nodes.

    Attributes:
        is_rotated: whether a node takes the best split along its directions, and not a
            plane; bool ``(m,)``.
        directions: float64 ``(m, d, d)``, a direction in every row.
        planes: float64 ``(m, n_planes, d + 1)``, weights and a threshold: a row goes
            left if its weighted sum is at most the threshold. NaN as threshold: no
            plane.
    """

    is_rotated: NDArray[np.bool_]
    directions: NDArray[np.float64]
    planes: NDArray[np.float64]


def _along(directions: NDArray[np.float64]) -> Proposal:
    n_nodes, n_columns, _ = directions.shape
    return Proposal(
        np.ones(n_nodes, dtype=np.bool_),
        directions,
        np.empty((n_nodes, 0, n_columns + 1)),
    )


def principal(nodes: NodeMoments) -> Proposal:
    """The principal components; the columns where a node has no more rows than columns."""
    scatter = nodes.between + nodes.within
    directions = np.linalg.eigh(scatter)[1].transpose(0, 2, 1)
    return _along(_or_columns(nodes.n_rows > nodes.n_columns, directions))


def discriminant(nodes: NodeMoments) -> Proposal:
    """The linear discriminants; the columns where rows are few, or where the scatter
    within classes is singular.
    """
    spectrum = _Spectrum.of(nodes.within)
    directions = spectrum.relative(nodes.between)[1].transpose(0, 2, 1)
    directions = directions / np.linalg.norm(directions, axis=2, keepdims=True)
    return _along(
        _or_columns(spectrum.is_regular & (nodes.n_rows > nodes.n_columns), directions)
    )


def _or_columns(
    is_usable: NDArray[np.bool_], directions: NDArray[np.float64]
) -> NDArray[np.float64]:
    return np.where(
        is_usable[:, np.newaxis, np.newaxis], directions, np.eye(directions.shape[2])
    )


def tikhonov(nodes: NodeMoments) -> Proposal:
    """The bisectors of proximal planes; 0.01 on the diagonals where a matrix is
    singular.
    """
    return _planes(nodes, tikhonov_planes(nodes, choose_groups(nodes)))


def tikhonov_planes(
    nodes: NodeMoments, in_first: NDArray[np.bool_]
) -> NDArray[np.float64]:
    """The bisectors of :func:`tikhonov` for given groups of classes, float64 ``(m, 2, d
    + 1)``.
    """
    (first, one), (second, other) = _group_matrices(nodes, in_first)
    ridge = np.where(one.is_regular & other.is_regular, 0.0, _TIKHONOV)
    return bisectors(
        one.shifted(ridge).relative(second)[1][:, :, -1],
        other.shifted(ridge).relative(first)[1][:, :, -1],
    )


def axis_parallel(nodes: NodeMoments) -> Proposal:
    """The bisectors of proximal planes; the columns where a matrix is singular."""
    (_, one), (second, other) = _group_matrices(nodes, choose_groups(nodes))
    vectors = one.relative(second)[1]
    columns = np.broadcast_to(
        np.eye(nodes.n_columns), (len(vectors), nodes.n_columns, nodes.n_columns)
    )
    return Proposal(
        ~(one.is_regular & other.is_regular),
        columns,
        bisectors(vectors[:, :, -1], vectors[:, :, 0]),
    )


def null_space(nodes: NodeMoments) -> Proposal:
    """The bisectors of proximal planes, which lie in the null space of singular
    matrices.
    """
    (first, one), (second, other) = _group_matrices(nodes, choose_groups(nodes))
    regular = one.relative(second)[1]
    opposite = np.where(
        other.is_regular[:, np.newaxis],
        other.relative(first)[1][:, :, -1],
        other.null_direction(first),
    )
    is_regular = one.is_regular[:, np.newaxis]
    return _planes(
        nodes,
        bisectors(
            np.where(is_regular, regular[:, :, -1], one.null_direction(second)),
            np.where(is_regular, regular[:, :, 0], opposite),
        ),
    )


def _planes(nodes: NodeMoments, planes: NDArray[np.float64]) -> Proposal:
    n_nodes, n_columns = len(planes), nodes.n_columns
    return Proposal(
        np.zeros(n_nodes, dtype=np.bool_), np.empty((n_nodes, 0, n_columns)), planes
    )


@dataclass(frozen=True, eq=False)
class _Spectrum:
    """Eigenvalues, ascending, ``(m, d)``, and eigenvectors in columns, ``(m, d, d)``,
    of symmetric matrices.
    """

    values: NDArray[np.float64]
    vectors: NDArray[np.float64]

    @classmethod
    def of(cls, matrices: NDArray[np.float64]) -> _Spectrum:
        return cls(*np.linalg.eigh(matrices))

    @property
    def _rounding(self) -> NDArray[np.float64]:
        """The size up to which an eigenvalue counts as zero: that of NumPy's
        ``matrix_rank``.
        """
        return np.asarray(
            np.abs(self.values).max(axis=1)
            * self.values.shape[1]
            * np.finfo(np.float64).eps
        )

    @property
    def is_regular(self) -> NDArray[np.bool_]:
        """Whether no eigenvalue is zero, bool ``(m,)``."""
        return np.asarray(
            np.abs(self.values).min(axis=1) > self._rounding, dtype=np.bool_
        )

    def shifted(self, ridge: NDArray[np.float64]) -> _Spectrum:
        """The spectrum with a number on the diagonal of every matrix."""
        return _Spectrum(self.values + ridge[:, np.newaxis], self.vectors)

    def relative(
        self, numerators: NDArray[np.float64]
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Eigenvalues, ascending, and eigenvectors in columns of numerator · w = λ ·
        matrix · w, matrix regular.
        """
        floor = np.where(self._rounding > 0.0, self._rounding, 1.0)[:, np.newaxis]
        whitening = (
            self.vectors / np.sqrt(np.maximum(self.values, floor))[:, np.newaxis]
        )
        symmetric = whitening.transpose(0, 2, 1) @ numerators @ whitening
        values, vectors = np.linalg.eigh(
            (symmetric + symmetric.transpose(0, 2, 1)) / 2.0
        )
        return values, whitening @ vectors

    def null_direction(self, others: NDArray[np.float64]) -> NDArray[np.float64]:
        """The direction of a matrix's null space along which the other group is
        furthest from the plane, ``(m, d)``.
        """
        is_null = np.abs(self.values) <= self._rounding[:, np.newaxis]
        inside = self.vectors.transpose(0, 2, 1) @ others @ self.vectors
        inside *= is_null[:, :, np.newaxis] & is_null[:, np.newaxis]
        # Directions outside of the null space come after all others.
        below = -1.0 - np.abs(inside).max(axis=(1, 2))
        inside += np.where(is_null, 0.0, below[:, np.newaxis])[:, np.newaxis] * np.eye(
            inside.shape[1]
        )
        return np.asarray(
            (self.vectors @ np.linalg.eigh(inside)[1][:, :, -1:])[:, :, 0]
        )


def choose_groups(nodes: NodeMoments) -> NDArray[np.bool_]:
    """The classes of every node's first group, bool ``(m, n_classes)``.

    The two classes of the largest Bhattacharyya distance lead the groups; every other
    class joins the nearer one. Where all classes have one mean, the first half of the
    classes is a group.
    """
    in_first = np.zeros(nodes.counts.shape, dtype=np.bool_)
    plane_loops.choose_groups(nodes.counts, (nodes.means, nodes.scatters), in_first)
    return in_first


def _group_matrices(
    nodes: NodeMoments, in_first: NDArray[np.bool_]
) -> list[tuple[NDArray[np.float64], _Spectrum]]:
    """Mean outer products of the rows (x, −1) of both groups, and their spectra."""
    matrices = [_mean_products(nodes, chosen) for chosen in (in_first, ~in_first)]
    return [(matrix, _Spectrum.of(matrix)) for matrix in matrices]


def _mean_products(
    nodes: NodeMoments, chosen: NDArray[np.bool_]
) -> NDArray[np.float64]:
    counts = nodes.counts * chosen
    extended = np.concatenate(
        [nodes.means, np.full((*nodes.counts.shape, 1), -1.0)], axis=2
    )
    products = (extended * counts[:, :, np.newaxis]).transpose(0, 2, 1) @ extended
    products[:, :-1, :-1] += np.einsum(
        "mk,mkde->mde", chosen.astype(np.float64), nodes.scatters
    )
    return np.asarray(products / counts.sum(axis=1)[:, np.newaxis, np.newaxis])


def bisectors(
    first: NDArray[np.float64], second: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Both bisectors of planes (w, b), float64 ``(m, 2, d + 1)``; NaN thresholds where
    a plane has no direction.

    Args:
        first: float64 ``(m, d + 1)``.
        second: as ``first``.
    """
    norms = [
        np.linalg.norm(plane[:, :-1], axis=1, keepdims=True)
        for plane in (first, second)
    ]
    one, other = (
        plane / np.where(norm > 0.0, norm, 1.0)
        for plane, norm in zip((first, second), norms, strict=True)
    )
    both = np.stack([one + other, one - other], axis=1)
    both[(np.minimum(*norms) == 0.0)[:, 0], :, -1] = np.nan
    return both
