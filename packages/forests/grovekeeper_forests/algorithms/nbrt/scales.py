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

SCORE_UNIT: Final = 2**SCORE_BITS

SCORE_LIMIT: Final = 3
"""Leaf scores are clipped to ±3."""

_FLOOR: Final = 2  # λ₀


@dataclass(frozen=True)
class Loss:
    """The loss whose gradients are released, by the kind of the label.

    Attributes:
        n_scores: gradient coordinates of a leaf: one per class, or one for two classes
            and for a number.
        clip: c, the length at which gradients are clipped. Of classes: about 0.35 of
            the worst case, which is 1 or √2. Of a number: in spreads.
        curvature: h, the weight of a row in the denominator of a leaf's score.
        ridge: κ, the weight of the noise there. Of a number: larger, because its scores
            do not saturate.
        count_ratio: a; counts get a² / (1 + a²) of the squared sensitivity.
    """

    n_scores: int
    clip: Fraction
    curvature: Fraction
    ridge: Fraction
    count_ratio: Fraction = Fraction(1, 10)


def loss_of(n_classes: int) -> Loss:
    """The loss for a label of so many classes; 0: for a label that is a number."""
    if n_classes == 0:
        return Loss(1, Fraction(1, 4), Fraction(1, 2), Fraction(3))
    if n_classes == 2:
        return Loss(1, Fraction(7, 20), Fraction(1, 4), Fraction(4, 5))
    return Loss(n_classes, Fraction(99, 200), Fraction(3, 20), Fraction(4, 5))


@dataclass(frozen=True)
class Scales:
    """Public integers of one job: functions of the priced length, the number of trees
    and the number of classes.

    Attributes:
        n_scores: gradient coordinates of a leaf; see :class:`Loss`.
        squared_length: C², the largest ‖γ‖² that a row may add.
        length: ⌊√C²⌋, the length of a clipped gradient.
        clip: length, in units of 2^-24 (of a number: of 2^-24 spreads), to which longer
            gradients are shortened.
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
            n_classes: K; 0 for a label that is a number.
        """
        return cls.for_loss(priced, loss_of(n_classes), n_trees=n_trees)

    @classmethod
    def for_loss(cls, priced: int, loss: Loss, *, n_trees: int) -> "Scales":
        """The scales for a loss; see :meth:`of`.

        Raises:
            UnknownPrivacyEvent: no tree has this squared sensitivity.
        """
        if not 1 <= priced <= LARGEST_SQUARED_LENGTH:
            raise UnknownPrivacyEvent("a squared sensitivity that no tree has")
        squared_ratio = loss.count_ratio**2
        count = isqrt(int(priced * squared_ratio / (1 + squared_ratio)))
        squared_length = priced - count * count
        length = isqrt(squared_length)
        ratio = loss.curvature / (loss.count_ratio * loss.clip)
        spread = isqrt(int(loss.ridge**2 * n_trees * VARIANCE))
        return cls(
            n_scores=loss.n_scores,
            squared_length=squared_length,
            length=length,
            clip=-int(-loss.clip * 2**PROBABILITY_BITS // 1),
            count=count,
            score_factor=ratio.denominator,
            count_factor=ratio.numerator,
            ridge=int(ratio.denominator * (_FLOOR * length / loss.clip + spread)),
        )
