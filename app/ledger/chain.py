"""Appends entries to an account's chain. No other code makes entries."""

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import Any

from sqlalchemy.orm import Session

from app.core import clock
from app.db.unit_of_work import transaction_time
from app.ledger import repository
from app.ledger.entries import FIRST_PREVIOUS_HASH, Entry, EntryKind
from app.ledger.log import Log
from app.ledger.tables import AccountRow, ReservationRow
from app.privacy import accountants

_READ_AT_ONCE = 1_000


@dataclass(frozen=True)
class NewEntry:
    """The content of an entry without its position in the chain; see :class:`app.ledger.entries.Entry`."""

    kind: EntryKind
    amount: int
    _: KW_ONLY
    actor: str
    scope: dict[str, Any] = field(default_factory=dict)
    event: dict[str, Any] | None = None
    job_id: str | None = None
    details: dict[str, Any] | None = None


def of_reservation(kind: EntryKind, reservation: ReservationRow, *, actor: str) -> NewEntry:
    """The entry of one step of a reservation: every step repeats its amount, scope, event, job and details.

    The reservation's id links the entries of an external mechanism, which has no job.
    """
    return NewEntry(
        kind,
        reservation.amount,
        actor=actor,
        scope=reservation.scope,
        event=reservation.event,
        job_id=reservation.job_id or reservation.id,
        details=reservation.details,
    )


def is_intact(session: Session, account_id: str) -> bool:
    """Whether every entry of an account has its hash and names the hash of the entry before."""
    row, sequence, last_hash = repository.account(session, account_id), 0, FIRST_PREVIOUS_HASH
    while entries := repository.entries(session, account_id, after=sequence, limit=_READ_AT_ONCE):
        for entry in entries:
            follows = entry.sequence == sequence + 1 and entry.previous_hash == last_hash
            if not follows or entry.sealed().hash != entry.hash:
                return False
            sequence, last_hash = entry.sequence, entry.hash
        session.expunge_all()
    return (row.last_sequence, row.last_hash) == (sequence, last_hash)


def append(session: Session, row: AccountRow, new_entry: NewEntry, *, not_before: str = "") -> Entry:
    """Writes the next entry of an account whose row the caller has locked; returns it with its hash."""
    entry = extend(session, row, new_entry, not_before=not_before)
    write(session, [(row.id, entry)])
    return entry


def extend(session: Session, row: AccountRow, new_entry: NewEntry, *, not_before: str = "") -> Entry:
    """Seals the next entry of an account and moves the head to it, in memory; the caller writes it before the commit.

    Args:
        session: of the transaction, whose time the entry states.
        row: the account, which the caller has locked.
        new_entry: the content of the entry.
        not_before: a time in another account's chain that the entry follows, whatever the clock says.
    """
    entry = Entry(
        sequence=row.last_sequence + 1,
        kind=new_entry.kind,
        amount=new_entry.amount,
        scope=new_entry.scope,
        event=new_entry.event,
        job_id=new_entry.job_id,
        actor=new_entry.actor,
        at=max(clock.to_text(transaction_time(session)), row.last_at, not_before),  # the clock may have stepped back
        previous_hash=row.last_hash,
        places=accountants.by_name(row.accountant).PLACES,
        details=new_entry.details or None,
    ).sealed()
    row.last_sequence, row.last_hash, row.last_at = entry.sequence, entry.hash, entry.at
    return entry


def write(session: Session, entries: Sequence[tuple[str, Entry]]) -> None:
    """Writes sealed entries, each with the id of its account, the heads of the accounts, and complete subtrees."""
    session.flush()
    repository.insert_entries(session, entries)
    complete_subtrees(session, entries)


def complete_subtrees(session: Session, entries: Sequence[tuple[str, Entry]]) -> None:
    """Writes the subtrees that entries complete, which were written in the same transaction."""
    for account_id, entry in entries:
        Log(session, account_id).complete(entry.sequence)
