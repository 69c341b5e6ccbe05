"""Grows random decision trees without privacy on public rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
from numpy.typing import NDArray

from grovekeeper_forests.data.sanitiser import SanitisedRows
from grovekeeper_forests.data.schema import Schema
from research.papers.forests.contract import PlainForest, PlainPlan
from research.papers.forests.trees.design import Design
from research.papers.forests.trees.node_trees import NodeTree, collected


def grow_forest(
    plan: PlainPlan,
    schema: Schema,
    rows: SanitisedRows,
    *,
    seed: int,
    on_tree_done: Callable[[], None],
) -> PlainForest:
    """Grows the forest; every tree sees all rows.

    Privacy:
        None.

    Source:
        Bojarski, Choromanska, Choromanski and LeCun (2014), Algorithm 1.
    """
    design, random = Design.of(schema), np.random.default_rng(seed)
    X = design.matrix(rows.features)

    def trees() -> Iterator[NodeTree]:
        for _ in range(plan.n_trees):
            yield _tree(design, X, rows.y, int(plan.parameters["max_depth"]), random)
            on_tree_done()

    return PlainForest(plan, collected(trees()))


def _tree(
    design: Design,
    X: NDArray[np.float32],
    y: NDArray[np.int32],
    height: int,
    random: np.random.Generator,
) -> NodeTree:
    """Draws a complete tree level by level, of which only nodes with rows and their
    children are kept.

    A node is named by its level and by its place in the level, 0 to ``2**level − 1``.
    """
    height = height if design.n_columns else 0
    every_row, of_row = np.arange(len(y)), np.zeros(len(y), dtype=np.int64)
    reached: NDArray[np.int64] = np.zeros(1, dtype=np.int64)
    levels, places, features, thresholds = [], [], [], []
    for level in range(height):
        column = random.integers(design.n_columns, size=len(reached))
        threshold = random.uniform(design.lower[column], design.upper[column])
        levels.append(np.full(len(reached), level))
        places.append(reached)
        features.append(column)
        thresholds.append(threshold)
        child = 2 * of_row + (X[every_row, column[of_row]] > threshold[of_row])
        is_entered = np.bincount(child, minlength=2 * len(reached)) > 0
        of_row = (np.cumsum(is_entered) - 1)[child]
        reached = (2 * reached[:, np.newaxis] + np.array([0, 1])).ravel()[is_entered]
    leaf_level, leaf_place = _leaves(places, reached, height)
    shares = random.dirichlet(np.ones(design.schema.n_classes), size=len(leaf_place))
    counts: NDArray[np.float64] = np.zeros((len(reached), design.schema.n_classes))
    np.add.at(counts, (of_row, y), 1.0)
    shares[: len(reached)] = counts / counts.sum(axis=1, keepdims=True)
    n_leaves = len(leaf_place)
    return _in_preorder(
        np.concatenate([leaf_level, *levels]).astype(np.int64),
        np.concatenate([leaf_place, *places]).astype(np.int64),
        np.concatenate([np.full(n_leaves, -1), *features]).astype(np.int32),
        np.concatenate([np.zeros(n_leaves), *thresholds]),
        np.concatenate([shares, np.ones((sum(map(len, places)), shares.shape[1]))]),
        height,
    )


def _leaves(
    places: list[NDArray[np.int64]], reached: NDArray[np.int64], height: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Level and place of the leaves: those that rows reach first, then children without
    rows, by level.
    """
    leaf_levels, leaf_places = [np.full(len(reached), height)], [reached]
    for level, split in enumerate(places):
        children = (2 * split[:, np.newaxis] + [0, 1]).ravel()
        entered = places[level + 1] if level + 1 < len(places) else reached
        empty = np.setdiff1d(children, entered, assume_unique=True)
        leaf_levels.append(np.full(len(empty), level + 1))
        leaf_places.append(empty)
    return np.concatenate(leaf_levels), np.concatenate(leaf_places)


def _in_preorder(
    level: NDArray[np.int64],
    place: NDArray[np.int64],
    feature: NDArray[np.int32],
    threshold: NDArray[np.float64],
    shares: NDArray[np.float64],
    height: int,
) -> NodeTree:
    """Sorts nodes by the leftmost place below them at the last level, then by level."""

    def key(level: NDArray[np.int64], place: NDArray[np.int64]) -> NDArray[np.int64]:
        return (place << (height - level)) * (height + 1) + level

    keys = key(level, place)
    order = np.argsort(keys)
    level, place, feature = level[order], place[order], feature[order]
    is_inner = feature >= 0
    right = np.zeros(len(order), dtype=np.int32)
    right[is_inner] = np.searchsorted(
        keys[order], key(level[is_inner] + 1, 2 * place[is_inner] + 1)
    )
    return NodeTree(feature, threshold[order], right, shares[order])
