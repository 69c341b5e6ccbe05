"""Defines what all requests that spend budget, and their prices, have in common."""

from typing import Annotated

from pydantic import Field

from app.wire.base import (
    Answer,
    DecimalText,
    JsonObjectIn,
    LabelOfJob,
    OfDataset,
    PositiveAmount,
    Request,
)
from grovekeeper_common.json_types import JsonObject
from grovekeeper_common.limit_words import LimitedBy


class SpendIn(Request):
    """Fields of every request that spends: the amount and the scope.

    The dataset's account gives the accountant, and its δ where the request has none.
    """

    epsilon: PositiveAmount
    delta: PositiveAmount | None = None
    scope: Annotated[JsonObjectIn, Field(default_factory=dict)]


class PriceOut(Answer):
    """A price: ``amount`` in the account's unit; ``epsilon`` and ``delta`` as
    requested.
    """

    accountant: str
    unit: str
    amount: DecimalText
    epsilon: DecimalText
    delta: DecimalText | None


class AccountPlanOut(OfDataset):
    """A job's scope, price and event on one account, and whether it fits.

    ``label`` is the label that the job reads, absent where the dataset declares no
    other or the job names none. ``remaining`` is what the cap leaves in the job's scope, in the account's unit.
    ``largest_that_fits`` is an ε: the minimum over cap, population and rules, of which
    ``limited_by`` names the smallest; ``left_afterwards`` is the ε that would fit after
    this job. ``population`` is the name of the dataset's population if the population's
    cap leaves less than the dataset's cap. With ``needs_approval`` an accepted job
    waits for the approval of an owner. ``odds`` are those of a right guess about one
    change, given everything that was released before.
    """

    scope: JsonObject
    label: LabelOfJob
    price: PriceOut
    odds: dict[str, DecimalText]
    event: JsonObject
    receipt: str
    cap: DecimalText
    remaining: DecimalText
    fits: bool
    largest_that_fits: DecimalText
    left_afterwards: DecimalText
    limited_by: LimitedBy
    needs_approval: bool
    population: str | None


class UnlabelledOut(OfDataset):
    """Reservation and price of a job's second part."""

    reservation_id: str
    price: PriceOut
