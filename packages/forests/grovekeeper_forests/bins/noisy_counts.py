"""Prices and reads noisy counts of disjoint cells (every row is counted at most once),
and computes noise scales.

One row changes one count by one, so the L1 and the L2 sensitivity are both 1. On
accounts that count ε, the noise is discrete Laplace. On accounts that count ρ or μ²,
the noise is an exactly rounded normal draw, which costs less in these units
(docs/proofs/evaluation.md, Theorem 1), and counts are released in finer units, so that
rounding loses no accuracy.
"""

from __future__ import annotations

import math
from fractions import Fraction
from math import isqrt
from statistics import NormalDist
from types import MappingProxyType
from typing import Final

import numpy as np

from grovekeeper_forests import amounts
from grovekeeper_forests.array_types import Float64Array, Int64Array
from grovekeeper_forests.errors import ParameterInvalid
from grovekeeper_forests.privacy.accountants import pure
from grovekeeper_forests.privacy.calibration import Budget
from grovekeeper_forests.privacy.events import (
    Adjacency,
    DiscreteLaplace,
    Event,
    RoundedGaussian,
    UnknownPrivacyEvent,
    quantised,
)

LARGEST_INVERSE_SCALE = Fraction(64)
"""At this scale, noise is non-zero once in e^64 draws: a larger scale gains nothing,
and kernels stay in 64 bits.
"""


def draw_scale(loss: Fraction, sensitivity: int) -> Fraction:
    """The inverse scale of a draw that costs at most ``loss``: a multiple of 2^-32,
    rounded down.

    Raises:
        ParameterInvalid: the share of the budget is too small for any draw.
    """
    scale = min(quantised(loss / sensitivity), LARGEST_INVERSE_SCALE)
    if scale == 0:
        raise ParameterInvalid.named("epsilon", "too-small", accepted=[amounts.MORE])
    return scale


SCALE_BITS: Final = 24
"""Sensitivities are integers in units of 2^-24 standard deviations."""

VARIANCE: Final = 4**SCALE_BITS


SMALLEST_PRICED: Final = 2**8
"""Smallest squared sensitivity, in units of 2^-48 variances, at which a row still adds
a unit to a count.
"""

LARGEST_START: Final = 2**62
"""Squared sensitivity of the class counts, so that their scale has 31 bits and sums
over 2^31 rows have 62.
"""


FINEST_GRID: Final = 2**31
"""Most steps of the largest contribution of a row, so that sums of 2³¹ rows have 62
bits.
"""


def noise(
    squared_sensitivity: int, adjacency: Adjacency, *, coordinates: int
) -> RoundedGaussian:
    """The event of normal noise of deviation 2^24 on an integer vector.

    Args:
        squared_sensitivity: squared L2 sensitivity, of each cell that neighbours under
            ``adjacency`` differ in.

    Raises:
        ParameterInvalid: the share of the budget is too small for any draw.
    """
    if squared_sensitivity < SMALLEST_PRICED:
        raise ParameterInvalid.named("epsilon", "too-small", accepted=[amounts.MORE])
    return RoundedGaussian(
        adjacency,
        l2_sensitivity_squared=Fraction(SENSITIVITIES[adjacency] * squared_sensitivity),
        sigma_squared=Fraction(VARIANCE),
        coordinates=coordinates,
    )


