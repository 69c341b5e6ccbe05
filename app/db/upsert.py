"""Builds INSERT statements: with ON CONFLICT clauses, which SQLAlchemy offers per dialect only, and for many rows."""

from typing import TYPE_CHECKING

from sqlalchemy.orm import Session

from app.db.base import Base

if TYPE_CHECKING:  # a process imports the dialect of its database only
    from sqlalchemy.dialects import postgresql, sqlite

ALL_COLUMNS = {"render_nulls": True}
"""Option of an INSERT of many rows: rows with a NULL go into the same statement as the others."""


def insert(session: Session, table: type[Base]) -> "postgresql.Insert | sqlite.Insert":
    """An INSERT with the methods ``on_conflict_do_nothing`` and ``on_conflict_do_update``."""
    if session.get_bind().dialect.name == "postgresql":
        from sqlalchemy.dialects import postgresql

        return postgresql.insert(table)
    from sqlalchemy.dialects import sqlite

    return sqlite.insert(table)
