"""Transactions behave alike on SQLite and on PostgreSQL."""

import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from sqlalchemy import MetaData, select, text
from sqlalchemy.exc import DBAPIError, IntegrityError, StatementError
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

from app.core.errors import Unavailable
from app.db.base import NAMING_CONVENTION, CanonicalJson, ExactInteger, UtcDateTime
from app.db.database import Database, now

pytestmark = pytest.mark.contract


class _Base(DeclarativeBase):
    metadata = MetaData(naming_convention=NAMING_CONVENTION)


class _Note(_Base):
    __tablename__ = "notes"

    id: Mapped[int] = mapped_column(ExactInteger, primary_key=True)
    amount: Mapped[int | None] = mapped_column(ExactInteger)
    at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    body: Mapped[Any] = mapped_column(CanonicalJson, nullable=True)


@pytest.fixture
def notes(empty_database_url: str) -> Iterator[Database]:
    database = Database.open(empty_database_url)
    with database.write() as session:
        _Base.metadata.create_all(session.connection())
    yield database
    database.close()


def _count(database: Database) -> int:
    with database.read() as session:
        return len(session.scalars(select(_Note)).all())


def test_write_commits_at_the_end_of_its_block_and_not_before(notes: Database) -> None:
    with notes.write() as session:
        session.add(_Note())
        session.flush()
        assert _count(notes) == 0
    assert _count(notes) == 1


def test_an_error_rolls_everything_back(notes: Database) -> None:
    with pytest.raises(KeyError), notes.write() as session:
        session.add(_Note())
        session.flush()
        raise KeyError
    assert _count(notes) == 0


def test_objects_stay_readable_after_the_commit(notes: Database) -> None:
    with notes.write() as session:
        note = _Note(amount=3)
        session.add(note)
    assert (note.id, note.amount) == (1, 3)


@pytest.mark.parametrize(
    "statement", ["INSERT INTO notes (id) VALUES (7)", "UPDATE notes SET amount = 7"]
)
def test_a_read_transaction_cannot_write(notes: Database, statement: str) -> None:
    with notes.write() as session:
        session.add(_Note())
    with pytest.raises(DBAPIError), notes.read() as session:
        session.execute(text(statement))
    with notes.read() as session:
        assert session.scalars(select(_Note.amount)).all() == [None]
    with notes.write() as session:  # The pooled connection may write again.
        session.execute(text(statement))


def test_a_read_transaction_sees_one_snapshot(notes: Database) -> None:
    with notes.read() as session:
        before = session.scalars(select(_Note.id)).all()
        with_another_thread = threading.Thread(target=_insert, args=(notes,))
        with_another_thread.start()
        with_another_thread.join()
        assert session.scalars(select(_Note.id)).all() == before == []
    assert _count(notes) == 1


def _insert(database: Database) -> None:
    with database.write() as session:
        session.add(_Note())


