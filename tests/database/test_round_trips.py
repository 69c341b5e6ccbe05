"""Statements that are sent together fail like statements that are sent alone, and take
one round trip to PostgreSQL.
"""

import re
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine, event, text
from sqlalchemy.exc import IntegrityError

from app.core.errors import Unavailable
from app.datasets.catalog import DatasetRow
from app.db import migrate
from app.db.database import Database
from app.db.locks import lock_names, lock_rows, number_of, sent_together
from app.ledger.tables import AccountRow
from tests.support.crash_scene import opened
from tests.support.postgres import fresh_database

pytestmark = pytest.mark.contract

_INSERT = text("INSERT INTO notes VALUES (:id)")


@pytest.fixture
def database(postgres_url: str) -> Iterator[Database]:
    with fresh_database(postgres_url) as url:
        database = Database.open(url)
        with database.write() as session:
            session.execute(text("CREATE TABLE notes (id BIGINT PRIMARY KEY)"))
        yield database
        database.close()


def notes(database: Database) -> list[int]:
    with database.read() as session:
        return [
            row.id for row in session.execute(text("SELECT id FROM notes ORDER BY id"))
        ]


def n_round_trips(engine: Engine, work: Callable[[], object]) -> int:
    """The number of times that the server was ready for more, which each round trip
    ends with.
    """
    engine.dispose()
    with tempfile.NamedTemporaryFile() as log:

        def trace(connection: Any, _entry: object) -> None:
            connection.pgconn.trace(log.fileno())

        event.listen(engine, "connect", trace)
        work()
        before = Path(log.name).read_bytes()
        work()
        after = Path(log.name).read_bytes()
        event.remove(engine, "connect", trace)
        engine.dispose()
    return after[len(before) :].count(b"ReadyForQuery")


def test_statements_take_one_round_trip_together(database: Database) -> None:
    ids = iter(range(100))

    def write() -> None:
        with database.write() as session:
            session.execute(text("SELECT 1"))  # begins the transaction
            with sent_together(session):
                session.execute(_INSERT, {"id": next(ids)})
                session.execute(_INSERT, [{"id": next(ids)}, {"id": next(ids)}])

    # BEGIN, SELECT, the block, COMMIT
    assert n_round_trips(database.engine, write) == 4
    assert notes(database) == list(range(6))


def test_none_of_them_stays_after_one_failed(database: Database) -> None:
    with (
        pytest.raises(IntegrityError),
        database.write() as session,
        sent_together(session),
    ):
        for number in (1, 1, 2):
            session.execute(_INSERT, {"id": number})
    assert not notes(database)
    assert database.errors.counts() == {"unexpected": 1}


def test_none_of_them_stays_after_the_caller_failed(database: Database) -> None:
    with (
        pytest.raises(ZeroDivisionError),
        database.write() as session,
        sent_together(session),
    ):
        session.execute(_INSERT, {"id": 1})
        session.execute(_INSERT, {"id": 1 // 0})
    assert not notes(database)


def test_a_lost_connection_is_unavailable_and_is_replaced(database: Database) -> None:
    with pytest.raises(Unavailable), database.write() as session:
        process = session.execute(text("SELECT pg_backend_pid()")).scalar_one()
        with database.write() as other:
            other.execute(
                text("SELECT pg_terminate_backend(:process, 5000)"),
                {"process": process},
            )
        with sent_together(session):
            session.execute(_INSERT, {"id": 1})
            session.execute(_INSERT, {"id": 2})
    assert not notes(database)


def test_a_statement_takes_one_lock_and_statements_follow_the_order_of_names(
    database: Database,
) -> None:
    """SQL promises no order in which one statement computes its columns or its
    subqueries.
    """
    sent: list[tuple[str, Any]] = []
    event.listen(
        database.engine,
        "before_cursor_execute",
        lambda *it: sent.append((it[2], it[3])),
    )
    tables = (DatasetRow.id, ["b", "a"]), (AccountRow.id, ["d", "c"])
    names = ["beta", "alpha", "gamma"]
    with database.write() as session:
        session.execute(text("CREATE TABLE datasets (id TEXT)"))
        session.execute(text("CREATE TABLE accounts (id TEXT)"))
        sent.clear()
        lock_names(session, shared=names, exclusive=["beta"])
        lock_rows(session, *tables)
    locks = [
        (statement, values)
        for statement, values in sent
        if "lock" in statement or "FOR UPDATE" in statement
    ]
    assert all(
        len(re.findall(r"pg_advisory\w+\(|FOR UPDATE", statement)) == 1
        for statement, _ in locks
    )
    assert [value for _, values in locks[:3] for value in values.values()] == [
        number_of(name) for name in sorted(names)
    ]
    assert [statement.split("FROM ")[1].split()[0] for statement, _ in locks[3:]] == [
        "datasets",
        "accounts",
    ]
    assert all("ORDER BY" in statement for statement, _ in locks[3:])


def test_an_admission_takes_few_round_trips(postgres_url: str, tmp_path: Path) -> None:
    with fresh_database(postgres_url) as url:
        migrate.upgrade(url)
        keys = iter("abc")
        with opened(url, tmp_path) as scene:
            # Two of them read what is planned from: a plan can take a second, in which
            # nobody else should wait.
            assert (
                n_round_trips(
                    scene.installation.database.engine,
                    lambda: scene.submit(key=next(keys)),
                )
                <= 13
            )
