"""Locks rows of several tables until the transaction ends: table after table, the rows in order of their ids."""

from collections.abc import Collection
from typing import Any

from sqlalchemy import func, select
from sqlalchemy.orm import InstrumentedAttribute, Session


def lock(session: Session, *tables: tuple[InstrumentedAttribute[str], Collection[str]]) -> None:
    """Locks the rows that exist, in one statement. On SQLite, the only write transaction excludes every other one.

    On PostgreSQL, a statement sees the rows of the time when it began, but it may wait for locks. So what is read under
    the locks is read by later statements.

    Args:
        session: a write transaction.
        tables: for each table the column of its ids, and the ids to lock.
    """
    if session.get_bind().dialect.name == "sqlite":
        return
    query: Any = None
    for column, ids in tables:
        rows = select(column).where(column.in_(ids)).order_by(column).with_for_update()
        # PostgreSQL completes the array, which is never NULL, before it reads the first row of the next table.
        query = rows if query is None else rows.where(func.array(query.scalar_subquery()).is_not(None))
    session.execute(query)
