"""What a guarantee is made of: a cap, and the δ that it was converted at."""

from dataclasses import dataclass
from fractions import Fraction

from app.ledger.tables import AccountRow
from app.privacy.guarantees import SplitDelta


@dataclass(frozen=True)
class Limit:
    """A cap that a guarantee can be made of: ``amount`` whole steps of the accountant's unit, at ``delta``, of which a
    part may be set aside for mechanisms that are (ε, δ)."""

    accountant: str
    amount: int
    delta: Fraction | None
    delta_set_aside: Fraction = Fraction(0)

    @classmethod
    def of(cls, row: AccountRow) -> "Limit":
        """The highest cap of an account; see :func:`app.ledger.service.highest_cap`."""
        delta = None if row.delta is None else Fraction(row.delta)
        return cls(row.accountant, row.highest_cap, delta, Fraction(row.delta_set_aside or 0))

    @property
    def split(self) -> SplitDelta:
        """δ and what is set aside of it."""
        return SplitDelta(self.delta, self.delta_set_aside)
