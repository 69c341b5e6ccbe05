"""Integer utilities of splits, exact in 64 bits, with their proven range sensitivities.

Counts are at most ``limits.MAX_ROWS_PER_DATASET`` < 2^31, so Σ n_c² ≤ n² < 2^62 and every intermediate below fits.
"""

from collections.abc import Mapping
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

GINI, MISCOUNT = "gini", "miscount"

GINI_BITS = 8
"""Fractional bits q of the fixed-point count Gini."""

GINI_RANGE_SENSITIVITY = 2 ** (GINI_BITS + 1)
"""One added row lowers the utility of every split by an integer in [0, 2^(q+1)]: lemma L1 and docs/proofs/mrf.md."""

RANGE_SENSITIVITIES: Mapping[str, int] = MappingProxyType({GINI: GINI_RANGE_SENSITIVITY, MISCOUNT: 1})
"""Of every utility of splits, under add/remove and in its own integer units."""


def count_gini(counts: NDArray[np.int64]) -> NDArray[np.int64]:
    """⌊2^q (n² − Σ n_c²) / n⌋ of class counts; 0 for an empty node.

    One added row changes it by an integer in [0, 2^(q+1)]. Written as 2^q·n − ⌈2^q·S/n⌉ with S = Σ n_c² and
    S = Q·n + R, so that nothing larger than 2^62 is formed: 2^q·S itself would not fit.

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
    """n − max_c n_c of class counts: rows that the most common class leaves out.

    One added row raises n by one and the maximum by zero or one, so it changes this by 0 or 1.

    Args:
        counts: PRIVATE int64 ``(…, n_classes)``.

    Returns:
        int64 ``(…)``. PRIVATE.
    """
    result: NDArray[np.int64] = counts.sum(axis=-1) - counts.max(axis=-1)
    return result


def split_utility(left: NDArray[np.int64], right: NDArray[np.int64], utility: str) -> NDArray[np.int64]:
    """−(cost left + cost right), the cost being the count Gini or the miscount; larger is better.

    Monotone: an added row lands on one side and lowers it by an integer from 0 to ``RANGE_SENSITIVITIES[utility]``, for
    every split at once. So that is its range sensitivity under add/remove, and twice that under replace-one.
    """
    cost = miscount if utility == MISCOUNT else count_gini
    return -(cost(left) + cost(right))
