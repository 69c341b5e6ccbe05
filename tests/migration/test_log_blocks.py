"""Revision 0009 stores, for ledgers that exist, the subtree hashes that the service stores from then on."""

import hashlib
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Connection, insert, select, text

from app.db import migrate
from app.db.unit_of_work import Database
from app.ledger import log as logs
from app.ledger import merkle
from app.ledger.log import Log
from app.ledger.tables import BlockRow, EntryRow
from app.verifier.tree import GrowingTree
from tests.support.scripts import loaded

_REVISION = Path(__file__).parents[2] / "migrations" / "versions" / "0009_log_blocks.py"


def _entries(account_id: str, count: int) -> list[dict[str, Any]]:
    return [
        {
            "account_id": account_id, "sequence": sequence, "kind": "open", "amount": 1, "scope": {}, "event": None,
            "job_id": None, "actor": "key_a", "at": "2026-11-20T09:30:00.000000Z", "previous_hash": "0" * 64,
            "hash": hashlib.sha256(f"{account_id} {sequence}".encode()).hexdigest(),
        }
        for sequence in range(1, count + 1)
    ]  # fmt: skip


def _root(entries: list[dict[str, Any]]) -> bytes:
    growing = GrowingTree()
    for entry in entries:
        growing.add(merkle.leaf(entry["hash"]))
    return growing.root()


def test_an_upgrade_gives_old_ledgers_their_roots(empty_database_url: str) -> None:
    migrate.upgrade(empty_database_url, revision="0008")
    sizes = {"ds_long": 700, "ds_even": 512, "ds_short": 255}
    columns = "account_id, sequence, kind, amount, scope, actor, at, previous_hash, hash"
    named = ", ".join(f":{name.strip()}" for name in columns.split(","))
    account = text(
        "INSERT INTO accounts (id, name, accountant, adjacency, cap, highest_cap, privacy_unit, partitions,"
        " last_sequence, last_hash, last_at) VALUES (:id, 'n', 'pure', 'add_remove', 1, 1, '{}', '[]', :size, '', '')"
    )
    with migrate.migration_transaction(empty_database_url) as connection:
        for account_id, size in sizes.items():
            connection.execute(account, {"id": account_id, "size": size})
            rows = [{**entry, "scope": "{}"} for entry in _entries(account_id, size)]
            connection.execute(text(f"INSERT INTO entries ({columns}) VALUES ({named})"), rows)
    migrate.upgrade(empty_database_url)
    database = Database.open(empty_database_url, pool_size=1)
    with database.read() as session:
        stored = session.execute(select(BlockRow.account_id, BlockRow.height, BlockRow.position)).all()
        assert sorted(tuple(row) for row in stored) == [
            ("ds_even", 8, 0), ("ds_even", 8, 1), ("ds_long", 8, 0), ("ds_long", 8, 1),
        ]  # fmt: skip
        for account_id, size in sizes.items():
            assert Log(session, account_id).root(size) == _root(_entries(account_id, size))
    database.close()


def test_every_height_is_made_of_the_one_below(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """With subtrees of 2², 2⁴ and 2⁶ leaves, so that few entries reach three heights."""
    revision = loaded(_REVISION)
    monkeypatch.setattr(revision, "STEP", 2)
    monkeypatch.setattr(revision, "BATCH", 4)
    monkeypatch.setattr(logs, "STEP", 2)
    entries = _entries("ds_a", 90)
    with database.write() as session:
        session.execute(insert(EntryRow), entries)
        connection: Connection = session.connection()
        revision._fill(connection, "ds_a")
    with database.read() as session:
        heights = session.execute(select(BlockRow.height)).scalars().all()
        assert {height: list(heights).count(height) for height in set(heights)} == {2: 22, 4: 5, 6: 1}
        for size in (1, 4, 16, 63, 64, 65, 90):
            assert Log(session, "ds_a").root(size) == _root(entries[:size])
