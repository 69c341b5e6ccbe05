"""Defines the types of external charges: their prices and reservations."""

from typing import Annotated, Literal

from pydantic import Field, model_validator

from app.wire.base import (
    Answer,
    DecimalText,
    JsonObjectIn,
    OfDataset,
    PositiveAmount,
    PublicSentence,
    Request,
    problem,
)
from grovekeeper_common.json_types import JsonObject
from grovekeeper_common.limit_words import LimitedBy
from grovekeeper_forests import amounts


class DeclaredLossIn(Request):
    """The loss of a mechanism: one of ε, ρ and μ, or (ε, δ); under the named adjacency."""

    adjacency: Literal["add_remove", "replace_one", "label"]
    epsilon: PositiveAmount | None = None
    rho: PositiveAmount | None = None
    mu: PositiveAmount | None = None
    delta: PositiveAmount | None = None

    @model_validator(mode="after")
    def _one_statement(self) -> "DeclaredLossIn":
        if sum(value is not None for value in (self.epsilon, self.rho, self.mu)) != 1:
            raise problem("one-of-epsilon-rho-mu")
        if self.delta is not None and self.epsilon is None:
            raise problem("delta-without-epsilon")
        if self.delta is not None and self.delta >= 1:
            raise problem("delta-not-below-one", form=amounts.BELOW_ONE)
        return self


class ExternalIn(Request):
    """An external mechanism: its event or declared loss, the cells that it reads, and
    its purpose.

    ``per`` says what the loss is stated for: one ``row``, or one ``unit`` of the unit
    column with all its rows.
    """

    description: PublicSentence
    per: Literal["row", "unit"]
    event: JsonObjectIn | None = None
    declared: DeclaredLossIn | None = None
    scope: Annotated[JsonObjectIn, Field(default_factory=dict)]

    @model_validator(mode="after")
    def _event_or_declaration(self) -> "ExternalIn":
        if (self.event is None) == (self.declared is None):
            raise problem("event-or-declared")
        return self


class ExternalPrice(Answer):
    """``amount`` in the account's unit; ``delta`` out of the part that is set aside,
    for (ε, δ)-mechanisms.
    """

    accountant: str
    unit: str
    amount: DecimalText
    delta: DecimalText | None


class ExternalQuote(OfDataset):
    """The price of an external mechanism, and whether it fits.

    ``odds`` are those of a right guess about one change, given everything that was
    released before. ``limited_by`` names the limit that decides ``largest_that_fits``.
    """

    scope: JsonObject
    price: ExternalPrice
    odds: dict[str, DecimalText]
    receipt: str
    fits: bool
    remaining: DecimalText
    delta_remaining: DecimalText | None
    largest_that_fits: DecimalText
    limited_by: LimitedBy
    warnings: list[str]


class ReservationOut(Answer):
    """A charge for an external mechanism, on the word of ``attested_by``."""

    reservation_id: str
    dataset: str
    dataset_name: str
    state: Literal["reserved", "charged", "void", "expired"]
    scope: JsonObject
    price: ExternalPrice
    description: str
    per: Literal["row", "unit"]
    event: JsonObject | None
    declared: JsonObject | None
    attested_by: str
    receipt: str


class ReservationList(Answer):
    reservations: list[ReservationOut]
    next: str | None
