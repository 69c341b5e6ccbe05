"""Selections among public candidates: what one costs, and how it is drawn.

On accounts that count ε a selection is permute-and-flip, which is at least as good as the exponential mechanism at the
same ε. Where ρ or μ² is counted it is the exponential mechanism, whose bounded range makes it cheaper there
(docs/proofs/accounting.md). The priced event says which of them growth draws by.
"""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
from numpy.typing import NDArray

from app.forests.contract.algorithm import PublicFacts, draw_scale
from app.privacy.accountants import pure
from app.privacy.events import ExponentialMechanism, PermuteAndFlip

if TYPE_CHECKING:
    from app.forests.noise.randomness import Randomness

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


def draw(selection: Selection, utilities: NDArray[np.int64], randomness: Randomness) -> int:
    """The index of the selected candidate; one call is one release at the price of ``selection``.

    Args:
        selection: as priced.
        utilities: PRIVATE int64 ``(n_candidates,)``, at least one; the candidates are public or follow from releases.
        randomness: source of the draw.
    """
    if isinstance(selection, PermuteAndFlip):
        return randomness.permute_and_flip(utilities, inverse_scale=selection.inverse_scale)
    return randomness.select_exponential(utilities, inverse_scale=selection.inverse_scale)
