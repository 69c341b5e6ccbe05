"""Prices the (ε, δ) of a request as a budget in the unit of an account, and calibrates
noise to the budget.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from grovekeeper_forests import amounts, limits
from grovekeeper_forests.errors import ParameterInvalid
from grovekeeper_forests.privacy import accountants
from grovekeeper_forests.privacy.accountants import Amount, pure
from grovekeeper_forests.privacy.events import Adjacency, Event, UnknownPrivacyEvent

_DIGITS = 12
_MAX_DOUBLINGS = 128
_MAX_STEPS = 200


@dataclass(frozen=True)
class Budget:
    """The largest loss of one job for one row: what :class:`Terms` leave to each row of
    a privacy unit. The budget of an account is its cap.

    Attributes:
        amount: whole steps of the accountant's unit; 0 where rounding down left none.
    """

    accountant: str
    amount: int
    adjacency: Adjacency

    @property
    def limit(self) -> Fraction:
        """The amount in the accountant's unit."""
        return Amount(self.accountant, self.amount).value

    def stated_under(self, adjacency: Adjacency) -> "Budget":
        """The budget of a mechanism whose guarantee is stated under ``adjacency``,
        covered by this budget.

        A changed label is one row removed and one row added: on a ``label`` account a
        mechanism that is stated under add/remove costs its loss for replacing a row
        (docs/proofs/accounting.md A2).

        Raises:
            UnknownPrivacyEvent: a mechanism stated under ``adjacency`` has no bound on
                this account.
        """
        if adjacency is self.adjacency:
            return self
        if (self.adjacency, adjacency) != (Adjacency.LABEL, Adjacency.ADD_REMOVE_ONE):
            raise UnknownPrivacyEvent("no bound under this adjacency")
        steps = accountants.by_name(self.accountant).replace_one(1)
        return Budget(self.accountant, self.amount // steps, adjacency)

    def part(self, share: Fraction) -> "Budget":
        """A share of this budget, rounded down to whole steps.

        Args:
            share: above zero, at most 1.
        """
        return Budget(self.accountant, int(share * self.amount), self.adjacency)

    def loss(self, event: Event) -> Fraction:
        """The loss of an event in this budget's unit, exact or rounded up."""
        return accountants.by_name(self.accountant).loss(
            event, adjacency=self.adjacency
        )

    def covers(self, event: Event) -> bool:
        """Whether the event's loss is within the amount."""
        return self.loss(event) <= self.limit


@dataclass(frozen=True)
class Terms:
    """What one account pays for a job: (ε, δ) for all rows of one privacy unit
    together, as the account counts them.

    Attributes:
        epsilon: the largest ε that the job may cost one unit under the account's
            adjacency, above zero.
        accountant: of the account.
        delta: of the request, or else of the account; ``None`` on accounts without a δ.
        adjacency: of the account.
        max_rows: largest number of rows of one unit. Noise is planned for one row, with
            each row's part of the price.
    """

    epsilon: Fraction
    accountant: str = pure.NAME
    delta: Fraction | None = None
    adjacency: Adjacency = Adjacency.ADD_REMOVE_ONE
    max_rows: int = 1

    def price(self, *, least: int = 1) -> int:
        """The price: whole steps of the account's unit, for all rows of one privacy
        unit together.

        Args:
            least: the smallest amount that is of use.

        Raises:
            ParameterInvalid: δ is missing, out of range or illegal on this account, or
                the amount is less than ``least`` or more than any account with a δ can
                hold.
        """
        unit, delta = accountants.by_name(self.accountant), self.delta
        if unit.TAKES_DELTA is (delta is None):
            raise ParameterInvalid.named(
                "delta", "required" if delta is None else f"not-for-{self.accountant}"
            )
        if delta is not None and not 0 < delta < 1:
            problem = "not-positive" if delta <= 0 else "not-below-one"
            accepted = [amounts.BELOW_ONE]
            raise ParameterInvalid.named("delta", problem, accepted=accepted)
        if delta is not None and self.epsilon > limits.MAX_CAP_EPSILON_WITH_DELTA:
            accepted = [f"at most {limits.MAX_CAP_EPSILON_WITH_DELTA}"]
            raise ParameterInvalid.named("epsilon", "too-large", accepted=accepted)
        amount = unit.price(self.epsilon, delta)
        if amount < least:
            smallest = Amount(self.accountant, least).epsilon_at(delta)
            raise ParameterInvalid.named(
                "epsilon", "too-small", accepted=[f"at least {smallest}"]
            )
        return amount

    def stated(self, amount: int) -> dict[str, Any]:
        """A price as answers and jobs state it: whole steps in the account's unit, and
        the (ε, δ) of the request.
        """
        return {
            "accountant": self.accountant,
            "unit": accountants.by_name(self.accountant).UNIT,
            "amount": Amount(self.accountant, amount).text,
            "epsilon": amounts.to_text(self.epsilon),
            "delta": None if self.delta is None else amounts.to_text(self.delta),
        }

    def budget(self) -> Budget:
        """The budget that (ε, δ) gives to each row of a privacy unit, in the account's
        unit.

        k rows cost k times the ε of one row, and k² times its ρ or μ²
        (docs/proofs/accounting.md A7). So the budget of one row is the price divided by
        k or k², rounded down to whole steps. With one row per unit, the budget is the
        price.

        Raises:
            ParameterInvalid: see :meth:`price`; or a row gets less than one step.
        """
        rows = accountants.by_name(self.accountant).group(self.max_rows)
        return Budget(self.accountant, self.price(least=rows) // rows, self.adjacency)

    def covers(self, event: Event) -> bool:
        """Whether an event of one row costs at most (ε, δ) for all rows of a privacy
        unit.
        """
        if self.delta is None:
            return (
                self.max_rows * pure.loss(event, adjacency=self.adjacency)
                <= self.epsilon
            )
        return self.budget().covers(event)


def fitted(
    budget: Budget, event_at: Callable[[Fraction], Event], *, start: Fraction
) -> Event:
    """The event of a mechanism at the largest strength that a budget covers, up to a
    relative 10⁻¹¹.

    Used for mechanisms with one strength (the ε that they divide among their draws) on
    accounts in ρ or μ². The loss in these units depends on the number of draws, so a
    search finds the strength that uses up the budget. The returned event is checked
    against the budget, independently of the search.

    Args:
        budget: the largest loss of the event.
        event_at: the mechanism's event at a strength; its loss rises with it, and may
            level off.
        start: a strength to begin with, above zero.
    """
    high = start
    for _ in range(_MAX_DOUBLINGS):
        if not budget.covers(event_at(high)):
            return _fitted_below(budget, event_at, high)
        if event_at(2 * high) == event_at(high):
            return event_at(high)
        high *= 2
    raise ArithmeticError("the loss does not rise with the strength")


def _fitted_below(
    budget: Budget, event_at: Callable[[Fraction], Event], high: Fraction
) -> Event:
    low = high / 2
    while not budget.covers(event_at(low)):
        low /= 2
    target = math.sqrt(budget.limit)

    def excess(strength: float) -> float:
        """The square root of the loss, which is nearly linear in the strength, minus
        that of the budget.
        """
        return math.sqrt(budget.loss(event_at(Fraction(strength)))) - target

    strength = Fraction(_crossing(excess, low=float(low), high=float(high)))
    step = Fraction(1, 10 ** (_DIGITS - 1))
    # The estimate comes from floats and may be too large. Whatever it is, an exact
    # comparison with the budget decides.
    while strength > low:
        event = event_at(strength)
        if budget.covers(event):
            return event
        strength, step = strength * (1 - step), 2 * step
    return event_at(low)


def _crossing(function: Callable[[float], float], *, low: float, high: float) -> float:
    """Estimates the zero of a rising function, to about :data:`_DIGITS` digits.

    Uses false position and halves the weight of an end that stays (the Illinois rule).
    It converges faster than bisection on smooth functions and never leaves the bracket.
    """
    at_low, at_high = function(low), function(high)
    for _ in range(_MAX_STEPS):
        if at_high == at_low:
            break
        middle = high - at_high * (high - low) / (at_high - at_low)
        value = function(middle)
        if value == 0 or abs(middle - high) <= middle * 10**-_DIGITS:
            return middle
        if (value < 0) is not (at_high < 0):
            low, at_low = high, at_high
        else:
            at_low /= 2
        high, at_high = middle, value
    return high
