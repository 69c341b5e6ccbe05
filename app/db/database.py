"""Opens databases, and read and write transactions that behave alike on SQLite and
PostgreSQL.

A service commits before it answers.

The execution option :data:`ACCESS` states the kind of a transaction. On SQLite,
``"write"`` begins with ``BEGIN IMMEDIATE`` (the caller holds the write lock of the
file, :mod:`app.db.locks`), and ``"read"`` sees a snapshot and cannot write: SQLite
fails an upgrade from read to write at once with "database is locked".
"""

import errno
import logging
import os
import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import (
    AbstractContextManager,
    ExitStack,
    closing,
    contextmanager,
    nullcontext,
)
from datetime import datetime
from functools import partial
from pathlib import Path
from select import POLLIN, poll
from typing import Any, Literal, Self, cast

import sqlalchemy
from sqlalchemy import (
    URL,
    ColumnElement,
    Connection,
    Dialect,
    Engine,
    NullPool,
    Table,
    bindparam,
    create_engine,
    event,
    func,
    make_url,
    select,
)
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.exc import (
    ArgumentError,
    DBAPIError,
    DisconnectionError,
    OperationalError,
)
from sqlalchemy.exc import TimeoutError as PoolExhausted
from sqlalchemy.orm import Session, sessionmaker
from sqlalchemy.pool import ConnectionPoolEntry

from app.core import limits, stamps
from app.core.errors import InstallationError, Unavailable
from app.core.logging import Tally
from app.db.base import Base, UtcDateTime
from app.db.locks import WriteLock, take_name

DialectName = Literal["sqlite", "postgresql"]

ACCESS = "grovekeeper_access"
"""Execution option: ``"write"`` or ``"read"``. On SQLite a connection without the
option can only read.
"""

KEPT = "kept"
"""Key of ``Session.info``: :attr:`Database.kept`."""

_SQLITE_PRAGMAS = (
    f"PRAGMA busy_timeout = {int(limits.DATABASE_WRITE_WAIT_S * 1000)}",
    # readers see a snapshot while a writer commits
    "PRAGMA journal_mode = WAL",
    # With NORMAL, a write-ahead log is not synced at a commit: a loss of power would undo
    # a charge whose release has left.
    "PRAGMA synchronous = FULL",
    # SQLite does not enforce foreign keys by default.
    "PRAGMA foreign_keys = ON",
    # KiB of pages that a connection keeps. A commit of another connection makes them
    # void, so more are of little use.
    f"PRAGMA cache_size = -{limits.SQLITE_CACHE_KIB}",
    # Deleted content is overwritten with zeros: the key of an erased dataset must not
    # stay in a free part of a page.
    "PRAGMA secure_delete = ON",
    # Otherwise INSERT OR REPLACE would delete the old row without running its BEFORE
    # DELETE trigger.
    "PRAGMA recursive_triggers = ON",
)

_CREATION = threading.Lock()
_log = logging.getLogger(__name__)

_POSTGRESQL_DEFAULTS = {
    "application_name": "grovekeeper",
    "connect_timeout": str(limits.DATABASE_CONNECT_S),
    "options": (
        f"-c lock_timeout={limits.DATABASE_LOCK_WAIT_S}s -c statement_timeout={limits.DATABASE_STATEMENT_S}s"
        f" -c idle_in_transaction_session_timeout={limits.DATABASE_IDLE_S}s -c timezone=UTC"
    ),
    "keepalives": "1",
    "keepalives_idle": str(limits.DATABASE_SILENCE_S),
    "keepalives_interval": "10",
    "keepalives_count": "3",
    "tcp_user_timeout": str(limits.DATABASE_SILENCE_S * 1000),
}
"""Parameters of connections; the address may name others."""

LOG_WAIT_S = 1.0
"""Seconds for which all writers wait while :meth:`Database.forget_deleted` waits for
readers.
"""

_TEMPORARY_ON_SQLITE = frozenset(
    {
        sqlite3.SQLITE_BUSY,
        sqlite3.SQLITE_LOCKED,
        sqlite3.SQLITE_PROTOCOL,
        sqlite3.SQLITE_IOERR,
        sqlite3.SQLITE_FULL,
        sqlite3.SQLITE_CANTOPEN,
    }
)
"""Codes of temporary errors. The driver's ``OperationalError`` also covers bugs, such
as a missing table.
"""

