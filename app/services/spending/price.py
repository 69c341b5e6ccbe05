"""Prices a part of a job: its dataset, its scope, and its amount in the unit of the dataset's account."""

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Protocol

from sqlalchemy.orm import Session

from app.core import amounts
from app.datasets import catalog
from app.forests.planning import AccountRequest, price_of
from app.ledger import account_facts, statements
from app.privacy import accountants
from app.privacy.composition import Scope
from app.privacy.events import Event
from app.services.declared_bounds import warnings_of
from app.services.guarantees import of_large_amount
from app.services.spending import scopes
from app.wire.training import PriceOut

_LARGE_DELTA = (
    "δ is above one in a million, or above a tenth of one over the public size. A mechanism that occasionally "
    "publishes a whole row could satisfy such a δ."
)


class SpendingBody(Protocol):
    """The fields of a request's body that :func:`price_part` reads."""

    @property
    def epsilon(self) -> Fraction:
        """The ε of the request."""

    @property
    def delta(self) -> Fraction | None:
        """The δ of the request, on accounts that take one."""

    @property
    def scope(self) -> Mapping[str, object]:
        """The scope as the client sent it."""


@dataclass(frozen=True)
class RequestedPart:
    """A part of a job before its work is planned. Everything in it follows from public facts.

    Attributes:
        dataset: the dataset whose rows the part reads and whose account pays.
        scope: the requested scope in normal form; acceptance adds the uploads that exist at that time.
        accountant: name of the account's accountant.
        amount: steps of the account's unit.
        epsilon: the ε of the request.
        delta: the δ of the request, or else of the account; ``None`` on accounts without a δ.
        public_size: the declared order of magnitude of the rows in the scope; never a count.
    """

    dataset: catalog.Dataset
    scope: Scope
    accountant: str
    amount: int
    epsilon: Fraction
    delta: Fraction | None
    public_size: int | None

    @property
    def price(self) -> PriceOut:
        """The price as answers show it: exactly the requested (ε, δ), in the account's unit."""
        return PriceOut(
            accountant=self.accountant,
            unit=accountants.by_name(self.accountant).UNIT,
            amount=account_facts.amount_text(self.accountant, self.amount),
            epsilon=amounts.to_text(self.epsilon),
            delta=None if self.delta is None else amounts.to_text(self.delta),
        )

    @property
    def account_request(self) -> AccountRequest:
        """The part as an argument of planning."""
        return AccountRequest(
            epsilon=self.epsilon,
            public_size=self.public_size,
            accountant=self.accountant,
            delta=self.delta,
            adjacency=self.dataset.adjacency,
            max_rows=self.dataset.max_rows,
        )

    @property
    def warnings(self) -> list[str]:
        """Sentences about the requested numbers and the declaration."""
        usual_delta = min(Fraction(1, 10**6), Fraction(1, 10 * max(self.dataset.row.public_size or 0, 1)))
        is_large = self.delta is not None and self.delta > usual_delta
        return [
            *of_large_amount(self.accountant, self.amount, delta=self.delta, adjacency=self.dataset.adjacency),
            *([_LARGE_DELTA] if is_large else []),
            *warnings_of(self.dataset.schema),
        ]

    def paying_for(self, event: Event) -> "PricedPart":
        """The part with the event that its price pays for."""
        return PricedPart(**vars(self), event=event)


@dataclass(frozen=True)
class PricedPart(RequestedPart):
    """A part of a job, ready to be quoted or accepted: dataset, scope, amount, and the event that is released."""

    event: Event


def price_part(session: Session, dataset: catalog.Dataset, body: SpendingBody) -> RequestedPart:
    """Reads the scope of a request and converts its (ε, δ) to an amount; the account's δ is the default.

    Raises:
        InvalidRequest: scope, ε or δ break a rule.
    """
    scope = scopes.read_scope(session, dataset, body.scope)
    account = statements.highest_cap(session, dataset.id)
    delta = account.split.converted_at if body.delta is None else body.delta
    return RequestedPart(
        dataset=dataset,
        scope=scope,
        accountant=account.accountant,
        amount=price_of(body.epsilon, accountant=account.accountant, delta=delta),
        epsilon=body.epsilon,
        delta=delta,
        public_size=_expected_rows(session, dataset, scope),
    )


def _expected_rows(session: Session, dataset: catalog.Dataset, scope: Scope) -> int | None:
    """The expected number of rows in a scope, from declared sizes alone; ``None`` where no size is declared.

    Shares of several partitions multiply. All uploads have equal shares; their number is public.
    """
    size = dataset.row.public_size
    if size is None:
        return None
    inside, all_cells = dataset.partitions.share(scope, n_epochs=len(catalog.epochs(session, dataset.id)))
    return max(size * inside // all_cells, 1)
