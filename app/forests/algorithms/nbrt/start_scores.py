"""Turns released integers into integer scores: post-processing (lemma L7), with equal results on every machine."""

from collections.abc import Sequence
from decimal import ROUND_HALF_EVEN, Decimal, localcontext
from typing import Final

import numpy as np
from numpy.typing import NDArray

from app.forests.algorithms.nbrt.scales import SCORE_LIMIT, SCORE_UNIT, Scales
from app.forests.bins.noisy_counts import SCALE_BITS

_QUOTIENT_BITS = (5, 4, 4, 4)
"""Bits of the quotient per division step, in half units for rounding to nearest; each step stays within 63 bits."""

_DIGITS = 40

START_AT_READING: Final = (2, 3)


def leaf_scores(released: NDArray[np.int64], scales: Scales) -> NDArray[np.int32]:
    """The scores of each leaf: w · G / (u · max(N, 0) + ridge), clipped to ±3 and rounded to nearest.

    Args:
        released: int64 ``(…, n_scores + 1)``: noisy gradient sums, then the noisy count.
        scales: public.

    Returns:
        int32 ``(…, n_scores)`` in units of 2^-16.
    """
    # For 2^31 rows |gradient| < 2^60 and the positive divisor < 2^58, so five bits of a quotient fit at a time.
    gradient = scales.score_factor * released[..., :-1]
    divisor = scales.count_factor * np.maximum(released[..., -1:], 0) + scales.ridge
    whole, rest = np.divmod(gradient, divisor)
    quotient = np.clip(whole, -SCORE_LIMIT - 1, SCORE_LIMIT)
    for n_bits in _QUOTIENT_BITS:
        digit, rest = np.divmod(rest << n_bits, divisor)
        quotient = (quotient << n_bits) + digit
    limit = SCORE_LIMIT * SCORE_UNIT
    scores: NDArray[np.int32] = np.clip((quotient + 1) >> 1, -limit, limit).astype(np.int32)
    return scores


def start_at_reading(start: NDArray[np.int64]) -> NDArray[np.int64]:
    """The start scores of the read-out: two thirds of the start, because the steps of trees are shrunk, too."""
    numerator, denominator = START_AT_READING
    return numerator * start // denominator


def start_scores(released: NDArray[np.int64], *, deviation: int = 2**SCALE_BITS) -> NDArray[np.int64]:
    """Scores before the first tree: log π, centred, with π ∝ max(noisy count, 0) + one standard deviation of its noise.

    Args:
        released: int64 ``(n_classes,)``: class counts times their scale, with noise.
        deviation: standard deviation of the noise.

    Returns:
        int64 ``(n_scores,)`` in units of 2^-16: log(π₁ / π₀) for two classes, else log π − mean(log π).
    """
    with localcontext() as context:
        context.prec = _DIGITS
        scores = centred_logs([Decimal(max(count, 0) + deviation) for count in released.tolist()])
        units = [int((score * SCORE_UNIT).to_integral_value(ROUND_HALF_EVEN)) for score in scores]
    return np.array(units, dtype=np.int64)


def centred_logs(weights: Sequence[Decimal]) -> list[Decimal]:
    """log(w₁ / w₀) for two classes, else log w − mean(log w), in the precision of the current decimal context."""
    logs = [weight.ln() for weight in weights]
    if len(logs) == 2:
        return [logs[1] - logs[0]]
    mean = sum(logs, start=Decimal(0)) / len(logs)
    return [log - mean for log in logs]