_READ_ONLY_ON_SQLITE = sqlite3.SQLITE_READONLY
_READ_ONLY_ON_POSTGRESQL = "25006"
_TIME = "time"
_DISK_FULL_ON_POSTGRESQL = "53100"
_BROKEN_SERVER = "XX"
"""Class of PostgreSQL's internal errors, such as a damaged page. Its other failures are
operational errors.
"""


def parse_url(url: str) -> URL:
    """Parses the address of a database and sets the driver that this program uses.

    Raises:
        InstallationError: not an address, neither SQLite nor PostgreSQL, or a SQLite
            database without a file.
    """
    scheme, _, rest = url.partition("://")
    if rest.count("@") > 1 and not scheme.startswith("sqlite"):
        # A password with an unquoted sign. A message of the driver would show its end
        # as the name of a host.
        raise InstallationError(
            "a sign in the database address must be quoted: write @ in a name or password as %40"
        )
    try:
        parsed = make_url(url)
    except (ArgumentError, ValueError):  # the second of a port that is no number
        # The address may hold a password, so the message repeats neither the address
        # nor the library's message.
        raise InstallationError("the database address cannot be read") from None
    backend = parsed.drivername.split("+")[0]
    if backend in ("postgresql", "postgres"):
        parts = (parsed.host or "", parsed.database or "", *parsed.query)
        if any("@" in part for part in parts):
            # The user's name has a sign that ends it: the rest, with the password,
            # would be a host or database.
            raise InstallationError(
                "the user in the database address has a sign that must be quoted, such as / as %2F"
            )
        return _checked_postgresql(parsed.set(drivername="postgresql+psycopg"))
    if backend != "sqlite":
        raise InstallationError(
            "the database address must begin with sqlite:// or postgresql://"
        )
    if parsed.database in (None, "", ":memory:") or parsed.query:
        raise InstallationError("a SQLite address names a file and takes no options")
    return parsed.set(drivername="sqlite+pysqlite")


def _checked_postgresql(url: URL) -> URL:
    """An address whose parts the driver can read. The driver would raise other errors,
    and at the first connection.
    """
    dialect = url.get_dialect()
    driver = dialect.import_dbapi()  # an installation on SQLite does not load it
    try:
        parts = dialect().create_connect_args(url)[1]
        text = driver.conninfo.make_conninfo(**parts)
        driver.conninfo.timeout_from_conninfo(driver.conninfo.conninfo_to_dict(text))
        for host in str(parts.get("host", "")).split(","):
            if not host.startswith(("/", "@")):  # a socket of this machine
                host.encode("idna")
    except (ArgumentError, driver.ProgrammingError, UnicodeError):
        raise InstallationError(
            "the host, the port or an option in the database address is not valid"
        ) from None
    return url


def dialect_of(url: URL) -> DialectName:
    """The dialect of a parsed address."""
    return cast(DialectName, url.get_backend_name())


def database_file(url: URL) -> Path:
    """The file of a SQLite address."""
    if url.database is None:
        raise ValueError("not a SQLite address")
    return Path(url.database)


def open_engine(
    url: URL, *, pool_size: int = limits.MAX_DATABASE_CONNECTIONS
) -> Engine:
    """An engine for a parsed address, with at most ``pool_size`` connections.

    Error texts never carry statement parameters, because parameters may be private.
    """
    if dialect_of(url) == "sqlite":
        return _open_sqlite(url, pool_size=pool_size)
    # the address of an operator wins
    defaults = {
        key: value
        for key, value in _POSTGRESQL_DEFAULTS.items()
        if key not in url.query
    }
    engine = create_engine(
        url.update_query_dict(defaults),
        pool_size=pool_size,
        # A connection beyond the pool would be one of the server's, which has a limit
        # for all processes; a thread waits instead.
        max_overflow=0,
        pool_timeout=limits.DATABASE_POOL_WAIT_S,
        hide_parameters=True,
    )
    # before the library reads a text
    event.listen(engine, "connect", _require_utf_8, insert=True)
    event.listen(engine, "checkout", partial(_refuse_if_ended, engine.dialect))
    return engine


def _require_utf_8(connection: Any, _entry: ConnectionPoolEntry) -> None:
    """Refuses a database that cannot hold every text, or tells the driver no encoding
    (``SQL_ASCII``).

    Raises:
        InstallationError: the database has another encoding.
    """
    encoding = connection.info.parameter_status("server_encoding")
    if encoding != "UTF8":
        right = "CREATE DATABASE … ENCODING 'UTF8' TEMPLATE template0"
        raise InstallationError(
            f"the database has the encoding {encoding}; make one with: {right}"
        )


