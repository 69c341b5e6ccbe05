"""Prices private quantile bins on accounts of every unit."""

from __future__ import annotations

from fractions import Fraction

from app.forests.bins import quantile_bins
from app.forests.data.schema import Schema
from app.privacy.accountants import pure
from app.privacy.calibration import Budget, fitted
from app.privacy.events import Event, ExponentialMechanism


def event(schema: Schema, epsilon: Fraction, budget: Budget, *, n_levels: int | None = None) -> Event:
    """The event of private quantile bins at a price.

    On accounts that count ε, medians are selected by permute-and-flip. On other accounts medians are selected by the
    exponential mechanism, at the largest ε that the budget pays for.

    Args:
        schema: public; at least one feature has private bins.
        epsilon: price of the bins on accounts that count ε.
        budget: price of the bins on accounts of another unit.
        n_levels: see ``quantile_bins.event``.

    Raises:
        InvalidRequest: the price is too small for any draw.
    """
    if budget.accountant == pure.NAME:
        return quantile_bins.event(schema, epsilon, n_levels=n_levels)
    return fitted(
        budget,
        lambda strength: quantile_bins.event(schema, strength, selection=ExponentialMechanism, n_levels=n_levels),
        start=Fraction(1),
    )
