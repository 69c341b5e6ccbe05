"""Computes the integer scales of a job: the length of a row's contribution and the
factors of leaf scores.

The released vector of a leaf is (G, N): clipped gradients and a count, each divided by
the standard deviation of its noise and multiplied by 2^24, so that every coordinate
gets round(2^24 · Z). In these units a row adds an integer vector γ with ‖γ‖² ≤ C² and
the integer m; the price of one tree is for C² + m² (docs/proofs/nbrt.md, section 2).
"""

from dataclasses import dataclass
from fractions import Fraction
from math import isqrt
from typing import Final

from grovekeeper_forests.bins.noisy_counts import VARIANCE
from grovekeeper_forests.kernels.boosting import (
    LARGEST_SQUARED_LENGTH,
    PROBABILITY_BITS,
    SCORE_BITS,
)
from grovekeeper_forests.privacy.events import UnknownPrivacyEvent

COUNT_SHARE: Final = Fraction(1, 101)
"""a² / (1 + a²) for a = 1/10: the share of a tree's squared sensitivity that its counts
take.
"""

SCORE_UNIT: Final = 2**SCORE_BITS

SCORE_LIMIT: Final = 3
"""Leaf scores are clipped to ±3."""

_COUNT_RATIO: Final = Fraction(1, 10)  # a
_FLOOR: Final = 2  # λ₀
_RIDGE: Final = Fraction(4, 5)  # κ


@dataclass(frozen=True)
class Scales:
    """Public integers of one job: functions of the priced length, the number of trees
    and the number of classes.

    Attributes:
        n_scores: gradient coordinates of a leaf: one per class, or one for two classes.
        squared_length: C², the largest ‖γ‖² that a row may add.
        length: ⌊√C²⌋, the length of a clipped gradient.
        clip: length, in units of 2^-24, to which longer gradients are shortened.
        count: m, the integer that a row adds to its leaf's count.
        score_factor: numerator factor of the leaf score.
        count_factor: factor of the released count in the denominator.
        ridge: summand of the denominator.
    """

    n_scores: int
    squared_length: int
    length: int
    clip: int
    count: int
    score_factor: int
    count_factor: int
    ridge: int

    @classmethod
    def of(cls, priced: int, *, n_trees: int, n_classes: int) -> "Scales":
        """The scales for trees that were priced at squared sensitivity ``priced`` in
        units of 2^-48 variances.

        A leaf scores v = G / (h · max(N, 0) + λ) with λ = λ₀ + κ · √T · σ_G, σ_G being
        the standard deviation of G's noise. In the released integers, with the clip c:
        v = w · G / (u · max(N, 0) + ridge), where u / w = h / (a · c) and ridge = w ·
        (λ₀ · length / c + κ · √T · 2^24).

        Args:
            priced: C² + m².
            n_trees: T.
            n_classes: K.
        """
        if not 1 <= priced <= LARGEST_SQUARED_LENGTH:
            raise UnknownPrivacyEvent("a squared sensitivity that no tree has")
        clip = clip_of(n_classes)
        hessian = Fraction(1, 4) if n_classes == 2 else Fraction(3, 20)
        count = isqrt(int(priced * COUNT_SHARE))
        squared_length = priced - count * count
        length = isqrt(squared_length)
        ratio = hessian / (_COUNT_RATIO * clip)
        spread = isqrt(int(_RIDGE * _RIDGE * n_trees * VARIANCE))
        return cls(
            n_scores=1 if n_classes == 2 else n_classes,
            squared_length=squared_length,
            length=length,
            clip=-int(-clip * 2**PROBABILITY_BITS // 1),
            count=count,
            score_factor=ratio.denominator,
            count_factor=ratio.numerator,
            ridge=int(ratio.denominator * (_FLOOR * length / clip + spread)),
        )


def clip_of(n_classes: int) -> Fraction:
    """c, the length at which gradients are clipped: about 0.35 of the worst case, which
    is 1 or √2.
    """
    return Fraction(7, 20) if n_classes == 2 else Fraction(99, 200)
