"""Computes the public box of a node, and integer utilities of the splits in it with proven range sensitivities.

A box is the mask over the public candidates that cut the region which released splits above leave to the node. A box is
a function of releases, so a selection restricted to the box keeps its guarantee (lemma L1 needs candidates that do not
depend on the rows *given* the earlier releases).

Utilities are exact in 64 bits. Counts are at most ``limits.MAX_ROWS_PER_DATASET`` < 2^31, so Σ n_c² ≤ n² < 2^62 and
every intermediate below fits.
"""

from collections.abc import Mapping
from types import MappingProxyType

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


GINI, MISCOUNT = "gini", "miscount"

GINI_BITS = 8
"""Fractional bits q of the fixed-point count Gini."""

GINI_RANGE_SENSITIVITY = 2 ** (GINI_BITS + 1)
"""One added row lowers the utility of every split by an integer in [0, 2^(q+1)]: lemma L1 and docs/proofs/mrf.md."""

RANGE_SENSITIVITIES: Mapping[str, int] = MappingProxyType({GINI: GINI_RANGE_SENSITIVITY, MISCOUNT: 1})
"""Range sensitivity of every split utility under add/remove, in the utility's integer units."""


def count_gini(counts: NDArray[np.int64]) -> NDArray[np.int64]:
    """⌊2^q (n² − Σ n_c²) / n⌋ of class counts; 0 for an empty node.

    One added row raises the cost by an integer in [0, 2^(q+1)]. The code computes 2^q·n − ⌈2^q·S/n⌉ with S = Σ n_c²
    and S = Q·n + R, so that every intermediate value is at most 2^62; 2^q·S would overflow.

    Args:
        counts: PRIVATE int64 ``(…, n_classes)``, non-negative, summing to less than 2^31.

    Returns:
        int64 ``(…)``. PRIVATE.
    """
    n = counts.sum(axis=-1)
    squares = (counts * counts).sum(axis=-1)
    divisor = np.maximum(n, 1)
    whole, rest = np.divmod(squares, divisor)
    fraction_up = -(-(rest << GINI_BITS) // divisor)
    result: NDArray[np.int64] = (n << GINI_BITS) - (whole << GINI_BITS) - fraction_up
    return result


def miscount(counts: NDArray[np.int64]) -> NDArray[np.int64]:
    """n − max_c n_c of class counts: rows outside the most common class.

    One added row raises n by one and the maximum by zero or one, so it raises the miscount by 0 or 1.

    Args:
        counts: PRIVATE int64 ``(…, n_classes)``.

    Returns:
        int64 ``(…)``. PRIVATE.
    """
    result: NDArray[np.int64] = counts.sum(axis=-1) - counts.max(axis=-1)
    return result


def split_utility(left: NDArray[np.int64], right: NDArray[np.int64], utility: str) -> NDArray[np.int64]:
    """−(cost left + cost right), where the cost is the count Gini or the miscount; larger is better.

    Monotone: an added row enters one side of every split and lowers the utility by an integer from 0 to
    ``RANGE_SENSITIVITIES[utility]``, which is therefore the range sensitivity under add/remove. The range sensitivity
    under replace-one is twice as much.
    """
    cost = miscount if utility == MISCOUNT else count_gini
    return -(cost(left) + cost(right))
