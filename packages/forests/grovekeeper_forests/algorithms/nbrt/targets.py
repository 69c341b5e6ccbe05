"""Moves the start of a label that is a number by a noisy mean of the residuals.

One mean comes before the trees. Another one comes after them, because their gradients
are clipped much shorter.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Final

import numpy as np

from grovekeeper_forests.algorithms.nbrt.scales import Loss, Scales
from grovekeeper_forests.array_types import Int64Array
from grovekeeper_forests.bins.noisy_counts import SCALE_BITS
from grovekeeper_forests.data.schema import TARGET_STEPS

MEAN_LOSS: Final = Loss(
    1, Fraction(3), Fraction(1), Fraction(0), count_ratio=Fraction(3, 10)
)
"""Residuals of a mean are clipped at 3 spreads; their count gets 9/109 of the squared
sensitivity.
"""

BEFORE_TREES, AFTER_TREES = Fraction(3, 10), Fraction(3, 100)
"""Prior variances of the mean of the residuals, in squared spreads: with much noise, the
start stays.
"""


def mean_scales(priced: int) -> Scales:
    """The scales of a mean of residuals that was priced at this squared sensitivity."""
    return Scales.for_loss(priced, MEAN_LOSS, n_trees=1)


def moved(
    start: Int64Array,
    released: Int64Array,
    scales: Scales,
    *,
    prior_variance: Fraction,
) -> Int64Array:
    """The start moved by a noisy mean of the residuals: post-processing (lemma L7), in
    exact rationals.

    The mean of N residuals with the sum G is shrunk as a normal prior around 0 would
    have it: N · G / (N² + (σ² + N) / prior variance), with σ the deviation of the noise
    of G, and 1 that of a residual.

    Args:
        start: int64 ``(2,)``: the start and the spread, as codes.
        released: int64 ``(2,)``: noisy sum of the clipped residuals, and noisy count.
        scales: public; of the release.
        prior_variance: public; in squared spreads.

    Returns:
        int64 ``(2,)``: a start from 0 to 2^30, and the same spread.
    """
    middle, spread = start.tolist()
    total, count = released.tolist()
    unit = MEAN_LOSS.clip / scales.length
    rows = Fraction(max(count, 0), scales.count)
    variance = (unit * 2**SCALE_BITS) ** 2 + rows
    mean = rows * total * unit / (rows**2 + variance / prior_variance)
    shifted = middle + round(mean * spread)
    # the range is public, so a start beyond it is noise
    inside = min(max(shifted, 0), TARGET_STEPS)
    return np.array([inside, spread], dtype=np.int64)
