"""Grows random decision trees as printed: complete trees of one height, exact or noisy
leaf counts, three read-outs.

Source: Bojarski, Choromanska, Choromanski and LeCun (2014), Algorithms 1 and 2. The
service has a repaired version of Algorithm 2 with other thresholds and another θ
(``docs/proofs/rdt.md``). This version is for public tables alone: its noise is
floating-point noise, which is not private on a computer.
"""

from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from grovekeeper_forests.data.schema import Feature
from research.datasets import Dataset
from research.papers import random_tree_theory
from research.papers.forests.trees.design import Design, number_of_missing

READ_OUTS = ("mv", "ta", "pa")
"""Majority voting, threshold averaging and probabilistic averaging."""

ONE_COLUMN_PER_VALUE = ("adult",)
"""Datasets whose printed number of attributes counts the values of categories;
elsewhere it counts the categories.
"""

MARGIN, EXPONENT = 0.5, 1.0
"""δ and K of the logarithmic number of trees: the largest margin, and a chance of
failure of 1/n.
"""

NumberOfTrees: TypeAlias = int | Literal["logarithmic"]


def n_trees_of(n_estimators: NumberOfTrees, n_rows: int) -> int:
    """The number of trees that ``n_estimators`` asks for.

    Args:
        n_estimators: a number, or ``"logarithmic"`` for the number of Theorem 5.3 at
            the margin and the exponent of this module, 4 log n rounded up: the least
            number for which it bounds the error.
        n_rows: n.
    """
    if n_estimators == "logarithmic":
        return random_tree_theory.enough_trees(n_rows, MARGIN, EXPONENT)
    return n_estimators


@dataclass(frozen=True, eq=False)
class Columns:
    """The rows of a table as real columns with public bounds.

    Attributes:
        X: float32 ``(n_rows, n_columns)``.
        lower: smallest threshold of every column, float64 ``(n_columns,)``.
        upper: largest threshold.
    """

    X: NDArray[np.float32]
    lower: NDArray[np.float64]
    upper: NDArray[np.float64]

    @classmethod
    def of(cls, dataset: Dataset) -> "Columns":
        """The columns of a dataset, as many as the paper prints as far as its text
        says.

        Bounds are the smallest and the largest value that is present; the paper takes
        them as public. A column of one value is left out. A missing number lies below
        all bounds.
        """
        features = dataset.features(np.arange(len(dataset.y)))
        if dataset.name in ONE_COLUMN_PER_VALUE:
            design = Design.of(dataset.schema)
            X, declared = design.matrix(features), design.lower
        else:
            pairs = zip(dataset.schema.features, features.columns, strict=True)
            X = np.stack(
                [_column(feature, values) for feature, values in pairs], axis=1
            ).astype(np.float32)
            declared = np.array([feature.lower for feature in dataset.schema.features])
        is_missing = np.less(X, declared.astype(np.float32))
        lower = np.where(is_missing, np.inf, X).min(axis=0)
        upper = X.max(axis=0)
        is_useful = lower < upper
        return cls(
            X[:, is_useful],
            lower[is_useful].astype(np.float64),
            upper[is_useful].astype(np.float64),
        )


def _column(
    feature: Feature, values: NDArray[np.float64] | NDArray[np.int32]
) -> NDArray[np.float64]:
    """A number below the range where it is missing; the place of a category among the
    declared ones, MISSING last.
    """
    if feature.is_categorical:
        return np.minimum(values, len(feature.categories)).astype(np.float64)
    return np.where(np.isnan(values), number_of_missing(feature), values)


def leaves_of(
    columns: Columns, *, n_trees: int, height: int, random: np.random.Generator
) -> NDArray[np.int32]:
    """The leaf that every row reaches in every tree: int32 ``(n_trees, n_rows)``, 0 to
    ``2**height − 1``.

    Every node draws a column with equal chance and a threshold that is uniform between
    the column's bounds; no row is read for a split. ``leaves >> (height − h)`` are the
    leaves of the same trees cut at a smaller height h, and these have the law of trees
    of height h.

    Args:
        columns: of the rows.
        n_trees: k.
        height: number of splits on every path, 0 to 30.
        random: source of the splits.
    """
    n_rows, n_columns = columns.X.shape
    leaves = np.zeros((n_trees, n_rows), dtype=np.int32)
    rows = np.arange(n_rows)
    for places in leaves:
        for level in range(height):
            column = random.integers(n_columns, size=2**level)
            threshold = random.uniform(columns.lower[column], columns.upper[column])
            goes_right = columns.X[rows, column[places]] > threshold[places]
            places += places + goes_right
    return leaves


