"""Locks a name, shared or exclusive, until the transaction ends; requests are granted in order of arrival.

A row lock would not do: PostgreSQL grants ``FOR SHARE`` to later transactions while an ``UPDATE`` of the row waits, so
a row that is in use all the time is never changed. On SQLite, the only write transaction excludes every other one.
"""

import hashlib
from collections.abc import Collection

from sqlalchemy import Connection, func, select, text
from sqlalchemy.orm import Session

from app.db.round_trips import sent_together


def lock(session: Session, *, shared: Collection[str] = (), exclusive: Collection[str] = ()) -> None:
    """Locks names in the order of the names, before any row is locked.

    Args:
        session: a write transaction.
        shared: names that other transactions may lock ``shared`` at the same time.
        exclusive: names that no other transaction may lock at the same time. May be in ``shared`` as well.
    """
    if session.get_bind().dialect.name == "sqlite":
        return
    acquire = {True: func.pg_advisory_xact_lock, False: func.pg_advisory_xact_lock_shared}
    with sent_together(session):
        for name in sorted({*shared, *exclusive}):  # a statement for each: SQL promises no order within one
            session.connection().execute(select(acquire[name in exclusive](number(name))))


def take(connection: Connection, name: str, *, wait_s: float) -> None:
    """Locks a name until the transaction of a connection to PostgreSQL ends, which may be idle for as long as it likes.

    Raises:
        OperationalError: the name was locked for longer than ``wait_s``.
    """
    connection.execute(text("SET LOCAL idle_in_transaction_session_timeout = 0"))
    connection.execute(text("SET LOCAL statement_timeout = 0"))
    connection.execute(text(f"SET LOCAL lock_timeout = {int(wait_s * 1000)}"))
    connection.execute(select(func.pg_advisory_xact_lock(number(name))))


def number(name: str) -> int:
    """PostgreSQL names such a lock by 64 bits."""
    return int.from_bytes(hashlib.sha256(name.encode("utf-8")).digest()[:8], "big", signed=True)
