"""Defines the types of ``/ledger`` and ``/audit``: balances, entries, caps, external charges, proofs, acts."""

from typing import Annotated, Literal, TypeAlias

from pydantic import Field, model_validator

from app.wire.base import (
    Answer,
    DecimalText,
    JsonObject,
    JsonObjectIn,
    OfDataset,
    PositiveAmount,
    PublicSentence,
    Request,
    problem,
)
from app.wire.limit_words import LimitedBy
from app.wire.spending import JobKind


class AccountNamed(Answer):
    """The account of a dataset or of a population."""

    account: str
    account_name: str
    kind: Literal["dataset", "population"]


class BalanceOut(AccountNamed):
    """The balance of an account: of a dataset at its tightest joint cell, of a population summed over its members.

    ``cap = charged + reserved + remaining``, unless the cap was lowered below what is spent, or a dataset that had
    spent joined the population: then nothing remains. ``available``, the most that one job of the key may reserve, is
    less than ``remaining`` where a population's cap or the rules leave less; ``limited_by`` names the limit that
    decides.
    ``dataset`` and ``dataset_name`` are null for a population. ``deleted_at`` is the time at which the dataset was
    erased, because datasets of one name may follow each other.
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
    """The part of δ that is set aside for external (ε, δ)-mechanisms, at the joint cell that has spent most of it."""

    set_aside: DecimalText
    charged: DecimalText
    remaining: DecimalText


class AccountBalance(BalanceOut):
    """One account in detail: the tightest joint cell of a scope, every cell in the scope, and the account's guarantee.

    Where ``exact`` is false, the amounts are an upper bound: the maximum over all joint cells is too expensive to
    compute. A population has no cells.
    """

    scope: JsonObject
    tightest_cell: JsonObject
    exact: bool
    largest_that_fits: DecimalText
    partitions: list[PartitionBalance]
    guarantee: JsonObject
    delta_set_aside: DeltaOut | None


AccountEntryKind: TypeAlias = Literal["open", "reserve", "charge", "void", "expire", "cap", "join", "load", "state"]
"""The kinds of entries of datasets and populations."""


class EntryOut(Answer):
    """One immutable line of an account; the object whose RFC 8785 form, without ``hash``, was hashed."""

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
    """An entry with ``details``. Entries without details lack the member: each is shown as it was hashed."""

    details: JsonObject


class CapIn(Request):
    """A new cap: an ε (at the account's own δ, if it has one), and a reason that the ledger keeps."""

    cap: PositiveAmount
    reason: PublicSentence


class ChangedCap(BalanceOut):
    """The balance under the new cap; ``warnings`` are sentences about a cap that promises little."""

    warnings: list[str]


class ChargedJob(Answer):
    """The public facts of a job beside its entries: what it ran, under which name, for which key.

    ``models`` has the ids of the model that it trained, or of those that it evaluated.
    """

    kind: JobKind | str
    algorithm: str | None
    name: str | None
    models: list[str]
    submitted_by: str


class EntryList(AccountNamed):
    """Entries in order, each as it was hashed, and beside them ``jobs``, the facts of their jobs by id.

    ``actors`` has the names of those acting and submitting keys whose names the reader may know, by id. ``job_id`` of
    an entry is the id of its reservation (``rs_…``) where no job but an external mechanism is charged.
    """

    actors: dict[str, str]
    jobs: dict[str, ChargedJob]
    entries: list[EntryOut | DetailedEntryOut]
    next: str | None


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
            raise problem("delta-not-below-one")
        return self


class ExternalIn(Request):
    """An external mechanism: its event or declared loss, the cells that it reads, and its purpose.

    ``per`` says what the loss is stated for: one ``row``, or one ``unit`` of the unit column with all its rows.
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
    """``amount`` in the account's unit; ``delta`` out of the part that is set aside, for (ε, δ)-mechanisms."""

    accountant: str
    unit: str
    amount: DecimalText
    delta: DecimalText | None


class ExternalQuote(OfDataset):
    """The price of an external mechanism, and whether it fits.

    ``odds`` are those of a right guess about one change, given everything that was released before. ``limited_by``
    names the limit that decides ``largest_that_fits``.
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


DigestText = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


class InclusionOut(Answer):
    """An inclusion proof: the hashes that lead from an entry to the root of the log at this size."""

    kind: Literal["inclusion"]
    origin: str
    size: int
    sequence: int
    entry: JsonObject
    path: list[DigestText]


class ConsistencyOut(Answer):
    """A consistency proof: the log of a later checkpoint begins with the log of an earlier one."""

    kind: Literal["consistency"]
    origin: str
    from_size: int
    size: int
    path: list[DigestText]


class SignerOut(Answer):
    """The public key that verifies checkpoints: in PEM, and in the form of tools for signed notes."""

    name: str
    algorithm: Literal["ed25519"]
    public_key: str
    verifier_key: str


class DeploymentOut(AccountNamed):
    """A record for the public registry of deployments in the version ``form``, what its owner adds, and more facts."""

    form: str
    record: JsonObject
    missing: dict[Literal["required", "optional"], list[str]]
    facts: JsonObject


ActKind: TypeAlias = Literal[
    "open",
    "key-made",
    "key-rotated",
    "key-revoked",
    "subject-admitted",
    "subject-roles",
    "grant-made",
    "grant-removed",
    "dataset-declared",
    "dataset-deleted",
    "unit-erased",
    "upload-erased",
    "cap-changed",
    "population-opened",
    "population-joined",
    "signer-pinned",
    "storage-key-changed",
    "rules-changed",
    "rules-proposed",
    "job-approved",
    "job-rejected",
    "history-lost",
    "alias-moved",
    "alias-removed",
    "model-deleted",
    "webhook-made",
    "webhook-rotated",
    "webhook-removed",
]


class ActOut(Answer):
    """One administrative act; the object whose RFC 8785 form, without ``hash``, was hashed.

    ``amount``, ``scope``, ``event`` and ``job_id`` are those of every chain, and are zero or empty.
    """

    sequence: int
    kind: ActKind
    amount: DecimalText
    scope: JsonObject
    event: None
    job_id: None
    actor: str
    at: str
    previous_hash: str
    hash: str
    details: JsonObject


class ActList(Answer):
    acts: list[ActOut]
    next: str | None
