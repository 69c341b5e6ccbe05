"""Measures one run of an ablation: accuracy of a forest or of its single trees, and
distances to medians.
"""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from itertools import pairwise
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from grovekeeper_forests.data.sanitiser import SanitisedRows
from research.datasets import Dataset
from research.papers import __main__ as tables
from research.papers import median_trees, synthetic
from research.papers.forests import catalogue
from research.papers.forests.contract import PlainForest
from research.papers.forests.trees.node_routing import NodeTrees
from research.papers.median_trees import PRIVATE, MedianRule
from research.runs import Task, predictions

NORMAL = "normal"
"""Name of the normal data of figure 2, drawn anew for every tree."""

QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)
"""Of the accuracies of the trees of a forest."""


@cache
def read(folder: Path | None, name: str) -> Dataset:
    """A generated dataset, or one of the folder or of scikit-learn."""
    return synthetic.read(name) if name.startswith("syn") else tables.read(folder, name)


def accuracy(folder: Path | None, task: Task) -> Sequence[float]:
    """The share of test rows of a fold whose label is right."""
    dataset = read(folder, task.dataset)
    split = tables.fold_of(len(dataset.y), task.repeat)
    labels = predictions(dataset, task, *split).labels
    return (float(np.mean(labels == dataset.y[split[1]])),)


def tree_accuracies(folder: Path | None, task: Task) -> Sequence[float]:
    """Mean and :data:`QUANTILES` of the accuracies of single trees on the test rows of
    a fold.
    """
    dataset = read(folder, task.dataset)
    train, test = tables.fold_of(len(dataset.y), task.repeat)
    plan = catalogue.plan(task.slug, task.parameters)
    rows = SanitisedRows(
        dataset.features(train),
        dataset.y[train],
        np.zeros((len(train), 16), dtype=np.uint8),
    )
    forest = catalogue.grow(plan, dataset.schema, rows, on_tree_done=lambda: None)
    right = accuracies_of_trees(forest, dataset, test)
    return (statistics.fmean(right), *np.quantile(right, QUANTILES).tolist())


def accuracies_of_trees(
    forest: PlainForest, dataset: Dataset, test: NDArray[np.int64]
) -> list[float]:
    """The share of test rows whose label is right, by each tree of a forest alone."""
    trees, columns, right = NodeTrees.of(forest.arrays), dataset.features(test), []
    for first, last in pairwise(trees.root):
        # A tree is a slice of nodes, whose leaves name rows of the values of the whole
        # forest.
        nodes = {
            name: getattr(trees, name)[first:last]
            for name in ("feature", "threshold", "right")
        }
        arrays = {**nodes, "root": np.array([0, last - first]), "values": trees.values}
        shares = catalogue.probabilities(
            replace(forest, arrays=arrays), dataset.schema, columns
        )
        right.append(float(np.mean(shares.argmax(axis=1) == dataset.y[test])))
    return right


def median_distances(_: Path | None, task: Task) -> Sequence[float]:
    """Mean distance of private to true medians in a tree on normal data: over splits,
    and over means of levels.

    Source:
        Huang, Lei and Kabán (2022), figure 2; the paper prints neither rows nor
        attributes of its normal data.
    """
    random, parameters = np.random.default_rng(), task.parameters
    table = median_trees.Table.of_numbers(
        random.normal(size=(synthetic.N_ROWS, synthetic.WIDTHS[0]))
    )
    ratio = float(parameters["level_ratio"])
    rule = MedianRule(PRIVATE, int(parameters["max_depth"]), float(task.epsilon), ratio)
    nodes = median_trees.grow_tree(table, np.arange(len(table.X)), rule, random)
    by_level: dict[int, list[float]] = defaultdict(list)
    for level, distance in median_trees.distances(nodes, table):
        by_level[level].append(distance)
    return (
        statistics.fmean(distance for level in by_level.values() for distance in level),
        statistics.fmean(map(statistics.fmean, by_level.values())),
    )