def _refuse_if_ended(
    dialect: Dialect, connection: Any, _entry: ConnectionPoolEntry, _checked_out: object
) -> None:
    """Lets the pool replace a connection that ended while it was idle.

    An idle connection has nothing to read, unless the server has ended it or told
    something; only then the server is asked, which takes a round trip. The kernel ends
    connections to a machine that has gone (keepalives).
    """
    try:
        readable = poll()
        readable.register(connection, POLLIN)
        if readable.poll(0):
            dialect.do_ping(connection)
    except dialect.loaded_dbapi.Error as error:
        raise DisconnectionError from error


def _open_sqlite(url: URL, *, pool_size: int) -> Engine:
    path = database_file(url)
    try:
        _create_private(path)
    except OSError as error:
        raise InstallationError(
            f"the database file {path} cannot be opened: {error.strerror}"
        ) from error
    engine = create_engine(
        url,
        pool_size=pool_size,
        max_overflow=0,
        pool_timeout=limits.DATABASE_POOL_WAIT_S,
        hide_parameters=True,
    )
    event.listen(engine, "connect", _set_up_sqlite)
    event.listen(engine, "begin", _begin_sqlite)
    return engine


def _create_private(path: Path) -> None:
    """Creates a missing file readable by its owner only; SQLite's -wal and -shm files
    take the mode of this file.

    An existing file is never opened here. Whenever a process closes any descriptor of a
    file, POSIX ends all locks that the process has on it, also those of open
    connections of SQLite. The next process that closes the database would then believe
    to be the last one and delete the write-ahead log, and commits of this process would
    be lost.
    """
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    # The lock keeps other threads from opening the new file before its descriptor is
    # closed: the close would end their locks.
    with _CREATION:
        try:
            os.close(os.open(path, flags, 0o600))
        except FileExistsError:
            # ``access`` opens nothing
            if not path.is_file() or not os.access(path, os.R_OK | os.W_OK):
                reason = "it is no file that this account can read and write"
                raise PermissionError(errno.EACCES, reason) from None


def _set_up_sqlite(connection: sqlite3.Connection, _entry: ConnectionPoolEntry) -> None:
    # The driver's BEGIN is deferred and comes too late, so _begin_sqlite begins
    # transactions.
    connection.isolation_level = None
    for pragma in _SQLITE_PRAGMAS:
        connection.execute(pragma).close()


def _begin_sqlite(connection: Connection) -> None:
    writes = connection.get_execution_options().get(ACCESS) == "write"
    if writes:
        query_only, begin = "OFF", "BEGIN IMMEDIATE"
    else:
        query_only, begin = "ON", "BEGIN"
    # past SQLAlchemy, whose work for a statement takes as long as a pragma
    driver: Any = connection.connection.driver_connection
    driver.execute(f"PRAGMA query_only = {query_only}").close()
    connection.exec_driver_sql(begin)


def time_column(dialect: DialectName) -> ColumnElement[datetime]:
    """A column with the time that :func:`now` returns, for queries that read
    something else, too.
    """
    if dialect == "sqlite":
        # A callable, so that a statement that is kept reads the clock at every execution.
        return bindparam("time", callable_=lambda: stamps.now(), type_=UtcDateTime)
    # not ``now()``, which is the time when the transaction began, before its waits for
    # locks
    return func.clock_timestamp(type_=UtcDateTime)


def now(session: Session) -> datetime:
    """The current time in UTC by the clock that all processes on this database share.

    That is the clock of the PostgreSQL server; or the machine's clock for a SQLite
    file, which one machine uses.
    """
    if session.get_bind().dialect.name == "sqlite":
        return stamps.now()
    return session.execute(select(time_column("postgresql"))).scalar_one()


def transaction_time(session: Session, *, read: datetime | None = None) -> datetime:
    """The time of a transaction by the clock of :func:`now`: what the
    transaction has ``read``, or reads when it first asks. No time of a machine stands
    in a ledger, because it may be wrong.
    """
    if read is not None:
        session.info[_TIME] = read
    elif _TIME not in session.info:
        session.info[_TIME] = now(session)
    time: datetime = session.info[_TIME]
    return time