def class_counts(
    leaves: NDArray[np.int32], y: NDArray[np.int32], *, n_leaves: int
) -> NDArray[np.int64]:
    """The number of rows of each label in every leaf of every tree: int64 ``(n_trees,
    n_leaves, 2)``.
    """
    keys = 2 * (n_leaves * np.arange(len(leaves))[:, np.newaxis] + leaves) + y
    return np.bincount(keys.ravel(), minlength=2 * n_leaves * len(leaves)).reshape(
        len(leaves), n_leaves, 2
    )


def noisy_counts(
    counts: NDArray[np.int64], *, scale: float, random: np.random.Generator
) -> NDArray[np.float64]:
    """Counts with Laplace noise on every leaf and label. Algorithm 2.

    Args:
        counts: ``(…, 2)``.
        scale: k/ε for a forest of k trees.
        random: source of the noise.

    Privacy:
        None on a computer: the noise is a floating-point number. On real numbers ε-DP
        under add/remove and 2ε under replace-one (Theorem 1 of ``docs/proofs/rdt.md``).
    """
    return counts + random.laplace(scale=scale, size=counts.shape)


def printed_theta(
    counts: NDArray[np.floating] | NDArray[np.int64], random: np.random.Generator
) -> NDArray[np.float64]:
    """The paper's θ, the share of label 1 in every leaf: uniform on [0, 1] where a
    count is negative or both are 0.

    It is a read-out of exact counts, where a leaf without rows has a uniform share, and
    of noisy counts. There it reads nothing but released counts: post-processing,
    without a price.

    Args:
        counts: ``(…, 2)``.
        random: source of the uniform shares.

    Returns:
        float64 ``(…)``.
    """
    is_drawn = (counts < 0).any(axis=-1) | (counts == 0).all(axis=-1)
    total = np.where(is_drawn, 1.0, counts.sum(axis=-1))
    return np.where(is_drawn, random.random(is_drawn.shape), counts[..., 1] / total)


def clamped_theta(
    counts: NDArray[np.floating] | NDArray[np.int64],
) -> NDArray[np.float64]:
    """The service's θ: a negative count counts as 0, and the share is 1/2 where no
    count is positive.

    Arguments and result as of :func:`printed_theta`.
    """
    positive = np.maximum(counts, 0)
    total = positive.sum(axis=-1)
    return np.where(total > 0, positive[..., 1] / np.where(total > 0, total, 1.0), 0.5)


def larger_count(
    counts: NDArray[np.floating] | NDArray[np.int64],
) -> NDArray[np.float64]:
    """The service's vote of every leaf: 1 where the count of label 1 is at least the
    other one, else 0.

    Arguments and result as of :func:`printed_theta`.
    """
    return (counts[..., 1] >= counts[..., 0]).astype(np.float64)


def predicted(
    theta: NDArray[np.float64], read_out: str, random: np.random.Generator
) -> NDArray[np.bool_]:
    """Whether rows get label 1: bool ``(n_rows,)``.

    Args:
        theta: share of label 1 in the leaf of each row in each tree, float64
            ``(n_trees, n_rows)``.
        read_out: ``mv``: at least half of the trees have θ ≥ 1/2; ``ta``: the mean θ is
            at least 1/2; ``pa``: drawn with the mean θ as its chance.
        random: source of the draws of ``pa``.
    """
    if read_out == "mv":
        labels: NDArray[np.bool_] = 2 * (theta >= 0.5).sum(axis=0) >= len(theta)
    elif read_out == "ta":
        labels = theta.mean(axis=0) >= 0.5
    else:
        labels = random.random(theta.shape[1]) < theta.mean(axis=0)
    return labels
