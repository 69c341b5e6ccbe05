"""Selections among public candidates: what one costs, and how it is drawn.

On accounts that count ε a selection is permute-and-flip, which is at least as good as the exponential mechanism at the
same ε. Where ρ or μ² is counted it is the exponential mechanism, whose bounded range makes it cheaper there
(docs/proofs/accounting.md). The priced event says which of them growth draws by.
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
    """The event of one selection that may cost ``loss`` in ε.

    Args:
        loss: public; above zero.
        facts: public; the unit of the account decides how the selection is drawn.
        range_sensitivity: of the utility, in its own integer units, under the adjacency of ``facts.budget``.
        max_candidates: public; at least 1.
    """
    kind = PermuteAndFlip if facts.budget.accountant == pure.NAME else ExponentialMechanism
    return kind(
        facts.budget.adjacency,
        range_sensitivity=Fraction(range_sensitivity),
        inverse_scale=draw_scale(loss, range_sensitivity),
        max_candidates=max_candidates,
    )