class Database:
    """A database, safe to share among threads. A thread has at most one open
    transaction.

    Attributes:
        dialect: ``"sqlite"`` or ``"postgresql"``.
        engine: for migrations and tests only; services use :meth:`read` and
            :meth:`write`.
        errors: errors of transactions since the start: ``busy`` (no free connection),
            ``temporary`` or ``unexpected``.
        kept: what transactions have read of immutable rows and keep for later ones
            (:mod:`app.ledger.kept_states`).
    """

    def __init__(
        self, url: URL, *, pool_size: int = limits.MAX_DATABASE_CONNECTIONS
    ) -> None:
        self.dialect: DialectName = dialect_of(url)
        self.engine: Engine = open_engine(url, pool_size=pool_size)
        self.errors: Tally[str] = Tally()
        self._exclusive: Callable[[], AbstractContextManager[None]] = nullcontext
        if self.dialect == "sqlite":
            self._exclusive = WriteLock.of(database_file(url)).locked
        self.kept: dict[str, Any] = {}
        # Rows are used after the commit, for answers and log lines: an expired row would
        # begin a further transaction at its first attribute.
        options: dict[str, Any] = {"expire_on_commit": False, "info": {KEPT: self.kept}}
        writing = self.engine.execution_options(**{ACCESS: "write"})
        self._writers = sessionmaker(writing, **options)
        self._readers = sessionmaker(self._reading(), **options)
        # For :meth:`named_lock`, whose connection is in use for minutes: a few of them
        # would empty a pool.
        self._unpooled_engine = create_engine(
            self.engine.url, poolclass=NullPool, hide_parameters=True
        )

    @classmethod
    def open(
        cls, url: str, *, pool_size: int = limits.MAX_DATABASE_CONNECTIONS
    ) -> Self:
        """Opens the database at an address, without connecting and without migrating.

        A missing SQLite file is created empty, readable by its owner only. Its folder
        must exist.

        Args:
            url: ``sqlite:///<file>`` or ``postgresql://…``.
            pool_size: the largest number of connections; one for each thread that uses
                the database at a time.
        """
        return cls(parse_url(url), pool_size=pool_size)

    @contextmanager
    def write(self) -> Iterator[Session]:
        """A write transaction: commits when the block ends, rolls back when it raises.

        On SQLite, writers wait for one another before they take a connection. On
        PostgreSQL, the isolation is read committed: lock the rows on which a decision
        rests (``with_for_update``).

        Raises:
            Unavailable: the database cannot be reached or is too busy. Nothing was
                committed, unless the connection broke during the commit; the next read
                shows which.
        """
        with (
            self._exclusive(),
            self._unavailable_if_unreachable(writes=True),
            self._writers.begin() as session,
        ):
            yield session

    @contextmanager
    def read(self) -> Iterator[Session]:
        """A read transaction on one snapshot. It cannot write and cannot be upgraded to
        a write transaction.

        Raises:
            Unavailable: the database cannot be reached or is too busy.
        """
        with self._unavailable_if_unreachable(writes=False), self._readers() as session:
            yield session

    @contextmanager
    def named_lock(self, name: str, *, wait_s: float) -> Iterator[None]:
        """Locks a name on all machines until the block ends; transactions may begin and
        end meanwhile.

        On PostgreSQL, a connection beside the pool has the lock for as long as the
        block takes. If that connection breaks, the lock is free. On SQLite, whose file
        one machine uses, all names are one lock.

        Raises:
            Unavailable: the name was locked for too long, or the database cannot be
                reached.
        """
        if self.dialect == "sqlite":
            file = database_file(self.engine.url)
            with WriteLock.of(file.with_name(f"{file.name}.names")).locked():
                yield
            return
        with ExitStack() as closes:
            with self._unavailable_if_unreachable(writes=True):
                connection = closes.enter_context(self._unpooled_engine.connect())
                take_name(connection, name, wait_s=wait_s)
            yield

    def forget_deleted(self) -> None:
        """Empties the write-ahead log of a SQLite database, which still has what was
        deleted.

        Waits for readers for :data:`LOG_WAIT_S` at most; then the log stays until a
        later call. PostgreSQL removes deleted content by vacuum and recycles its log;
        docs/guides/operator-keys.md says what that means for keys.

        Raises:
            Unavailable: the disk takes no writes, or another writer holds it.
        """
        if self.dialect == "sqlite":
            with self._exclusive(), closing(self.engine.raw_connection()) as connection:
                connection.execute(f"PRAGMA busy_timeout = {int(LOG_WAIT_S * 1000)}")
                try:
                    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
                except sqlite3.OperationalError as error:  # a full disk, for example
                    raise Unavailable("the log cannot be emptied now") from error
                finally:
                    # the pool gives this connection to the next writer, which waits longer
                    wait_ms = int(limits.DATABASE_WRITE_WAIT_S * 1000)
                    connection.execute(f"PRAGMA busy_timeout = {wait_ms}")

    def close(self) -> None:
        """Closes every idle connection. May be called twice."""
        self.engine.dispose()

    def _reading(self) -> Engine:
        if self.dialect == "sqlite":
            return self.engine.execution_options(**{ACCESS: "read"})
        # One snapshot for all statements, as on SQLite: with read committed, an answer
        # could have an account and its entries from different times.
        return self.engine.execution_options(
            isolation_level="REPEATABLE READ", postgresql_readonly=True
        )

    @contextmanager
    def _unavailable_if_unreachable(self, *, writes: bool) -> Iterator[None]:
        try:
            yield
        except PoolExhausted as error:
            self.errors.add("busy")
            raise Unavailable("the database is busy") from error
        except DBAPIError as error:
            if not (_is_temporary(error) or (writes and _accepts_no_writes(error))):
                self.errors.add("unexpected")
                raise
            self.errors.add("temporary")
            _log.warning("the database cannot answer at the moment", exc_info=True)
            if _is_disk_full(error):
                raise Unavailable("the disk is full", limits.DISK_RETRY_S) from error
            raise Unavailable("the database cannot answer at the moment") from error


