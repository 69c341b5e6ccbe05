"""Defines entries and the database tables of the ledger; reads and writes their rows.
Contains no rule of the ledger.

An entry is one JSON object. Its ``hash`` is the lower-case hexadecimal SHA-256 of the
object's RFC 8785 form without ``hash``; the first ``previous_hash`` is 64 zeros;
``sequence`` counts from 1 without gaps. The same object is what ``/entries`` shows and
what an export carries, so anyone can recompute the chain.

Amounts are whole steps of the account's unit: 10⁻⁹ ε (``pure``), 10⁻¹² ρ (``zcdp``) or
10⁻¹² μ² (``gdp``).
"""

import hashlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from datetime import datetime
from enum import StrEnum
from fractions import Fraction
from typing import cast

import rfc8785
from sqlalchemy import (
    CheckConstraint,
    ColumnElement,
    Index,
    Select,
    Table,
    UniqueConstraint,
    bindparam,
    func,
    select,
    update,
)
from sqlalchemy.orm import Mapped, Session, mapped_column
from sqlalchemy.sql.elements import SQLCoreOperations

from app.core.errors import NotFound
from app.db.base import Base, PrimaryKey, find_row, locked_rows
from app.db.database import insert_rows
from grovekeeper_common.json_types import JsonObject
from grovekeeper_forests import amounts
from grovekeeper_forests.privacy import accountants
from grovekeeper_forests.privacy.accountants import SplitDelta
from grovekeeper_forests.privacy.scope import Cell, Scope

FIRST_PREVIOUS_HASH = "0" * 64
CONTROL_CHAIN = "control"
"""Id of the chain of administrative acts. No dataset and no population has it: their
ids begin with a prefix.
"""
OPENING_LOAD_SEQUENCE = 2
"""The place of an opening load in the chain of a dataset: it follows the opening."""
_HALF_OF_SUM = 2**31


class EntryKind(StrEnum):
    """The kind of an entry. No kind lowers what was spent.

    Only populations have entries of the kind ``join``. An entry of the kind ``load``
    states the load of a member in the chain of a population; in the chain of a dataset,
    as its second entry, the opening load (:mod:`app.ledger.accounts`). An entry of the
    kind ``state`` states the state of the account, so that a process need not read the
    entries before it (:mod:`app.ledger.kept_states`). The kinds after them are
    administrative acts, in the control chain alone (:mod:`app.ledger.control`).
    """

    OPEN = "open"
    RESERVE = "reserve"
    CHARGE = "charge"
    VOID = "void"
    EXPIRE = "expire"
    CAP = "cap"
    JOIN = "join"
    LOAD = "load"
    STATE = "state"
    KEY_MADE = "key-made"
    KEY_ROTATED = "key-rotated"
    KEY_REVOKED = "key-revoked"
    SUBJECT_ADMITTED = "subject-admitted"
    SUBJECT_ROLES = "subject-roles"
    GRANT_MADE = "grant-made"
    GRANT_REMOVED = "grant-removed"
    DATASET_DECLARED = "dataset-declared"
    DATASET_CHANGED = "dataset-changed"
    DATASET_DELETED = "dataset-deleted"
    UNIT_ERASED = "unit-erased"
    UPLOAD_ERASED = "upload-erased"
    CAP_CHANGED = "cap-changed"
    POPULATION_OPENED = "population-opened"
    POPULATION_JOINED = "population-joined"
    SIGNER_PINNED = "signer-pinned"
    STORAGE_KEY_CHANGED = "storage-key-changed"
    RULES_CHANGED = "rules-changed"
    RULES_PROPOSED = "rules-proposed"
    JOB_APPROVED = "job-approved"
    JOB_REJECTED = "job-rejected"
    HISTORY_LOST = "history-lost"
    ALIAS_MOVED = "alias-moved"
    ALIAS_REMOVED = "alias-removed"
    MODEL_DELETED = "model-deleted"
    WEBHOOK_MADE = "webhook-made"
    WEBHOOK_ROTATED = "webhook-rotated"
    WEBHOOK_REMOVED = "webhook-removed"


