"""Prices a part of a job: its dataset, its scope, and its amount in the unit of the dataset's account."""

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Protocol

from app.core import amounts
from app.datasets import catalog
from app.privacy import accountants
from app.privacy.calibration import AccountRequest, price_of
from app.privacy.composition import Scope
from app.privacy.events import Event
from app.services.declared_bounds import warnings_of
from app.services.guarantees import of_large_amount
from app.services.spending.asked import Asked
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
        asked: the dataset and its uploads.
        scope: the requested scope in normal form; acceptance adds the uploads that exist at that time.
        public_size: the declared order of magnitude of the rows in the scope; never a count.
        accountant: name of the account's accountant.
        amount: steps of the account's unit.
        epsilon: the ε of the request.
        delta: the δ of the request, or else of the account; ``None`` on accounts without a δ.
    """

    asked: Asked
    scope: Scope
    public_size: int | None
    accountant: str
    amount: int
    epsilon: Fraction
    delta: Fraction | None

    @property
    def dataset(self) -> catalog.Dataset:
        """The dataset whose rows the part reads and whose account pays."""
        return self.asked.dataset

    @property
    def charged_scope(self) -> Scope:
        """The scope that would be charged now."""
        return self.dataset.with_uploads(self.scope, self.asked.uploads)

    @property
    def price(self) -> PriceOut:
        """The price as answers show it: exactly the requested (ε, δ), in the account's unit."""
        return PriceOut(
            accountant=self.accountant,
            unit=accountants.by_name(self.accountant).UNIT,
            amount=accountants.amount_text(self.accountant, self.amount),
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


def price_part(asked: Asked, body: SpendingBody) -> RequestedPart:
    """Reads the scope of a request and converts its (ε, δ) to an amount; the account's δ is the default.

    Raises:
        InvalidRequest: scope, ε or δ break a rule.
    """
    scope = asked.dataset.read_scope(body.scope, asked.uploads)
    delta = asked.delta if body.delta is None else body.delta
    return RequestedPart(
        asked=asked,
        scope=scope,
        accountant=asked.accountant,
        amount=price_of(body.epsilon, accountant=asked.accountant, delta=delta),
        epsilon=body.epsilon,
        delta=delta,
        public_size=asked.expected_rows(scope),
    )
