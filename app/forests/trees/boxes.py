"""The public box of a node: which splits leave no side empty, given the released splits above it.

A box is a mask over the public candidates. It is a function of released output, so restricting a selection to it
changes no guarantee (lemma L1 needs candidates that do not depend on the rows *given* what was released).
"""

import numpy as np
from numpy.typing import NDArray

from app.forests.data.encoding import Candidates

NO_SPLIT = 255
"""Threshold of a node whose box cannot be split: no code is above it, so every row goes left."""


def root(candidates: Candidates) -> NDArray[np.bool_]:
    """The box of the root: every candidate."""
    return np.ones(len(candidates), dtype=np.bool_)


def children(
    candidates: Candidates, box: NDArray[np.bool_], chosen: int | None
) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """The boxes left and right of a released split.

    Args:
        candidates: every public split.
        box: bool ``(n_candidates,)`` of the parent.
        chosen: index of the released candidate; ``None`` where the parent had none, so that every row goes left.
    """
    if chosen is None:
        return box, np.zeros_like(box)
    start, stop = np.searchsorted(candidates.feature, candidates.feature[chosen] + np.array([0, 1]))
    left, right = box.copy(), box.copy()
    if candidates.equals[chosen]:
        left[start:stop] = False
        right[chosen] = False
        rest = start + np.flatnonzero(right[start:stop])
        if len(rest) == 2:  # two values remain: either against the other is the same split
            right[rest[1]] = False
    else:
        left[chosen:stop] = False
        right[start : chosen + 1] = False
    return left, right


def splits(
    candidates: Candidates, chosen: list[int | None]
) -> tuple[NDArray[np.int32], NDArray[np.uint8], NDArray[np.bool_]]:
    """Feature, threshold and equality of one released choice per node, with the pass-through for ``None``."""
    picked = np.array([-1 if choice is None else choice for choice in chosen], dtype=np.int64)
    feature = np.zeros(len(picked), dtype=np.int32)
    threshold = np.full(len(picked), NO_SPLIT, dtype=np.uint8)
    equals = np.zeros(len(picked), dtype=np.bool_)
    split = picked >= 0
    feature[split] = candidates.feature[picked[split]]
    threshold[split] = candidates.threshold[picked[split]]
    equals[split] = candidates.equals[picked[split]]
    return feature, threshold, equals