@dataclass(frozen=True)
class Entry:
    """One immutable line of an account.

    Attributes:
        sequence: from 1, without gaps.
        kind: see :class:`EntryKind`.
        amount: whole steps of the account's unit; of ``open`` and ``cap`` the cap
            itself, of ``join`` and ``load`` the load of the member's or the erased
            dataset's tightest joint cell.
        scope: the cells it covers, by partition; empty = the whole dataset. Where
            uploads are cells, a number n stands for the first n uploads that entries of
            the account named in their details.
        event: the privacy event's JSON form; only entries of reservations have one.
        job_id: the job it belongs to.
        actor: the key that caused it, or ``worker``, ``sweeper`` or ``operator``, which
            are no keys.
        at: RFC 3339 time, never earlier than the entry before.
        previous_hash: hash of the entry before.
        details: public facts that only some entries have: of ``open`` the facts of the
            account, of ``cap`` the reason, of ``reserve`` the uploads that no entry
            before named, where the scope is a number of uploads, of a charge for an
            external mechanism the attester, of ``join`` and ``load`` the member and its
            entry, of an opening load the erased dataset and its entry, of ``state`` the
            state. Without details the public object has no such member.
        places: a step is 10^−places of the unit; known from the account, not part of
            the object.
        hash: hash of this entry.
    """

    sequence: int
    kind: EntryKind
    amount: int
    scope: JsonObject
    event: JsonObject | None
    job_id: str | None
    actor: str
    at: str
    previous_hash: str
    places: int
    hash: str = ""
    details: JsonObject | None = None

    def to_json(self) -> JsonObject:
        """The public JSON form, with ``amount`` as shortest exact decimal text."""
        fields = {
            "sequence": self.sequence,
            "kind": self.kind.value,
            "amount": amounts.from_steps(self.amount, self.places),
            "scope": self.scope,
            "event": self.event,
            "job_id": self.job_id,
            "actor": self.actor,
            "at": self.at,
            "previous_hash": self.previous_hash,
            "hash": self.hash,
        }
        return {**fields, "details": self.details} if self.details else fields

    def sealed(self) -> "Entry":
        """This entry with its hash."""
        body = self.to_json()
        del body["hash"]
        return replace(self, hash=hashlib.sha256(rfc8785.dumps(body)).hexdigest())


StatedScope = Mapping[str, Sequence[Cell] | int]
"""A scope as an entry states it: a list of cells, or the number of the first uploads
(:attr:`Entry.scope`).
"""


def n_listed(scope: StatedScope) -> int:
    """The number of cells that an entry lists."""
    return sum(len(cells) for cells in scope.values() if not isinstance(cells, int))


def listed(scope: StatedScope, uploads: Sequence[str]) -> Scope:
    """The cells of a scope as an entry states it.

    Args:
        scope: of an entry.
        uploads: those that entries of the account named up to then, or up to any later
            entry.
    """
    return Scope(
        {
            name: uploads[:cells] if isinstance(cells, int) else cells
            for name, cells in scope.items()
        }
    )


class AccountRow(Base):
    """The holder of a lifetime cap and of a chain of entries. The row's lock guards
    every change of the account.

    Attributes:
        id: id of the dataset or the population that holds the budget, or of the control
            chain, which has none. A population makes no reservations and has one more
            row (:class:`PopulationRow`).
        adjacency: of a dataset; a population's is its members'.
        delta_set_aside: the part of ``delta`` that (ε, δ) mechanisms may spend; the cap
            is converted at the rest.
        privacy_unit: of a dataset; a population's is its members'.
        last_sequence: with ``last_hash`` and ``last_at`` the head of the chain.
    """

    __tablename__ = "accounts"

    id: Mapped[PrimaryKey]
    name: Mapped[str]
    accountant: Mapped[str]
    adjacency: Mapped[str | None]
    delta: Mapped[str | None]
    delta_set_aside: Mapped[str | None]
    privacy_unit: Mapped[JsonObject | None]
    partitions: Mapped[list[JsonObject]] = mapped_column(default=list)
    last_sequence: Mapped[int] = mapped_column(default=0)
    last_hash: Mapped[str] = mapped_column(default=FIRST_PREVIOUS_HASH)
    last_at: Mapped[str] = mapped_column(default="")

    @property
    def split_delta(self) -> SplitDelta:
        """δ, and the part of it that is set aside."""
        total = None if self.delta is None else Fraction(self.delta)
        return SplitDelta(total, Fraction(self.delta_set_aside or 0))

    @property
    def least_price(self) -> int:
        """The smallest price of a job: a step for each row that a unit may have."""
        max_rows = 1 if self.privacy_unit is None else self.privacy_unit["max_rows"]
        return accountants.by_name(self.accountant).group(max_rows)


