"""Builds INSERT statements with ON CONFLICT clauses, which SQLAlchemy offers per dialect only."""

from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.orm import Session

from app.db.base import Base


def insert(session: Session, table: type[Base]) -> postgresql.Insert | sqlite.Insert:
    """An INSERT with the methods ``on_conflict_do_nothing`` and ``on_conflict_do_update``."""
    insert_of_dialect = postgresql.insert if session.get_bind().dialect.name == "postgresql" else sqlite.insert
    return insert_of_dialect(table)
