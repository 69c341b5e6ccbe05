"""Private quantile bins for a share of a budget, on accounts of every unit."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from app.core.errors import InvalidRequest
from app.forests.bins import quantile_bins
from app.forests.bins.reused_profile import ReusedProfile
from app.forests.contract.algorithm import PublicFacts
from app.forests.data import grid
from app.forests.data.rows import SanitisedRows
from app.forests.data.schema import Schema
from app.privacy.accountants import pure
from app.privacy.calibration import Budget, fitted
from app.privacy.events import Event, ExponentialMechanism

if TYPE_CHECKING:
    from app.forests.noise.randomness import Randomness


def event(facts: PublicFacts, share: Fraction, *, n_levels: int | None = None) -> Event:
    """What cutting bins does for a share of what was asked for.

    Where ε is counted, medians are picked by permute-and-flip; elsewhere by the exponential mechanism, at the largest
    strength that the share pays for.

    Args:
        facts: public; some feature of the schema has private bins.
        share: above zero, at most 1.
        n_levels: see ``quantile_bins.event``.

    Raises:
        InvalidRequest: the share is too small to be drawn with.
    """
    if facts.budget.accountant == pure.NAME:
        return quantile_bins.event(facts.schema, share * facts.epsilon, n_levels=n_levels)
    own = Budget(facts.budget.accountant, int(share * facts.budget.amount), facts.budget.adjacency)
    if own.amount == 0:
        raise InvalidRequest.at("/epsilon", "too-small")
    return fitted(
        own,
        lambda epsilon: quantile_bins.event(facts.schema, epsilon, selection=ExponentialMechanism, n_levels=n_levels),
        start=Fraction(1),
    )


def cuts(
    bins: Event | None,
    schema: Schema,
    rows: SanitisedRows,
    randomness: Randomness,
    *,
    reused: ReusedProfile | None = None,
) -> NDArray[np.uint16]:
    """The cuts that a forest grows on: reused ones, or released here if they were priced, or none.

    Args:
        bins: what was priced for them, if anything; one call is one release of it.
        schema: public.
        rows: PRIVATE; not looked at where nothing was priced.
        randomness: source of every draw.
        reused: released before, and public.
    """
    if bins is not None:
        return quantile_bins.release(
            schema,
            bins,
            cell_counts=lambda index: grid.cell_counts(schema.features[index], rows.features.columns[index]),
            randomness=randomness,
        )
    return quantile_bins.no_cuts(schema) if reused is None else reused.cut_array
