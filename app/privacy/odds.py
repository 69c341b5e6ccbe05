"""Translates a privacy loss into odds: how often a guess about one person is right.

Somebody who knows every other row and flips a fair coin about one person guesses right in one of two cases. After
seeing outputs whose total variation distance between the two cases is at most t, the best guess is right with
probability at most (1 + t) / 2. Theorem and formulas: docs/proofs/accounting.md A10.
"""

from fractions import Fraction
from functools import lru_cache
from typing import TYPE_CHECKING

from app.core import amounts
from app.privacy import accountants
from app.privacy.accountants import gdp, pure, zcdp
from app.privacy.accountants.enclosures import enclosure, normal_lower_tail, upper_end

if TYPE_CHECKING:  # imported at the first computation
    from flint import arb

_PLACES = 10**4


@lru_cache(maxsize=1024)
def right_guesses(accountant: str, amount: int, *, set_aside: Fraction = Fraction(0)) -> str:
    """The largest probability of a right guess about one change, after seeing outputs with a given loss.

    Args:
        accountant: name of the accountant of the loss.
        amount: whole steps of its unit: the loss of the change.
        set_aside: δ that outputs of (ε, δ)-mechanisms may use beside the loss.

    Returns:
        From ``"0.5"`` to ``"1"``: decimal text, rounded up to four digits.
    """
    loss = enclosure(Fraction(amount, 10 ** accountants.by_name(accountant).PLACES))
    highest = (1 + upper_end(_DISTANCES[accountant](loss)) + set_aside) / 2
    return amounts.to_text(min(Fraction(-(-highest * _PLACES // 1), _PLACES), Fraction(1)))


def _of_pure(epsilon: "arb") -> "arb":
    return (epsilon / 2).tanh()


def _of_gdp(mu_squared: "arb") -> "arb":
    return 1 - 2 * normal_lower_tail(mu_squared.sqrt() / 2)


def _of_zcdp(rho: "arb") -> "arb":
    """The smaller of Pinsker's bound, for small ρ, and that of Bretagnolle and Huber."""
    return ((rho / 2).sqrt()).min((1 - (-rho).exp()).sqrt())


_DISTANCES = {pure.NAME: _of_pure, gdp.NAME: _of_gdp, zcdp.NAME: _of_zcdp}
"""Total variation distance of neighbouring outputs by accountant, from the loss in its unit."""
