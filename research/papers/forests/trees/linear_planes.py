"""Proposes the planes of several linear classifiers for many nodes at once:
heterogeneous oblique forests.

Definition: Katuwal, Suganthan and Zhang, Heterogeneous oblique random forest (2020).
docs/references.md says which settings are ours. Classifiers that follow from the
moments of the classes are solved by NumPy, in stacks; the logistic regression and the
support vector machine, which need the rows, by compiled loops.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from research.papers.forests.loops import linear_loops
from research.papers.forests.trees import plane_rules
from research.papers.forests.trees.oblique_trees import Nodes
from research.papers.forests.trees.plane_rules import NodeMoments, Proposal

_N_ONE_VS_ALL = 2
"""One-vs-all partitions of a node, beside the two hyperclasses."""

_PENALTY = 1.0
"""The ridge penalty α, and the strength C of losses: scikit-learn's defaults."""


def heterogeneous(nodes: Nodes) -> Proposal:
    """The planes of five classifiers on the top partitions of every node's classes."""
    moments = nodes.moments
    in_first = partitions(moments)
    n_nodes, n_partitions, _ = in_first.shape
    planes = [np.full((n_nodes, n_partitions, 4, moments.n_columns + 1), np.nan)]
    for partition in range(n_partitions):
        at = np.flatnonzero(in_first[:, partition].any(axis=1))
        some = NodeMoments(moments.counts[at], moments.means[at], moments.scatters[at])
        groups = in_first[at, partition]
        if len(at):
            planes[0][at, partition, :2] = plane_rules.tikhonov_planes(some, groups)
            planes[0][at, partition, 2] = ridge_planes(some, groups)
            planes[0][at, partition, 3] = discriminant_planes(some, groups)
    for kind in (linear_loops.LOGISTIC, linear_loops.SQUARED_HINGE):
        fitted = np.full((n_nodes, n_partitions, moments.n_columns + 1), np.nan)
        linear_loops.fit_planes(
            nodes.table, nodes.rows, in_first, (kind, np.array([_PENALTY])), fitted
        )
        planes.append(fitted[:, :, np.newaxis])
    every = np.concatenate(planes, axis=2).reshape(n_nodes, -1, moments.n_columns + 1)
    return Proposal(
        np.zeros(n_nodes, dtype=np.bool_),
        np.empty((n_nodes, 0, moments.n_columns)),
        every,
    )


def partitions(nodes: NodeMoments) -> NDArray[np.bool_]:
    """The first group of every partition of every node's classes, bool ``(m,
    n_partitions, n_classes)``.

    First the two hyperclasses of :func:`plane_rules.choose_groups`, then the one-vs-all
    partitions with the largest ideal decrease of the Gini impurity: that of a split
    with one class on one side and all others on the other. A partition that is there
    already has no classes.
    """
    hyperclasses = plane_rules.choose_groups(nodes)[:, np.newaxis]
    n_classes = nodes.counts.shape[1]
    if n_classes == 2:
        return hyperclasses
    is_here = nodes.counts > 0.0
    squares = np.square(nodes.counts)
    others = nodes.n_rows[:, np.newaxis] - nodes.counts
    gains = nodes.counts + (squares.sum(axis=1, keepdims=True) - squares) / np.maximum(
        others, 1.0
    )
    best = np.argsort(np.where(is_here, -gains, np.inf), axis=1, kind="stable")[
        :, :_N_ONE_VS_ALL
    ]
    singles = best[:, :, np.newaxis] == np.arange(n_classes)
    differs = (singles != hyperclasses) & is_here[:, np.newaxis]
    is_new = (
        differs.any(axis=2) & (differs | ~is_here[:, np.newaxis]).sum(axis=2)
        < n_classes
    )
    is_new &= (is_here.sum(axis=1) > 2)[:, np.newaxis]
    return np.concatenate([hyperclasses, singles & is_new[:, :, np.newaxis]], axis=1)


