"""``/ledger``: balances, entries, exports; entries and caps of populations too."""

from typing import Literal

from app.wire.base import Answer, DecimalText, JsonObject, PositiveAmount, PublicSentence, Request


class BalanceOut(Answer):
    """One account at its tightest joint cell."""

    dataset: str
    dataset_name: str
    accountant: str
    unit: str
    cap: DecimalText
    charged: DecimalText
    reserved: DecimalText
    remaining: DecimalText


class BalanceList(Answer):
    datasets: list[BalanceOut]
    next: str | None


class CellOut(Answer):
    """One cell of a partition, at the tightest joint cell that lies in it."""

    cell: int | str
    charged: DecimalText
    reserved: DecimalText
    remaining: DecimalText


class PartitionBalance(Answer):
    name: str
    kind: str
    cells: list[CellOut]


class DeltaOut(Answer):
    """The part of δ for mechanisms that are (ε, δ), at the joint cell of the box that has spent most of it."""

    set_aside: DecimalText
    charged: DecimalText
    remaining: DecimalText


class DatasetBalance(BalanceOut):
    """The same for one dataset: the tightest cell of the box that was asked, every cell in it, and what may be
    claimed of all outputs together.

    Where not ``exact``, the amounts are an upper bound: the maximum over all joint cells was too much work.
    """

    scope: JsonObject
    tightest_cell: JsonObject
    exact: bool
    largest_that_fits: DecimalText
    partitions: list[PartitionBalance]
    guarantee: JsonObject
    delta_set_aside: DeltaOut | None


class EntryOut(Answer):
    """One immutable line of an account; the object whose RFC 8785 form, without ``hash``, was hashed."""

    sequence: int
    kind: Literal["open", "reserve", "charge", "void", "expire", "cap", "join", "load"]
    amount: DecimalText
    scope: JsonObject
    event: JsonObject | None
    job_id: str | None
    actor: str
    at: str
    previous_hash: str
    hash: str


class DetailedEntryOut(EntryOut):
    """An entry with ``details``. One that has none has no such member, so that it shows the object that was hashed."""

    details: JsonObject


class CapIn(Request):
    """Another cap: an ε, with the account's own δ where it has one, and the reason for the ledger."""

    cap: PositiveAmount
    reason: PublicSentence


class EntryList(Answer):
    entries: list[EntryOut | DetailedEntryOut]
    next: str | None
