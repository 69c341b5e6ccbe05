"""Implements the accountants, one module per unit; see ``accountant.Accountant``."""

from dataclasses import dataclass
from fractions import Fraction

from grovekeeper_forests import amounts
from grovekeeper_forests.privacy.accountants import gdp, pure, zcdp
from grovekeeper_forests.privacy.accountants.accountant import (
    EPSILON_PLACES,
    Accountant,
    steps_down,
)
from grovekeeper_forests.privacy.events import Adjacency, Event, UnknownPrivacyEvent

ALL: tuple[Accountant, ...] = (pure, zcdp, gdp)
NAMES = tuple(accountant.NAME for accountant in ALL)
DELTA_PLACES = 18
"""δ is counted in steps of 10⁻¹⁸."""


@dataclass(frozen=True)
class SplitDelta:
    """A δ with a part that is set aside for (ε, δ)-mechanisms; amounts are converted at
    the rest of δ.
    """

    total: Fraction | None
    set_aside: Fraction = Fraction(0)

    @property
    def converted_at(self) -> Fraction | None:
        """The part of δ that is not set aside."""
        return None if self.total is None else self.total - self.set_aside


WITHOUT_DELTA = SplitDelta(None)
"""δ of an account whose accountant takes none, or of a charge that pays for no (ε,
δ)-mechanism.
"""


def by_name(name: str) -> Accountant:
    """The accountant that requests and exports call ``name``.

    Raises:
        KeyError: no accountant has this name.
    """
    return {accountant.NAME: accountant for accountant in ALL}[name]


@dataclass(frozen=True)
class Amount:
    """An amount on an account.

    Attributes:
        accountant: name of the accountant of the account.
        steps: whole steps of 10^−``PLACES`` of its unit.
    """

    accountant: str
    steps: int

    @property
    def unit(self) -> str:
        """The unit: ``epsilon``, ``rho`` or ``mu_squared``."""
        return by_name(self.accountant).UNIT

    @property
    def value(self) -> Fraction:
        """The exact number of units."""
        return Fraction(self.steps, 10 ** by_name(self.accountant).PLACES)

    @property
    def text(self) -> str:
        """The number of units as exact decimal text."""
        return amounts.to_text(self.value)

    def epsilon_at(self, delta: Fraction | None) -> str:
        """The ε that the amount implies at δ, rounded up, as exact decimal text."""
        return amounts.to_text(by_name(self.accountant).epsilon_of(self.steps, delta))

    def replace_one(self) -> "Amount":
        """The amount that bounds replacing one unit by another, where this amount
        bounds adding or removing one.
        """
        return Amount(self.accountant, by_name(self.accountant).replace_one(self.steps))


def largest_that_fits(
    accountant: str, remaining: int, delta: Fraction | None, *, least: int = 1
) -> Fraction:
    """The largest multiple of 10⁻⁹ ε whose price at δ is at most ``remaining`` steps of
    the unit; zero if none is, or if this price is less than ``least``.

    It is the last multiple before the ε that the next larger amount implies.
    """
    unit = by_name(accountant)
    if remaining < least:
        return Fraction(0)
    next_epsilon = unit.epsilon_of(remaining + 1, delta)
    largest = next_epsilon - Fraction(1, 10**EPSILON_PLACES)
    return largest if largest >= unit.epsilon_of(least, delta) else Fraction(0)


def accepting(event: Event, *, adjacency: Adjacency) -> tuple[str, ...]:
    """Names of the accountants in whose unit an event has a proven bound on an account
    of ``adjacency``.
    """
    return tuple(
        accountant.NAME
        for accountant in ALL
        if _has_bound(accountant, event, adjacency)
    )


def _has_bound(accountant: Accountant, event: Event, adjacency: Adjacency) -> bool:
    try:
        accountant.loss(event, adjacency=adjacency)
    except UnknownPrivacyEvent:
        return False
    return True


def delta_text(steps: int) -> str:
    """Steps of 10⁻¹⁸ as exact decimal text."""
    return amounts.from_steps(steps, DELTA_PLACES)


def delta_steps(text: str | None) -> int:
    """Inverse of :func:`delta_text`; ``None`` is 0."""
    return steps_down(Fraction(text or 0), DELTA_PLACES)
