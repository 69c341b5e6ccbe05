"""Private quantile bins for a share of a budget, on accounts of every unit."""

from __future__ import annotations

from fractions import Fraction

from app.forests.bins import quantile_bins
from app.forests.data.schema import Schema
from app.privacy.accountants import pure
from app.privacy.calibration import Budget, fitted
from app.privacy.events import Event, ExponentialMechanism


def event(schema: Schema, epsilon: Fraction, budget: Budget, *, n_levels: int | None = None) -> Event:
    """What cutting bins does for a price.

    Where ε is counted, medians are picked by permute-and-flip; elsewhere by the exponential mechanism, at the largest
    strength that the budget pays for.

    Args:
        schema: public; some feature has private bins.
        epsilon: what the bins may cost on accounts that count ε.
        budget: what the bins may cost on accounts of another unit.
        n_levels: see ``quantile_bins.event``.

    Raises:
        InvalidRequest: the price is too small to be drawn with.
    """
    if budget.accountant == pure.NAME:
        return quantile_bins.event(schema, epsilon, n_levels=n_levels)
    return fitted(
        budget,
        lambda strength: quantile_bins.event(schema, strength, selection=ExponentialMechanism, n_levels=n_levels),
        start=Fraction(1),
    )
