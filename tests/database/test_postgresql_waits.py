"""Transactions on PostgreSQL wait and idle only for a time; then they are unavailable,
and nothing is written.
"""

import time
from collections.abc import Iterator
from contextlib import suppress

import pytest
from sqlalchemy import text

from app.core import limits
from app.core.errors import Unavailable
from app.db.database import Database
from tests.support.postgres import fresh_database
from tests.support.waiting import wait_for

pytestmark = pytest.mark.contract


@pytest.fixture(scope="module")
def url(postgres_url: str) -> Iterator[str]:
    with fresh_database(postgres_url) as url:
        database = Database.open(url)
        with database.write() as session:
            session.execute(text("CREATE TABLE notes (id BIGINT PRIMARY KEY)"))
        database.close()
        yield url


def opened(url: str, *options: str) -> Database:
    """A database whose connections have other limits of time."""
    return Database.open(
        f"{url}?options={'%20'.join(f'-c%20{option}' for option in options)}"
    )


def count(url: str) -> int:
    database = Database.open(url)
    with database.read() as session:
        n_rows = session.execute(text("SELECT count(*) FROM notes")).scalar_one()
    database.close()
    return int(n_rows)


def test_every_connection_has_the_limits_of_the_code(url: str) -> None:
    database = Database.open(url)
    names = (
        "lock_timeout",
        "statement_timeout",
        "idle_in_transaction_session_timeout",
        "application_name",
        "timezone",
    )
    with database.read() as session:
        values = [session.execute(text(f"SHOW {name}")).scalar_one() for name in names]
        connection = session.connection().connection.dbapi_connection
        assert connection is not None
        parameters = connection.info.get_parameters()  # type: ignore[attr-defined]  # psycopg's
    database.close()
    seconds = {f"{limits.DATABASE_LOCK_WAIT_S}s", f"{limits.DATABASE_STATEMENT_S}s"}
    assert set(values[:2]) == seconds
    assert values[2] == f"{limits.DATABASE_IDLE_S // 60}min"
    assert values[3:] == ["grovekeeper", "UTC"], (
        "in a zone east of UTC, the last hours of 9999 are no time of Python"
    )
    assert parameters["keepalives_idle"] == str(limits.DATABASE_SILENCE_S)
    assert parameters["tcp_user_timeout"] == str(limits.DATABASE_SILENCE_S * 1000)


@pytest.mark.parametrize(
    ("option", "statement", "pause_s"),
    [
        ("lock_timeout=50", "LOCK TABLE notes", 0),
        ("statement_timeout=50", "SELECT pg_sleep(30)", 0),
        ("idle_in_transaction_session_timeout=50", "SELECT 1", 0.5),
    ],
)
def test_a_transaction_that_takes_too_long_is_unavailable_and_writes_nothing(
    url: str, option: str, statement: str, pause_s: float
) -> None:
    before = count(url)
    database, other = opened(url, option), Database.open(url)
    with other.read() as holder:
        # holds a lock that conflicts with LOCK TABLE
        holder.execute(text("SELECT count(*) FROM notes"))
        with pytest.raises(Unavailable), database.write() as session:
            session.execute(text("INSERT INTO notes SELECT 1 + count(*) FROM notes"))
            time.sleep(pause_s)
            session.execute(text(statement))
    # the pool replaces the connection, if it is gone; a busy machine may take too long
    wait_for("a connection writes again", lambda: _is_written(database))
    assert count(url) == before + 1
    database.close()
    other.close()


def _is_written(database: Database) -> bool:
    with suppress(Unavailable), database.write() as session:
        session.execute(text("INSERT INTO notes SELECT 1 + count(*) FROM notes"))
        return True
    return False


def test_a_connection_that_ended_while_idle_is_replaced_and_no_other_connection_is_asked(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    database, other = Database.open(url), Database.open(url)
    asked, ask = [], database.engine.dialect.do_ping
    monkeypatch.setattr(
        database.engine.dialect,
        "do_ping",
        lambda connection: asked.append(1) or ask(connection),
    )
    for _ in range(3):
        first = backend(database)
    assert not asked
    with other.write() as session:
        session.execute(
            text("SELECT pg_terminate_backend(:pid, 25000)"), {"pid": first}
        )
    second = backend(database)
    assert second != first
    assert backend(database) == second
    assert len(asked) == 1
    assert not database.errors.counts()
    database.close()
    other.close()


def backend(database: Database) -> int:
    """The server's process of the connection of a transaction."""
    with database.read() as session:
        return int(session.execute(text("SELECT pg_backend_pid()")).scalar_one())
