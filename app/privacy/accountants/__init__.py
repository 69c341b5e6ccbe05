"""Implements the accountants, one module per unit: :class:`~app.privacy.accountants.accountant.Accountant`."""

from dataclasses import dataclass
from fractions import Fraction

from app.core import amounts
from app.privacy.accountants import gdp, pure, zcdp
from app.privacy.accountants.accountant import Accountant, steps_down
from app.privacy.events import Adjacency, Event, UnknownPrivacyEvent

ALL: tuple[Accountant, ...] = (pure, zcdp, gdp)
NAMES = tuple(accountant.NAME for accountant in ALL)
DELTA_PLACES = 18
"""δ is counted in steps of 10⁻¹⁸."""


@dataclass(frozen=True)
class SplitDelta:
    """A δ with a part that is set aside for (ε, δ)-mechanisms; amounts are converted at the rest of δ."""

    total: Fraction | None
    set_aside: Fraction = Fraction(0)

    @property
    def converted_at(self) -> Fraction | None:
        """The part of δ that is not set aside."""
        return None if self.total is None else self.total - self.set_aside


def by_name(name: str) -> Accountant:
    """The accountant that requests and exports call ``name``.

    Raises:
        KeyError: no accountant has this name.
    """
    return {accountant.NAME: accountant for accountant in ALL}[name]


def accepting(event: Event, *, adjacency: Adjacency) -> tuple[str, ...]:
    """Names of the accountants in whose unit an event has a proven bound on an account of ``adjacency``."""
    return tuple(accountant.NAME for accountant in ALL if _has_bound(accountant, event, adjacency))


def _has_bound(accountant: Accountant, event: Event, adjacency: Adjacency) -> bool:
    try:
        accountant.loss(event, adjacency=adjacency)
    except UnknownPrivacyEvent:
        return False
    return True


def amount_text(accountant: str, amount: int) -> str:
    """Whole steps of an accountant's unit as exact decimal text."""
    return amounts.from_steps(amount, by_name(accountant).PLACES)


def delta_text(steps: int) -> str:
    """Steps of 10⁻¹⁸ as exact decimal text."""
    return amounts.from_steps(steps, DELTA_PLACES)


def delta_steps(text: str | None) -> int:
    """Inverse of :func:`delta_text`; ``None`` is 0."""
    return steps_down(Fraction(text or 0), DELTA_PLACES)
