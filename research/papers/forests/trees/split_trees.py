"""Grows trees without privacy with the compiled rules, from rows whose columns are
coded by their distinct values.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from grovekeeper_forests.data.sanitiser import SanitisedRows
from research.papers.forests.loops import split_loops
from research.papers.forests.trees.design import Design
from research.papers.forests.trees.node_trees import NodeTree

NODE, CHILDREN, LEAVES = STOPS = ("node", "children", "leaves")
"""Where k, the smallest leaf, counts: a node of more than k estimation points is split,
and a side without any takes the class shares of the node; the same, but both children
are leaves unless both have more than k; or both sides of a split have at least k.
"""


@dataclass(frozen=True, eq=False)
class CodedRows:
    """Rows for the compiled growth of trees.

    Attributes:
        values: the distinct values of every column, ascending.
        codes: the place of every value among them, int32 ``(n_columns, n_rows)``.
        categories: the values of every category of which a value is a column, int32
            ``(n_categories, n_rows)``.
        columns: of every column its category, or −1; its value; its number of codes;
            and its feature; int32 ``(n_columns, 4)``.
        y: classes, int32 ``(n_rows,)``.
        n_classes: number of declared classes.
    """

    values: tuple[NDArray[np.float64], ...]
    codes: NDArray[np.int32]
    categories: NDArray[np.int32]
    columns: NDArray[np.int32]
    y: NDArray[np.int32]
    n_classes: int

    @classmethod
    def of(cls, design: Design, rows: SanitisedRows) -> CodedRows:
        """Codes the columns of rows."""
        return cls.of_columns(design, rows, design.matrix(rows.features))

    @classmethod
    def of_columns(
        cls, design: Design, rows: SanitisedRows, X: NDArray[np.float32]
    ) -> CodedRows:
        """Codes the columns of a matrix, in which columns of categories are 0 and 1 as
        in the rows.
        """
        n_columns = np.bincount(design.feature, minlength=len(rows.features.columns))
        is_alone = n_columns[design.feature] == 1
        coded = [
            np.unique(X[:, at], return_inverse=True)
            if is_alone[at]
            else _flags(X[:, at])
            for at in range(X.shape[1])
        ]
        codes = np.array([codes for _, codes in coded], dtype=np.int32).reshape(
            X.shape[1], len(X)
        )
        values = tuple(values.astype(np.float64) for values, _ in coded)
        columns = np.full((X.shape[1], 4), -1, dtype=np.int32)
        columns[:, 2] = [len(distinct) for distinct in values]
        columns[:, 3] = design.feature
        spread = np.flatnonzero(n_columns > 1)
        for category, feature in enumerate(spread):
            columns[design.feature == feature, :2] = [
                (category, value) for value in range(n_columns[feature])
            ]
        categories = np.array(
            [rows.features.columns[feature] for feature in spread], dtype=np.int32
        )
        return cls(
            values,
            codes,
            categories.reshape(len(spread), len(X)),
            columns,
            rows.y,
            design.schema.n_classes,
        )

    @classmethod
    def of_numbers(
        cls, X: NDArray[np.float32], y: NDArray[np.int32], n_classes: int
    ) -> CodedRows:
        """Codes the columns of a matrix, none of which belongs to a category."""
        coded = [np.unique(column, return_inverse=True) for column in X.T]
        columns = np.array(
            [(-1, -1, len(values), at) for at, (values, _) in enumerate(coded)],
            dtype=np.int32,
        ).reshape(len(coded), 4)
        codes = np.array([codes for _, codes in coded], dtype=np.int32).reshape(
            len(coded), len(X)
        )
        values = tuple(values.astype(np.float64) for values, _ in coded)
        return cls(
            values, codes, np.empty((0, len(X)), dtype=np.int32), columns, y, n_classes
        )

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return self.y.size

    @property
    def n_features(self) -> int:
        """Number of features."""
        return len(np.unique(self.columns[:, 3]))


def _flags(
    column: NDArray[np.float32],
) -> tuple[NDArray[np.float32], NDArray[np.int32]]:
    """The distinct values of a column of 0 and 1, and the place of every value among
    them.
    """
    flags = column.astype(np.int32)
    if flags.any() and not flags.all():
        return np.array([0, 1], dtype=np.float32), flags
    return column[:1], np.zeros(len(flags), dtype=np.int32)


@dataclass(frozen=True)
class Rule:
    """How a tree chooses its splits.

    Attributes:
        kind: ``GREEDY``, ``MULTINOMIAL``, ``POOLED`` or ``BERNOULLI`` of the compiled
            loops.
        min_leaf: k, a weight of estimation points.
        n_candidates: columns that a split chooses among; for ``POOLED`` one more than
            the mean of the Poisson number.
        strengths: B1 and B2 of ``MULTINOMIAL``.
        rates: ``BERNOULLI``: chances of one random column, and of a random split point.
            ``MULTINOMIAL``: chances that a column, and a split point, is a candidate.
        pool_size: structure points that give the range of split points for ``POOLED``.
        max_depth: largest number of splits on a path; 0 for no limit.
        stop: where k counts, one of :data:`STOPS`.
        redraws: whether further columns are drawn where none of the candidates has a
            split; not read for ``MULTINOMIAL``.
        by_features: whether a feature is drawn with all its columns, for ``GREEDY`` and
            for ``MULTINOMIAL`` without rates.
    """

    kind: int
    min_leaf: int
    n_candidates: float
    strengths: tuple[float, float] = (0.0, 0.0)
    rates: tuple[float, float] = (1.0, 1.0)
    pool_size: int = 0
    max_depth: int = 0
    stop: str = LEAVES
    redraws: bool = True
    by_features: bool = False

    @property
    def numbers(self) -> NDArray[np.float64]:
        """The numbers of the rule for the compiled loops, float64 ``(11,)``."""
        of_side, of_node = (
            (self.min_leaf, 2 * self.min_leaf)
            if self.stop == LEAVES
            else (0, self.min_leaf + 1)
        )
        numbers = [
            of_side,
            self.n_candidates,
            *self.strengths,
            *self.rates,
            self.pool_size,
            self.max_depth,
            of_node,
            self.redraws,
            self.min_leaf + 1 if self.stop == CHILDREN else 0,
        ]
        return np.array(numbers, dtype=np.float64)


@dataclass(frozen=True, eq=False)
class Weights:
    """The weights of rows in one tree, int32 ``(n_rows,)``: as structure points and as
    estimation points.
    """

    structure: NDArray[np.int32]
    estimation: NDArray[np.int32]

    @classmethod
    def bootstrapped(cls, n_rows: int, random: np.random.Generator) -> Weights:
        """As many rows as there are, drawn with replacement; each is both kinds of
        point.
        """
        drawn = np.bincount(
            random.integers(n_rows, size=n_rows), minlength=n_rows
        ).astype(np.int32)
        return cls(drawn, drawn)

    @classmethod
    def parted(
        cls, n_rows: int, random: np.random.Generator, *, structure_share: float
    ) -> Weights:
        """A random partition of the rows; at least one row is an estimation point."""
        structure = np.zeros(n_rows, dtype=np.int32)
        structure[
            random.permutation(n_rows)[
                : min(round(structure_share * n_rows), n_rows - 1)
            ]
        ] = 1
        return cls(structure, 1 - structure)


def grown(
    rows: CodedRows, weights: Weights, rule: Rule, random: np.random.Generator
) -> NodeTree:
    """Grows one tree."""
    n_used = int(np.count_nonzero((weights.structure > 0) | (weights.estimation > 0)))
    nodes = np.empty((2 * n_used, 4), dtype=np.int32)
    counts = np.empty((2 * n_used, rows.n_classes))
    columns = rows.columns.copy()
    if not rule.by_features:
        columns[:, 3] = np.arange(len(columns))
    n_nodes = split_loops.grow_tree(
        (
            rows.codes,
            rows.categories,
            np.stack([rows.y, weights.structure, weights.estimation]),
        ),
        columns,
        (rule.kind, rule.numbers),
        int(random.integers(2**31)),
        (nodes, counts),
    )
    nodes, counts = nodes[:n_nodes], counts[:n_nodes]
    feature, is_inner = nodes[:, 0], nodes[:, 0] >= 0
    threshold = np.zeros(n_nodes)
    for node in np.flatnonzero(is_inner):
        values = rows.values[feature[node]]
        threshold[node] = (values[nodes[node, 1]] + values[nodes[node, 2]]) / 2.0
    total = counts.sum(axis=1, keepdims=True)
    return NodeTree(
        feature,
        threshold,
        np.where(is_inner, nodes[:, 3], 0).astype(np.int32),
        counts / total,
    )
