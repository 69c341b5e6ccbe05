"""Defines the database tables of the ledger.

Amounts are whole steps of the account's unit: 10⁻⁹ ε (``pure``), 10⁻¹² ρ (``zcdp``) or 10⁻¹² μ² (``gdp``).
"""

from datetime import datetime
from typing import Any

from sqlalchemy import CheckConstraint, Index, UniqueConstraint
from sqlalchemy.orm import Mapped, mapped_column

from app.db.base import Base, CanonicalJson
from app.ledger.entries import FIRST_PREVIOUS_HASH, EntryKind


class AccountRow(Base):
    """The holder of a lifetime cap and of a chain of entries. The row's lock guards every change of the account.

    Attributes:
        id: id of the dataset or the population that holds the budget, or of the control chain, which has none. A
            population makes no reservations and has one more row (:class:`PopulationRow`).
        adjacency: of a dataset; a population's is its members'.
        unread_cap: as ``unread_highest_cap`` written by earlier versions; the cap is that of the entries
            (:mod:`app.ledger.state`). The next revision that contracts the schema drops both.
        delta_set_aside: the part of ``delta`` that (ε, δ) mechanisms may spend; the cap is converted at the rest.
        privacy_unit: of a dataset; a population's is its members'.
        last_sequence: with ``last_hash`` and ``last_at`` the head of the chain.
    """

    __tablename__ = "accounts"

    id: Mapped[str] = mapped_column(primary_key=True)
    name: Mapped[str]
    accountant: Mapped[str]
    adjacency: Mapped[str | None]
    unread_cap: Mapped[int] = mapped_column("cap", default=0)
    unread_highest_cap: Mapped[int] = mapped_column("highest_cap", default=0)
    delta: Mapped[str | None]
    delta_set_aside: Mapped[str | None]
    privacy_unit: Mapped[dict[str, Any] | None] = mapped_column(CanonicalJson)
    partitions: Mapped[list[dict[str, Any]]] = mapped_column(CanonicalJson, default=list)
    last_sequence: Mapped[int] = mapped_column(default=0)
    last_hash: Mapped[str] = mapped_column(default=FIRST_PREVIOUS_HASH)
    last_at: Mapped[str] = mapped_column(default="")

    __table_args__ = (
        CheckConstraint("cap >= 0", name="cap_not_negative"),
        CheckConstraint("highest_cap >= cap", name="highest_cap_is_highest"),
    )


class BoxRow(Base):
    """Totals that earlier versions kept for each scope. Nothing reads or writes them; the next revision that contracts
    the schema drops the table."""

    __tablename__ = "account_boxes"

    account_id: Mapped[str] = mapped_column(primary_key=True)
    box: Mapped[str] = mapped_column(primary_key=True)
    scope: Mapped[dict[str, Any]] = mapped_column(CanonicalJson)
    charged: Mapped[int]
    reserved: Mapped[int]
    delta_charged: Mapped[int]

    __table_args__ = (
        CheckConstraint("charged >= 0", name="charged_not_negative"),
        CheckConstraint("reserved >= 0", name="reserved_not_negative"),
        CheckConstraint("delta_charged >= 0", name="delta_charged_not_negative"),
        {"sqlite_with_rowid": False},
    )


class PopulationRow(Base):
    """The facts of a population besides its account, the :class:`AccountRow` of this id.

    Attributes:
        adjacency: the members' adjacency, set with ``unit_column`` when the first member joins.
        unit_column: the column that names the same people in every member; ``None`` with rows as units.
    """

    __tablename__ = "populations"

    id: Mapped[str] = mapped_column(primary_key=True)
    name: Mapped[str] = mapped_column(unique=True)
    adjacency: Mapped[str | None]
    unit_column: Mapped[str | None]
    declared_by: Mapped[str]
    created_at: Mapped[datetime]


class MemberRow(Base):
    """A permanent member of a population: erased datasets keep their spend.

    The load of the member is that of the population's entries (:mod:`app.ledger.state`). Nothing reads the four columns
    whose names begin with ``unread``; the next revision that contracts the schema drops them.
    """

    __tablename__ = "population_members"

    account_id: Mapped[str] = mapped_column(primary_key=True)
    population_id: Mapped[str] = mapped_column(index=True)
    joined_at: Mapped[datetime]
    unread_load: Mapped[int] = mapped_column("load", default=0)
    unread_reserved: Mapped[int] = mapped_column("reserved", default=0)
    unread_tightest_cell: Mapped[dict[str, Any]] = mapped_column("tightest_cell", CanonicalJson, default=dict)
    unread_is_exact: Mapped[bool] = mapped_column("is_exact", default=True)

    __table_args__ = (
        CheckConstraint("load >= 0", name="load_not_negative"),
        CheckConstraint("reserved >= 0 AND reserved <= load", name="reserved_within_load"),
    )


