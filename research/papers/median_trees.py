"""Grows the median trees of Huang, Lei and Kabán as printed, with true, private or
random medians.

The printed rule has no finite loss: candidates lie between the smallest and the largest
value present, and a stop reads an exact count (docs/proofs/spe.md). It runs here to
repeat the paper's figures, outside the service; the service's repaired form is ``spe``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from grovekeeper_forests.data.schema import Schema
from research.datasets import Dataset
from research.papers.forests.trees.design import number_of_missing

TRUE, PRIVATE, RANDOM = MEDIANS = ("true", "private", "random")

FEWEST_ROWS = 10
"""A node with at most so many rows is a leaf (Algorithm 1, line 3)."""

N_CANDIDATES = 100
"""Candidates of a median. The paper draws "a set" and does not print its size."""

GEOMETRIC, UNIFORM = 1.5, 1.0
"""Ratio of a level's budget to that of the level above: the paper's 3/2 (section 4.2),
and its baseline.
"""


@dataclass(frozen=True)
class MedianRule:
    """How nodes are split.

    Attributes:
        medians: one of :data:`MEDIANS`.
        max_depth: largest number of splits on a path, k in the paper.
        epsilon: ε_s, of all splits of a path; read for private medians only.
        level_ratio: ratio of the budgets of neighbouring levels.
        repeats_features: whether a path may split a feature twice, as in Algorithm 1.
            Section 6.1 says so of trees of twice the usual depth, as if others did not.
    """

    medians: str
    max_depth: int
    epsilon: float
    level_ratio: float = GEOMETRIC
    repeats_features: bool = True

    def __post_init__(self) -> None:
        if self.medians not in MEDIANS:
            raise ValueError(
                f"medians are one of {', '.join(MEDIANS)}, not {self.medians}"
            )

    @property
    def budgets(self) -> NDArray[np.float64]:
        """ε of every level, root first, float64 ``(max_depth,)``; they add up to
        ``epsilon`` (equations 6 and 7).
        """
        weights = self.level_ratio ** np.arange(self.max_depth)
        return np.asarray(self.epsilon * weights / weights.sum())


@dataclass(frozen=True, eq=False)
class Table:
    """Features as numbers.

    Attributes:
        X: float64 ``(n_rows, n_features)``; a category is its code, a missing number
            lies below the declared range.
        n_categories: of every feature, 0 for a number; int64 ``(n_features,)``.
    """

    X: NDArray[np.float64]
    n_categories: NDArray[np.int64]

    @classmethod
    def of(cls, dataset: Dataset) -> Table:
        """All rows of a dataset."""
        numbers = [
            column
            if feature.is_categorical
            else np.where(np.isnan(column), number_of_missing(feature), column)
            for feature, column in zip(
                dataset.schema.features, dataset.columns, strict=True
            )
        ]
        return cls(
            np.stack(numbers, axis=1).astype(np.float64), _n_categories(dataset.schema)
        )

    @classmethod
    def of_numbers(cls, X: NDArray[np.float64]) -> Table:
        """A table of numbers, float64 ``(n_rows, n_features)``."""
        return cls(X, np.zeros(X.shape[1], dtype=np.int64))


def _n_categories(schema: Schema) -> NDArray[np.int64]:
    return np.array(
        [
            feature.missing_code + 1 if feature.is_categorical else 0
            for feature in schema.features
        ]
    )


@dataclass(frozen=True)
class Node:
    """A split, or a leaf where ``feature`` is −1.

    Attributes:
        level: number of splits above the node.
        rows: indices of the rows that reach the node, int64.
        feature: number of the feature.
        cut: a number up to ``cut``, or the category ``cut``, goes left.
        left: place of the left child in the list of nodes; the right child is the next
            node.
    """

    level: int
    rows: NDArray[np.int64]
    feature: int = -1
    cut: float = 0.0
    left: int = 0


def utilities(
    values: NDArray[np.float64], candidates: NDArray[np.float64], *, are_equal: bool
) -> NDArray[np.float64]:
    """Utilities u(V, r) = −|rank(r) − |V|/2| of candidates for the median of a node
    (section 4).

    Args:
        values: of the node's rows, in ascending order, float64 ``(n_rows,)``.
        candidates: float64 ``(n_candidates,)``.
        are_equal: whether a rank counts the rows equal to the candidate, as for
            categories, or the rows up to it.
    """
    ranks = np.searchsorted(values, candidates, side="right")
    if are_equal:
        ranks = ranks - np.searchsorted(values, candidates, side="left")
    return -np.abs(ranks - len(values) / 2)


def median_cut(
    values: NDArray[np.float64],
    n_categories: int,
    medians: str,
    epsilon: float,
    random: np.random.Generator,
) -> float:
    """The cut of a node (Algorithm 1, PrivateMedian, and the two variations of figure
    1).

    A private median of numbers is drawn from candidates that are uniform between the
    smallest and the largest value; a random one is such a candidate. For categories the
    candidates are all categories.

    Args:
        values: of the drawn feature, of the node's rows, in ascending order, float64
            ``(n_rows,)``; at least one row.
        n_categories: of the feature; 0 for a number.
        medians: one of :data:`MEDIANS`.
        epsilon: of a private median.
        random: pseudo-random.
    """
    candidates: NDArray[np.float64]
    if n_categories:
        candidates = np.arange(n_categories, dtype=np.float64)
    elif medians == TRUE:
        return float(np.median(values))
    else:
        candidates = random.uniform(values[0], values[-1], N_CANDIDATES)
    if medians == RANDOM:
        return float(random.choice(candidates))
    utility = utilities(values, candidates, are_equal=n_categories > 0)
    if medians == TRUE:
        return float(candidates[utility.argmax()])
    weights = np.exp(epsilon * (utility - utility.max()))
    return float(random.choice(candidates, p=weights / weights.sum()))


def grow_tree(
    table: Table, rows: NDArray[np.int64], rule: MedianRule, random: np.random.Generator
) -> list[Node]:
    """Grows one tree (Algorithm 1): every node draws a feature uniformly and splits at
    its median. Where features do not repeat, a node without a further one is a leaf.

    Privacy:
        None: see the first lines of this module.

    Source:
        Huang, Lei and Kabán (2022), Algorithm 1.
    """
    budgets, nodes = rule.budgets, [Node(0, rows)]
    free: list[Sequence[int]] = [range(table.X.shape[1])]
    for place, node in enumerate(nodes):  # grows while it runs: children are appended
        if (
            node.level >= rule.max_depth
            or len(node.rows) <= FEWEST_ROWS
            or not free[place]
        ):
            continue
        feature = int(free[place][random.integers(len(free[place]))])
        values, n_categories = (
            table.X[node.rows, feature],
            int(table.n_categories[feature]),
        )
        cut = median_cut(
            np.sort(values),
            n_categories,
            rule.medians,
            float(budgets[node.level]),
            random,
        )
        goes_left = values == cut if n_categories else values <= cut
        nodes[place] = Node(node.level, node.rows, feature, cut, len(nodes))
        nodes += [
            Node(node.level + 1, node.rows[goes_left]),
            Node(node.level + 1, node.rows[~goes_left]),
        ]
        rest = free[place]
        if not rule.repeats_features:
            rest = [other for other in rest if other != feature]
        free += [rest, rest]
    return nodes


def leaf_places(
    nodes: Sequence[Node], table: Table, rows: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Places in the list of nodes of the leaves that rows reach, int64 ``(n_rows,)``."""
    feature, cut, left = (
        np.array([getattr(node, name) for node in nodes])
        for name in ("feature", "cut", "left")
    )
    place: NDArray[np.int64] = np.zeros(len(rows), dtype=np.int64)
    while (inner := np.flatnonzero(feature[place] >= 0)).size:
        at = place[inner]
        values = table.X[rows[inner], feature[at]]
        goes_left = np.where(
            table.n_categories[feature[at]] > 0, values == cut[at], values <= cut[at]
        )
        place[inner] = left[at] + ~goes_left
    return place


