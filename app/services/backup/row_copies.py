"""Copies all rows of a database into another database, also of the other kind, and opens a database in one file."""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Literal

from sqlalchemy import Connection, MetaData, Table, create_engine, insert, inspect, select

from app.core import stamps

_ROWS_AT_ONCE = 1_000
_REVISION = "alembic_version"


@contextmanager
def file_transaction(file: Path, mode: Literal["rwc", "ro&immutable=1"]) -> Iterator[Connection]:
    """A transaction on a SQLite database of one file that no other process writes, also on a read-only medium."""
    connect = partial(sqlite3.connect, f"{file.absolute().as_uri()}?mode={mode}", uri=True)
    engine = create_engine("sqlite://", creator=connect, hide_parameters=True)
    try:
        with engine.begin() as connection:
            yield connection
    finally:
        engine.dispose()


def copy_rows(source: Connection, target: Connection) -> None:
    """Inserts the rows that one transaction sees into the empty tables of a database at the same revision.

    Rows of tables that the target does not have are left out: another program made them in the same database.
    """
    for name in sorted(set(inspect(target).get_table_names()) - {_REVISION}):
        reflected, table = (Table(name, MetaData(), autoload_with=database) for database in (source, target))
        query = select(reflected).order_by(*reflected.primary_key).execution_options(yield_per=_ROWS_AT_ONCE)
        columns = reflected.columns.keys()
        for rows in source.execute(query).partitions():
            target.execute(insert(table), [dict(zip(columns, map(_stored, row), strict=True)) for row in rows])


def _stored(value: object) -> object:
    """A value as both databases take it: a time is text on SQLite."""
    return stamps.to_text(value) if isinstance(value, datetime) else value
