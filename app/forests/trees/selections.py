"""Prices selections among public candidates, and chooses their mechanism.

On accounts that count ε, a selection is permute-and-flip, which is at least as good as the exponential mechanism at the
same ε. On accounts that count ρ or μ², a selection is the exponential mechanism, whose bounded range makes it cheaper
in these units (docs/proofs/accounting.md). The priced event names the mechanism that growth draws from.
"""

from __future__ import annotations

from fractions import Fraction
from typing import TypeAlias

from app.forests.bins.noise_prices import draw_scale
from app.forests.contract.facts import PublicFacts
from app.privacy.accountants import pure
from app.privacy.events import ExponentialMechanism, PermuteAndFlip

Selection: TypeAlias = PermuteAndFlip | ExponentialMechanism


def priced(loss: Fraction, facts: PublicFacts, *, range_sensitivity: int, max_candidates: int) -> Selection:
    """The event of one selection that costs at most ``loss`` in ε.

    Args:
        loss: public; above zero.
        facts: public; the unit of the account decides the mechanism.
        range_sensitivity: of the utility, in the utility's integer units, under the adjacency of ``facts.budget``.
        max_candidates: public; largest number of candidates, at least 1.
    """
    kind = PermuteAndFlip if facts.budget.accountant == pure.NAME else ExponentialMechanism
    return kind(
        facts.budget.adjacency,
        range_sensitivity=Fraction(range_sensitivity),
        inverse_scale=draw_scale(loss, range_sensitivity),
        max_candidates=max_candidates,
    )
