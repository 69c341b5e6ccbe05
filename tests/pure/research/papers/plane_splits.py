"""Moments of classes and impurities of splits in plain NumPy, which compiled loops are
compared with.
"""

from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from research.papers.forests.trees.plane_rules import NodeMoments


def moments_of(
    X: NDArray[np.float64], y: NDArray[np.int32], n_classes: int
) -> NodeMoments:
    """The moments of one node with these rows."""
    counts, size = np.bincount(y, minlength=n_classes).astype(np.float64), X.shape[1]
    means, scatters = np.zeros((n_classes, size)), np.zeros((n_classes, size, size))
    for label in np.unique(y):
        rows = X[y == label]
        means[label] = rows.mean(axis=0)
        scatters[label] = (rows - rows.mean(axis=0)).T @ (rows - rows.mean(axis=0))
    return NodeMoments(counts[np.newaxis], means[np.newaxis], scatters[np.newaxis])


def gini(y: NDArray[np.int32], left: NDArray[np.bool_]) -> float:
    """The mean Gini impurity of both sides of a split."""
    sides = (y[left], y[~left])
    return float(
        sum(
            len(side) * (1.0 - np.square(np.bincount(side) / len(side)).sum())
            for side in sides
        )
        / len(y)
    )


def lowest_impurity(
    values: NDArray[np.float64], y: NDArray[np.int32], min_leaf: int
) -> float:
    """The lowest impurity of a legal split of any column of values, by trying all of
    them.
    """
    found = []
    for column in values.T:
        for low, high in pairwise(np.unique(column)):
            left = column <= (low + high) / 2
            if min_leaf <= left.sum() <= len(left) - min_leaf:
                found.append(gini(y, left))
    return min(found)
