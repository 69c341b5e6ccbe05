"""Checks the order in which a use case locks rows, by observing PostgreSQL from
outside.

The test locks one row and starts the use case, which comes to wait for that row; the
database says when. At that moment the use case must hold every row that is earlier in
the order, and every later row must be free. If that holds for each row in turn, the use
case locks the rows in that order. Transactions that lock in one order never deadlock.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from time import monotonic, sleep
from typing import TypeAlias

import pytest
from sqlalchemy import Connection, Engine, text

from app.core.errors import Unavailable
from app.db.locks import number_of

Lock: TypeAlias = tuple[str, str]
"""A table and the id of a row; of a key, its id is locked and not its row."""

_PATIENCE_S = 120.0


def assert_locks_in_order(
    engine: Engine, use_case: Callable[[], object], locks: Sequence[Lock]
) -> None:
    """Asserts that a use case locks the rows in the given order. The use case is
    cancelled before its commit.
    """
    for at, lock in enumerate(locks):
        with (
            ThreadPoolExecutor(1) as pool,
            engine.connect() as holder,
            engine.connect() as observer,
        ):
            assert _locked(holder, lock), (
                f"{lock} can be locked before the use case starts"
            )
            pid = holder.execute(text("SELECT pg_backend_pid()")).scalar_one()
            running = pool.submit(use_case)
            try:
                waiting = waits_for(observer, pid, running, what=str(lock))
                free = [
                    other
                    for other in (*locks[:at], *locks[at + 1 :])
                    if _locked(observer, other)
                ]
                assert free == list(locks[at + 1 :]), f"while it waits for {lock}"
                observer.execute(
                    text("SELECT pg_cancel_backend(:pid)"), {"pid": waiting}
                )
                with pytest.raises(Unavailable):
                    running.result(_PATIENCE_S)
            finally:
                observer.rollback()
                # lets the use case end, also when an assertion failed
                holder.rollback()


def _locked(connection: Connection, lock: Lock) -> bool:
    """Locks a row or a key's id if no other transaction holds it."""
    table, row_id = lock
    if table == "keys":
        take = text("SELECT pg_try_advisory_xact_lock(:number)")
        return bool(
            connection.execute(take, {"number": number_of(row_id)}).scalar_one()
        )
    locked_row = connection.execute(
        text(f"SELECT id FROM {table} WHERE id = :id FOR UPDATE SKIP LOCKED"),
        {"id": row_id},
    )
    return locked_row.scalar_one_or_none() is not None


def waits_for(
    observer: Connection, holder: int, running: Future[object], *, what: str
) -> int:
    """Waits until a database process waits for the holder of a lock, and returns its
    process id.

    Args:
        observer: a third connection.
        holder: id of the database process that holds the lock.
        running: the work that must come to wait. If it ends, it does not take the lock.
        what: description of the lock, for the error.
    """
    query = text(
        "SELECT pid FROM pg_stat_activity WHERE :holder = ANY(pg_blocking_pids(pid))"
    )
    until = monotonic() + _PATIENCE_S
    while monotonic() < until:
        waiting = observer.execute(query, {"holder": holder}).scalar_one_or_none()
        observer.rollback()
        if waiting is not None:
            return int(waiting)
        if running.done():
            running.result()
            break
        sleep(0.01)
    raise AssertionError(f"the work does not lock {what}")
