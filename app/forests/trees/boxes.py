"""Computes the public box of a node: the splits that cut the region which released splits above leave to the node.

A box is a mask over the public candidates. A box is a function of releases, so a selection restricted to the box keeps
its guarantee (lemma L1 needs candidates that do not depend on the rows *given* the earlier releases).
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
    """The boxes of the left and the right child of a released split.

    Args:
        candidates: every public split.
        box: bool ``(n_candidates,)`` of the parent.
        chosen: index of the released candidate; ``None`` where the parent has no candidate and every row goes left.
    """
    if chosen is None:
        return box, np.zeros_like(box)
    start, stop = np.searchsorted(candidates.feature, candidates.feature[chosen] + np.array([0, 1]))
    left, right = box.copy(), box.copy()
    if candidates.equals[chosen]:
        left[start:stop] = False
        right[chosen] = False
        rest = start + np.flatnonzero(right[start:stop])
        if len(rest) == 2:  # with two values left, both candidates are the same split
            right[rest[1]] = False
    else:
        left[chosen:stop] = False
        right[start : chosen + 1] = False
    return left, right


def splits(
    candidates: Candidates, chosen: list[int | None]
) -> tuple[NDArray[np.int32], NDArray[np.uint8], NDArray[np.bool_]]:
    """Feature, threshold and equality of each node's released candidate; ``None`` sends every row left."""
    picked = np.array([-1 if choice is None else choice for choice in chosen], dtype=np.int64)
    feature = np.zeros(len(picked), dtype=np.int32)
    threshold = np.full(len(picked), NO_SPLIT, dtype=np.uint8)
    equals = np.zeros(len(picked), dtype=np.bool_)
    split = picked >= 0
    feature[split] = candidates.feature[picked[split]]
    threshold[split] = candidates.threshold[picked[split]]
    equals[split] = candidates.equals[picked[split]]
    return feature, threshold, equals