class PopulationRow(Base):
    """The facts of a population besides its account, the :class:`AccountRow` of this
    id.

    Attributes:
        adjacency: the members' adjacency, set with ``unit_column`` when the first
            member joins.
        unit_column: the column that names the same people in every member; ``None``
            with rows as units.
    """

    __tablename__ = "populations"

    id: Mapped[PrimaryKey]
    name: Mapped[str] = mapped_column(unique=True)
    adjacency: Mapped[str | None]
    unit_column: Mapped[str | None]
    declared_by: Mapped[str]
    created_at: Mapped[datetime]


class MemberRow(Base):
    """A permanent member of a population: erased datasets keep their spend.

    The load of the member is that of the population's entries
    (:mod:`app.ledger.state`).
    """

    __tablename__ = "population_members"

    account_id: Mapped[PrimaryKey]
    population_id: Mapped[str] = mapped_column(index=True)
    joined_at: Mapped[datetime]


class ReservationRow(Base):
    """The state of a reservation. The entries are the record; this row states how the
    reservation ended.

    A job has one reservation for each of its parts: on several accounts, or on disjoint
    cells of one.

    Attributes:
        job_id: the job that will spend it; ``None`` for a mechanism that runs outside
            the service.
        part: position of the part in the job.
        reserved_by: the key that submitted the job, or that attested the external
            mechanism.
        is_approved: whether an approval of the key's jobs covers the reservation
            (:mod:`app.ledger.rules`).
    """

    __tablename__ = "reservations"

    id: Mapped[PrimaryKey]
    account_id: Mapped[str]
    job_id: Mapped[str | None] = mapped_column(index=True)
    part: Mapped[int]
    amount: Mapped[int]
    scope: Mapped[JsonObject]
    event: Mapped[JsonObject | None]
    state: Mapped[str]
    details: Mapped[JsonObject | None]
    reserved_by: Mapped[str]
    is_approved: Mapped[bool] = mapped_column(default=False)

    __table_args__ = (
        UniqueConstraint("account_id", "job_id", "part"),
        Index("ix_reservations_account_id_reserved_by", "account_id", "reserved_by"),
        CheckConstraint("amount > 0", name="amount_positive"),
        CheckConstraint(
            "state IN ('reserved', 'charged', 'void', 'expired')", name="state_known"
        ),
    )


class VerificationRow(Base):
    """The last verification of an account that somebody states
    (:mod:`app.ledger.verifications`).

    Attributes:
        stated_by: the key of an auditor, or empty for the service's own verifier.
        name: of that key when it stated the result: who states a result is named.
        entries: how many entries are covered; ``None`` if the verification failed.
        checkpoint: the signed note that the entries were compared with, if any.
    """

    __tablename__ = "verifications"

    account_id: Mapped[PrimaryKey]
    stated_by: Mapped[PrimaryKey]
    name: Mapped[str]
    verdict: Mapped[str]
    entries: Mapped[int | None]
    checkpoint: Mapped[str | None]
    stated_at: Mapped[datetime]


class RulesRow(Base):
    """The rules of a dataset (:mod:`app.ledger.rules`). Every change is made under the
    account's lock.

    Attributes:
        account_id: the account of the dataset; a dataset without rules has no row.
        quotas: a list of ``{"keys": [id, …], "cap": steps as text}``.
        proposal: rules that one owner proposed and that need a second owner, with the
            owner and the time.
        changed_by: the key that put the rules in force.
    """

    __tablename__ = "rules"

    account_id: Mapped[PrimaryKey]
    largest_job: Mapped[int | None]
    approval_above: Mapped[int | None]
    quotas: Mapped[list[JsonObject]]
    is_frozen: Mapped[bool]
    erase_rows_at: Mapped[datetime | None]
    proposal: Mapped[JsonObject | None]
    changed_by: Mapped[str]
    changed_at: Mapped[datetime]

    __table_args__ = (
        CheckConstraint("largest_job > 0", name="largest_job_positive"),
        CheckConstraint("approval_above > 0", name="approval_above_positive"),
    )


