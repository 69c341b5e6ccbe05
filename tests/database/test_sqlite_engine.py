"""Settings of connections to a SQLite file."""

import os
import resource
import sqlite3
import stat
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
from sqlalchemy import text

from app.core.errors import InstallationError, Unavailable
from app.db.database import Database

pytestmark = pytest.mark.contract

_PRAGMAS = {
    "journal_mode": "wal",
    "synchronous": 2,
    "recursive_triggers": 1,
    "foreign_keys": 1,
    "busy_timeout": 30_000,
}


def test_every_connection_is_durable_and_strict(sqlite_database_url: str) -> None:
    database = Database.open(sqlite_database_url)
    with database.read() as first, database.read() as second:
        for session in (first, second):
            result = {
                name: session.execute(text(f"PRAGMA {name}")).scalar_one()
                for name in _PRAGMAS
            }
            assert result == _PRAGMAS
    database.close()


def _refuse_checkpoints(action: int, name: str | None, *_others: str | None) -> int:
    is_refused = action == sqlite3.SQLITE_PRAGMA and name == "wal_checkpoint"
    return sqlite3.SQLITE_DENY if is_refused else sqlite3.SQLITE_OK


def test_a_checkpoint_that_fails_leaves_writers_their_patience(
    sqlite_database_url: str,
) -> None:
    database = Database.open(sqlite_database_url)
    with closing(database.engine.raw_connection()) as connection:
        sqlite = connection.driver_connection
        assert sqlite is not None
        sqlite.set_authorizer(_refuse_checkpoints)
    with pytest.raises(sqlite3.DatabaseError, match="not authorized"):
        database.forget_deleted()
    assert sqlite.execute("PRAGMA busy_timeout").fetchone() == (30_000,)
    database.close()


def test_a_log_that_a_full_disk_keeps_is_emptied_later(
    sqlite_database_url: str,
) -> None:
    """Otherwise a worker ends at its next sweep, and an erasure that is recorded
    answers 500.
    """
    database = Database.open(sqlite_database_url)
    with database.write() as session:
        session.execute(text("CREATE TABLE things (cell TEXT)"))
        session.execute(
            text("INSERT INTO things VALUES (:cell)"), {"cell": "x" * 99_999}
        )
    limits_of_files = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, limits_of_files[1]))
    try:
        with pytest.raises(Unavailable):
            database.forget_deleted()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits_of_files)
    database.forget_deleted()
    database.close()


def test_the_files_of_a_new_database_are_its_owners_alone(tmp_path: Path) -> None:
    database = Database.open(f"sqlite:///{tmp_path / 'new.sqlite3'}")
    with database.write() as session:
        session.execute(text("CREATE TABLE things (id INTEGER)"))
    modes = {
        path.name: stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()
    }
    assert modes == dict.fromkeys(
        ("new.sqlite3", "new.sqlite3-shm", "new.sqlite3-wal", "new.sqlite3.lock"), 0o600
    )
    database.close()


_WRITE_AND_CLOSE = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1])
connection.execute("INSERT INTO things VALUES (?)", [sys.argv[2]])
connection.commit()
connection.close()
"""


def test_a_database_that_is_opened_again_keeps_the_locks_of_its_open_connections(
    tmp_path: Path,
) -> None:
    """Else the next process that closes the file deletes the write-ahead log, and
    commits of this process are lost.
    """
    file = tmp_path / "new.sqlite3"
    first = Database.open(f"sqlite:///{file}")
    with first.write() as session:
        session.execute(text("CREATE TABLE things (id INTEGER)"))
    second = Database.open(f"sqlite:///{file}")
    second.close()
    for number in (1, 3):
        subprocess.run(
            [sys.executable, "-c", _WRITE_AND_CLOSE, str(file), str(number)], check=True
        )
        with first.write() as session:
            session.execute(
                text("INSERT INTO things VALUES (:number)"), {"number": number + 1}
            )
    assert file.with_name("new.sqlite3-wal").exists()
    other = sqlite3.connect(file)
    assert other.execute("SELECT id FROM things ORDER BY id").fetchall() == [
        (1,),
        (2,),
        (3,),
        (4,),
    ]
    other.close()
    first.close()


def test_a_file_that_cannot_be_a_database_is_refused(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    for path in (tmp_path / "folder", tmp_path / "missing" / "new.sqlite3"):
        with pytest.raises(
            InstallationError, match=f"the database file {path} cannot be opened"
        ):
            Database.open(f"sqlite:///{path}")


def test_a_database_on_a_disk_that_is_read_only_is_not_called_a_lack_of_rights(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``access`` says no for either reason, and for a folder in place of the file."""
    path = tmp_path / "there.sqlite3"
    path.touch()
    monkeypatch.setattr(os, "access", lambda *_: False)
    with pytest.raises(InstallationError, match=r"no file that .* can read and write$"):
        Database.open(f"sqlite:///{path}")
