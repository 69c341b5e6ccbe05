"""Quotes the parts of a job: price, receipt, and whether the account would admit the part now."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy.orm import Session

from app.access.grants import Principal
from app.core import amounts
from app.ledger import rules, statements
from app.ledger.admission import Request
from app.privacy import accountants, guarantees, receipts
from app.services.spending.price import PricedPart

_BOUNDED = (
    "The remaining budget is a lower bound: the scopes of this dataset's jobs overlap in too many ways to compute "
    "it exactly. A smaller scope may show that more remains."
)
_FROZEN = "The dataset is frozen: nothing is admitted until its owners end the freeze."


@dataclass(frozen=True)
class PartQuote:
    """A priced part, and what its account admits in its scope when the job's other parts are reserved.

    Attributes:
        part: the part.
        balance: of the account in the part's scope.
        room: the largest amount that budget, population and rules admit.
        is_frozen: whether the dataset is frozen.
        needs_approval: whether the job would wait for an approval of an owner of the dataset.
    """

    part: PricedPart
    balance: statements.Balance
    room: int
    is_frozen: bool
    needs_approval: bool

    @property
    def warnings(self) -> list[str]:
        """Sentences about the requested numbers and the balance."""
        bounded = [] if self.balance.is_exact else [_BOUNDED]
        return [*self.part.warnings, *bounded, *([_FROZEN] if self.is_frozen else [])]

    @property
    def _limited_by(self) -> str:
        if self.room < self.balance.room:
            return "rules"
        return "population" if self.balance.room < self.balance.remaining else "cap"

    @property
    def fields(self) -> dict[str, Any]:
        """The fields of every quote, which ``AccountPlanOut`` defines."""
        part, unit = self.part, accountants.by_name(self.part.accountant)
        return {
            "dataset": part.dataset.id,
            "dataset_name": part.dataset.name,
            "scope": {name: list(cells) for name, cells in part.scope.items()},
            "price": part.price,
            "event": part.event.to_json(),
            "odds": guarantees.odds_of_charge(part.accountant, part.amount, part.dataset.adjacency),
            "receipt": receipts.in_words(
                part.event,
                accountant=part.accountant,
                adjacency=part.dataset.adjacency,
                max_rows=part.dataset.max_rows,
            ),
            "cap": self.balance.text(self.balance.cap),
            "remaining": self.balance.text(self.balance.remaining),
            "fits": part.amount <= self.room,
            "largest_that_fits": amounts.to_text(unit.largest_that_fits(self.room, part.delta)),
            "left_afterwards": amounts.to_text(unit.largest_that_fits(max(self.room - part.amount, 0), part.delta)),
            "limited_by": self._limited_by,
            "needs_approval": self.needs_approval,
            "population": part.dataset.row.population if self.balance.room < self.balance.remaining else None,
        }


def quote_parts(session: Session, principal: Principal, parts: Sequence[PricedPart]) -> list[PartQuote]:
    """Quotes a job's parts for a key. Datasets of one population share its cap, so all parts are judged together."""
    requests = [Request(part.dataset.id, part.amount, part.charged_scope) for part in parts]
    balances = statements.balances_of_job(session, requests)
    allowances = rules.allowances(session, {part.dataset.id for part in parts}, principal.key_id)
    quotes = []
    for position, (part, balance) in enumerate(zip(parts, balances, strict=True)):
        allowance = allowances.get(part.dataset.id, rules.UNLIMITED)
        ruled = rules.room_beside(allowances, requests, position)
        quotes.append(
            PartQuote(
                part,
                balance,
                room=balance.room if ruled is None else min(balance.room, ruled),
                is_frozen=allowance.is_frozen,
                needs_approval=allowance.needs_approval(rules.total_on(requests, part.dataset.id)),
            )
        )
    return quotes