class BlockRow(Base):
    """The hash of a complete subtree of an account's log
    (:mod:`app.ledger.checkpoints`). Append-only, like entries.
    """

    __tablename__ = "log_blocks"

    account_id: Mapped[PrimaryKey]
    height: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    position: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    hash: Mapped[str]


class SignerRow(Base):
    """The public key of a signer of the installation's heads. Append-only; the newest
    row is the present signer.

    Attributes:
        ordinal: from 1, without gaps.
        verifier_key: as transparency logs write it
            (:class:`app.ledger.checkpoints.Signer`).
    """

    __tablename__ = "signers"

    ordinal: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    verifier_key: Mapped[str]
    pinned_at: Mapped[datetime]

    __table_args__ = (CheckConstraint("ordinal >= 1", name="ordinal_from_one"),)


class EntryRow(Base):
    """One immutable line. Triggers on both databases refuse to change, remove or
    replace it.
    """

    __tablename__ = "entries"

    account_id: Mapped[PrimaryKey]
    sequence: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    kind: Mapped[str]
    amount: Mapped[int]
    scope: Mapped[JsonObject]
    event: Mapped[JsonObject | None]
    job_id: Mapped[str | None] = mapped_column(index=True)
    actor: Mapped[str]
    at: Mapped[str]
    previous_hash: Mapped[str]
    hash: Mapped[str]
    details: Mapped[JsonObject | None]

    __table_args__ = (
        CheckConstraint("sequence >= 1", name="sequence_from_one"),
        CheckConstraint("amount >= 0", name="amount_not_negative"),
        CheckConstraint(
            f"kind IN {tuple(kind.value for kind in EntryKind)}", name="kind_known"
        ),
    )


_LOADED_AT_ONCE = 4
_ENTRY_COLUMNS = tuple(field.name for field in fields(Entry) if field.name != "places")
_ADD_ENTRIES = insert_rows(EntryRow)
_ACCOUNTS = cast(Table, AccountRow.__table__)
# sets the columns that rows name
_MOVE_HEADS = update(_ACCOUNTS).where(_ACCOUNTS.c.id == bindparam("moved"))


def has_reserved(session: Session, account_id: str) -> bool:
    """Whether an account ever reserved or charged something."""
    kinds = (EntryKind.RESERVE.value, EntryKind.CHARGE.value)
    query = select(EntryRow.sequence).where(
        EntryRow.account_id == account_id, EntryRow.kind.in_(kinds)
    )
    return session.execute(query.limit(1)).first() is not None


def locked_account(session: Session, account_id: str) -> AccountRow:
    """Locks and reads an account (on SQLite the write transaction itself excludes
    everyone else).

    Raises:
        NotFound: no such account.
    """
    return find_row(session, AccountRow, account_id, kind="account", lock=True)


def account(session: Session, account_id: str) -> AccountRow:
    """Reads an account without a lock."""
    return find_row(session, AccountRow, account_id, kind="account")


def locked_accounts(
    session: Session, account_ids: Collection[str]
) -> dict[str, AccountRow]:
    """Locks and reads the accounts that exist, in order of their ids."""
    rows = locked_rows(session, AccountRow, account_ids, by=AccountRow.id)
    return {row.id: row for row in rows}


def insert_entries(session: Session, entries: Sequence[tuple[str, Entry]]) -> None:
    """Writes sealed entries, each with the id of its account, and the heads of the
    accounts.
    """
    rows = [
        {
            "account_id": account_id,
            **{name: getattr(entry, name) for name in _ENTRY_COLUMNS},
            "kind": entry.kind.value,
        }
        for account_id, entry in entries
    ]
    session.execute(_ADD_ENTRIES, rows)
    newest = dict(entries)
    session.execute(
        _MOVE_HEADS,
        [
            {"moved": account_id, **head_after(entry)}
            for account_id, entry in newest.items()
        ],
    )


def head_after(entry: Entry) -> JsonObject:
    """The columns of an account's row that state the head of its chain, after an entry."""
    return {
        "last_sequence": entry.sequence,
        "last_hash": entry.hash,
        "last_at": entry.at,
    }


def reservation(session: Session, reservation_id: str) -> ReservationRow:
    """Reads one reservation.

    Raises:
        NotFound: no such reservation.
    """
    row = session.get(ReservationRow, reservation_id, populate_existing=True)
    if row is None:
        raise NotFound("reservation")
    return row


