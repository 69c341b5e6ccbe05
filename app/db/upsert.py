"""INSERT with a rule for a key that is taken: both databases have it, each in its own words."""

from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.orm import Session

from app.db.base import Base


def insert(session: Session, table: type[Base]) -> postgresql.Insert | sqlite.Insert:
    """An INSERT into a table that takes ``on_conflict_do_nothing`` and ``on_conflict_do_update``."""
    own = postgresql.insert if session.get_bind().dialect.name == "postgresql" else sqlite.insert
    return own(table)
