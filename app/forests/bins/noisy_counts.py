"""Noisy counts of disjoint cells: a table in which every row is counted once, or not at all.

One row changes one count by one, so the L1 and the L2 sensitivity are both 1. On accounts that count ε the noise is
discrete Laplace; where ρ or μ² is counted it is an exactly rounded normal draw, which costs less there
(docs/proofs/evaluation.md, Theorem 1). In the second case a count is released in finer units, so that rounding to whole
numbers loses nothing.
"""

from __future__ import annotations

import math
from fractions import Fraction
from math import isqrt
from statistics import NormalDist
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from app.forests.bins.noise_prices import (
    LARGEST_START,
    SCALE_BITS,
    SMALLEST_PRICED,
    VARIANCE,
    draw_scale,
    mu_squared,
    noise,
)
from app.privacy.accountants import pure
from app.privacy.adjacency import Adjacency
from app.privacy.calibration import Budget
from app.privacy.events import DiscreteLaplace, Event, RoundedGaussian, UnknownPrivacyEvent

SENSITIVITY = 1

SENSITIVITIES = MappingProxyType({Adjacency.ADD_REMOVE_ONE: SENSITIVITY, Adjacency.LABEL: 2})
"""Cells of a table of classes that neighbours differ in, each by one: its L1 and squared L2 sensitivity. A row that is
added is in one cell; a label that changes takes a row off one cell and adds it to another."""


_EXACT_SPREAD = 1_000.0
"""Deviations, in rows, up to which bounds of sums of Laplace noise are exact; beyond, rounding is of no account."""


def priced(epsilon: Fraction, budget: Budget, *, coordinates: int) -> Event:
    """The event of one table.

    Args:
        epsilon: what the table may cost on accounts that count ε.
        budget: what the table may cost on accounts of another unit.
        coordinates: cells of the table.

    Raises:
        InvalidRequest: the price is too small to be drawn with.
    """
    if budget.accountant == pure.NAME:
        return DiscreteLaplace(
            Adjacency.ADD_REMOVE_ONE,
            l1_sensitivity=Fraction(SENSITIVITY),
            inverse_scale=draw_scale(epsilon, SENSITIVITY),
            coordinates=coordinates,
        )
    affordable = min(int(mu_squared(budget) * VARIANCE), LARGEST_START)
    return noise(isqrt(affordable) ** 2, coordinates=coordinates)


def at_price_of(laplace: DiscreteLaplace, budget: Budget) -> Event:
    """The event of a table with the smaller noise of two that cost the same: Laplace noise, or normal noise.

    Normal noise has no price on accounts that count ε, and is the smaller one elsewhere unless ε is large. Both prices
    and both deviations are public.

    Args:
        laplace: with the sensitivity of a table of classes under its adjacency, which is the budget's.
        budget: tells the unit of the account.
    """
    if budget.accountant == pure.NAME:
        return laplace
    adjacency, cells = laplace.adjacency, SENSITIVITIES[laplace.adjacency]
    of_one = budget.loss(RoundedGaussian(adjacency, Fraction(1), Fraction(1), 1))
    squared = min(int(budget.loss(laplace) / of_one * VARIANCE), LARGEST_START)
    unit = isqrt(squared // cells)
    if squared < SMALLEST_PRICED:
        return laplace
    normal = RoundedGaussian(adjacency, Fraction(cells * unit**2), Fraction(VARIANCE), laplace.coordinates)
    return normal if noise_sd(normal) < noise_sd(laplace) else laplace


def per_row(event: Event) -> int:
    """What one row adds to its released count.

    Raises:
        UnknownPrivacyEvent: not the event of such a table.
    """
    match event:
        case DiscreteLaplace() if event.l1_sensitivity == SENSITIVITIES[event.adjacency] and event.inverse_scale > 0:
            return SENSITIVITY
        case RoundedGaussian() if event.sigma_squared == VARIANCE and event.l2_sensitivity_squared <= LARGEST_START:
            of_one_cell = event.l2_sensitivity_squared / SENSITIVITIES[event.adjacency]
            unit = isqrt(int(of_one_cell))
            if unit > 0 and unit * unit == of_one_cell:
                return unit
    raise UnknownPrivacyEvent("not the event of a table of noisy counts")


def in_rows(released: NDArray[np.int64], event: Event) -> NDArray[np.float64]:
    """Released counts in rows; they may be negative."""
    counts: NDArray[np.float64] = released / per_row(event)
    return counts


def in_whole_rows(released: NDArray[np.int64], event: Event) -> NDArray[np.int64]:
    """Released counts, each rounded to the nearest number of rows: post-processing (lemma L7)."""
    if isinstance(event, DiscreteLaplace):
        return released
    unit = per_row(event)
    rows: NDArray[np.int64] = (released + unit // 2) // unit
    return rows


def noise_sd(event: Event) -> float:
    """Standard deviation of the noise on each count, in rows; public."""
    if isinstance(event, DiscreteLaplace):
        decay = math.exp(-float(event.inverse_scale))
        return math.sqrt(2.0 * decay) / (1.0 - decay)
    return 2**SCALE_BITS / per_row(event)


def noise_bound(event: Event, *, level: float, n_counts: int = 1) -> float:
    """Rows that the noise of a sum of counts stays within, either way, with probability at least ``level``; public.

    Args:
        event: of the table that the counts stand in.
        level: at least 0.9.
        n_counts: counts that are added up.
    """
    if isinstance(event, DiscreteLaplace):
        decay = math.exp(-float(event.inverse_scale))
        spread = noise_sd(event) * math.sqrt(n_counts)
        if spread <= _EXACT_SPREAD:
            return _laplace_sum_bound(decay, spread, n_counts, level=level)
        # Pr[|z| > t] = 2 q^(t+1) / (1 + q) for whole t; sums have lighter tails, in deviations, than one count.
        tail = math.log((1.0 - level) * (1.0 + decay) / 2.0) / math.log(decay)
        return float(max(math.ceil(tail - 1.0), 0)) * math.sqrt(n_counts)
    single = noise_sd(event) * NormalDist().inv_cdf((1.0 + level) / 2.0)
    return single * math.sqrt(n_counts) + n_counts / per_row(event)


def _laplace_sum_bound(decay: float, spread: float, n_counts: int, *, level: float) -> float:
    """The same from the exact law of the sum: where noise is mostly 0 a sum is not, so one count tells nothing of it.

    The law is the inverse Fourier transform of ((1 − q)² / (1 − 2q cos θ + q²))ⁿ, over a window of 64 deviations: what
    lies beyond it is of no account.
    """
    size = 1 << math.ceil(math.log2(64.0 * (spread + 1.0)))
    angles = np.arange(size) * (2.0 * math.pi / size)
    law = np.fft.ifft(((1.0 - decay) ** 2 / (1.0 - 2.0 * decay * np.cos(angles) + decay**2)) ** n_counts).real
    within = law[0] + 2.0 * np.concatenate(([0.0], law[1 : size // 2])).cumsum()
    return float(np.searchsorted(within, level))
