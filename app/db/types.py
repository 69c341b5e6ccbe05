"""Column types that keep a value exactly, on both databases."""

import json
from datetime import UTC, datetime
from typing import Any

import rfc8785
from sqlalchemy import BigInteger, DateTime, Dialect, Integer, Text
from sqlalchemy.types import TypeDecorator, TypeEngine

from app.core import clock

_INT64 = range(-(2**63), 2**63)


class UtcDateTime(TypeDecorator[datetime]):
    """An instant in UTC, to the microsecond: ``timestamptz`` on PostgreSQL, sortable RFC 3339 text on SQLite.

    SQLAlchemy's own ``DateTime(timezone=True)`` drops the zone on SQLite. A naive time is refused.
    """

    impl = DateTime(timezone=True)
    cache_ok = True

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[Any]:
        return dialect.type_descriptor(Text() if dialect.name == "sqlite" else DateTime(timezone=True))

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | str | None:
        if value is None:
            return None
        if value.tzinfo is None:
            raise ValueError("a time without a zone")
        return clock.to_text(value) if dialect.name == "sqlite" else value

    def process_result_value(self, value: datetime | str | None, dialect: Dialect) -> datetime | None:
        if value is None:
            return None
        return datetime.fromisoformat(value) if isinstance(value, str) else value.astimezone(UTC)


class ExactInteger(TypeDecorator[int]):
    """A 64-bit integer; anything else is refused before it reaches the database.

    SQLite would store a float, or text, in an integer column without a word.
    """

    impl = BigInteger
    cache_ok = True

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[Any]:
        # Only a column declared INTEGER can be SQLite's row id, which is what an automatic key needs.
        return dialect.type_descriptor(Integer() if dialect.name == "sqlite" else BigInteger())

    def process_bind_param(self, value: int | None, dialect: Dialect) -> int | None:
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int):
            raise TypeError("an exact integer column takes integers only")
        if value not in _INT64:
            raise OverflowError("the integer does not fit into 64 bits")
        return value


class CanonicalJson(TypeDecorator[Any]):
    """A JSON value as its RFC 8785 text: the same value is the same bytes, so a hash of the column means something.

    Integers beyond 2⁵³ and non-finite numbers are refused by the encoding itself. Python's ``None`` is SQL ``NULL``.
    A value that is changed in place is not noticed: assign a new one.
    """

    impl = Text
    cache_ok = True

    def process_bind_param(self, value: object, dialect: Dialect) -> str | None:
        return None if value is None else rfc8785.dumps(value).decode("utf-8")  # type: ignore[arg-type]  # it checks

    def process_result_value(self, value: str | None, dialect: Dialect) -> Any:
        return None if value is None else json.loads(value)
