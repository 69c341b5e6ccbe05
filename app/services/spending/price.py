"""Prices a part of a job: its dataset, its scope, and its amount in the unit of the dataset's account.

A part on a public dataset has no account: a private mechanism there has a price, which says how large its noise is and
which nobody pays, and what runs without noise has none.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal, Protocol, TypeAlias

from app.core import amounts
from app.core.errors import DatasetPrivate, FieldProblem, InvalidRequest
from app.datasets import catalog
from app.privacy import accountants
from app.privacy.accountants import pure
from app.privacy.calibration import AccountRequest, price_of
from app.privacy.composition import Scope
from app.privacy.events import Event, NonPrivate
from app.services.declared_bounds import warnings_of
from app.services.guarantees import of_large_amount
from app.services.spending.asked import Asked
from app.wire.training import PriceOut

_LARGE_DELTA = (
    "δ is above one in a million, or above a tenth of one over the public size. A mechanism that occasionally "
    "publishes a whole row could satisfy such a δ."
)


Accountant: TypeAlias = Literal["pure", "zcdp", "gdp"]


class SpendingBody(Protocol):
    """The fields of a request's body that :func:`price_part` reads."""

    @property
    def epsilon(self) -> Fraction | None:
        """The ε of the request; private datasets and private mechanisms need one."""

    @property
    def delta(self) -> Fraction | None:
        """The δ of the request, on accounts that take one."""

    @property
    def accountant(self) -> Accountant | None:
        """The accountant in whose unit a private mechanism on a public dataset is sized."""

    @property
    def scope(self) -> Mapping[str, object]:
        """The scope as the client sent it."""


@dataclass(frozen=True)
class ReadPart:
    """The rows that a part of a job reads. Everything in it follows from public facts.

    Attributes:
        asked: the dataset and its uploads.
        scope: the requested scope in normal form; acceptance adds the uploads that exist at that time.
        public_size: the declared order of magnitude of the rows in the scope; never a count.
    """

    asked: Asked
    scope: Scope
    public_size: int | None

    @property
    def dataset(self) -> catalog.Dataset:
        """The dataset whose rows the part reads and whose account pays, unless the dataset is public."""
        return self.asked.dataset

    @property
    def charged_scope(self) -> Scope:
        """The scope that would be charged now."""
        return self.dataset.with_uploads(self.scope, self.asked.uploads)


@dataclass(frozen=True)
class UnpricedPart(ReadPart):
    """A part on a public dataset whose work has no noise, ready to be quoted or accepted."""

    def __post_init__(self) -> None:
        assert self.dataset.is_public, "what has no price runs on public datasets only"

    @property
    def event(self) -> NonPrivate:
        """No accountant has a bound on it."""
        return NonPrivate()

    @property
    def price(self) -> None:
        """Nothing is noisy."""
        return None

    @property
    def warnings(self) -> list[str]:
        """None: the request has no numbers."""
        return []


@dataclass(frozen=True)
class RequestedPart(ReadPart):
    """A part of a job before its work is planned.

    Attributes:
        accountant: name of the account's accountant; on a public dataset, of the request's.
        amount: steps of the account's unit.
        epsilon: the ε of the request.
        delta: the δ of the request, or else of the account; ``None`` on accounts without a δ.
    """

    accountant: str
    amount: int
    epsilon: Fraction
    delta: Fraction | None

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
        """Sentences about the requested numbers and the declaration; none where nobody is protected anyway."""
        if self.dataset.is_public:
            return []
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
        InvalidRequest: scope, ε, δ or accountant break a rule.
    """
    scope = asked.dataset.read_scope(body.scope, asked.uploads)
    if body.epsilon is None:
        raise InvalidRequest.at("/epsilon", "required")
    accountant, delta = _unit(asked, body)
    return RequestedPart(
        asked=asked,
        scope=scope,
        accountant=accountant,
        amount=price_of(body.epsilon, accountant=accountant, delta=delta),
        epsilon=body.epsilon,
        delta=delta,
        public_size=asked.expected_rows(scope),
    )


def read_part(asked: Asked, body: SpendingBody) -> UnpricedPart:
    """Reads the scope of a request for work without noise, which only a public dataset admits.

    Raises:
        DatasetPrivate: the dataset is private.
        InvalidRequest: the scope breaks a rule, or the request sizes noise.
    """
    if not asked.dataset.is_public:
        raise DatasetPrivate(asked.dataset.id, asked.dataset.name)
    given = [name for name in ("epsilon", "delta", "accountant") if getattr(body, name) is not None]
    if given:
        raise InvalidRequest([FieldProblem(f"/{name}", "not-without-privacy") for name in given])
    scope = asked.dataset.read_scope(body.scope, asked.uploads)
    return UnpricedPart(asked, scope, asked.expected_rows(scope))


def _unit(asked: Asked, body: SpendingBody) -> tuple[str, Fraction | None]:
    """The accountant and the δ that size the noise: those of the account, or of the request on a public dataset."""
    if asked.accountant is None:
        return body.accountant or pure.NAME, body.delta
    if body.accountant is not None:
        raise InvalidRequest.at("/accountant", "only-for-public-datasets")
    return asked.accountant, asked.delta if body.delta is None else body.delta
