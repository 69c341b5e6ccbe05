"""What every request that spends has in common: a dataset, a scope in it, and an amount of its account's unit."""

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Protocol

from sqlalchemy.orm import Session

from app.core import amounts
from app.datasets import catalog
from app.forests.planning import AccountRequest, price_of
from app.ledger import service as ledger
from app.privacy import accountants, receipts
from app.privacy.composition import Scope
from app.privacy.events import Event
from app.services.datasets.public_sizes import expected_rows
from app.services.spending import scopes
from app.wire.training import PriceOut

_LARGE_DELTA = (
    "δ is above one in a million, or above a tenth of one over the public size. Publishing a whole row now and then "
    "could be within such a δ."
)

_BOUNDED = (
    "What is left was bounded and not computed: the scopes of this dataset's jobs are too entangled. A smaller scope "
    "may show that more is left."
)


class Spending(Protocol):
    """The part of a request's body that :func:`asked` reads."""

    @property
    def epsilon(self) -> Fraction:
        """What it may cost, with δ."""

    @property
    def delta(self) -> Fraction | None:
        """On accounts that have one."""

    @property
    def scope(self) -> Mapping[str, object]:
        """As the client sent it."""


@dataclass(frozen=True)
class Asked:
    """A request with everything public worked out that does not depend on what it will do there.

    Attributes:
        scope: as it was asked for, in normal form; ``accept`` completes it by the uploads.
        public_size: the owner's order of magnitude of the rows in scope; never a count.
    """

    dataset: catalog.Dataset
    scope: Scope
    balance: ledger.Balance
    amount: int
    epsilon: Fraction
    delta: Fraction | None
    public_size: int | None

    @property
    def price(self) -> PriceOut:
        """Exactly what was asked for, in the account's unit."""
        return PriceOut(
            accountant=self.balance.accountant,
            unit=self.balance.unit,
            amount=self.balance.text(self.amount),
            epsilon=amounts.to_text(self.epsilon),
            delta=None if self.delta is None else amounts.to_text(self.delta),
        )

    @property
    def request(self) -> AccountRequest:
        """The same in the terms of a plan."""
        return AccountRequest(
            epsilon=self.epsilon,
            public_size=self.public_size,
            accountant=self.balance.accountant,
            delta=self.delta,
            adjacency=self.dataset.adjacency,
            max_rows=self.dataset.max_rows,
        )

    @property
    def warnings(self) -> tuple[str, ...]:
        """Sentences about the numbers that were asked for."""
        size = self.dataset.row.public_size or 0
        is_large = self.delta is not None and self.delta > _usual_delta(size)
        found = {_LARGE_DELTA: is_large, _BOUNDED: not self.balance.is_exact}
        return tuple(sentence for sentence, is_said in found.items() if is_said)

    @property
    def fits(self) -> bool:
        """Whether the account, and its population if it has one, has that much left in the scope."""
        return self.amount <= self.balance.room

    @property
    def largest_that_fits(self) -> str:
        """The largest ε that the same request could carry now."""
        unit = accountants.by_name(self.balance.accountant)
        return amounts.to_text(unit.largest_that_fits(self.balance.room, self.delta))

    def shown(self, event: Event) -> dict[str, Any]:
        """What every quote says: the fields of ``AccountPlanOut``."""
        return {
            "dataset": self.dataset.id,
            "dataset_name": self.dataset.name,
            "scope": {name: list(cells) for name, cells in self.scope.items()},
            "price": self.price,
            "event": event.to_json(),
            "receipt": self.receipt(event),
            "fits": self.fits,
            "largest_that_fits": self.largest_that_fits,
        }

    def receipt(self, event: Event) -> str:
        """What is released for that price, in words."""
        return receipts.in_words(
            event,
            accountant=self.balance.accountant,
            adjacency=self.dataset.adjacency,
            max_rows=self.dataset.max_rows,
        )


def asked(session: Session, dataset: catalog.Dataset, wanted: Spending) -> Asked:
    """Works out scope and price from public facts alone: what it reads of the ledger is the balance.

    Raises:
        InvalidRequest: scope, ε or δ break a rule.
    """
    scope = scopes.read_scope(session, dataset, wanted.scope)
    balance = ledger.balance(session, dataset.id, scopes.resolved(session, dataset, scope))
    size = expected_rows(session, dataset, scope)
    amount = price_of(wanted.epsilon, accountant=balance.accountant, delta=wanted.delta)
    return Asked(dataset, scope, balance, amount, wanted.epsilon, wanted.delta, size)


def _usual_delta(public_size: int) -> Fraction:
    return min(Fraction(1, 10**6), Fraction(1, 10 * max(public_size, 1)))
