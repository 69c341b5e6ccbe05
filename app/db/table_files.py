"""Writes all rows of a database to one file and reads them back, also into the other kind of database.

A line with ``table`` and ``columns`` precedes the rows of a table. A row is a list; bytes are hexadecimal, times are
text.
"""

import json
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any, TextIO

from sqlalchemy import Column, Connection, LargeBinary, MetaData, Table, insert, inspect, select

from app.core import clock

_ROWS_AT_ONCE = 1_000
_REVISION = "alembic_version"


def write_rows(connection: Connection, file: TextIO) -> None:
    """Writes the rows of every table but the revision's, as the connection's transaction sees them."""
    for table in _tables(connection).values():
        _write_line(file, {"table": table.name, "columns": table.columns.keys()})
        query = select(table).order_by(*table.primary_key)
        for row in connection.execute(query, execution_options={"yield_per": _ROWS_AT_ONCE}):
            _write_line(file, [_to_json(value) for value in row])


def read_rows(connection: Connection, lines: Iterable[str]) -> None:
    """Inserts rows into the empty tables of a database at the revision of the file.

    Rows of tables that the revision does not have are left out: another program made them in the same database.
    """
    tables = _tables(connection)
    insertion: _Insertion | None = None
    for line in map(json.loads, lines):
        if isinstance(line, dict):
            if insertion is not None:
                insertion.flush()
            table = tables.get(line["table"])
            insertion = None if table is None else _Insertion(connection, table, line["columns"])
        elif insertion is not None:
            insertion.add(line)
    if insertion is not None:
        insertion.flush()


def has_tables(connection: Connection) -> bool:
    """Whether a database has any table."""
    return bool(inspect(connection).get_table_names())


class _Insertion:
    """Inserts the rows of one table, many at a time."""

    def __init__(self, connection: Connection, table: Table, columns: Sequence[str]) -> None:
        self._connection = connection
        self._table = table
        self._columns = [table.columns[name] for name in columns]
        self._rows: list[dict[str, Any]] = []

    def add(self, row: Sequence[Any]) -> None:
        """Takes the values of one row, in the order of the columns."""
        pairs = zip(self._columns, row, strict=True)
        self._rows.append({column.name: _from_json(value, column) for column, value in pairs})
        if len(self._rows) == _ROWS_AT_ONCE:
            self.flush()

    def flush(self) -> None:
        """Inserts the rows that were taken."""
        if self._rows:
            self._connection.execute(insert(self._table), self._rows)
        self._rows = []


def _tables(connection: Connection) -> dict[str, Table]:
    names = sorted(set(inspect(connection).get_table_names()) - {_REVISION})
    return {name: Table(name, MetaData(), autoload_with=connection) for name in names}


def _write_line(file: TextIO, value: Any) -> None:
    file.write(json.dumps(value, separators=(",", ":"), ensure_ascii=False) + "\n")


def _to_json(value: Any) -> Any:
    if isinstance(value, bytes):
        return value.hex()
    return clock.to_text(value) if isinstance(value, datetime) else value


def _from_json(value: Any, column: Column[Any]) -> Any:
    return bytes.fromhex(value) if isinstance(column.type, LargeBinary) and value is not None else value
