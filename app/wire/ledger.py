"""Defines the types of ``/ledger``: balances, entries, caps."""

from typing import Annotated, Literal

from pydantic import Field

from app.core import limits
from app.wire.base import (
    Answer,
    CapInEpsilon,
    DecimalText,
    PositiveAmount,
    PublicSentence,
    Reference,
    Request,
)
from app.wire.jobs import JobKind
from grovekeeper_common.json_types import JsonObject
from grovekeeper_common.limit_words import LimitedBy


class AccountNamed(Answer):
    """The account of a dataset or of a population."""

    account: str
    account_name: str
    kind: Literal["dataset", "population"]


Verdict = Literal[
    "VERIFIED",
    "VERIFIED (bounded)",
    "CONSISTENT",
    "CONSISTENT (bounded)",
    "NOT VERIFIED",
]
"""What the verifier says of an export."""


Note = Annotated[str, Field(max_length=limits.MAX_CHECKPOINT_CHARS)]
"""A signed checkpoint."""


class VerificationIn(Request):
    """The result of the verifier for an export of the account, as an auditor states it.

    ``VERIFIED`` names the signed checkpoint, ``CONSISTENT`` the last entry of the
    export; the service compares either with its entries. ``NOT VERIFIED`` needs
    neither.
    """

    verdict: Verdict
    checkpoint: Note | None = None
    entries: Annotated[int | None, Field(ge=1, le=2**53 - 1)] = None
    last_hash: Reference | None = None


class VerificationOut(Answer):
    """The last verification of an account by one auditor, who states the result, or by
    the service's own verifier, for which ``by`` is null.

    It says nothing about the ``entries_since``. The three members are null where
    nothing was verified or compared with a checkpoint.
    """

    verdict: Verdict
    entries: int | None
    entries_since: int | None
    checkpoint: str | None
    by: str | None
    by_name: str | None
    at: str


class VerificationList(Answer):
    """The last verifications of an account: failures first, then the newest."""

    verifications: list[VerificationOut]


class BalanceOut(AccountNamed):
    """The balance of an account: of a dataset at its tightest joint cell, of a
    population summed over its members.

    ``cap = charged + reserved + remaining``, unless the cap was lowered below what is
    spent, or a dataset that had spent joined the population: then nothing remains.
    ``available``, the most that one job of the key may reserve, is less than
    ``remaining`` where a population's cap or the rules leave less; ``limited_by`` names
    the limit that decides.
    ``dataset`` and ``dataset_name`` are null for a population. ``deleted_at`` is the
    time at which the dataset was erased, because datasets of one name may follow each
    other.
    """

    dataset: str | None
    dataset_name: str | None
    deleted_at: str | None
    accountant: str
    unit: str
    cap: DecimalText
    charged: DecimalText
    reserved: DecimalText
    remaining: DecimalText
    available: DecimalText
    limited_by: LimitedBy


class VerifiedBalance(BalanceOut):
    """A balance with the last verifications of the account."""

    verifications: list[VerificationOut]


class BalanceList(Answer):
    datasets: list[VerifiedBalance]
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
    """The part of δ that is set aside for external (ε, δ)-mechanisms, at the joint cell
    that has spent most of it.
    """

    set_aside: DecimalText
    charged: DecimalText
    remaining: DecimalText


class AccountBalance(VerifiedBalance):
    """One account in detail: the tightest joint cell of a scope, every cell in the
    scope, and the account's guarantee.

    Where ``exact`` is false, the amounts are an upper bound: the maximum over all joint
    cells is too expensive to compute. A population has no cells.
    """

    scope: JsonObject
    tightest_cell: JsonObject
    exact: bool
    largest_that_fits: DecimalText
    partitions: list[PartitionBalance]
    guarantee: JsonObject
    delta_set_aside: DeltaOut | None


AccountEntryKind = Literal[
    "open", "reserve", "charge", "void", "expire", "cap", "join", "load", "state"
]
"""The kinds of entries of datasets and populations."""


class EntryOut(Answer):
    """One immutable line of an account; the object whose RFC 8785 form, without
    ``hash``, was hashed.
    """

    sequence: int
    kind: AccountEntryKind
    amount: DecimalText
    scope: JsonObject
    event: JsonObject | None
    job_id: str | None
    actor: str
    at: str
    previous_hash: str
    hash: str


class DetailedEntryOut(EntryOut):
    """An entry with ``details``. Entries without details lack the member: each is shown
    as it was hashed.
    """

    details: JsonObject


class CapIn(Request):
    """A new cap, and a reason that the ledger keeps. The cap is an ε, at the account's
    own δ if it has one; on ``zcdp`` also a ρ, on ``gdp`` a μ.
    """

    rho: PositiveAmount | None = None
    mu: PositiveAmount | None = None
    cap: CapInEpsilon = None
    reason: PublicSentence


class ChangedCap(BalanceOut):
    """The balance under the new cap; ``warnings`` are sentences about a cap that
    promises little.
    """

    warnings: list[str]


class ChargedJob(Answer):
    """The public facts of a job beside its entries: what it ran, under which name, for
    which key.

    ``models`` has the ids of the model that it trained, or of those that it evaluated.
    """

    kind: JobKind | str
    algorithm: str | None
    what: str
    name: str | None
    models: list[str]
    submitted_by: str


class EntryList(AccountNamed):
    """Entries in order, each as it was hashed, and beside them ``jobs``, the facts of
    their jobs by id.

    ``actors`` has the names of those acting and submitting keys whose names the reader
    may know, by id. ``job_id`` of an entry is the id of its reservation (``rs_…``)
    where no job but an external mechanism is charged.
    """

    actors: dict[str, str]
    jobs: dict[str, ChargedJob]
    entries: list[EntryOut | DetailedEntryOut]
    next: str | None


SpentBy = Literal["key", "purpose", "key,purpose", "kind", "month", "cell"]


class SpentGroup(Answer):
    """The charges of one group.

    ``group`` is the id of a key (with its ``name``, if the reader may know it), a
    purpose (null: none was stated), a kind of job or ``external``, a month like
    ``2026-11``, or a cell like ``region=EU``. ``purpose`` is that of a group by key and
    purpose (null: none was stated), and null in others. ``charges`` is their number; null for a
    cell. ``charged`` of a cell is the most that one record in it was charged.
    ``share`` is the part of all that was charged.
    """

    group: str | None
    name: str | None
    purpose: str | None
    charges: int | None
    charged: DecimalText
    share: float


class SpentOut(AccountNamed):
    """The charges of a dataset's account by group, the largest first, months the newest
    first.

    ``charged`` is the sum of all charges that the reader may see, ``carried`` what an
    erased dataset had spent whose account goes on. ``spent`` is what the tightest cell
    was charged, as in the balance: less than the sum where charges cover disjoint
    cells. ``n_groups`` counts all groups, of which the largest are listed.
    """

    unit: str
    by: SpentBy
    charged: DecimalText
    carried: DecimalText
    spent: DecimalText
    groups: list[SpentGroup]
    n_groups: int
