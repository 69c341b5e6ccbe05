"""Reads and writes ledger rows. Contains no rule of the ledger."""

from collections.abc import Collection, Sequence

from sqlalchemy import ColumnElement, Select, func, select
from sqlalchemy.orm import Session
from sqlalchemy.sql.elements import SQLCoreOperations

from app.core.errors import NotFound
from app.db.database import insert_rows
from app.ledger.entries import OPENING_LOAD_SEQUENCE, Entry, EntryKind
from app.ledger.tables import AccountRow, EntryRow, ReservationRow
from app.privacy import accountants

_HALF = 2**31
_ADD_ENTRIES = insert_rows(EntryRow)


def locked_account(session: Session, account_id: str) -> AccountRow:
    """Locks and reads an account (on SQLite the write transaction itself excludes everyone else).

    Raises:
        NotFound: no such account.
    """
    row = session.execute(
        select(AccountRow)
        .where(AccountRow.id == account_id)
        .with_for_update()
        .execution_options(populate_existing=True)
    ).scalar_one_or_none()
    if row is None:
        raise NotFound("account")
    return row


def account(session: Session, account_id: str) -> AccountRow:
    """Reads an account without a lock."""
    row = session.get(AccountRow, account_id)
    if row is None:
        raise NotFound("account")
    return row


def locked_accounts(session: Session, account_ids: Collection[str]) -> dict[str, AccountRow]:
    """Locks and reads the accounts that exist, in order of their ids."""
    query = select(AccountRow).where(AccountRow.id.in_(account_ids)).order_by(AccountRow.id).with_for_update()
    rows = session.execute(query.execution_options(populate_existing=True)).scalars()
    return {row.id: row for row in rows}


def insert_entries(session: Session, entries: Sequence[tuple[str, Entry]]) -> None:
    """Writes sealed entries, each with the id of its account."""
    rows = [
        {
            "account_id": account_id,
            "sequence": entry.sequence,
            "kind": entry.kind.value,
            "amount": entry.amount,
            "scope": entry.scope,
            "event": entry.event,
            "job_id": entry.job_id,
            "actor": entry.actor,
            "at": entry.at,
            "previous_hash": entry.previous_hash,
            "hash": entry.hash,
            "details": entry.details,
        }
        for account_id, entry in entries
    ]
    session.execute(_ADD_ENTRIES, rows)


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
    """Reads every reservation of some jobs, in order of accounts, then jobs, then positions in the job."""
    query = select(ReservationRow).where(ReservationRow.job_id.in_(job_ids))
    in_order = query.order_by(ReservationRow.account_id, ReservationRow.job_id, ReservationRow.part)
    return list(session.execute(in_order).scalars())


def external_reservations(session: Session, account_id: str, *, after: str | None, limit: int) -> list[ReservationRow]:
    """At most ``limit`` reservations for mechanisms outside the service, which have no job, in order of id."""
    query = select(ReservationRow).where(ReservationRow.account_id == account_id, ReservationRow.job_id.is_(None))
    if after is not None:
        query = query.where(ReservationRow.id > after)
    return list(session.execute(query.order_by(ReservationRow.id).limit(limit)).scalars())


def n_external_reservations(session: Session, account_id: str) -> int:
    """Counts the reservations for mechanisms outside the service."""
    query = select(func.count()).where(ReservationRow.account_id == account_id, ReservationRow.job_id.is_(None))
    return session.execute(query).scalar_one()


def externally_charged(session: Session, account_ids: Collection[str]) -> set[str]:
    """Those of several accounts that were charged for mechanisms outside the service."""
    query = select(ReservationRow.account_id).distinct().where(ReservationRow.account_id.in_(account_ids))
    return set(session.execute(query.where(ReservationRow.job_id.is_(None))).scalars())


def entries(session: Session, account_id: str, *, after: int, limit: int) -> list[Entry]:
    """At most ``limit`` entries with a sequence above ``after``, in order."""
    query = select(EntryRow).where(EntryRow.account_id == account_id, EntryRow.sequence > after)
    return read_entries(session, account_id, query.order_by(EntryRow.sequence).limit(limit))


def read_entries(session: Session, account_id: str, query: Select[EntryRow]) -> list[Entry]:
    """The entries of one account that a query finds, in the order of the query."""
    places = accountants.by_name(account(session, account_id).accountant).PLACES
    return [_entry(row, places=places) for row in session.execute(query).scalars()]


def continued_by(session: Session, account_ids: list[str]) -> dict[str, str]:
    """The erased dataset whose account each of several accounts continues; accounts that continue none are left out."""
    query = select(EntryRow.account_id, EntryRow.details).where(
        EntryRow.account_id.in_(account_ids),
        EntryRow.sequence == OPENING_LOAD_SEQUENCE,
        EntryRow.kind == EntryKind.LOAD.value,
    )
    return {
        account_id: details["continues"]["dataset"]
        for account_id, details in session.execute(query)
        if "continues" in details
    }


def sum_in_halves(amount: SQLCoreOperations[int]) -> tuple[ColumnElement[int], ColumnElement[int]]:
    """Columns that sum amounts without an overflow: such a sum may exceed 64 bits, although no amount does."""
    return func.sum(amount // _HALF), func.sum(amount % _HALF)


def sum_of_halves(high: int, low: int) -> int:
    """The sum that :func:`sum_in_halves` computed."""
    return int(high) * _HALF + int(low)


def sizes(session: Session) -> dict[str, int]:
    """Counts the entries of every account, by id."""
    rows = session.execute(select(AccountRow.id, AccountRow.last_sequence)).all()
    return {row.id: row.last_sequence for row in rows}


def accounts(session: Session, account_ids: Collection[str]) -> list[AccountRow]:
    """Reads accounts without a lock, in order of their ids."""
    query = select(AccountRow).where(AccountRow.id.in_(account_ids)).order_by(AccountRow.id)
    return list(session.execute(query).scalars())


def _entry(row: EntryRow, *, places: int) -> Entry:
    return Entry(
        sequence=row.sequence,
        kind=EntryKind(row.kind),
        amount=row.amount,
        scope=row.scope,
        event=row.event,
        job_id=row.job_id,
        actor=row.actor,
        at=row.at,
        previous_hash=row.previous_hash,
        places=places,
        hash=row.hash,
        details=row.details,
    )
