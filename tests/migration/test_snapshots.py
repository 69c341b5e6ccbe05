"""Tests that real data of each past revision survives the upgrade to the head, on both databases.

Each revision has a snapshot. ``python -m tests.support.snapshot`` writes ``data/REVISION.jsonl`` for the newest
revision; run it again after every edit of an unreleased revision. The snapshot of a released revision never changes.
"""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
import rfc8785
from sqlalchemy import select, text
from sqlalchemy.exc import DBAPIError

from app.datasets.catalog import Dataset, DatasetRow
from app.db import migrate, revisions
from app.db.append_only import append_only_tables
from app.db.base import Base
from app.db.database import Database
from app.ledger import checkpoints, control, kept_states, statements, tables
from app.ledger import reservations as ledger
from app.ledger.checkpoints import Log
from app.ledger.tables import BlockRow, BoxRow, EntryKind, MemberRow, PopulationRow, ReservationRow
from app.privacy.scope import WHOLE
from app.services.backup.layout import copy_rows, file_transaction
from app.verifier import control_export, dataset_replay
from app.verifier.merkle_tree import GrowingTree
from tests.support import snapshot
from tests.support.crash_scene import EVENT
from tests.support.databases import CopiedDatabase, EmptyDatabase
from tests.support.evidence import export, verified

_CHANGED = {"datasets": {"hash_key", "living_name", "deleted_at"}}
"""Columns that an upgrade changes: rows of revisions before 0005 were not encrypted, and their datasets are deleted."""

_REMOVED = {"authority_leases"}
"""Tables that an upgrade removes."""

_ENTRY_KINDS = {"open", "reserve", "charge", "void", "cap", "join", "load"}


_REVISIONS = snapshot.revisions()
_BY_DEFAULT = {_REVISIONS[0], *_REVISIONS[-2:]}
"""A migration that is added runs on the oldest form of every row, and on rows of every table; the others are long."""