def ensemble_labels(
    dataset: Dataset,
    split: tuple[NDArray[np.int64], NDArray[np.int64]],
    rule: MedianRule,
    *,
    n_trees: int,
    leaf_epsilon: float,
    random: np.random.Generator,
) -> NDArray[np.int64]:
    """Labels of the test rows by an ensemble (Algorithm 2): noisy counts of all trees
    are added, the largest sum wins.

    Trees have disjoint rows, of equal numbers but for one.

    Args:
        dataset: all rows.
        split: indices of training and test rows.
        rule: of all trees.
        n_trees: N.
        leaf_epsilon: ε_l; every count of a leaf gets Laplace noise of scale 1/ε_l.
        random: pseudo-random.

    Returns:
        int64 ``(n_test_rows,)``.

    Privacy:
        None: see the first lines of this module.

    Source:
        Huang, Lei and Kabán (2022), Algorithm 2.
    """
    train, test = split
    table, n_classes = Table.of(dataset), dataset.schema.n_classes
    sums = np.zeros((len(test), n_classes))
    for rows in np.array_split(random.permutation(train), n_trees):
        nodes = grow_tree(table, rows, rule, random)
        counts = np.stack(
            [np.bincount(dataset.y[node.rows], minlength=n_classes) for node in nodes]
        )
        sums += (counts + random.laplace(scale=1 / leaf_epsilon, size=counts.shape))[
            leaf_places(nodes, table, test)
        ]
    return sums.argmax(axis=1)


def distances(nodes: Sequence[Node], table: Table) -> Iterator[tuple[int, float]]:
    """Level of every split of a number and its distance to the true median of the
    node's rows, in the feature's unit.

    Figure 2 shows the mean of these distances.
    """
    for node in nodes:
        if node.feature >= 0 and not table.n_categories[node.feature]:
            yield (
                node.level,
                abs(node.cut - float(np.median(table.X[node.rows, node.feature]))),
            )
