"""Predicts with private forests as their papers or the authors' code print them.

None of them has the loss that its paper claims in every setting (docs/papers.md), so
the service runs repaired forms. Here they repeat the papers' numbers on public rows.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from research.datasets import Dataset
from research.papers import median_trees
from research.papers.median_trees import PRIVATE, TRUE, MedianRule, Table

Labels: TypeAlias = NDArray[np.int64]
Split: TypeAlias = tuple[NDArray[np.int64], NDArray[np.int64]]
Parameters: TypeAlias = Mapping[str, int | str]

MEDIAN_TREES, SMOOTH = "median-trees", "smooth-rf"
SSPE_2, PTE = "sspe-2-printed", "pte-printed"

N_TREES = 10
"""Default number of trees of an ensemble, and of each of the two of Algorithm 4, whose
numbers Huang, Lei and Kabán do not print.
"""

LABELLED = 5
"""One training row in so many keeps its label (Huang, Lei and Kabán, section 6.3)."""

DEEPEST, LARGEST_POWER = 15, 50.0
"""Limits of the code of Fletcher and Islam: depth of a tree, and exponent of a label."""


def labels(
    dataset: Dataset,
    split: Split,
    slug: str,
    parameters: Parameters,
    epsilon: float,
    random: np.random.Generator,
) -> Labels:
    """Labels of the test rows by a forest as printed.

    Args:
        dataset: all rows.
        split: indices of training and test rows.
        slug: one of :data:`LITERAL`.
        parameters: of the task.
        epsilon: the paper's claim.
        random: pseudo-random.

    Returns:
        int64 ``(n_test_rows,)``.

    Privacy:
        None: the rows are public.
    """
    return LITERAL[slug](dataset, split, parameters, epsilon, random)


def _median(
    dataset: Dataset,
    split: Split,
    parameters: Parameters,
    epsilon: float,
    random: np.random.Generator,
) -> Labels:
    """Algorithm 2 of Huang, Lei and Kabán; splits and leaves have one half of ε each,
    the paper's default, as is a depth of the number of features. With ``features``
    "once" no path splits a feature twice.
    """
    share, n_features = epsilon / 2, len(dataset.columns)
    depth = int(parameters.get("max_depth", n_features))
    rule = MedianRule(
        str(parameters["medians"]),
        depth,
        share,
        repeats_features=parameters.get("features") != "once",
    )
    n_trees = int(parameters["n_estimators"])
    return median_trees.ensemble_labels(
        dataset, split, rule, n_trees=n_trees, leaf_epsilon=share, random=random
    )


@dataclass(frozen=True, eq=False)
class _LabelledTrees:
    """Trees over all training rows, whose leaves count some of them.

    Attributes:
        table: all rows.
        train: indices of the training rows.
        rule: of every tree.
        n_classes: number of declared classes.
        epsilon: every count of a leaf gets Laplace noise of scale 1/ε.
        random: pseudo-random.
        divides: whether every counted row is in one tree, as printed, or in all trees,
            at a loss of ε in each.
    """

    table: Table
    train: NDArray[np.int64]
    rule: MedianRule
    n_classes: int
    epsilon: float
    random: np.random.Generator
    divides: bool

    def sums(
        self, y: NDArray[np.int32], counted: NDArray[np.int64], asked: NDArray[np.int64]
    ) -> NDArray[np.float64]:
        """Sums of the noisy counts of asked rows over the trees of an ensemble.

        Args:
            y: classes of all rows; those of the counted rows are read.
            counted: indices.
            asked: indices.

        Returns:
            float64 ``(n_asked, n_classes)``.
        """
        sums = np.zeros((len(asked), self.n_classes))
        parts = (
            np.array_split(counted, N_TREES) if self.divides else [counted] * N_TREES
        )
        for part in parts:
            nodes = median_trees.grow_tree(
                self.table, self.train, self.rule, self.random
            )
            counts = self.random.laplace(
                scale=1 / self.epsilon, size=(len(nodes), self.n_classes)
            )
            places = median_trees.leaf_places(nodes, self.table, part)
            np.add.at(counts, (places, y[part]), 1)
            sums += counts[median_trees.leaf_places(nodes, self.table, asked)]
        return sums


def _label_private(
    dataset: Dataset,
    split: Split,
    parameters: Parameters,
    epsilon: float,
    random: np.random.Generator,
) -> Labels:
    """Algorithm 3 of Huang, Lei and Kabán for private labels: exact medians of all
    training rows.
    """
    train, test = split
    table, n_classes = Table.of(dataset), dataset.schema.n_classes
    rule = MedianRule(TRUE, _depth(table, parameters), math.inf)
    trees = _LabelledTrees(
        table, train, rule, n_classes, epsilon, random, _divides(parameters)
    )
    labelled = random.permutation(train)[: len(train) // LABELLED]
    return trees.sums(dataset.y, labelled, test).argmax(axis=1)


def _transductive(
    dataset: Dataset,
    split: Split,
    parameters: Parameters,
    epsilon: float,
    random: np.random.Generator,
) -> Labels:
    """Algorithm 4 of Huang, Lei and Kabán: every tree has private medians of all
    training rows at ε. The first ensemble labels the rows that have no label, which the
    second counts; the counts of both are added.
    """
    train, test = split
    table, n_classes = Table.of(dataset), dataset.schema.n_classes
    rule = MedianRule(PRIVATE, _depth(table, parameters), epsilon)
    trees = _LabelledTrees(
        table, train, rule, n_classes, epsilon, random, _divides(parameters)
    )
    labelled, others = np.split(random.permutation(train), [len(train) // LABELLED])
    of_first = trees.sums(dataset.y, labelled, np.concatenate([others, test]))
    y = dataset.y.copy()
    y[others] = of_first[: len(others)].argmax(axis=1)
    return (of_first[len(others) :] + trees.sums(y, others, test)).argmax(axis=1)


def _divides(parameters: Parameters) -> bool:
    """Whether trees divide labels; with ``labels`` "all", every tree has all of them."""
    return parameters.get("labels") != "all"


def _depth(table: Table, parameters: Parameters) -> int:
    """The number of features, the paper's default; with ``depth`` "half", half of it."""
    n_features = table.X.shape[1]
    return n_features // 2 if parameters.get("depth") == "half" else n_features