@pytest.fixture(
    scope="module",
    params=[pytest.param(name, marks=() if name in _BY_DEFAULT else pytest.mark.long) for name in _REVISIONS],
)
def revision(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
def dialect(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def upgraded_url(
    dialect: str, revision: str, empty_database: EmptyDatabase, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    """Address of a database with the data of a revision, upgraded to the head; tests write to copies only."""
    with empty_database(dialect, tmp_path_factory.mktemp("upgraded")) as url:
        migrate.upgrade(url, revision=revision)
        with migrate.migration_transaction(url) as connection:
            snapshot.load(connection, revision)
        migrate.upgrade(url)
        yield url


@pytest.fixture
def upgraded(upgraded_url: str) -> Iterator[Database]:
    """The upgraded database, which many tests read."""
    with closing(Database.open(upgraded_url)) as database:
        yield database


@pytest.fixture
def writable(upgraded_url: str, copied_database: CopiedDatabase, tmp_path: Path) -> Iterator[Database]:
    """A copy of the upgraded database for one test."""
    with copied_database(upgraded_url, tmp_path) as url, closing(Database.open(url)) as database:
        yield database


@pytest.fixture(scope="module")
def stored(revision: str) -> snapshot.Rows:
    """The rows of the upgraded database, as its revision stored them."""
    return snapshot.stored(revision)


@pytest.fixture
def accounts(upgraded: Database) -> tuple[list[str], list[str]]:
    """Ids of datasets' accounts and of populations."""
    with upgraded.read() as session:
        populations = list(session.execute(select(PopulationRow.id)).scalars())
        account_ids = session.execute(text("SELECT id FROM accounts WHERE id <> 'control' ORDER BY id")).scalars().all()
    return [account_id for account_id in account_ids if account_id not in populations], populations


def test_snapshots_have_rows_of_every_table() -> None:
    for revision in snapshot.revisions():
        empty = {table for table, rows in snapshot.stored(revision).items() if not rows}
        assert empty == ({BoxRow.__tablename__} if revision >= "0031" else set()), "nothing writes it since then"
    assert set(snapshot.stored(revisions.head_revision())) == set(Base.metadata.tables)


def test_a_backup_of_a_revision_is_copied_into_either_database(
    dialect: str, revision: str, stored: snapshot.Rows, empty_database: EmptyDatabase, tmp_path: Path
) -> None:
    with file_transaction(tmp_path / "backup.sqlite3", "rwc") as backup:
        migrate.run_migrations(backup, revision)
        snapshot.load(backup, revision)
    with empty_database(dialect, tmp_path) as url, migrate.migration_transaction(url) as target:
        migrate.run_migrations(target, revision)
        with file_transaction(tmp_path / "backup.sqlite3", "ro&immutable=1") as backup:
            copy_rows(backup, target)
        copied = snapshot.rows_of(target)
        assert {table: copied[table] for table in stored} == stored


def test_rows_survive(upgraded: Database, stored: snapshot.Rows) -> None:
    with upgraded.engine.connect() as connection:
        after = snapshot.rows_of(connection)
    assert stored.keys() - after.keys() <= _REMOVED
    for table, rows in ((table, rows) for table, rows in stored.items() if table in after):
        if not rows:
            continue
        same = [name for name in rows[0] if name not in _CHANGED.get(table, ())]
        assert [[row[name] for name in same] for row in after[table]] == [[row[name] for name in same] for row in rows]


def test_datasets_whose_rows_are_not_encrypted_are_deleted(upgraded: Database, stored: snapshot.Rows) -> None:
    with upgraded.read() as session:
        datasets = session.execute(select(DatasetRow)).scalars().all()
    if "hash_key" in stored["datasets"][0]:
        assert all(row.deleted_at is not None and row.wrapped_key is None for row in datasets)
    else:
        assert any(row.wrapped_key is not None for row in datasets)


def test_the_program_reads_every_row(upgraded: Database, stored: snapshot.Rows) -> None:
    with upgraded.read() as session:
        for mapper in Base.registry.mappers:
            rows = session.execute(select(mapper.class_)).scalars().all()
            assert len(rows) == len(stored.get(mapper.local_table.name, [])), mapper


def test_every_account_verifies_with_the_balance_of_the_service(
    upgraded: Database, accounts: tuple[list[str], list[str]]
) -> None:
    kinds: set[str] = set()
    with upgraded.read() as session:
        for account_id in accounts[0]:
            summary, balance = (
                dataset_replay.verify(export(session, account_id)),
                statements.balance(session, account_id),
            )
            assert (summary.tightest.charged, summary.tightest.reserved) == (balance.charged, balance.reserved)
            assert summary.cap == balance.cap
            kinds |= summary.kinds.keys()
        for account_id in accounts[1]:
            kinds |= verified(session, account_id).kinds.keys()
    assert kinds >= _ENTRY_KINDS


def test_datasets_are_declared_as_the_first_entries_of_their_accounts_state(upgraded: Database) -> None:
    """A charge compares them, also for datasets of the earliest version."""
    with upgraded.read() as session:
        datasets = [Dataset(row) for row in session.execute(select(DatasetRow)).scalars()]
        for dataset in datasets:
            kept_states.require_declared(session, tables.account(session, dataset.id), dataset.facts)
    assert datasets


def test_the_root_of_a_log_equals_the_root_over_all_entries(
    upgraded: Database, accounts: tuple[list[str], list[str]]
) -> None:
    with upgraded.read() as session:
        for account_id in [*accounts[0], *accounts[1]]:
            growing = GrowingTree()
            entries = tables.entries(session, account_id, after=0, limit=1_000)
            for entry in entries:
                growing.add(checkpoints.leaf(entry.hash))
            assert Log(session, account_id).root(len(entries)) == growing.root()
        blocks = session.execute(select(BlockRow.height, BlockRow.position)).all()
        assert {tuple(block) for block in blocks} == {(8, 0)}


def test_the_ledger_can_be_used_after_the_upgrade(writable: Database) -> None:
    """An old reservation is charged, a new reservation is made, and the chains verify."""
    with writable.read() as session:
        waiting = session.execute(select(ReservationRow).where(ReservationRow.state == "reserved")).scalars().one()
        population = session.execute(
            select(MemberRow.population_id).where(MemberRow.account_id == waiting.account_id)
        ).scalar_one()
        before = statements.balance(session, waiting.account_id)
    assert before.reserved >= waiting.amount
    with writable.write() as session:
        ledger.charge(session, waiting.id, actor="worker")
        ledger.reserve(session, [ledger.NewReservation(waiting.account_id, 5, WHOLE, EVENT, "jb_later")], actor="key_a")
    with writable.read() as session:
        after = statements.balance(session, waiting.account_id)
        members = verified(session, population).members
    assert (after.charged, after.reserved) == (before.charged + waiting.amount, before.reserved - waiting.amount + 5)
    assert members[waiting.account_id].load == after.charged + after.reserved


def test_acts_are_recorded_after_the_upgrade(writable: Database) -> None:
    """The first act opens the control chain of a database that has none."""
    with writable.write() as session:
        control.record(session, EntryKind.KEY_REVOKED, actor="key_a", key="key_b")
    with writable.read() as session:
        header, last = control.export_header(session)
        entries = tables.entries(session, control.CHAIN, after=0, limit=last)
    lines = [rfc8785.dumps(line) + b"\n" for line in (header, *(entry.to_json() for entry in entries))]
    assert control_export.verify(lines).kinds["key-revoked"] >= 1


def test_append_only_tables_stay_so(upgraded: Database, stored: snapshot.Rows) -> None:
    with upgraded.engine.connect() as connection:
        tables = append_only_tables(connection)
        before = snapshot.rows_of(connection)
    assert tables == {"alias_moves", "entries", "log_blocks", "signers"}
    for change in ("DELETE FROM {}", "UPDATE {0} SET {1} = {1}", "INSERT INTO {0} SELECT * FROM {0}"):
        for table in tables & stored.keys():
            with pytest.raises(DBAPIError, match="append-only"), upgraded.write() as session:
                session.execute(text(change.format(table, next(iter(before[table][0])))))
    with upgraded.engine.connect() as connection:
        assert snapshot.rows_of(connection) == before