def noise_at(
    squared: Fraction, adjacency: Adjacency, *, coordinates: int
) -> RoundedGaussian:
    """Normal noise on a table where each row adds one integer to one cell at most: the
    largest integer that ``squared``, a squared ratio of sensitivity to deviation, pays
    for. The deviation is fixed, so a finer unit of the rows costs no accuracy.

    Raises:
        ParameterInvalid: the share of the budget is too small for any draw.
    """
    affordable = min(int(squared * VARIANCE), LARGEST_START)
    # A whole number of units for each row, so the squared sensitivity is a square.
    unit = isqrt(affordable // SENSITIVITIES[adjacency])
    return noise(unit**2, adjacency, coordinates=coordinates)


def mu_squared(budget: Budget) -> Fraction:
    """The squared ratio of L2 sensitivity to deviation that the budget allows normal
    noise: μ² of a ``gdp`` account.
    """
    return budget.limit / loss_of_unit(budget)


def loss_of_unit(budget: Budget) -> Fraction:
    """The loss, in the account's unit, of normal noise whose deviation equals the L2
    sensitivity.
    """
    return budget.loss(RoundedGaussian(budget.adjacency, Fraction(1), Fraction(1), 1))


SENSITIVITIES = MappingProxyType({Adjacency.ADD_REMOVE_ONE: 1, Adjacency.LABEL: 2})
"""L1 and squared L2 sensitivity of a table of classes: the number of cells, each by
one, in which neighbours differ. An added row is in one cell; a changed label moves a
row from one cell to another.
"""


_SMALLEST_SCALE: Final = Fraction(1, 2**24)
"""Inverse scales are multiples of 2⁻³², rounded down: from here on that wastes less than
a 256th of the price.
"""


def finest_steps(epsilon: Fraction) -> int:
    """Steps of the largest contribution where noise is discrete Laplace: the largest
    power of two that leaves the inverse scale its precision.

    The finer the steps, the less the rounding of many equal rows adds up to beside the
    noise.

    Args:
        epsilon: price of a contribution of one row.
    """
    whole = int(epsilon / _SMALLEST_SCALE)
    return min(1 << max(whole.bit_length() - 1, 0), FINEST_GRID)


_EXACT_SPREAD = 1_000.0
"""Largest deviation, in steps, at which bounds of sums of Laplace noise are exact;
beyond it, rounding is negligible.
"""


def priced(
    epsilon: Fraction, budget: Budget, *, coordinates: int, steps: int = 1
) -> Event:
    """The event of one table.

    Args:
        epsilon: price of the table on accounts that count ε.
        budget: price of the table on accounts of another unit; states the adjacency.
        coordinates: cells of the table.
        steps: on accounts that count ε, the largest amount that a row adds to a cell.
    """
    adjacency = budget.adjacency
    if budget.accountant != pure.NAME:
        return noise_at(mu_squared(budget), adjacency, coordinates=coordinates)
    sensitivity = SENSITIVITIES[adjacency] * steps
    return DiscreteLaplace(
        adjacency,
        l1_sensitivity=Fraction(sensitivity),
        inverse_scale=draw_scale(epsilon, sensitivity),
        coordinates=coordinates,
    )


def at_price_of(laplace: DiscreteLaplace, budget: Budget) -> Event:
    """The event of a table with Laplace or normal noise, whichever is smaller at the
    price of ``laplace``.

    Normal noise has no price on accounts that count ε. On other accounts normal noise
    is smaller unless ε is large. Both prices and both deviations are public.

    Args:
        laplace: event with the sensitivity of a table of classes under the budget's
            adjacency.
        budget: gives the unit of the account.
    """
    if budget.accountant == pure.NAME:
        return laplace
    adjacency, cells = laplace.adjacency, SENSITIVITIES[laplace.adjacency]
    # m = ⌊2²⁴ √(c/(u·s))⌋ of docs/proofs/gaussian.md, G8: rounded down at each step, so
    # the normal noise never costs more than ``laplace``.
    of_one = loss_of_unit(budget)
    squared = min(int(budget.loss(laplace) / of_one * VARIANCE), LARGEST_START)
    unit = isqrt(squared // cells)
    if squared < SMALLEST_PRICED:
        return laplace
    normal = RoundedGaussian(
        adjacency, Fraction(cells * unit**2), Fraction(VARIANCE), laplace.coordinates
    )
    return normal if noise_sd(normal) < noise_sd(laplace) else laplace


def per_row(event: Event) -> int:
    """The largest amount that one row adds to a released cell; of a count, what one row
    adds to it.

    Raises:
        UnknownPrivacyEvent: the event is not one of a table of noisy numbers.
    """
    match event:
        case DiscreteLaplace() if event.inverse_scale > 0:
            steps = event.l1_sensitivity / SENSITIVITIES[event.adjacency]
            if 0 < steps <= FINEST_GRID and steps.denominator == 1:
                return int(steps)
        case RoundedGaussian() if (
            event.sigma_squared == VARIANCE
            and event.l2_sensitivity_squared <= LARGEST_START
        ):
            of_one_cell = event.l2_sensitivity_squared / SENSITIVITIES[event.adjacency]
            unit = isqrt(int(of_one_cell))
            if unit > 0 and unit * unit == of_one_cell:
                return unit
    raise UnknownPrivacyEvent("not the event of a table of noisy numbers")


def in_rows(released: Int64Array, event: Event) -> Float64Array:
    """Released counts in rows; they may be negative."""
    counts: Float64Array = released / per_row(event)
    return counts


def in_whole_rows(released: Int64Array, event: Event) -> Int64Array:
    """Released counts, each rounded to the nearest number of rows: post-processing
    (lemma L7).
    """
    if isinstance(event, DiscreteLaplace):
        return released
    unit = per_row(event)
    rows: Int64Array = (released + unit // 2) // unit
    return rows


def noise_sd(event: Event) -> float:
    """Standard deviation of the noise on each count, in rows; public."""
    if isinstance(event, DiscreteLaplace):
        return _laplace_sd(event) / per_row(event)
    return 2**SCALE_BITS / per_row(event)


def _laplace_sd(event: DiscreteLaplace) -> float:
    """Standard deviation of the noise, in steps."""
    decay = math.exp(-float(event.inverse_scale))
    return math.sqrt(2.0 * decay) / (1.0 - decay)


def noise_bound(event: Event, *, level: float, n_counts: int = 1) -> float:
    """Two-sided bound, in rows, on the noise of a sum of counts, with probability at
    least ``level``; public. Of other sums, in the unit of the largest contribution.

    Args:
        event: of the table.
        level: at least 0.9.
        n_counts: number of counts in the sum.
    """
    if isinstance(event, DiscreteLaplace):
        return _laplace_bound(event, n_counts, level=level) / per_row(event)
    single = noise_sd(event) * NormalDist().inv_cdf((1.0 + level) / 2.0)
    return single * math.sqrt(n_counts) + n_counts / per_row(event)


def _laplace_bound(event: DiscreteLaplace, n_counts: int, *, level: float) -> float:
    """The bound in steps."""
    decay = math.exp(-float(event.inverse_scale))
    spread = _laplace_sd(event) * math.sqrt(n_counts)
    if spread <= _EXACT_SPREAD:
        return _laplace_sum_bound(decay, spread, n_counts, level=level)
    # Pr[|z| > t] = 2 q^(t+1) / (1 + q) for whole t; sums have lighter tails, in
    # deviations, than one count.
    outside = (1.0 - level) * (1.0 + decay) / 2.0
    tail = math.log(outside) / math.log(decay)
    steps = max(math.ceil(tail - 1.0), 0)
    return float(steps) * math.sqrt(n_counts)


def _laplace_sum_bound(
    decay: float, spread: float, n_counts: int, *, level: float
) -> float:
    """The bound from the exact law of the sum. Where single draws are mostly 0, their
    law does not bound the sum.

    The law is the inverse Fourier transform of ((1 − q)² / (1 − 2q cos θ + q²))ⁿ, over
    a window of 64 deviations; the probability outside the window is negligible.
    """
    size = 1 << math.ceil(math.log2(64.0 * (spread + 1.0)))
    angles = np.arange(size) * (2.0 * math.pi / size)
    of_one = (1.0 - decay) ** 2 / (1.0 - 2.0 * decay * np.cos(angles) + decay**2)
    law = np.fft.ifft(of_one**n_counts).real
    # Pr[|z| ≤ t] for t = 0, 1, …: the law is symmetric.
    within = law[0] + 2.0 * np.concatenate(([0.0], law[1 : size // 2])).cumsum()
    return float(np.searchsorted(within, level))