def reason_of(error: DBAPIError) -> str:
    """What the database or its driver says of an error, for its operator alone."""
    return str(error.orig).strip().partition("\n")[0]


def _is_temporary(error: DBAPIError) -> bool:
    """Whether a later attempt may succeed: a limit of time was reached, or the
    connection, disk or server failed.
    """
    if isinstance(error.orig, sqlite3.OperationalError):
        return _code_on_sqlite(error) in _TEMPORARY_ON_SQLITE
    # The end of a transaction that was idle for too long is an InternalError of the
    # driver.
    is_broken = _state_on_postgresql(error).startswith(_BROKEN_SERVER)
    return (
        isinstance(error, OperationalError) or error.connection_invalidated or is_broken
    )


def _is_disk_full(error: DBAPIError) -> bool:
    is_full = _state_on_postgresql(error) == _DISK_FULL_ON_POSTGRESQL
    return is_full or _code_on_sqlite(error) == sqlite3.SQLITE_FULL


def _accepts_no_writes(error: DBAPIError) -> bool:
    """Whether the disk or the server became read-only. In a read transaction, the same
    error shows a bug.
    """
    is_read_only = _state_on_postgresql(error) == _READ_ONLY_ON_POSTGRESQL
    return is_read_only or _code_on_sqlite(error) == _READ_ONLY_ON_SQLITE


def _code_on_sqlite(error: DBAPIError) -> int:
    # the low byte of an extended code is the code; 0 is no error
    return getattr(error.orig, "sqlite_errorcode", 0) & 0xFF


def _state_on_postgresql(error: DBAPIError) -> str:
    return getattr(error.orig, "sqlstate", None) or ""


def insert_rows(table: type[Base]) -> sqlalchemy.Insert:
    """An INSERT of rows that are given as mappings with a value for every column; one
    statement for all rows.
    """
    return sqlalchemy.insert(cast(Table, table.__table__))


def insert(session: Session, table: type[Base]) -> "postgresql.Insert | sqlite.Insert":
    """An INSERT with the methods ``on_conflict_do_nothing`` and
    ``on_conflict_do_update``.
    """
    return insert_on(dialect_of_session(session), table)


def insert_on(
    dialect: DialectName, table: type[Base]
) -> "postgresql.Insert | sqlite.Insert":
    """An INSERT as :func:`insert` makes it, which can be kept."""
    if dialect == "postgresql":
        return postgresql.insert(cast(Table, table.__table__))

    return sqlite.insert(cast(Table, table.__table__))


def dialect_of_session(session: Session) -> DialectName:
    """The dialect of a session's database."""
    return cast(DialectName, session.get_bind().dialect.name)
