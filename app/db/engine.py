"""Engines for the two dialects, set up so that a transaction means the same on both.

A transaction says what it is by the execution option :data:`ACCESS`. ``"write"`` on SQLite is ``BEGIN IMMEDIATE``
(the caller holds the write lock of the file, :mod:`app.db.locks`); ``"read"`` is a snapshot that the database itself
keeps from writing, so a read can never be upgraded, which SQLite answers with "database is locked" at once.
"""

import os
import sqlite3
from pathlib import Path
from typing import Literal, TypeAlias, cast

from sqlalchemy import URL, Connection, Engine, create_engine, event, make_url
from sqlalchemy.exc import ArgumentError
from sqlalchemy.pool import ConnectionPoolEntry

from app.core.errors import InstallationError
from app.db.locks import WAIT_S

DialectName: TypeAlias = Literal["sqlite", "postgresql"]

ACCESS = "grovekeeper_access"
"""Execution option: ``"write"`` or ``"read"``. A connection without it may only read on SQLite."""

DEFAULT_POOL_SIZE = 32
POOL_TIMEOUT_S = 30

_SQLITE_PRAGMAS = (
    f"PRAGMA busy_timeout = {int(WAIT_S * 1000)}",
    "PRAGMA journal_mode = WAL",
    "PRAGMA synchronous = FULL",
    "PRAGMA foreign_keys = ON",
    # Without it INSERT OR REPLACE deletes the old row without running its BEFORE DELETE trigger.
    "PRAGMA recursive_triggers = ON",
)


def parse_url(url: str) -> URL:
    """The address of a database, with the driver this program uses.

    Raises:
        InstallationError: not an address, not one of the two databases, or a SQLite database without a file.
    """
    try:
        parsed = make_url(url)
    except ArgumentError:
        # The address may hold a password: neither it nor the library's message may be repeated.
        raise InstallationError("the database address cannot be read") from None
    backend = parsed.drivername.split("+")[0]
    if backend in ("postgresql", "postgres"):
        return parsed.set(drivername="postgresql+psycopg")
    if backend != "sqlite":
        raise InstallationError("the database address must begin with sqlite:// or postgresql://")
    if parsed.database in (None, "", ":memory:") or parsed.query:
        raise InstallationError("a SQLite address names a file and takes no options")
    return parsed.set(drivername="sqlite+pysqlite")


def dialect_of(url: URL) -> DialectName:
    """Which of the two databases a parsed address means."""
    return cast(DialectName, url.get_backend_name())


def database_file(url: URL) -> Path:
    """The file of a SQLite address."""
    if url.database is None:
        raise ValueError("not a SQLite address")
    return Path(url.database)


def open_engine(url: URL, *, pool_size: int = DEFAULT_POOL_SIZE) -> Engine:
    """An engine for a parsed address, with at most ``pool_size`` connections ever.

    Error texts never carry statement parameters: those may be private.
    """
    if dialect_of(url) == "sqlite":
        return _open_sqlite(url, pool_size=pool_size)
    defaults = {"application_name": "grovekeeper", "connect_timeout": "10"}
    return create_engine(
        url.update_query_dict({key: value for key, value in defaults.items() if key not in url.query}),
        pool_size=pool_size,
        max_overflow=0,
        pool_timeout=POOL_TIMEOUT_S,
        pool_pre_ping=True,
        hide_parameters=True,
    )


def _open_sqlite(url: URL, *, pool_size: int) -> Engine:
    path = database_file(url)
    try:
        # SQLite would create it readable by everybody; its -wal and -shm files take the mode of this one.
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
    except OSError as error:
        raise InstallationError(f"the database file cannot be opened: {error.strerror}") from error
    engine = create_engine(url, pool_size=pool_size, max_overflow=0, pool_timeout=POOL_TIMEOUT_S, hide_parameters=True)
    event.listen(engine, "connect", _set_up_sqlite)
    event.listen(engine, "begin", _begin_sqlite)
    return engine


def _set_up_sqlite(connection: sqlite3.Connection, _entry: ConnectionPoolEntry) -> None:
    # The driver's own BEGIN is deferred and comes too late; transactions are begun below.
    connection.isolation_level = None
    for pragma in _SQLITE_PRAGMAS:
        connection.execute(pragma).close()


def _begin_sqlite(connection: Connection) -> None:
    if connection.get_execution_options().get(ACCESS) == "write":
        connection.exec_driver_sql("PRAGMA query_only = OFF")
        connection.exec_driver_sql("BEGIN IMMEDIATE")
    else:
        connection.exec_driver_sql("PRAGMA query_only = ON")
        connection.exec_driver_sql("BEGIN")
