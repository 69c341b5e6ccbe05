"""Builds the splits of a complete tree: at random without rows, or by a choice at each level."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from app.forests.data.encoding import Candidates
from app.forests.noise.randomness import Randomness
from app.forests.trees import boxes
from app.forests.trees.grow.histograms import TreeHistograms

Splits: TypeAlias = tuple[NDArray[np.int32], NDArray[np.uint8], NDArray[np.bool_]]
"""Feature, threshold and equality of the nodes of a tree, in heap order."""

Choose: TypeAlias = Callable[[int, list[NDArray[np.bool_]]], list[int | None]]
"""Maps a level and the public boxes of its nodes to one released candidate per node; ``None`` sends every row left."""


def grow_levels(candidates: Candidates, depth: int, rows: TreeHistograms, choose: Choose) -> Splits:
    """Chooses the split of every node level by level, also of empty nodes, and moves the PRIVATE rows down.

    Args:
        candidates: public.
        depth: public; the only stopping rule.
        rows: PRIVATE, at the root; at the leaves on return.
        choose: called once per level, root first; its result is a release.
    """
    chosen: list[int | None] = []
    level_boxes = [boxes.root(candidates)]
    for level in range(depth):
        picked = choose(level, level_boxes)
        feature, threshold, equals = boxes.splits(candidates, picked)
        rows.descend(feature=feature, threshold=threshold, equals=equals)
        pairs = zip(level_boxes, picked, strict=True)
        level_boxes = [child for box, choice in pairs for child in boxes.children(candidates, box, choice)]
        chosen += picked
    return boxes.splits(candidates, chosen)


def drop(rows: TreeHistograms, splits: Splits) -> None:
    """Moves PRIVATE rows from the root to the leaves of a complete tree."""
    feature, threshold, equals = splits
    for level in range((len(feature) + 1).bit_length() - 1):
        nodes = slice(2**level - 1, 2 ** (level + 1) - 1)
        rows.descend(feature=feature[nodes], threshold=threshold[nodes], equals=equals[nodes])


def random_structure(candidates: Candidates, depth: int, randomness: Randomness) -> Splits:
    """Draws a complete random tree: in every box a uniform feature among those with a split, then a uniform split.

    Reads no row. Works depth first, so that memory holds only one path of boxes.
    """
    chosen: list[int | None] = [None] * (2**depth - 1)
    pending = [(0, boxes.root(candidates))] if chosen else []
    while pending:
        node, box = pending.pop()
        choice = random_split(candidates, box, randomness)
        chosen[node] = choice
        if choice is not None and 2 * node + 2 < len(chosen):
            left, right = boxes.children(candidates, box, choice)
            pending += [(2 * node + 2, right), (2 * node + 1, left)]
    return boxes.splits(candidates, chosen)


def random_split(candidates: Candidates, box: NDArray[np.bool_], randomness: Randomness) -> int | None:
    """Draws a uniform feature among those with a split in the box, then a uniform split; ``None`` without a split."""
    alive = np.flatnonzero(box)
    if len(alive) == 0:
        return None
    groups = by_feature(candidates, alive)
    feature_splits = groups[randomness.uniform(len(groups))]
    return int(feature_splits[randomness.uniform(len(feature_splits))])


def by_feature(candidates: Candidates, alive: NDArray[np.int64]) -> list[NDArray[np.int64]]:
    """Ascending indices of candidates, cut where the feature changes; at least one index."""
    feature = candidates.feature[alive]  # ascending, so the splits of a feature are adjacent
    return np.split(alive, np.flatnonzero(feature[1:] != feature[:-1]) + 1)
