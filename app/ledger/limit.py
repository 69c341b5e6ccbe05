"""Defines a limit: a cap with its δ, the numbers of a guarantee."""

from dataclasses import dataclass
from fractions import Fraction

from app.ledger.tables import AccountRow
from app.privacy.guarantees import SplitDelta


@dataclass(frozen=True)
class Limit:
    """A cap that a guarantee states.

    Attributes:
        amount: whole steps of the accountant's unit.
        delta: the whole δ, on accounts that have one.
        delta_set_aside: the part of ``delta`` for external (ε, δ)-mechanisms.
    """

    accountant: str
    amount: int
    delta: Fraction | None
    delta_set_aside: Fraction = Fraction(0)

    @classmethod
    def of(cls, row: AccountRow, amount: int) -> "Limit":
        """A cap of an account."""
        delta = None if row.delta is None else Fraction(row.delta)
        return cls(row.accountant, amount, delta, Fraction(row.delta_set_aside or 0))

    @property
    def split(self) -> SplitDelta:
        """δ and the part that is set aside."""
        return SplitDelta(self.delta, self.delta_set_aside)
