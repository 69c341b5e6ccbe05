"""Accounts for zCDP: charges in 10⁻¹² ρ, composed by addition (Theorem L (b),
docs/proofs/accounting.md A3).

ρ and (ε, δ) are converted by Canonne, Kamath and Steinke (2020), Proposition 12 and
Corollary 13: a ρ-zCDP mechanism is (ε, δ)-DP for

    δ = inf over α > 1 of exp((α − 1)(αρ − ε)) · (1 − 1/α)^α / (α − 1).

Every α > 1 gives a valid bound, so the search for the best α need not be exact: only
the bound at the resulting α must be an enclosure. Solved for ρ and for ε, with c(α) =
ln δ − α·ln(1 − 1/α) + ln(α − 1):

    ρ(α) = (c + (α − 1)ε) / (α(α − 1))          the largest is granted, rounded down
    ε(α) = αρ − c / (α − 1)                     the smallest is printed, rounded up
"""

from collections.abc import Callable
from fractions import Fraction
from functools import lru_cache
from typing import TYPE_CHECKING

from grovekeeper_forests.privacy.accountants.accountant import (
    COARSE_BELOW,
    EPSILON_PLACES,
    VERIFIABLE,
    Leaf,
    checked_delta,
    composed,
    enclosure,
    lower_end,
    pure_loss,
    steps_down,
    steps_up,
    upper_end,
)
from grovekeeper_forests.privacy.events import (
    Adjacency,
    Event,
    ExponentialMechanism,
    RoundedGaussian,
)

if TYPE_CHECKING:  # imported at the first computation
    from flint import arb

NAME = "zcdp"
UNIT = "rho"
PLACES = 12
TAKES_DELTA = True

# α − 1 is searched for between 10^−110 and 10^110; δ is at least 10^−99 in any request
_ORDERS = 110
_HALVINGS = 48
"""Rounds of the search: they give the best α to twelve digits, and the bound, which is
flat there, to over twenty.
"""


def loss(event: Event, *, adjacency: Adjacency) -> Fraction:
    """The ρ of an event on an account of ``adjacency``, rounded up.

    Gaussian noise costs Δ²/2σ², an ε-DP mechanism ε·tanh(ε/2), and the exponential
    mechanism ε²/8 where that is smaller (docs/proofs/accounting.md A4).
    """
    return composed(event, adjacency=adjacency, leaf=_leaf, label_factor=4)


def _leaf(leaf: Leaf) -> Fraction:
    match leaf:
        case ExponentialMechanism():
            epsilon = pure_loss(leaf, accountant=NAME)
            return min(epsilon**2 / 8, of_pure(epsilon))
        case RoundedGaussian():
            return leaf.l2_sensitivity_squared / (2 * leaf.sigma_squared)
    return of_pure(pure_loss(leaf, accountant=NAME))


@lru_cache(maxsize=1024)
def of_pure(epsilon: Fraction) -> Fraction:
    """ε·tanh(ε/2), rounded up: the ρ of every ε-DP mechanism. At most ε²/2 and at most
    ε.
    """
    if epsilon < COARSE_BELOW:
        return epsilon**2 / 2
    return min(upper_end(_tanh_cost(epsilon)) * VERIFIABLE, epsilon)


@lru_cache(maxsize=1024)
def largest_pure(amount: int) -> Fraction:
    """An upper bound, tight to a relative 10⁻⁶, on the ε of ε-DP mechanisms that cost
    at most this amount.
    """
    if amount == 0:
        return Fraction(0)  # to which the bisection would converge for ever
    rho = Fraction(amount, 10**PLACES)
    limit = enclosure(rho)
    low, high = Fraction(0), rho + 2  # ε·tanh(ε/2) is at least ε − 1
    while high - low > high / 10**6:
        middle = (low + high) / 2
        low, high = (low, middle) if _tanh_cost(middle) >= limit else (middle, high)
    return high


def _tanh_cost(epsilon: Fraction) -> "arb":
    exact = enclosure(epsilon)
    return exact * (exact / 2).tanh()


@lru_cache(maxsize=1024)
def cap(epsilon: Fraction, delta: Fraction | None) -> int:
    """The largest ρ that implies (ε, δ), in steps of 10⁻¹², rounded down.

    Raises:
        ValueError: δ is missing, or not strictly between 0 and 1.
    """
    epsilon_ball, log_delta = enclosure(epsilon), enclosure(checked_delta(delta)).log()

    def rho(alpha: "_Order") -> "arb":
        return (alpha.constant(log_delta) + alpha.less_one * epsilon_ball) / (
            alpha.value * alpha.less_one
        )

    # The sign of ρ'(α): c'(α) = −ln(1 − 1/α), because its other terms cancel.
    def still_rising(alpha: "_Order") -> bool:
        return bool(
            (alpha.value + alpha.less_one) * rho(alpha) - epsilon_ball + alpha.log < 0
        )

    return steps_down(lower_end(rho(_best(still_rising))), PLACES)


price = cap
"""The price of a job with (ε, δ): the cap of an account with the same (ε, δ)."""


@lru_cache(maxsize=1024)
def epsilon_of(amount: int, delta: Fraction | None) -> Fraction:
    """The ε that an amount of ρ implies at δ, rounded up to a multiple of 10⁻⁹.

    Raises:
        ValueError: δ is missing, or not strictly between 0 and 1.
    """
    log_delta = enclosure(checked_delta(delta)).log()
    rho = enclosure(Fraction(amount, 10**PLACES))
    if amount == 0:
        return Fraction(0)

    # The sign of (α − 1)·ε'(α), with c'(α) as in :func:`cap`.
    def still_falling(alpha: "_Order") -> bool:
        return bool(
            alpha.less_one * rho
            + alpha.constant(log_delta) / alpha.less_one
            + alpha.log
            < 0
        )

    alpha = _best(still_falling)
    epsilon = alpha.value * rho - alpha.constant(log_delta) / alpha.less_one
    return Fraction(steps_up(upper_end(epsilon), EPSILON_PLACES), 10**EPSILON_PLACES)


def group(rows: int) -> int:
    """k rows cost k² times the ρ of one row (docs/proofs/accounting.md A7)."""
    return rows**2


def replace_one(amount: int) -> int:
    """Two steps of add/remove: four times the ρ (group privacy of zCDP)."""
    return 4 * amount


class _Order:
    """A Rényi order α, given by α − 1 > 0, with the terms that both formulas share."""

    def __init__(self, less_one: "arb") -> None:
        self.less_one = less_one
        self.value = less_one + 1
        self._log_less_one = less_one.log()
        self.log = self._log_less_one - self.value.log()
        """ln(1 − 1/α)"""

    def constant(self, log_delta: "arb") -> "arb":
        """c(α) of the module's formulas."""
        return log_delta - self.value * self.log + self._log_less_one


def _best(better_above: Callable[[_Order], bool]) -> _Order:
    """Finds the order where ``better_above`` turns false, by halving the range of
    orders on a logarithmic scale.
    """
    low, high = enclosure(10) ** -_ORDERS, enclosure(10) ** _ORDERS
    for _ in range(_HALVINGS):
        # Without its radius: every order is valid, and balls must not grow from round to
        # round.
        middle = (low * high).sqrt().mid()
        low, high = (middle, high) if better_above(_Order(middle)) else (low, middle)
    return _Order(high)
