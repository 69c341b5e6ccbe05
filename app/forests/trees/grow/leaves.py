"""Releases the leaves of a tree: noisy counts of every class, or one label."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from app.forests.bins import noisy_counts
from app.forests.bins.grow import count_noise
from app.forests.noise.randomness import Randomness
from app.forests.trees.grow import selecting
from app.forests.trees.grow.histograms import TreeHistograms
from app.forests.trees.grow.structure import Splits
from app.forests.trees.leaf_prices import label_selection
from app.privacy.events import Event


def release(splits: Splits, event: Event, rows: TreeHistograms, randomness: Randomness) -> ReleasedTree:
    """Releases the leaves of a tree whose splits were released, on PRIVATE rows that lie in its leaves.

    Every leaf is released, whether a row reaches it or not: an empty leaf's label is uniform, its counts are noise.

    Args:
        splits: released; feature, threshold and equality of every node.
        event: of the leaves, as priced.
        rows: PRIVATE.
        randomness: source of the draws.
    """
    exact = rows.leaf_histogram()
    label = label_selection(event)
    if label is not None:
        drawn = [selecting.draw(label, counts, randomness) for counts in exact]
        return LabelTree(*splits, np.array(drawn, dtype=np.int32))
    return Tree(*splits, noisy_counts.in_whole_rows(count_noise.release(exact, event, randomness), event))


@dataclass(frozen=True)
class Tree:
    """One released tree in heap layout; shapes as in ``Forest`` without the leading axis."""

    feature: NDArray[np.int32]
    threshold: NDArray[np.uint8]
    equals: NDArray[np.bool_]
    counts: NDArray[np.int64]


@dataclass(frozen=True)
class LabelTree:
    """One released tree in heap layout whose leaves released a label each; ``labels`` is int32 ``(2^depth,)``."""

    feature: NDArray[np.int32]
    threshold: NDArray[np.uint8]
    equals: NDArray[np.bool_]
    labels: NDArray[np.int32]


ReleasedTree: TypeAlias = Tree | LabelTree