@dataclass(frozen=True, eq=False)
class _TwoGroups:
    """Two groups of classes on standardised columns, of mean 0 and deviation 1; a
    constant column is 0.

    Attributes:
        first: rows of the first group, float64 ``(m,)``.
        second: rows of the second group.
        centre: mean of every column before, ``(m, d)``.
        deviation: of every column before.
        scatter: about the mean, ``(m, d, d)``.
        sum_of_first: sum of the rows of the first group, ``(m, d)``; the sum of the
            second group is its negative.
    """

    first: NDArray[np.float64]
    second: NDArray[np.float64]
    centre: NDArray[np.float64]
    deviation: NDArray[np.float64]
    scatter: NDArray[np.float64]
    sum_of_first: NDArray[np.float64]

    @classmethod
    def of(cls, nodes: NodeMoments, in_first: NDArray[np.bool_]) -> _TwoGroups:
        n_rows = nodes.n_rows
        centre = (
            np.einsum("mk,mkd->md", nodes.counts, nodes.means) / n_rows[:, np.newaxis]
        )
        scatter = nodes.between + nodes.within
        is_here = (nodes.counts > 0.0)[:, :, np.newaxis]
        spread = np.where(is_here, nodes.means, -np.inf).max(axis=1) - np.where(
            is_here, nodes.means, np.inf
        ).min(axis=1)
        is_constant = (spread == 0.0) & (np.einsum("mdd->md", nodes.within) == 0.0)
        squares = np.einsum("mdd->md", scatter) / n_rows[:, np.newaxis]
        deviation = np.where(is_constant, np.inf, np.sqrt(squares))
        gaps = (nodes.means - centre[:, np.newaxis]) / deviation[:, np.newaxis]
        scaled = scatter / deviation[:, :, np.newaxis] / deviation[:, np.newaxis]
        first = (nodes.counts * in_first).sum(axis=1)
        sum_of_first = np.einsum("mk,mkd->md", nodes.counts * in_first, gaps)
        return cls(first, n_rows - first, centre, deviation, scaled, sum_of_first)

    def plane(
        self, weights: NDArray[np.floating[Any]], intercept: NDArray[np.float64]
    ) -> NDArray[np.float64]:
        """The plane where weights · z + intercept is zero, on the columns before;
        float64 ``(m, d + 1)``.
        """
        of_columns = weights / self.deviation
        threshold = (of_columns * self.centre).sum(axis=1) - intercept
        return np.concatenate([of_columns, threshold[:, np.newaxis]], axis=1)


def ridge_planes(
    nodes: NodeMoments, in_first: NDArray[np.bool_]
) -> NDArray[np.float64]:
    """Ridge regression on 1 for the first group and −1 for the other: the least-squares
    SVM; float64 ``(m, d + 1)``.
    """
    groups = _TwoGroups.of(nodes, in_first)
    matrix = groups.scatter + _PENALTY * np.eye(nodes.n_columns)
    weights = np.linalg.solve(matrix, 2.0 * groups.sum_of_first[:, :, np.newaxis])[
        :, :, 0
    ]
    return groups.plane(weights, (groups.first - groups.second) / nodes.n_rows)


def discriminant_planes(
    nodes: NodeMoments, in_first: NDArray[np.bool_]
) -> NDArray[np.float64]:
    """Linear discriminant analysis with the shares of the groups as prior
    probabilities; float64 ``(m, d + 1)``.
    """
    groups = _TwoGroups.of(nodes, in_first)
    one, other = (
        groups.sum_of_first / size[:, np.newaxis]
        for size in (groups.first, -groups.second)
    )
    gap = one - other
    of_groups = (groups.first * groups.second / nodes.n_rows)[:, np.newaxis, np.newaxis]
    within = groups.scatter - of_groups * gap[:, :, np.newaxis] * gap[:, np.newaxis]
    inverse = np.linalg.pinv(
        within / nodes.n_rows[:, np.newaxis, np.newaxis], hermitian=True
    )
    weights = (inverse @ gap[:, :, np.newaxis])[:, :, 0]
    intercept = (
        np.log(groups.first / groups.second)
        - ((one + other) * weights).sum(axis=1) / 2.0
    )
    return groups.plane(weights, intercept)