class ReservationRow(Base):
    """The state of a reservation. The entries are the record; this row states how the reservation ended.

    A job has one reservation for each of its parts: on several accounts, or on disjoint cells of one.

    Attributes:
        job_id: the job that will spend it; ``None`` for a mechanism that runs outside the service.
        part: position of the part in the job.
        reserved_by: the key that submitted the job, or that attested the external mechanism.
        is_approved: whether an approval of the key's jobs covers the reservation (:mod:`app.ledger.rules`).
    """

    __tablename__ = "reservations"

    id: Mapped[str] = mapped_column(primary_key=True)
    account_id: Mapped[str]
    job_id: Mapped[str | None] = mapped_column(index=True)
    part: Mapped[int]
    amount: Mapped[int]
    scope: Mapped[dict[str, Any]] = mapped_column(CanonicalJson)
    event: Mapped[dict[str, Any] | None] = mapped_column(CanonicalJson)
    state: Mapped[str]
    details: Mapped[dict[str, Any] | None] = mapped_column(CanonicalJson)
    reserved_by: Mapped[str]
    is_approved: Mapped[bool] = mapped_column(default=False)

    __table_args__ = (
        UniqueConstraint("account_id", "job_id", "part"),
        Index("ix_reservations_account_id_reserved_by", "account_id", "reserved_by"),
        CheckConstraint("amount > 0", name="amount_positive"),
        CheckConstraint("state IN ('reserved', 'charged', 'void', 'expired')", name="state_known"),
    )


class RulesRow(Base):
    """The rules of a dataset (:mod:`app.ledger.rules`). Every change is made under the account's lock.

    Attributes:
        account_id: the account of the dataset; a dataset without rules has no row.
        quotas: a list of ``{"keys": [id, …], "cap": steps as text}``.
        proposal: rules that one owner proposed and that need a second owner, with the owner and the time.
        changed_by: the key that put the rules in force.
    """

    __tablename__ = "rules"

    account_id: Mapped[str] = mapped_column(primary_key=True)
    largest_job: Mapped[int | None]
    approval_above: Mapped[int | None]
    quotas: Mapped[list[dict[str, Any]]] = mapped_column(CanonicalJson)
    is_frozen: Mapped[bool]
    erase_rows_at: Mapped[datetime | None]
    proposal: Mapped[dict[str, Any] | None] = mapped_column(CanonicalJson)
    changed_by: Mapped[str]
    changed_at: Mapped[datetime]

    __table_args__ = (
        CheckConstraint("largest_job > 0", name="largest_job_positive"),
        CheckConstraint("approval_above > 0", name="approval_above_positive"),
    )


class BlockRow(Base):
    """The hash of a complete subtree of an account's log (:mod:`app.ledger.log`). Append-only, like the entries."""

    __tablename__ = "log_blocks"

    account_id: Mapped[str] = mapped_column(primary_key=True)
    height: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    position: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    hash: Mapped[str]


class SignerRow(Base):
    """The public key of a signer of the installation's heads. Append-only; the newest row is the present signer.

    Attributes:
        ordinal: from 1, without gaps.
        verifier_key: as transparency logs write it (:class:`app.ledger.checkpoints.Signer`).
    """

    __tablename__ = "signers"

    ordinal: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    verifier_key: Mapped[str]
    pinned_at: Mapped[datetime]

    __table_args__ = (CheckConstraint("ordinal >= 1", name="ordinal_from_one"),)


class EntryRow(Base):
    """One immutable line. Triggers on both databases refuse to change, remove or replace it."""

    __tablename__ = "entries"

    account_id: Mapped[str] = mapped_column(primary_key=True)
    sequence: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    kind: Mapped[str]
    amount: Mapped[int]
    scope: Mapped[dict[str, Any]] = mapped_column(CanonicalJson)
    event: Mapped[dict[str, Any] | None] = mapped_column(CanonicalJson)
    job_id: Mapped[str | None] = mapped_column(index=True)
    actor: Mapped[str]
    at: Mapped[str]
    previous_hash: Mapped[str]
    hash: Mapped[str]
    details: Mapped[dict[str, Any] | None] = mapped_column(CanonicalJson)

    __table_args__ = (
        CheckConstraint("sequence >= 1", name="sequence_from_one"),
        CheckConstraint("amount >= 0", name="amount_not_negative"),
        CheckConstraint(f"kind IN {tuple(kind.value for kind in EntryKind)}", name="kind_known"),
    )
