"""Computes accuracy, goodness and weight of random decision trees, and the error bounds
that follow from them.

Source: Bojarski, Choromanska, Choromanski and LeCun (2014), section 5. The text that we
have of the paper has lost its formulas. A formula here is restored: derived from the
words of the theorem and of its proof, with the constants of the derivation.
``docs/results/papers/paper-bojarski.md`` states every theorem, its derivation and what a
check found.

Labels are 0 and 1. A leaf's label is 1 where at least half of its rows have label 1. A
row's own share in a tree is the share of the rows of its leaf that have its label; a
tree is right about a row where the leaf has the row's label. The goodness of a row is
the chance that a random tree is right about it, its weight the mean of its own share.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise, product
from math import ceil, exp, lcm, log, prod
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.special import bdtr

Split: TypeAlias = tuple[Fraction, NDArray[np.bool_]]
"""The chance of a split, and whether each row goes right."""


@dataclass(frozen=True, eq=False)
class TreeSet:
    """The trees that a node's splits can form, for a fixed set of rows.

    Attributes:
        leaves: int64 ``(n_trees, n_rows)``: the number of the leaf that a row reaches,
            0 to ``2**height − 1``.
        chances: of the trees, exact; their sum is 1.
    """

    leaves: NDArray[np.int64]
    chances: tuple[Fraction, ...]


def binary_splits(X: NDArray[np.bool_]) -> list[Split]:
    """Splits by one of the columns of ``X``, bool ``(n_rows, n_columns)``, each with
    equal chance.
    """
    return _merged([(Fraction(1, X.shape[1]), column) for column in X.T])


def threshold_splits(X: NDArray[np.int64], *, lower: int, upper: int) -> list[Split]:
    """Splits by a column with equal chance, then by a threshold that is uniform between
    public bounds.

    Args:
        X: int64 ``(n_rows, n_columns)``, between the bounds.
        lower: smallest threshold.
        upper: largest threshold.
    """
    splits = []
    for column in X.T:
        for low, high in pairwise(sorted({lower, upper, *column.tolist()})):
            splits.append(
                (Fraction(high - low, (upper - lower) * X.shape[1]), column > low)
            )
    return _merged(splits)


def _merged(splits: Sequence[Split]) -> list[Split]:
    """One split for all that send the same rows right."""
    chances: dict[bytes, Fraction] = {}
    for chance, goes_right in splits:
        key = goes_right.tobytes()
        chances[key] = chances.get(key, Fraction(0)) + chance
    return [
        (chance, np.frombuffer(key, dtype=np.bool_)) for key, chance in chances.items()
    ]


def complete_trees(splits: Sequence[Split], height: int) -> TreeSet:
    """All complete trees of a height whose nodes draw their splits independently.

    Args:
        splits: of every node.
        height: number of splits on a path, at least 0. There are ``len(splits) **
            (2**height − 1)`` trees.
    """
    n_rows, n_nodes = len(splits[0][1]), 2**height - 1
    rows, leaves, chances = np.arange(n_rows), [], []
    table = np.stack([goes_right for _, goes_right in splits])
    for drawn in product(range(len(splits)), repeat=n_nodes):
        nodes, place = np.array(drawn, dtype=np.int64), np.zeros(n_rows, dtype=np.int64)
        for level in range(height):
            place = 2 * place + table[nodes[2**level - 1 + place], rows]
        leaves.append(place)
        chances.append(prod((splits[index][0] for index in drawn), start=Fraction(1)))
    return TreeSet(np.stack(leaves), tuple(chances))


def same_label_counts(
    leaves: NDArray[np.int64], labels: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The number of rows of each row's leaf that have the row's label, and the number
    of all rows of the leaf.

    Args:
        leaves: int64 ``(n_trees, n_rows)``, at least 0.
        labels: int64 ``(n_rows,)``, 0 or 1.

    Returns:
        Two arrays int64 ``(n_trees, n_rows)``.
    """
    n_leaves = int(leaves.max()) + 1
    same = np.empty_like(leaves)
    total = np.empty_like(leaves)
    for tree, places in enumerate(leaves):
        counts = np.bincount(2 * places + labels, minlength=2 * n_leaves).reshape(
            n_leaves, 2
        )
        same[tree] = counts[places, labels]
        total[tree] = counts[places].sum(axis=1)
    return same, total


