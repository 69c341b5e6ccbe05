"""In which order a use case locks rows, found from outside on PostgreSQL: no sleeps, no hooks, no luck.

Somebody else holds one row. The use case is started and comes to wait for it; the database itself says when. At that
moment every row that comes earlier in the order has to be held by the use case, and every row that comes later has to
be free. If that is so for each row in turn, the use case locks all of them, one after the other in that order; and
transactions that lock in one order never wait in a circle.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from time import monotonic, sleep
from typing import TypeAlias

import pytest
from sqlalchemy import Connection, Engine, text

from app.core.errors import Unavailable

Lock: TypeAlias = tuple[str, str]
"""A table and the id of a row."""

_PATIENCE_S = 120.0


def assert_locks_in_order(engine: Engine, use_case: Callable[[], object], locks: Sequence[Lock]) -> None:
    """Demands that a use case locks these rows in this order. It never gets to its commit, so it may be run again."""
    for at, lock in enumerate(locks):
        with ThreadPoolExecutor(1) as pool, engine.connect() as holder, engine.connect() as observer:
            assert _locked(holder, lock), f"{lock} is nobody's"
            pid = holder.execute(text("SELECT pg_backend_pid()")).scalar_one()
            running = pool.submit(use_case)
            try:
                waiting = waits_for(observer, pid, running, what=str(lock))
                free = [each for each in (*locks[:at], *locks[at + 1 :]) if _locked(observer, each)]
                assert free == list(locks[at + 1 :]), f"while it waits for {lock}"
                observer.execute(text("SELECT pg_cancel_backend(:pid)"), {"pid": waiting})
                with pytest.raises(Unavailable):
                    running.result(_PATIENCE_S)
            finally:
                observer.rollback()
                holder.rollback()  # lets it go on to its end, whatever was found


def _locked(connection: Connection, lock: Lock) -> bool:
    """Locks a row, if nobody holds it."""
    table, row_id = lock
    found = connection.execute(
        text(f"SELECT id FROM {table} WHERE id = :id FOR UPDATE SKIP LOCKED"),
        {"id": row_id},
    )
    return found.scalar_one_or_none() is not None


def waits_for(observer: Connection, holder: int, running: Future[object], *, what: str) -> int:
    """The database process that waits for another one, as soon as one does.

    Args:
        observer: a connection that is neither's.
        holder: the process that holds what is waited for.
        running: that is to wait. If it ends instead, it does not lock what it should.
        what: that it should lock, in words.
    """
    query = text("SELECT pid FROM pg_stat_activity WHERE :holder = ANY(pg_blocking_pids(pid))")
    until = monotonic() + _PATIENCE_S
    while monotonic() < until:
        found = observer.execute(query, {"holder": holder}).scalar_one_or_none()
        observer.rollback()
        if found is not None:
            return int(found)
        if running.done():
            running.result()
            break
        sleep(0.01)
    raise AssertionError(f"it does not lock {what}")
