"""What a released layer says of a row: whole numbers, so that their sum is the same in any order."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from app.forests.algorithms.bms_rf.stacked_features import TICK_BITS, TICKS

_LARGEST_COUNT: Final = 2**36
"""Larger noisy counts say no more than this: 2³¹ rows with any noise that leaves a signal are below it."""


def of_leaves(arrays: Mapping[str, NDArray[Any]], n_classes: int) -> NDArray[np.int64]:
    """What every leaf adds to a row's votes, in units of 2⁻¹⁶; post-processing of released leaves (lemma L7).

    A leaf with noisy counts adds its shares, negative counts being none and a leaf without any being undecided; a leaf
    with a label adds a whole vote. The trees of a layer weigh alike, and every share is rounded down, so the votes of
    a row sum to at most 2¹⁶.

    Args:
        arrays: released; ``counts`` int64 ``(n_trees, n_leaves, n_classes)``, or ``labels`` int32
            ``(n_trees, n_leaves)``.
        n_classes: public.

    Returns:
        int64 ``(n_trees, n_leaves, n_classes)``.
    """
    shares: NDArray[np.int64]
    if "labels" in arrays:
        labels = arrays["labels"]
        shares = np.eye(n_classes, dtype=np.int64)[labels] * (TICKS // len(labels))
        return shares
    evidence = np.clip(arrays["counts"], 0, _LARGEST_COUNT)
    evidence[~evidence.any(axis=2)] = 1
    shares = (evidence << TICK_BITS) // (evidence.sum(axis=2, keepdims=True) * len(evidence))
    return shares
