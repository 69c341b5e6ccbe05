"""Computes the votes of released leaves as integers, so that sums do not depend on the order of trees."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from app.forests.algorithms.bms_rf.stacked_features import TICK_BITS, TICKS

_LARGEST_COUNT: Final = 2**36
"""Noisy counts are clipped here; the counts of 2³¹ rows are smaller with any noise that leaves a signal."""


def of_leaves(arrays: Mapping[str, NDArray[Any]], n_classes: int) -> NDArray[np.int64]:
    """The votes that every leaf adds to a row, in units of 2⁻¹⁶; post-processing of released leaves (lemma L7).

    A leaf with noisy counts adds its class shares: negative counts are set to 0, and a leaf whose counts are all 0 has
    equal shares. A leaf with a label adds a whole vote. All trees of a layer have the same weight and every share is
    rounded down, so the votes of a row sum to at most 2¹⁶.

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
