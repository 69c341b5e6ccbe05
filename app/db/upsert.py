"""Builds INSERT statements: with ON CONFLICT clauses, which SQLAlchemy offers per dialect only, and for many rows."""

from typing import cast

import sqlalchemy
from sqlalchemy import Table
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.orm import Session

from app.db.base import Base
from app.db.engine import DialectName


def insert_rows(table: type[Base]) -> sqlalchemy.Insert:
    """An INSERT of rows that are given as mappings with a value for every column; one statement for all rows."""
    return sqlalchemy.insert(cast(Table, table.__table__))


def insert(session: Session, table: type[Base]) -> "postgresql.Insert | sqlite.Insert":
    """An INSERT with the methods ``on_conflict_do_nothing`` and ``on_conflict_do_update``."""
    return insert_on(dialect_of(session), table)


def insert_on(dialect: DialectName, table: type[Base]) -> "postgresql.Insert | sqlite.Insert":
    """An INSERT as :func:`insert` makes it, which can be kept."""
    if dialect == "postgresql":
        return postgresql.insert(cast(Table, table.__table__))

    return sqlite.insert(cast(Table, table.__table__))


def dialect_of(session: Session) -> DialectName:
    """The dialect of a session's database."""
    return cast(DialectName, session.get_bind().dialect.name)