def is_right(leaves: NDArray[np.int64], labels: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Whether each tree is right about each row: bool ``(n_trees, n_rows)``."""
    same, total = same_label_counts(leaves, labels)
    right: NDArray[np.bool_] = 2 * same + labels > total  # a tie is label 1
    return right


def goodness(trees: TreeSet, labels: NDArray[np.int64]) -> list[Fraction]:
    """The exact goodness of every row: σ of the paper."""
    scale = lcm(*(chance.denominator for chance in trees.chances))
    numerators = np.array(
        [int(chance * scale) for chance in trees.chances], dtype=object
    )
    return [
        Fraction(int(total), scale)
        for total in numerators @ is_right(trees.leaves, labels).astype(object)
    ]


def weights(trees: TreeSet, labels: NDArray[np.int64]) -> list[Fraction]:
    """The exact weight of every row: the average of w over the trees."""
    same, total = same_label_counts(trees.leaves, labels)
    return [
        sum(
            (
                chance * Fraction(int(same[tree, row]), int(total[tree, row]))
                for tree, chance in enumerate(trees.chances)
            ),
            start=Fraction(0),
        )
        for row in range(len(labels))
    ]


def average_accuracy(trees: TreeSet, labels: NDArray[np.int64]) -> Fraction:
    """The exact average tree accuracy: the expected share of rows in the larger class
    of their leaf, e of the paper.

    It is computed from the class counts of leaves, and not from :func:`goodness`, so
    that Theorem 5.1 compares two computations.
    """
    mean = Fraction(0)
    for places, chance in zip(trees.leaves, trees.chances, strict=True):
        counts = np.bincount(
            2 * places + labels, minlength=2 * (int(places.max()) + 1)
        ).reshape(-1, 2)
        mean += chance * Fraction(int(counts.max(axis=1).sum()), len(labels))
    return mean


def mean_weight_bound(tree_error: Fraction) -> Fraction:
    """The least average weight at an average tree accuracy of 1 − ``tree_error``: e² +
    (1 − e)². Theorem 5.2.
    """
    return (1 - tree_error) ** 2 + tree_error**2


def enough_trees(n_rows: int, margin: float, exponent: float) -> int:
    """The number of trees of Theorems 5.3 and 5.4: (1 + K) log n / (2 δ²), rounded up.

    Args:
        n_rows: n.
        margin: δ, by which the goodness or the weight of a row exceeds one half; above
            0, at most 1/2.
        exponent: K; the chance of failure is at most n^−K.
    """
    return ceil((1 + exponent) * log(n_rows) / (2 * margin**2))


def voting_error_bound(tree_error: float, margin: float) -> float:
    """The largest error by majority voting with :func:`enough_trees`: ε / (1/2 − δ).
    Theorem 5.4.
    """
    return tree_error / (0.5 - margin)


def averaging_error_bound(
    tree_error: float, margin: float, *, light_share: float = 0.0
) -> float:
    """The largest error by threshold averaging with enough trees: (2ε − 2ε² + ξ) / (1/2
    − δ). Theorems 5.4 and 5.7.

    Args:
        tree_error: ε, 1 − average tree accuracy.
        margin: δ.
        light_share: ξ, the largest share of rows in leaves whose counts noise can
            change; 0 without noise.
    """
    return (2 * tree_error * (1 - tree_error) + light_share) / (0.5 - margin)


def drawing_error_bound(
    tree_error: float,
    slack: float,
    *,
    light_share: float = 0.0,
    noise_slack: float = 0.0,
) -> float:
    """The largest error of probabilistic averaging: 2ε − 2ε² + 2c, and with noise ξ +
    c' more. Theorems 5.5 and 5.8.

    Without noise it holds with a chance of at least 1 − exp(−2kc²) − exp(−2nc²).
    """
    return 2 * tree_error * (1 - tree_error) + 2 * slack + light_share + noise_slack


def voting_failure(goodness_of_rows: NDArray[np.float64], n_trees: int) -> float:
    """A bound of the chance that a vote is wrong about some row: the sum of the rows'
    exact binomial tails.

    Args:
        goodness_of_rows: float64 ``(n_rows,)``.
        n_trees: number of independent trees; a tie counts as wrong.
    """
    return float(np.sum(bdtr(n_trees // 2, n_trees, goodness_of_rows)))


def generalization_failure(
    n_rows: int, n_trees: int, height: int, margin: float
) -> float:
    """A bound of the chance that a training or test count of a leaf and class is off
    its mean by more than φ n.

    This is 2^(h+3) k exp(−2nφ²) with φ = δ² / (4 (1 + δ) 2^h k): k trees, 2^h leaves,
    two classes, two tables, two sides. Outside this event threshold averaging is wrong
    about a share 1 − μ + δ of test rows at most. Theorem 5.3.
    """
    deviation = margin**2 / (4 * (1 + margin) * 2**height * n_trees)
    return float(2 ** (height + 3) * n_trees * exp(-2 * n_rows * deviation**2))


def noise_rate(light_share: float, slack: float, height: int) -> float:
    """λ, such that no noise of at most λn moves the share of a leaf of ξn / 2^h rows or
    more by more than c.

    λ = ξ c / ((1 + 2c) 2^h): noise of at most z moves a share of s rows by at most z /
    (s − 2z). Theorems 5.6 to 5.9.

    Args:
        light_share: ξ.
        slack: c; δ/2 in Theorems 5.6 and 5.7.
        height: h.
    """
    return light_share * slack / ((1 + 2 * slack) * 2.0**height)


def log_private_failure(
    n_rows: int,
    n_trees: int,
    *,
    margin: float,
    height: int,
    rate: float,
    epsilon: float,
) -> float:
    """The logarithm of a bound of the chance that Theorem 5.6 or 5.7 fails, above 0
    where the bound says nothing.

    The bound is n exp(−kδ²/2) + 2^(h+1) k exp(−λnη/k): k trees whose mean own share is
    δ/2 below its expectation for some row, or one of their noisy counts is off by more
    than λn.

    Args:
        n_rows: n, of the training table.
        n_trees: k.
        margin: δ.
        height: h.
        rate: λ, see :func:`noise_rate`.
        epsilon: η, the privacy parameter of the forest; the noise of a count has scale
            k/η.
    """
    too_few = log(n_rows) - n_trees * margin**2 / 2
    too_noisy = (height + 1) * log(2) + log(n_trees) - rate * n_rows * epsilon / n_trees
    return float(np.logaddexp(too_few, too_noisy))


def best_n_trees(
    n_rows: int, *, margin: float, height: int, rate: float, epsilon: float
) -> int:
    """k*, the number of trees at which :func:`log_private_failure` is least. Theorems
    5.7 and 5.9.

    The second part of the bound grows with k, so the search ends where that part alone
    exceeds the least sum so far.
    """
    best, n_trees, least = 1, 1, float("inf")
    while (height + 1) * log(2) + log(
        n_trees
    ) - rate * n_rows * epsilon / n_trees < least:
        failure = log_private_failure(
            n_rows, n_trees, margin=margin, height=height, rate=rate, epsilon=epsilon
        )
        if failure < least:
            best, least = n_trees, failure
        n_trees += 1
    return best
