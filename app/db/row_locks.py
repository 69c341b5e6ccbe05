"""Locks rows of several tables until the transaction ends: table after table, the rows in order of their ids."""

from collections.abc import Collection

from sqlalchemy import select
from sqlalchemy.orm import InstrumentedAttribute, Session

from app.db.round_trips import sent_together


def lock(session: Session, *tables: tuple[InstrumentedAttribute[str], Collection[str]]) -> None:
    """Locks the rows that exist. On SQLite, the only write transaction excludes every other one.

    On PostgreSQL, a statement sees the rows of the time when it began, but it may wait for locks. So what is read under
    the locks is read by later statements.

    Args:
        session: a write transaction.
        tables: for each table the column of its ids, and the ids to lock.
    """
    if session.get_bind().dialect.name == "sqlite":
        return
    with sent_together(session):
        for column, ids in tables:  # a statement for each: SQL promises no order within one
            rows = select(column).where(column.in_(ids)).order_by(column)
            session.connection().execute(rows.with_for_update())
