"""Finds the state of an account at the head of its row, and keeps states for later
transactions.

A process keeps the state of an account after the last entry that it read, and reads the
entries since. The hash of its last entry identifies a state, so a state in memory is
never wrong, only older than the database. Under the lock of the account's row, the
state after the head of the row is the state that an admission is decided on.

A process without a state of an account begins with the newest state that an entry
states.
"""

import sys
from collections.abc import Iterable, Sequence
from threading import Lock

from cachetools import LRUCache
from sqlalchemy import Text, event, select, type_coerce
from sqlalchemy.orm import Session

from app.core import limits
from app.core.errors import BalanceMismatch
from app.db.database import KEPT
from app.ledger import tables
from app.ledger.state import State, facts_of, is_of_first_form, mismatch, named_by
from app.ledger.tables import (
    AccountRow,
    Entry,
    EntryKind,
    EntryRow,
    PopulationRow,
    StatedScope,
)
from grovekeeper_common.json_types import JsonMapping

_READ_AT_ONCE = 100
_CHECKED_AT_ONCE = 1_000
_OF_TRANSACTION = "ledger states"
"""In a session, the states after entries that its transaction has written, which no
other transaction may see.
"""

_OF_PROCESS = "states"
_keeping = Lock()  # an LRUCache moves what is read
_STATE_BYTES = 2_500  # measured, as the next two
_ITEM_BYTES = 400
_CELL_BYTES = 48


def state_of(session: Session, row: AccountRow) -> State:
    """The state of an account after all entries up to the head of its row, or newer.

    A transaction that does not lock the row may read it shortly before an entry that
    the process has read already.

    Raises:
        BalanceMismatch: the entries do not follow each other up to the head, or the
            facts in the row are not those of the first entry.
    """
    written: State | None = session.info.get(_OF_TRANSACTION, {}).get(row.id)
    if written is not None and written.hash == row.last_hash:
        return written
    state = _kept(session, row.id)
    if state is None or state.sequence < row.last_sequence:
        state = _caught_up(session, row, state)
        _keep(session, state)
    elif state.sequence == row.last_sequence and state.hash != row.last_hash:
        state = _caught_up(session, row, None)
        _keep(session, state)
    if facts_of(row) != state.facts:
        raise mismatch(row.id, "facts")
    return state


def require_declared(session: Session, row: AccountRow, facts: JsonMapping) -> None:
    """Compares facts that a dataset's row repeats with those of the account's first
    entry.

    Prices, uploads and reads of rows follow the dataset's row, which no hash holds.

    Raises:
        BalanceMismatch: they differ.
    """
    declared = state_of(session, row).facts
    if any(declared.get(name) != fact for name, fact in facts.items()):
        raise mismatch(row.id, "declaration")


def advance(session: Session, row: AccountRow, entry: Entry) -> State:
    """Advances the state of a locked account by an entry that the transaction is about
    to write; returns the state.
    """
    before = State(row.id) if entry.sequence == 1 else state_of(session, row)
    state = before.advanced([entry])
    session.info.setdefault(_OF_TRANSACTION, {})[row.id] = state
    return state


def is_intact(session: Session, account_id: str) -> bool:
    """Whether every entry of an account, from the first on, follows the entries before
    it, up to the head.
    """
    row = tables.account(session, account_id)
    state = State(account_id)
    try:
        while entries := tables.entries(
            session, account_id, after=state.sequence, limit=_CHECKED_AT_ONCE
        ):
            state = state.advanced(_intact(account_id, entries))
            session.expunge_all()
    except BalanceMismatch:
        return False
    return (row.last_sequence, row.last_hash) == (state.sequence, state.hash)


def _intact(account_id: str, entries: Iterable[Entry]) -> Iterable[Entry]:
    """Entries as they were read, each with its hash.

    Raises:
        BalanceMismatch: the content of an entry is not that of its hash.
    """
    for entry in entries:
        if entry.sealed().hash != entry.hash:
            raise mismatch(account_id, "chain")
        yield entry


def _kept(session: Session, account_id: str) -> State | None:
    """The state of an account that this process keeps, if it does; any other is read
    from the entries again.
    """
    with _keeping:
        return _states(session).get(account_id)


def _keep(session: Session, state: State) -> None:
    """Keeps a state; those that were used least recently make room."""
    with _keeping:
        _states(session)[state.account_id] = state


def _states(session: Session) -> LRUCache[str, State]:
    kept: dict[str, LRUCache[str, State]] = session.info.setdefault(KEPT, {})
    return kept.setdefault(
        _OF_PROCESS, LRUCache(limits.MAX_KEPT_STATE_BYTES, getsizeof=_size)
    )