def test_every_thread_of_a_full_pool_gets_a_transaction_and_one_more_waits_then_is_refused(
    empty_database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.core.limits.DATABASE_POOL_WAIT_S", 0.2)
    database = Database.open(empty_database_url, pool_size=8)
    all_in = threading.Barrier(9)
    done = threading.Event()

    def hold() -> None:
        with database.read() as session:
            session.execute(text("SELECT 1"))
            all_in.wait(timeout=60)
            done.wait(timeout=60)

    threads = [threading.Thread(target=hold) for _ in range(8)]
    for thread in threads:
        thread.start()
    all_in.wait(timeout=60)
    with pytest.raises(Unavailable), database.read() as session:
        session.execute(text("SELECT 1"))
    done.set()
    for thread in threads:
        thread.join()
    with database.read() as session:
        assert session.execute(text("SELECT 1")).scalar_one() == 1
    database.close()


@pytest.mark.parametrize("amount", [0, -1, 2**53 + 1, 2**63 - 1, -(2**63)])
def test_integers_come_back_exactly(notes: Database, amount: int) -> None:
    with notes.write() as session:
        session.add(_Note(amount=amount))
    with notes.read() as session:
        assert session.scalars(select(_Note.amount)).one() == amount


@pytest.mark.parametrize("amount", [1.0, True, "1", 2**63, -(2**63) - 1])
def test_values_other_than_64_bit_integers_are_refused(
    notes: Database, amount: object
) -> None:
    with pytest.raises((StatementError, OverflowError)), notes.write() as session:
        session.add(_Note(amount=amount))
    assert _count(notes) == 0


def test_times_come_back_exactly_in_utc_and_sort_as_instants(notes: Database) -> None:
    later = datetime(2026, 11, 20, 9, 30, 0, 1, UTC)
    earlier = datetime(
        2026, 11, 20, 14, 59, 59, 999_999, timezone(timedelta(hours=5, minutes=30))
    )
    with notes.write() as session:
        session.add_all([_Note(id=1, at=later), _Note(id=2, at=earlier)])
    with notes.read() as session:
        stored = session.scalars(select(_Note.at).order_by(_Note.at)).all()
        assert session.scalars(select(_Note.id).where(_Note.at < later)).all() == [2]
    assert stored == [earlier, later]
    assert [at.utcoffset() for at in stored if at] == [timedelta(0), timedelta(0)]


def test_a_naive_time_is_refused(notes: Database) -> None:
    with pytest.raises(StatementError), notes.write() as session:
        session.add(_Note(at=datetime(2026, 11, 20)))  # noqa: DTZ001 - the point of the test


def test_equal_json_is_equal_text(notes: Database) -> None:
    with notes.write() as session:
        session.add_all(
            [
                _Note(body={"b": 1, "a": ["é\u0000", None]}),
                _Note(body={"a": ["é\u0000", None], "b": 1}),
            ]
        )
    with notes.read() as session:
        texts = session.execute(text("SELECT body FROM notes")).scalars().all()
        assert texts == ['{"a":["é\\u0000",null],"b":1}'] * 2
        assert session.scalars(select(_Note.body)).first() == {
            "a": ["é\u0000", None],
            "b": 1,
        }


def test_json_that_has_no_exact_form_is_refused(notes: Database) -> None:
    for body in (2**53 + 1, float("nan")):
        with pytest.raises(StatementError), notes.write() as session:
            session.add(_Note(body=body))


def test_the_database_clock_moves_inside_a_transaction(notes: Database) -> None:
    with notes.write() as session:
        first, second = now(session), now(session)
    assert first <= second
    assert first.utcoffset() == timedelta(0)
    assert abs(first - datetime.now(UTC)) < timedelta(minutes=1)


def test_error_texts_carry_no_parameters(notes: Database) -> None:
    with pytest.raises(IntegrityError) as raised, notes.write() as session:
        session.execute(
            text("INSERT INTO notes (id, amount) VALUES (1, :a), (1, :a)"),
            {"a": 918_273},
        )
    assert "918273" not in str(raised.value)


def test_an_unreachable_server_is_unavailable_and_not_a_bug() -> None:
    database = Database.open("postgresql://nobody:secret@127.0.0.1:1/none")
    with pytest.raises(Unavailable) as raised, database.read() as session:
        session.execute(text("SELECT 1"))
    assert "secret" not in str(raised.value)


def test_a_missing_table_is_a_bug_and_not_unavailable(notes: Database) -> None:
    with pytest.raises(DBAPIError), notes.read() as session:
        session.execute(text("SELECT * FROM no_such_table"))


def test_a_database_that_accepts_no_writes_is_unavailable(notes: Database) -> None:
    read_only = {
        "sqlite": "PRAGMA query_only = ON",
        "postgresql": "SET TRANSACTION READ ONLY",
    }[notes.dialect]
    with pytest.raises(Unavailable), notes.write() as session:
        session.execute(text(read_only))
        session.add(_Note())
    assert _count(notes) == 0


@pytest.mark.parametrize("code", ["53100", "58030", "XX000", "XX001"])
def test_a_failure_of_the_server_is_unavailable(
    postgresql_database_url: str, code: str
) -> None:
    """A full disk, a disk that fails, an internal error, a damaged page."""
    database = Database.open(postgresql_database_url)
    fail = f"DO $$ BEGIN RAISE EXCEPTION 'a test' USING ERRCODE = '{code}'; END $$"
    for transaction in (database.read, database.write):
        with pytest.raises(Unavailable), transaction() as session:
            session.execute(text(fail))
    database.close()


def test_foreign_keys_hold(notes: Database) -> None:
    with notes.write() as session:
        session.execute(
            text("CREATE TABLE answers (note_id BIGINT REFERENCES notes (id))")
        )
    with pytest.raises(IntegrityError), notes.write() as session:
        _insert_answer(session)


def _insert_answer(session: Session) -> None:
    session.execute(text("INSERT INTO answers (note_id) VALUES (12345)"))
