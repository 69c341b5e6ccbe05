"""A database whose entries somebody changed without any key, on both databases: what
the start and what reads notice.

Whoever may change a database can drop its triggers and recompute the chain, but cannot
sign a head.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
import rfc8785
from sqlalchemy import text, update
from sqlalchemy.orm import Session

from app.core.errors import BalanceMismatch, LedgerRewound
from app.ledger import checkpoints, kept_states, statements, tables
from app.ledger.checkpoints import Log
from app.ledger.tables import AccountRow, Entry, EntryKind, EntryRow
from app.services.installation import Installation
from app.services.ledger.heads import Heads
from grovekeeper_verifier import dataset_replay
from grovekeeper_verifier.export_lines import NotVerified
from tests.support import population_accounts as members
from tests.support.databases import on_one_database
from tests.support.evidence import export

pytestmark = pytest.mark.contract

ACCOUNT = "ds_a"
SIZES = (255, 256, 257, 512)
BLOCK = 1 << checkpoints.STEP

CHANGES: dict[str, Callable[[Entry], dict[str, Any]]] = {
    "kind": lambda entry: {"kind": EntryKind.VOID},
    "amount": lambda entry: {"amount": entry.amount + 1},
    "scope": lambda entry: {"scope": {"shard": [0]}},
    "event": lambda entry: {"event": None},
    "job_id": lambda entry: {"job_id": "jb_other"},
    "actor": lambda entry: {"actor": "key_other"},
    "at": lambda entry: {"at": "2026-01-01T00:00:00.000000Z"},
    "details": lambda entry: {"details": {"purpose": "another"}},
}
"""Another value of every column that a hash covers, but for the place in the chain."""


@pytest.fixture
def grown(installation: Installation, size: int) -> Iterator[Session]:
    """An account of some entries whose head is written; the triggers are dropped, and
    all changes rolled back.
    """
    with installation.database.write() as session:
        members.account(session, ACCOUNT, cap=10_000)
        for number in range(size - 1):
            members.reserve(session, ACCOUNT, 2, f"jb_{number}")
    Heads(installation).publish()
    with installation.database.write() as session:
        _drop_triggers(session)
        yield session
        session.rollback()


def _drop_triggers(session: Session) -> None:
    if session.get_bind().dialect.name == "postgresql":
        session.execute(text("ALTER TABLE entries DISABLE TRIGGER USER"))
        return
    names = text(
        "SELECT name FROM sqlite_master WHERE type = 'trigger' AND tbl_name = 'entries'"
    )
    for name in session.execute(names).scalars().all():
        session.execute(text(f'DROP TRIGGER "{name}"'))


def _write(session: Session, entry: Entry) -> None:
    columns = {
        column.key: getattr(entry, column.key)
        for column in EntryRow.__table__.columns
        if column.key != "account_id"
    }
    chosen = (EntryRow.account_id == ACCOUNT, EntryRow.sequence == entry.sequence)
    session.execute(update(EntryRow).where(*chosen).values(**columns))


def _rewrite(session: Session, first: Entry) -> None:
    """Writes a changed entry, and the entries after it with a chain that holds; the
    account names the last hash.
    """
    last = first.sealed()
    _write(session, last)
    for entry in tables.entries(session, ACCOUNT, after=first.sequence, limit=10_000):
        last = replace(entry, previous_hash=last.hash).sealed()
        _write(session, last)
    session.execute(
        update(AccountRow).where(AccountRow.id == ACCOUNT).values(last_hash=last.hash)
    )


def _entry(session: Session, sequence: int) -> Entry:
    [entry] = tables.entries(session, ACCOUNT, after=sequence - 1, limit=1)
    return entry


def _of_last_block(size: int) -> range:
    return range((size - 1) // BLOCK * BLOCK + 1, size + 1)


@on_one_database
@pytest.mark.parametrize("size", SIZES)
def test_entries_that_are_rewritten_contradict_the_head(
    installation: Installation, grown: Session, size: int
) -> None:
    """A root reads the hash of every entry of the last block, also where a stored hash
    stands above them.
    """
    head = next(head for head in _heads(installation) if head.account_id == ACCOUNT)
    assert head.size == size
    assert Log(grown, ACCOUNT).root(size) == head.root
    for sequence in _of_last_block(size):
        with grown.begin_nested() as changed:
            chosen = (EntryRow.account_id == ACCOUNT, EntryRow.sequence == sequence)
            grown.execute(update(EntryRow).where(*chosen).values(hash="0" * 64))
            assert Log(grown, ACCOUNT).root(size) != head.root, sequence
            changed.rollback()
    older = [
        ("amount", sequence)
        for sequence in {2, _of_last_block(size)[0] + 1}
        if sequence < size
    ]
    for column, sequence in [*((column, size) for column in CHANGES), *older]:
        with grown.begin_nested() as changed:
            entry = _entry(grown, sequence)
            _rewrite(grown, replace(entry, **CHANGES[column](entry)))
            assert Log(grown, ACCOUNT).root(size) != head.root, (column, sequence)
            changed.rollback()


def _lines(session: Session) -> Iterator[bytes]:
    for entry in tables.entries(session, ACCOUNT, after=0, limit=10_000):
        yield rfc8785.dumps(entry.to_json()) + b"\n"


def _heads(installation: Installation) -> list[checkpoints.Checkpoint]:
    with installation.database.read() as session:
        return checkpoints.HeadFolder(
            installation.heads, checkpoints.pinned_keys(session)
        ).read_all()


@pytest.mark.parametrize("size", [BLOCK])
def test_a_start_refuses_a_whole_block_that_was_rewritten(
    installation: Installation, size: int
) -> None:
    """256 amounts of half the size, in a chain that holds: nothing in the database
    contradicts anything there.
    """
    with installation.database.write() as session:
        members.account(session, ACCOUNT, cap=10_000)
        for number in range(size - 1):
            members.reserve(session, ACCOUNT, 2, f"jb_{number}")
    Heads(installation).publish()
    Heads(installation).confirm()
    with installation.database.write() as session:
        _drop_triggers(session)
        for sequence in range(2, size + 1):
            entry = replace(
                _entry(session, sequence),
                amount=1,
                previous_hash=_entry(session, sequence - 1).hash,
            )
            _write(session, entry.sealed())
        session.execute(
            update(AccountRow)
            .where(AccountRow.id == ACCOUNT)
            .values(last_hash=_entry(session, size).hash)
        )
    installation.database.kept.clear()  # as in a new process
    with installation.database.read() as session:
        assert statements.balance(session, ACCOUNT).reserved == size - 1
    heads = Heads(installation)
    with pytest.raises(LedgerRewound, match=ACCOUNT):
        heads.confirm()


@pytest.mark.parametrize("size", [20])
def test_a_changed_column_beside_its_hash_is_noticed_by_whoever_reads_the_entry(
    installation: Installation, grown: Session, size: int
) -> None:
    """The head is that of the hashes. So the start finds nothing, and no balance is
    answered or admitted by.
    """
    header = next(export(grown, ACCOUNT))
    for column, change in {
        **CHANGES,
        "previous_hash": lambda _: {"previous_hash": "0" * 64},
    }.items():
        with grown.begin_nested() as changed:
            entry = _entry(grown, size // 2)
            _write(grown, replace(entry, **change(entry)))
            installation.database.kept.clear()
            with pytest.raises(BalanceMismatch):
                kept_states.state_of(grown, tables.account(grown, ACCOUNT))
            with pytest.raises(NotVerified):
                dataset_replay.verify([header, *_lines(grown)])
                pytest.fail(column)
            changed.rollback()