def _size(state: State) -> int:
    """Approximate bytes of memory of a state and of its numbering: its facts list
    cells, and so do its scopes.

    A large account counts as half of what is kept, so that it does not displace all
    others at every use.
    """
    declared: list[int] = []
    for partition in state.facts.get("partitions", ()):
        if partition["kind"] == "column":
            declared += map(sys.getsizeof, partition["cells"])
    n_items = (
        len(state.totals)
        + len(state.reservations)
        + len(state.loads)
        + len(state.widened)
    )
    n_cells = len(declared) + state.scopes_size
    of_cells = n_cells * (_CELL_BYTES + max(declared, default=0))
    return min(
        _STATE_BYTES + n_items * _ITEM_BYTES + of_cells,
        limits.MAX_KEPT_STATE_BYTES // 2,
    )


@event.listens_for(Session, "after_commit")
def _publish(session: Session) -> None:
    """Keeps the states of a committed transaction, so that the next one need not read
    its entries.
    """
    for state in session.info.pop(_OF_TRANSACTION, {}).values():
        known = _kept(session, state.account_id)
        if known is None or known.sequence < state.sequence:
            _keep(session, state)


@event.listens_for(Session, "after_rollback")
def _forget(session: Session) -> None:
    session.info.pop(_OF_TRANSACTION, None)


def _caught_up(session: Session, row: AccountRow, known: State | None) -> State:
    """The state at the head of a row, from an older one; ``None``: from the newest
    state that an entry states.
    """
    batch = [] if known is None else _following(session, row, known.sequence)
    # another database stands at this address
    if known is None or not batch or batch[0].previous_hash != known.hash:
        known = _stated(session, row)
        batch = _following(session, row, known.sequence)
    state = known
    while batch:
        state = state.advanced(_intact(row.id, batch))
        batch = _following(session, row, state.sequence)
    if (state.sequence, state.hash) != (row.last_sequence, row.last_hash):
        raise mismatch(row.id, "head")
    return state


def _following(session: Session, row: AccountRow, sequence: int) -> Sequence[Entry]:
    n_entries = min(row.last_sequence - sequence, _READ_AT_ONCE)
    if n_entries <= 0:
        return []
    return tables.entries(session, row.id, after=sequence, limit=n_entries)


def _stated(session: Session, row: AccountRow) -> State:
    """The newest state that an entry of an account states, or the state before its
    first entry.
    """
    query = select(EntryRow).where(
        EntryRow.account_id == row.id, EntryRow.kind == EntryKind.STATE.value
    )
    query = (
        query.where(EntryRow.sequence <= row.last_sequence)
        .order_by(EntryRow.sequence.desc())
        .limit(1)
    )
    entries = tables.read_entries(session, row.id, query)
    is_usable = bool(entries) and not is_of_first_form(
        (entries[0].details or {}).get("state")
    )
    if is_usable:
        state = _stated_by(session, row, entries[0])
    else:
        state = State(row.id)
    if row.privacy_unit is not None:
        state.population_id = _population_by_entries(session, row.id)
    return state


def _stated_by(session: Session, row: AccountRow, entry: Entry) -> State:
    (intact,) = _intact(row.id, [entry])
    return State.stated_by(
        row, intact, _named_entries(session, row.id, named_by(intact))
    )


def _named_entries(
    session: Session, account_id: str, sequences: Sequence[int]
) -> dict[int, tuple[StatedScope, str]]:
    """The scopes that some entries of an account state, each with the actor, by
    sequence.
    """
    columns = EntryRow.sequence, EntryRow.scope, EntryRow.actor
    named: dict[int, tuple[StatedScope, str]] = {}
    for first in range(0, len(sequences), _CHECKED_AT_ONCE):
        chosen = EntryRow.sequence.in_(sequences[first : first + _CHECKED_AT_ONCE])
        query = select(*columns).where(EntryRow.account_id == account_id, chosen)
        named |= {
            row.sequence: (row.scope, row.actor) for row in session.execute(query)
        }
    return named


def _population_by_entries(session: Session, account_id: str) -> str | None:
    """The population whose entries state that an account joined it."""
    joins = select(EntryRow.account_id, EntryRow.details).where(
        EntryRow.account_id.in_(select(PopulationRow.id)),
        EntryRow.kind == EntryKind.JOIN.value,
        # the index finds joins among the loads, which name jobs
        EntryRow.job_id.is_(None),
        type_coerce(EntryRow.details, Text).contains(account_id, autoescape=True),
    )
    # All rows: on SQLite, a cursor with rows left keeps its snapshot, which the
    # connection's next transaction reads.
    for population_id, details in session.execute(joins).all():
        if details and details["member"]["dataset"] == account_id:
            return str(population_id)
    return None
