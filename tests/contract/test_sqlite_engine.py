"""Settings of connections to a SQLite file."""

import stat
from pathlib import Path

from sqlalchemy import text

from app.db.unit_of_work import Database

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
            result = {name: session.execute(text(f"PRAGMA {name}")).scalar_one() for name in _PRAGMAS}
            assert result == _PRAGMAS
    database.close()


def test_the_files_of_a_new_database_are_its_owners_alone(tmp_path: Path) -> None:
    database = Database.open(f"sqlite:///{tmp_path / 'new.sqlite3'}")
    with database.write() as session:
        session.execute(text("CREATE TABLE things (id INTEGER)"))
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()}
    assert modes == dict.fromkeys(("new.sqlite3", "new.sqlite3-shm", "new.sqlite3-wal", "new.sqlite3.lock"), 0o600)
    database.close()
