"""Defines the declarative base of every table, and column types that store values
exactly on both databases.
"""

import json
from collections.abc import Collection, Sequence
from datetime import UTC, datetime
from typing import Annotated, Any, ClassVar, TypeVar

import rfc8785
from sqlalchemy import BigInteger, DateTime, Dialect, Integer, MetaData, Text, select
from sqlalchemy.orm import DeclarativeBase, Session, mapped_column
from sqlalchemy.types import TypeDecorator, TypeEngine

from app.core import stamps
from app.core.errors import NotFound

_INT64 = range(-(2**63), 2**63)

NAMING_CONVENTION = {
    "ix": "ix_%(table_name)s_%(column_0_N_name)s",
    "uq": "uq_%(table_name)s_%(column_0_N_name)s",
    "ck": "ck_%(table_name)s_%(constraint_name)s",
    "fk": "fk_%(table_name)s_%(column_0_N_name)s_%(referred_table_name)s",
    "pk": "pk_%(table_name)s",
}
"""Gives every constraint the same name on both databases and in all revisions, so that
a migration can drop it.
"""


class UtcDateTime(TypeDecorator[datetime]):
    """A time in UTC, to the microsecond: ``timestamptz`` on PostgreSQL, sortable RFC
    3339 text on SQLite.

    SQLAlchemy's ``DateTime(timezone=True)`` drops the zone on SQLite. A time without a
    zone is refused.
    """

    impl = DateTime(timezone=True)
    cache_ok = True

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[Any]:
        if dialect.name == "sqlite":
            return dialect.type_descriptor(Text())
        return dialect.type_descriptor(DateTime(timezone=True))

    def process_bind_param(
        self, value: datetime | None, dialect: Dialect
    ) -> datetime | str | None:
        if value is None:
            return None
        if value.tzinfo is None:
            raise ValueError("the time has no zone")
        return stamps.to_text(value) if dialect.name == "sqlite" else value

    def process_result_value(
        self, value: datetime | str | None, dialect: Dialect
    ) -> datetime | None:
        if value is None:
            return None
        if isinstance(value, str):
            return datetime.fromisoformat(value)
        # PostgreSQL returns a time in the zone of the connection, which an address sets.
        return value.astimezone(UTC)


class ExactInteger(TypeDecorator[int]):
    """A 64-bit integer. Other values are refused, because SQLite would store a float or
    a text in an integer column.
    """

    impl = BigInteger
    cache_ok = True

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[Any]:
        # An automatic key needs SQLite's row id, which only a column declared INTEGER
        # can be.
        if dialect.name == "sqlite":
            return dialect.type_descriptor(Integer())
        return dialect.type_descriptor(BigInteger())

    def process_bind_param(self, value: int | None, dialect: Dialect) -> int | None:
        if value is None:
            return None
        # ``True`` is an ``int`` in Python, and would be stored as 1
        if isinstance(value, bool) or not isinstance(value, int):
            raise TypeError("an exact integer column takes integers only")
        if value not in _INT64:
            raise OverflowError("the integer does not fit into 64 bits")
        return value


class CanonicalJson(TypeDecorator[Any]):
    """A JSON value as its RFC 8785 text: equal values have equal bytes, so the column
    can be hashed.

    The encoding refuses integers beyond 2⁵³ and non-finite numbers. Python's ``None``
    is SQL ``NULL``. SQLAlchemy does not notice a change in place: assign a new value.
    """

    impl = Text
    cache_ok = True

    def process_bind_param(self, value: object, dialect: Dialect) -> str | None:
        return None if value is None else rfc8785.dumps(value).decode("utf-8")  # type: ignore[arg-type]  # dumps checks

    def process_result_value(self, value: str | None, dialect: Dialect) -> Any:
        return None if value is None else json.loads(value)


class Base(DeclarativeBase):
    """Base of every ORM class in a ``tables.py``; its metadata is the schema at the
    newest revision.
    """

    metadata = MetaData(naming_convention=NAMING_CONVENTION)
    type_annotation_map: ClassVar = {
        int: ExactInteger,
        datetime: UtcDateTime,
        str: Text,
        dict[str, Any]: CanonicalJson,
        list[Any]: CanonicalJson,
        list[dict[str, Any]]: CanonicalJson,
        list[str]: CanonicalJson,
    }

    def fields(self, *names: str) -> dict[str, Any]:
        """Attributes that answers show under the names that they have here; times are
        texts.
        """
        shown = {}
        for name in names:
            value = getattr(self, name)
            if isinstance(value, datetime):
                value = stamps.to_text(value)
            shown[name] = value
        return shown


PrimaryKey = Annotated[str, mapped_column(primary_key=True)]
"""A text that is the primary key of its table, or a part of it."""

Row = TypeVar("Row", bound=Base)


def find_row(
    session: Session, table: type[Row], row_id: str, *, kind: str, lock: bool = False
) -> Row:
    """Finds a row by its id; with ``lock``, keeps it from being changed until the write
    transaction ends.

    Raises:
        NotFound: no such row.
    """
    row: Row | None = None
    # An id comes from a path: a NUL in it would be an error of PostgreSQL's driver, and
    # no missing row.
    if stamps.is_reference(row_id):
        # ``populate_existing``: the session may have read the row before the lock
        row = session.get(
            table, row_id, populate_existing=lock, with_for_update=lock or None
        )
    if row is None:
        raise NotFound(kind)
    return row


def locked_rows(
    session: Session, table: type[Row], ids: Collection[str], *, by: Any
) -> Sequence[Row]:
    """Locks and reads the rows that exist, in order of their ids, in one statement.

    Args:
        by: the column of the ids.
    """
    query = select(table).where(by.in_(ids)).order_by(by).with_for_update()
    read = session.execute(query.execution_options(populate_existing=True))
    return read.scalars().all()
