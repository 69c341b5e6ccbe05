"""Appends entries to the chain of an account. No other code makes entries.

Every ``STATE_EVERY``-th entry of an account states the account's state. That entry is
hashed and exported like every other, and the verifier recomputes the state in it.
"""

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import Final

from sqlalchemy.orm import Session
from sqlalchemy.orm.attributes import set_committed_value

from app.core import stamps
from app.db.database import transaction_time
from app.ledger import kept_states, tables
from app.ledger.checkpoints import Log
from app.ledger.tables import CONTROL_CHAIN, AccountRow, Entry, EntryKind
from grovekeeper_common.json_types import JsonObject
from grovekeeper_forests.privacy import accountants
from grovekeeper_forests.privacy.scope import Scope

STATE_EVERY: Final = 1024
"""The sequence of an entry that states the state is a multiple of this."""


@dataclass(frozen=True)
class NewEntry:
    """The content of an entry without its position in the chain; see
    :class:`app.ledger.tables.Entry`.
    """

    kind: EntryKind
    amount: int
    _: KW_ONLY
    actor: str
    scope: JsonObject = field(default_factory=dict)
    event: JsonObject | None = None
    job_id: str | None = None
    details: JsonObject | None = None


def append(
    session: Session, row: AccountRow, new_entry: NewEntry, *, not_before: str = ""
) -> Entry:
    """Writes the next entry of an account whose row the caller has locked; returns it
    with its hash.
    """
    entries = extend(session, row, new_entry, not_before=not_before)
    write(session, entries)
    return entries[0][1]


def extend(
    session: Session, row: AccountRow, new_entry: NewEntry, *, not_before: str = ""
) -> list[tuple[str, Entry]]:
    """Seals the next entry of an account and moves its state and its head, in memory;
    the caller writes the entry and the head before the commit
    (:func:`app.ledger.tables.insert_entries`).

    Args:
        session: of the transaction, whose time the entry states.
        row: the account, which the caller has locked.
        new_entry: the content of the entry.
        not_before: a time in another account's chain that the entry follows, whatever
            the clock says.

    Returns:
        The entry and, at its turn, the entry that states the state after it, each with
        the id of the account.
    """
    scope, details = new_entry.scope, new_entry.details
    if scope:
        names = new_entry.kind is EntryKind.RESERVE
        scope, uploads = kept_states.state_of(session, row).as_stated(
            Scope(scope), names=names
        )
        if uploads:
            details = {**(details or {}), "uploads": uploads}
    entry = Entry(
        sequence=row.last_sequence + 1,
        kind=new_entry.kind,
        amount=new_entry.amount,
        scope=scope,
        event=new_entry.event,
        job_id=new_entry.job_id,
        actor=new_entry.actor,
        # the clock may have stepped back
        at=max(stamps.to_text(transaction_time(session)), row.last_at, not_before),
        previous_hash=row.last_hash,
        places=accountants.by_name(row.accountant).PLACES,
        details=details,
    ).sealed()
    # Acts of administration have no balance.
    after = None
    if row.id != CONTROL_CHAIN:
        after = kept_states.advance(session, row, entry)
    for name, value in tables.head_after(entry).items():
        # the database gets the head together with the entries
        set_committed_value(row, name, value)
    if after is None or (entry.sequence + 1) % STATE_EVERY:
        return [(row.id, entry)]
    stated = NewEntry(
        EntryKind.STATE, 0, actor=new_entry.actor, details={"state": after.to_json()}
    )
    return [(row.id, entry), *extend(session, row, stated)]


def write(session: Session, entries: Sequence[tuple[str, Entry]]) -> None:
    """Writes sealed entries, each with the id of its account, the heads of the
    accounts, and complete subtrees.
    """
    session.flush()  # a new account
    tables.insert_entries(session, entries)
    complete_subtrees(session, entries)


def complete_subtrees(session: Session, entries: Sequence[tuple[str, Entry]]) -> None:
    """Writes the subtrees that entries complete, which were written in the same
    transaction.
    """
    for account_id, entry in entries:
        Log(session, account_id).complete(entry.sequence)