def _smooth(
    dataset: Dataset,
    split: Split,
    parameters: Parameters,
    epsilon: float,
    random: np.random.Generator,
) -> Labels:
    """SmoothRF of Fletcher and Islam by their code: random trees on disjoint rows, each
    leaf with one label drawn at a smooth sensitivity. Ranges, categories and classes
    are those of the training rows. A row of another category gets no vote.
    """
    train, test = split
    table = Table.of(dataset)
    is_number = table.n_categories == 0
    depth = smooth_depth(int(is_number.sum()), int((~is_number).sum()))
    n_trees = int(parameters["n_estimators"])
    size, order = len(train) // n_trees, random.permutation(train)
    seen, classes = table.X[train], np.unique(dataset.y[train])
    categories = [np.unique(column) for column in seen.T]
    votes = np.zeros((len(test), dataset.schema.n_classes))
    for tree in range(n_trees):
        # Nodes that wait: their rows and test rows, the features that a split may take,
        # lowest and highest values, and their depth. Only nodes with test rows grow.
        rows = order[tree * size : (tree + 1) * size]
        free, asked = np.arange(len(is_number)), np.arange(len(test))
        waiting = [(rows, asked, free, seen.min(axis=0), seen.max(axis=0), 0)]
        while waiting:
            rows, asked, free, low, high, level = waiting.pop()
            if not asked.size:
                continue
            if level == depth or not free.size:
                counts = np.bincount(dataset.y[rows], minlength=votes.shape[1])
                label = classes[_smooth_label(counts[classes], epsilon, random)]
                votes[asked, label] += 1
                continue
            feature = int(random.choice(free))
            values, of_test = table.X[rows, feature], table.X[test[asked], feature]
            if not is_number[feature]:
                rest = free[free != feature]
                waiting += [
                    (rows[values == one], asked[of_test == one], rest, low, high, level + 1)
                    for one in categories[feature]
                ]  # fmt: skip
                continue
            cut = random.uniform(low[feature], high[feature])
            below, above = high.copy(), low.copy()
            below[feature] = above[feature] = cut
            left, asks_left = values < cut, of_test < cut
            waiting += [
                (rows[left], asked[asks_left], free, low, below, level + 1),
                (rows[~left], asked[~asks_left], free, above, high, level + 1),
            ]
    return votes.argmax(axis=1)


def smooth_depth(n_numbers: int, n_categories: int) -> int:
    """Depth of a tree of SmoothRF by the numbers of features of both kinds, as the code
    of Fletcher and Islam computes it.
    """
    if not n_numbers:
        return n_categories // 2
    depth, unused = 0, float(n_numbers)
    while unused > n_numbers / 2:
        unused = n_numbers * (1 - 1 / n_numbers) ** depth
        depth += 1
    return min(DEEPEST, math.floor(depth + n_categories / 2))


def _smooth_label(
    counts: NDArray[np.int64], epsilon: float, random: np.random.Generator
) -> int:
    """The place of the label of a leaf: with gap j of the two largest counts, every
    most frequent class has the exponent ε / (2 e^(−jε)), others 0.
    """
    powers = smooth_powers(counts, epsilon)
    weights = np.exp(powers - powers.max())
    return int(random.choice(len(counts), p=weights / weights.sum()))


def smooth_powers(counts: NDArray[np.int64], epsilon: float) -> NDArray[np.float64]:
    """Exponents of the classes of a leaf of SmoothRF; equal in an empty leaf."""
    ordered = np.sort(counts)[::-1]
    gap = int(ordered[0] - ordered[1]) if len(ordered) > 1 else 0
    # e^(jε) would overflow long after the limit
    power = min(
        LARGEST_POWER, epsilon / 2 * math.exp(min(gap * epsilon, LARGEST_POWER))
    )
    return np.where(counts == ordered[0], power, 0.0)


LITERAL: Mapping[
    str,
    Callable[[Dataset, Split, Parameters, float, np.random.Generator], Labels],
] = MappingProxyType(
    {
        MEDIAN_TREES: _median,
        SMOOTH: _smooth,
        SSPE_2: _label_private,
        PTE: _transductive,
    }
)
"""Forests as printed, by slug; no algorithm of the service or of ``papers.forests`` has
one of the slugs.
"""
