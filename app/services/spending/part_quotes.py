"""Quotes the parts of a job: price, receipt, and whether the account would admit the part now."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy.orm import Session

from app.core import amounts
from app.ledger import statements
from app.ledger.admission import Request
from app.privacy import accountants, receipts
from app.services.spending import scopes
from app.services.spending.price import PricedPart

_BOUNDED = (
    "The remaining budget is a lower bound: the scopes of this dataset's jobs overlap in too many ways to compute "
    "it exactly. A smaller scope may show that more remains."
)


@dataclass(frozen=True)
class PartQuote:
    """A priced part, and the balance of its account in its scope when the job's other parts are reserved."""

    part: PricedPart
    balance: statements.Balance

    @property
    def warnings(self) -> list[str]:
        """Sentences about the requested numbers and the balance."""
        return [*self.part.warnings, *([] if self.balance.is_exact else [_BOUNDED])]

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
            "receipt": receipts.in_words(
                part.event,
                accountant=part.accountant,
                adjacency=part.dataset.adjacency,
                max_rows=part.dataset.max_rows,
            ),
            "fits": part.amount <= self.balance.room,
            "largest_that_fits": amounts.to_text(unit.largest_that_fits(self.balance.room, part.delta)),
            "population": part.dataset.row.population if self.balance.room < self.balance.remaining else None,
        }


def quote_parts(session: Session, parts: Sequence[PricedPart]) -> list[PartQuote]:
    """Quotes a job's parts. Datasets of one population share its cap, so all parts are judged together."""
    requests = [
        Request(part.dataset.id, part.amount, scopes.resolved(session, part.dataset, part.scope)) for part in parts
    ]
    balances = statements.balances_of_job(session, requests)
    return [PartQuote(part, balance) for part, balance in zip(parts, balances, strict=True)]
