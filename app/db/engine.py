"""Opens SQLAlchemy engines whose transactions behave alike on SQLite and PostgreSQL.

The execution option :data:`ACCESS` states the kind of a transaction. On SQLite, ``"write"`` begins with ``BEGIN
IMMEDIATE`` (the caller holds the write lock of the file, :mod:`app.db.locks`), and ``"read"`` sees a snapshot and
cannot write: SQLite fails an upgrade from read to write at once with "database is locked".
"""

import errno
import os
import select
import sqlite3
import threading
from functools import partial
from pathlib import Path
from typing import Any, Literal, TypeAlias, cast

from sqlalchemy import URL, Connection, Dialect, Engine, create_engine, event, make_url
from sqlalchemy.exc import ArgumentError, DisconnectionError
from sqlalchemy.pool import ConnectionPoolEntry

from app.core import limits
from app.core.errors import InstallationError

DialectName: TypeAlias = Literal["sqlite", "postgresql"]

ACCESS = "grovekeeper_access"
"""Execution option: ``"write"`` or ``"read"``. On SQLite a connection without the option can only read."""

_SQLITE_PRAGMAS = (
    f"PRAGMA busy_timeout = {int(limits.DATABASE_WRITE_WAIT_S * 1000)}",
    "PRAGMA journal_mode = WAL",
    "PRAGMA synchronous = FULL",
    "PRAGMA foreign_keys = ON",
    # KiB of pages that a connection keeps. A commit of another connection makes them void, so more are of little use.
    f"PRAGMA cache_size = -{limits.SQLITE_CACHE_KIB}",
    # Deleted content is overwritten with zeros: the key of an erased dataset must not stay in a free part of a page.
    "PRAGMA secure_delete = ON",
    # Otherwise INSERT OR REPLACE would delete the old row without running its BEFORE DELETE trigger.
    "PRAGMA recursive_triggers = ON",
)

_CREATION = threading.Lock()

_POSTGRESQL_DEFAULTS = {
    "application_name": "grovekeeper",
    "connect_timeout": str(limits.DATABASE_CONNECT_S),
    "options": (
        f"-c lock_timeout={limits.DATABASE_LOCK_WAIT_S}s -c statement_timeout={limits.DATABASE_STATEMENT_S}s"
        f" -c idle_in_transaction_session_timeout={limits.DATABASE_IDLE_S}s"
    ),
    "keepalives": "1",
    "keepalives_idle": str(limits.DATABASE_SILENCE_S),
    "keepalives_interval": "10",
    "keepalives_count": "3",
    "tcp_user_timeout": str(limits.DATABASE_SILENCE_S * 1000),
}
"""Parameters of connections; the address may name others."""


def parse_url(url: str) -> URL:
    """Parses the address of a database and sets the driver that this program uses.

    Raises:
        InstallationError: not an address, neither SQLite nor PostgreSQL, or a SQLite database without a file.
    """
    try:
        parsed = make_url(url)
    except ArgumentError:
        # The address may hold a password, so the message repeats neither the address nor the library's message.
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
    """The dialect of a parsed address."""
    return cast(DialectName, url.get_backend_name())


def database_file(url: URL) -> Path:
    """The file of a SQLite address."""
    if url.database is None:
        raise ValueError("not a SQLite address")
    return Path(url.database)


def open_engine(url: URL, *, pool_size: int = limits.MAX_DATABASE_CONNECTIONS) -> Engine:
    """An engine for a parsed address, with at most ``pool_size`` connections.

    Error texts never carry statement parameters, because parameters may be private.
    """
    if dialect_of(url) == "sqlite":
        return _open_sqlite(url, pool_size=pool_size)
    engine = create_engine(
        url.update_query_dict({key: value for key, value in _POSTGRESQL_DEFAULTS.items() if key not in url.query}),
        pool_size=pool_size,
        max_overflow=0,
        pool_timeout=limits.DATABASE_POOL_WAIT_S,
        hide_parameters=True,
    )
    event.listen(engine, "checkout", partial(_refuse_if_ended, engine.dialect))
    return engine


def _refuse_if_ended(dialect: Dialect, connection: Any, _entry: ConnectionPoolEntry, _checked_out: object) -> None:
    """Lets the pool replace a connection that ended while it was idle.

    An idle connection has nothing to read, unless the server has ended it or told something; only then the server is
    asked, which takes a round trip. The kernel ends connections to a machine that has gone (keepalives).
    """
    try:
        readable = select.poll()
        readable.register(connection, select.POLLIN)
        if readable.poll(0):
            dialect.do_ping(connection)
    except dialect.loaded_dbapi.Error as error:
        raise DisconnectionError from error


def _open_sqlite(url: URL, *, pool_size: int) -> Engine:
    path = database_file(url)
    try:
        _create_private(path)
    except OSError as error:
        raise InstallationError(f"the database file cannot be opened: {error.strerror}") from error
    engine = create_engine(
        url, pool_size=pool_size, max_overflow=0, pool_timeout=limits.DATABASE_POOL_WAIT_S, hide_parameters=True
    )
    event.listen(engine, "connect", _set_up_sqlite)
    event.listen(engine, "begin", _begin_sqlite)
    return engine


def _create_private(path: Path) -> None:
    """Creates a missing file readable by its owner only; SQLite's -wal and -shm files take the mode of this file.

    An existing file is never opened here. Whenever a process closes any descriptor of a file, POSIX ends all locks that
    the process has on it, also those of open connections of SQLite. The next process that closes the database would
    then believe to be the last one and delete the write-ahead log, and commits of this process would be lost.
    """
    with _CREATION:
        try:
            os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
        except FileExistsError:
            if not path.is_file() or not os.access(path, os.R_OK | os.W_OK):
                raise PermissionError(errno.EACCES, os.strerror(errno.EACCES)) from None


def _set_up_sqlite(connection: sqlite3.Connection, _entry: ConnectionPoolEntry) -> None:
    # The driver's BEGIN is deferred and comes too late, so _begin_sqlite begins transactions.
    connection.isolation_level = None
    for pragma in _SQLITE_PRAGMAS:
        connection.execute(pragma).close()


def _begin_sqlite(connection: Connection) -> None:
    writes = connection.get_execution_options().get(ACCESS) == "write"
    driver: Any = connection.connection.driver_connection  # a pragma takes as long as SQLAlchemy's work for a statement
    driver.execute(f"PRAGMA query_only = {'OFF' if writes else 'ON'}").close()
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")