def reservations_of(session: Session, job_ids: Sequence[str]) -> list[ReservationRow]:
    """Reads every reservation of some jobs, in order of accounts, then jobs, then
    positions in the job.
    """
    query = select(ReservationRow).where(ReservationRow.job_id.in_(job_ids))
    in_order = query.order_by(
        ReservationRow.account_id, ReservationRow.job_id, ReservationRow.part
    )
    return list(session.scalars(in_order))


def external_reservations(
    session: Session, account_id: str, *, after: str | None, limit: int
) -> Iterator[ReservationRow]:
    """Yields at most ``limit`` reservations for mechanisms outside the service, which
    have no job, in order of id.

    Raises:
        NotFound: ``after`` is not in the list.
    """
    query = select(ReservationRow).where(
        ReservationRow.account_id == account_id, ReservationRow.job_id.is_(None)
    )
    if after is not None:
        if session.execute(query.where(ReservationRow.id == after)).first() is None:
            raise NotFound("reservation")
        query = query.where(ReservationRow.id > after)
    query = (
        query.order_by(ReservationRow.id)
        .limit(limit)
        .execution_options(yield_per=_LOADED_AT_ONCE)
    )
    with session.scalars(query) as rows:
        yield from rows


def n_external_reservations(session: Session, account_id: str) -> int:
    """Counts the reservations for mechanisms outside the service."""
    query = select(func.count()).where(
        ReservationRow.account_id == account_id, ReservationRow.job_id.is_(None)
    )
    return session.execute(query).scalar_one()


def externally_charged(session: Session, account_ids: Collection[str]) -> set[str]:
    """Those of several accounts that were charged for mechanisms outside the service."""
    query = (
        select(ReservationRow.account_id)
        .distinct()
        .where(ReservationRow.account_id.in_(account_ids))
    )
    return set(session.scalars(query.where(ReservationRow.job_id.is_(None))))


def entries(
    session: Session, account_id: str, *, after: int, limit: int
) -> list[Entry]:
    """At most ``limit`` entries with a sequence above ``after``, in order."""
    query = select(EntryRow).where(
        EntryRow.account_id == account_id, EntryRow.sequence > after
    )
    return read_entries(
        session, account_id, query.order_by(EntryRow.sequence).limit(limit)
    )


def read_entries(
    session: Session, account_id: str, query: Select[EntryRow]
) -> list[Entry]:
    """The entries of one account that a query finds, in the order of the query."""
    places = accountants.by_name(account(session, account_id).accountant).PLACES
    entries = []
    for row in session.scalars(query):
        columns = {name: getattr(row, name) for name in _ENTRY_COLUMNS}
        columns["kind"] = EntryKind(row.kind)
        entries.append(Entry(**columns, places=places))
    return entries


def continued_by(session: Session, account_ids: list[str]) -> dict[str, str]:
    """The erased dataset whose account each of several accounts continues; accounts
    that continue none are left out.
    """
    query = select(EntryRow.account_id, EntryRow.details).where(
        EntryRow.account_id.in_(account_ids),
        EntryRow.sequence == OPENING_LOAD_SEQUENCE,
        EntryRow.kind == EntryKind.LOAD.value,
    )
    return {
        account_id: details["continues"]["dataset"]
        for account_id, details in session.execute(query)
        if details and "continues" in details
    }


def sum_in_halves(
    amount: SQLCoreOperations[int],
) -> tuple[ColumnElement[int], ColumnElement[int]]:
    """Columns that sum amounts without an overflow: such a sum may exceed 64 bits,
    although no amount does.
    """
    return func.sum(amount // _HALF_OF_SUM), func.sum(amount % _HALF_OF_SUM)


def sum_of_halves(high: int, low: int) -> int:
    """The sum that :func:`sum_in_halves` computed."""
    return int(high) * _HALF_OF_SUM + int(low)


def sizes(session: Session) -> dict[str, int]:
    """Counts the entries of every account, by id."""
    rows = session.execute(select(AccountRow.id, AccountRow.last_sequence)).all()
    return {row.id: row.last_sequence for row in rows}


def accounts(session: Session, account_ids: Collection[str]) -> list[AccountRow]:
    """Reads accounts without a lock, in order of their ids."""
    query = (
        select(AccountRow).where(AccountRow.id.in_(account_ids)).order_by(AccountRow.id)
    )
    return list(session.scalars(query))
