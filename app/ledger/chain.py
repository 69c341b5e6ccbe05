"""Appends entries to an account's chain. No other code makes entries."""

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import Any

from sqlalchemy.orm import Session

from app.core import stamps
from app.core.errors import BalanceMismatch
from app.db.database import transaction_time
from app.ledger import repository, state
from app.ledger.entries import CONTROL_CHAIN, Entry, EntryKind
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
    """Whether every entry of an account, from the first on, follows the entries before it, up to the head."""
    row = repository.account(session, account_id)
    after = state.State(account_id)
    while entries := repository.entries(session, account_id, after=after.sequence, limit=_READ_AT_ONCE):
        for entry in entries:
            try:
                after.take(entry)
            except BalanceMismatch:
                return False
        session.expunge_all()
    return (row.last_sequence, row.last_hash) == (after.sequence, after.hash)


def append(session: Session, row: AccountRow, new_entry: NewEntry, *, not_before: str = "") -> Entry:
    """Writes the next entry of an account whose row the caller has locked; returns it with its hash."""
    entries = extend(session, row, new_entry, not_before=not_before)
    write(session, entries)
    return entries[0][1]


def extend(session: Session, row: AccountRow, new_entry: NewEntry, *, not_before: str = "") -> list[tuple[str, Entry]]:
    """Seals the next entry of an account and moves its state and its head, in memory; the caller writes it before the
    commit.

    Args:
        session: of the transaction, whose time the entry states.
        row: the account, which the caller has locked.
        new_entry: the content of the entry.
        not_before: a time in another account's chain that the entry follows, whatever the clock says.

    Returns:
        The entry and, at its turn, the entry that states the state after it, each with the id of the account.

    Raises:
        BalanceMismatch: the entry cannot follow the entries before it; nothing may be committed.
    """
    entry = Entry(
        sequence=row.last_sequence + 1,
        kind=new_entry.kind,
        amount=new_entry.amount,
        scope=new_entry.scope,
        event=new_entry.event,
        job_id=new_entry.job_id,
        actor=new_entry.actor,
        at=max(stamps.to_text(transaction_time(session)), row.last_at, not_before),  # the clock may have stepped back
        previous_hash=row.last_hash,
        places=accountants.by_name(row.accountant).PLACES,
        details=new_entry.details or None,
    ).sealed()
    after = None if row.id == CONTROL_CHAIN else state.written(session, row, entry)
    row.last_sequence, row.last_hash, row.last_at = entry.sequence, entry.hash, entry.at
    if after is None or (entry.sequence + 1) % state.STATE_EVERY:
        return [(row.id, entry)]
    stated = NewEntry(EntryKind.STATE, 0, actor=new_entry.actor, details={"state": after.to_json()})
    return [(row.id, entry), *extend(session, row, stated, not_before=entry.at)]


def write(session: Session, entries: Sequence[tuple[str, Entry]]) -> None:
    """Writes sealed entries, each with the id of its account, the heads of the accounts, and complete subtrees."""
    session.flush()
    repository.insert_entries(session, entries)
    complete_subtrees(session, entries)


def complete_subtrees(session: Session, entries: Sequence[tuple[str, Entry]]) -> None:
    """Writes the subtrees that entries complete, which were written in the same transaction."""
    for account_id, entry in entries:
        Log(session, account_id).complete(entry.sequence)
