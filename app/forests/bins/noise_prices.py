"""Computes noise scales from prices: the inverse scale of a draw, and the units of normal noise."""

from fractions import Fraction
from typing import Final

from app.core.errors import InvalidRequest
from app.privacy.adjacency import Adjacency
from app.privacy.calibration import Budget
from app.privacy.events import RoundedGaussian, quantised

LARGEST_INVERSE_SCALE = Fraction(64)
"""At this scale, noise is non-zero once in e^64 draws: a larger scale gains nothing, and kernels stay in 64 bits."""


def draw_scale(loss: Fraction, sensitivity: int) -> Fraction:
    """The inverse scale of a draw that costs at most ``loss``: a multiple of 2^-32, rounded down.

    Raises:
        InvalidRequest: the share of the budget is too small for any draw.
    """
    scale = min(quantised(loss / sensitivity), LARGEST_INVERSE_SCALE)
    if scale == 0:
        raise InvalidRequest.at("/epsilon", "too-small")
    return scale


SCALE_BITS: Final = 24
"""Sensitivities are integers in units of 2^-24 standard deviations."""

VARIANCE: Final = 4**SCALE_BITS


SMALLEST_PRICED: Final = 2**8
"""Smallest squared sensitivity, in units of 2^-48 variances, at which a row still adds a unit to a count."""

LARGEST_START: Final = 2**62
"""Squared sensitivity of the class counts, so that their scale has 31 bits and sums over 2^31 rows have 62."""


def noise(squared_sensitivity: int, *, coordinates: int) -> RoundedGaussian:
    """The event of normal noise of deviation 2^24 on an integer vector with this squared L2 sensitivity.

    Raises:
        InvalidRequest: the share of the budget is too small for any draw.
    """
    if squared_sensitivity < SMALLEST_PRICED:
        raise InvalidRequest.at("/epsilon", "too-small")
    return RoundedGaussian(
        Adjacency.ADD_REMOVE_ONE,
        l2_sensitivity_squared=Fraction(squared_sensitivity),
        sigma_squared=Fraction(VARIANCE),
        coordinates=coordinates,
    )


def mu_squared(budget: Budget) -> Fraction:
    """The squared ratio of L2 sensitivity to deviation that the budget allows normal noise: μ² of a ``gdp`` account.

    Raises:
        NoBoundInUnit: normal noise has no price in the account's unit.
    """
    return budget.limit / loss_of_unit(budget)


def loss_of_unit(budget: Budget) -> Fraction:
    """The loss, in the account's unit, of normal noise whose deviation equals the L2 sensitivity."""
    return budget.loss(RoundedGaussian(Adjacency.ADD_REMOVE_ONE, Fraction(1), Fraction(1), 1))
