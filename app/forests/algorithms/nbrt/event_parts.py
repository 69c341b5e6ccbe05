"""Reads the sensitivities and scales of boosted random trees out of their privacy event."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Final

from app.forests.algorithms.nbrt import event_parts
from app.forests.bins import quantile_bins
from app.forests.bins.noisy_counts import LARGEST_START, VARIANCE
from app.privacy.events import Event, ExponentialMechanism, Part, RoundedGaussian, Sequential, UnknownPrivacyEvent


@dataclass(frozen=True)
class Parts:
    """A priced event, taken apart.

    Attributes:
        bins: the event of private bins, or ``None``.
        start: squared sensitivity of the class counts, in units of 2^-48 variances; 0 if a profile is reused.
        tree: squared sensitivity of one tree; 0 if trees have no splits, so that no tree is released.
        tally: squared sensitivity of the table of margins; 0 if no table is released.
        split: inverse scale of the selection of a first split; 0 if no split is selected.
    """

    bins: Event | None
    start: int
    tree: int
    tally: int = 0
    split: Fraction = Fraction(0)

    @classmethod
    def of(cls, event: Event) -> Parts:
        """Reads the event of a plan.

        Raises:
            UnknownPrivacyEvent: not the event of boosted random trees.
        """
        rest = list(event.parts) if isinstance(event, Sequential) else []
        match rest:
            case [Part(1, RoundedGaussian() as start)]:
                return cls(None, _squared_sensitivity(start), 0)
            case [Part(1, Sequential((Part(_, RoundedGaussian() as tree),))), *after]:
                return cls(None, 0, _squared_sensitivity(tree), _tally(after))
        bins = rest.pop(0).event if rest and isinstance(rest[0].event, Sequential) else None
        if bins is not None:
            quantile_bins.inverse_scale(bins)
        split = rest.pop(0).event if rest and isinstance(rest[0].event, ExponentialMechanism) else None
        match rest:
            case [Part(1, RoundedGaussian() as start), Part(_, RoundedGaussian() as tree), *after]:
                squares = _squared_sensitivity(start), _squared_sensitivity(tree), _tally(after)
                return cls(bins, *squares, _inverse_scale(split))
        raise UnknownPrivacyEvent("not the event of boosted random trees")


def trees_alone(n_trees: int, tree: RoundedGaussian) -> Event:
    """The event of trees on a reused profile, nested so that it differs from the event of class counts alone."""
    return Sequential((Part(n_trees, tree),))


def _tally(rest: Sequence[Part]) -> int:
    """Squared sensitivity of the table of margins after the trees; 0 if no table follows."""
    match rest:
        case []:
            return 0
        case [Part(1, RoundedGaussian() as tally)]:
            return _squared_sensitivity(tally)
    raise UnknownPrivacyEvent("not the event of boosted random trees")


def _inverse_scale(split: Event | None) -> Fraction:
    """Inverse scale of the selection of a first split; 0 if no split is selected."""
    if not isinstance(split, ExponentialMechanism):
        return Fraction(0)
    if split.range_sensitivity != event_parts.RANGE_SENSITIVITY:
        raise UnknownPrivacyEvent("not the selection of a first split")
    return split.inverse_scale


def _squared_sensitivity(noise: RoundedGaussian) -> int:
    square = noise.l2_sensitivity_squared
    if noise.sigma_squared != VARIANCE or square.denominator != 1 or square > LARGEST_START:
        raise UnknownPrivacyEvent("not noise of boosted random trees")
    return int(square)


RANGE_SENSITIVITY: Final = 1
"""A row raises the utility ‖left‖₄ + ‖right‖₄, in whole rows, of every split by 0 or 1."""


N_SIDES: Final = 2
