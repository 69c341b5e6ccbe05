"""Opens read and write transactions of a database, and builds INSERT statements of either dialect.

A service commits before it answers.
"""

import sqlite3
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager, nullcontext
from datetime import datetime
from typing import Self, cast

import sqlalchemy
from sqlalchemy import URL, ColumnElement, Engine, NullPool, Table, bindparam, create_engine, func, select
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.exc import DBAPIError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolExhausted
from sqlalchemy.orm import Session, sessionmaker

from app.core import limits, stamps
from app.core.errors import Unavailable
from app.core.tally import Tally
from app.db.base import Base
from app.db.engine import ACCESS, DialectName, database_file, dialect_of, open_engine, parse_url
from app.db.locks import WriteLock, take_name
from app.db.types import UtcDateTime

LOG_WAIT_S = 1.0
"""Seconds for which all writers wait while :meth:`Database.forget_deleted` waits for readers."""

_TEMPORARY_ON_SQLITE = frozenset(
    (
        sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_PROTOCOL,
        sqlite3.SQLITE_IOERR, sqlite3.SQLITE_FULL, sqlite3.SQLITE_CANTOPEN,
    )
)  # fmt: skip
"""Codes of temporary errors. The driver's ``OperationalError`` also covers bugs, such as a missing table."""

_READ_ONLY_ON_SQLITE = sqlite3.SQLITE_READONLY
_READ_ONLY_ON_POSTGRESQL = "25006"
_TIME = "time"
_BROKEN_SERVER = "XX"
"""Class of PostgreSQL's internal errors, such as a damaged page. Its other failures are operational errors."""


def time_column(dialect: DialectName) -> ColumnElement[datetime]:
    """A column with the time that :meth:`Database.now` returns, for queries that read something else, too."""
    if dialect == "sqlite":
        return bindparam("time", callable_=lambda: stamps.now(), type_=UtcDateTime)  # at every execution
    return func.clock_timestamp(type_=UtcDateTime)


def transaction_time(session: Session, *, read: datetime | None = None) -> datetime:
    """The time of a transaction by the clock of :meth:`Database.now`: what the transaction has ``read``, or reads when
    it first asks. No time of a machine stands in a ledger, because it may be wrong.
    """
    if read is not None:
        session.info[_TIME] = read
    elif _TIME not in session.info:
        dialect = session.get_bind().dialect.name
        is_local = dialect == "sqlite"
        session.info[_TIME] = (
            stamps.now() if is_local else session.execute(select(time_column("postgresql"))).scalar_one()
        )
    at: datetime = session.info[_TIME]
    return at


class Database:
    """A database, safe to share among threads. A thread has at most one open transaction.

    Attributes:
        dialect: ``"sqlite"`` or ``"postgresql"``.
        engine: for migrations and tests only; services use :meth:`read` and :meth:`write`.
        errors: errors of transactions since the start: ``busy`` (no free connection), ``temporary`` or ``unexpected``.
    """

    def __init__(self, url: URL, *, pool_size: int = limits.MAX_DATABASE_CONNECTIONS) -> None:
        self.dialect: DialectName = dialect_of(url)
        self.engine: Engine = open_engine(url, pool_size=pool_size)
        self.errors: Tally[str] = Tally()
        self._write_lock = WriteLock.of(database_file(url)) if self.dialect == "sqlite" else None
        self._writers = sessionmaker(self.engine.execution_options(**{ACCESS: "write"}), expire_on_commit=False)
        self._beside = create_engine(self.engine.url, poolclass=NullPool, hide_parameters=True)
        self._readers = sessionmaker(self._reading(), expire_on_commit=False)

    @classmethod
    def open(cls, url: str, *, pool_size: int = limits.MAX_DATABASE_CONNECTIONS) -> Self:
        """Opens the database at an address, without connecting and without migrating.

        A missing SQLite file is created empty, readable by its owner only. Its folder must exist.

        Args:
            url: ``sqlite:///<file>`` or ``postgresql://…``.
            pool_size: the largest number of connections; one for each thread that uses the database at a time.

        Raises:
            InstallationError: the address is not usable.
        """
        return cls(parse_url(url), pool_size=pool_size)

    def write(self) -> AbstractContextManager[Session]:
        """A write transaction: commits when the block ends, rolls back when it raises.

        On SQLite, writers wait for one another before they take a connection. On PostgreSQL, the isolation is read
        committed: lock the rows on which a decision rests (``with_for_update``).

        Raises:
            Unavailable: the database cannot be reached or is too busy. Nothing was committed, unless the connection
                broke during the commit; the next read shows which.
        """
        return self._write()

    def read(self) -> AbstractContextManager[Session]:
        """A read transaction on one snapshot. It cannot write and cannot be upgraded to a write transaction.

        Raises:
            Unavailable: the database cannot be reached or is too busy.
        """
        return self._read()

    @contextmanager
    def named_lock(self, name: str, *, wait_s: float) -> Iterator[None]:
        """Locks a name on all machines until the block ends; transactions may begin and end meanwhile.

        On PostgreSQL, a connection beside the pool has the lock for as long as the block takes. If that connection
        breaks, the lock is free. On SQLite, whose file one machine uses, all names are one lock.

        Raises:
            Unavailable: the name was locked for too long, or the database cannot be reached.
        """
        if self.dialect == "sqlite":
            file = database_file(self.engine.url)
            with WriteLock.of(file.with_name(f"{file.name}.names")).locked():
                yield
            return
        with ExitStack() as closes:
            with self._unavailable_if_unreachable(writes=True):
                connection = closes.enter_context(self._beside.connect())
                take_name(connection, name, wait_s=wait_s)
            yield

    def now(self, session: Session) -> datetime:
        """The current time in UTC by the clock that all processes on this database share.

        That is the clock of the PostgreSQL server; or the machine's clock for a SQLite file, which one machine uses.
        """
        if self.dialect == "sqlite":
            return stamps.now()
        return session.execute(select(time_column(self.dialect))).scalar_one()

    def forget_deleted(self) -> None:
        """Empties the write-ahead log of a SQLite database, which still has what was deleted.

        Waits for readers for :data:`LOG_WAIT_S` at most; then the log stays until a later call. PostgreSQL removes
        deleted content by vacuum and recycles its log; docs/guides/operator.md says what that means for keys.
        """
        if self.dialect == "sqlite":
            with self._exclusive(), closing(self.engine.raw_connection()) as connection:
                connection.execute(f"PRAGMA busy_timeout = {int(LOG_WAIT_S * 1000)}")
                connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
                connection.execute(f"PRAGMA busy_timeout = {int(limits.DATABASE_WRITE_WAIT_S * 1000)}")

    def close(self) -> None:
        """Closes every idle connection. May be called twice."""
        self.engine.dispose()

    @contextmanager
    def _write(self) -> Iterator[Session]:
        with self._exclusive(), self._unavailable_if_unreachable(writes=True), self._writers.begin() as session:
            yield session

    @contextmanager
    def _read(self) -> Iterator[Session]:
        with self._unavailable_if_unreachable(writes=False), self._readers() as session:
            yield session

    def _exclusive(self) -> AbstractContextManager[None]:
        return nullcontext() if self._write_lock is None else self._write_lock.locked()

    def _reading(self) -> Engine:
        if self.dialect == "sqlite":
            return self.engine.execution_options(**{ACCESS: "read"})
        return self.engine.execution_options(isolation_level="REPEATABLE READ", postgresql_readonly=True)

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
            raise Unavailable("the database cannot answer at the moment") from error


def _is_temporary(error: DBAPIError) -> bool:
    """Whether a later attempt may succeed: a limit of time was reached, or the connection, disk or server failed."""
    if isinstance(error.orig, sqlite3.OperationalError):
        return error.orig.sqlite_errorcode & 0xFF in _TEMPORARY_ON_SQLITE
    # The end of a transaction that was idle for too long is an InternalError of the driver.
    is_broken = _state_on_postgresql(error).startswith(_BROKEN_SERVER)
    return isinstance(error, OperationalError) or error.connection_invalidated or is_broken


def _accepts_no_writes(error: DBAPIError) -> bool:
    """Whether the disk or the server became read-only. In a read transaction, the same error shows a bug."""
    if isinstance(error.orig, sqlite3.OperationalError):
        return error.orig.sqlite_errorcode & 0xFF == _READ_ONLY_ON_SQLITE
    return _state_on_postgresql(error) == _READ_ONLY_ON_POSTGRESQL


def _state_on_postgresql(error: DBAPIError) -> str:
    return getattr(error.orig, "sqlstate", None) or ""


def insert_rows(table: type[Base]) -> sqlalchemy.Insert:
    """An INSERT of rows that are given as mappings with a value for every column; one statement for all rows."""
    return sqlalchemy.insert(cast(Table, table.__table__))


def insert(session: Session, table: type[Base]) -> "postgresql.Insert | sqlite.Insert":
    """An INSERT with the methods ``on_conflict_do_nothing`` and ``on_conflict_do_update``."""
    return insert_on(dialect_of_session(session), table)


def insert_on(dialect: DialectName, table: type[Base]) -> "postgresql.Insert | sqlite.Insert":
    """An INSERT as :func:`insert` makes it, which can be kept."""
    if dialect == "postgresql":
        return postgresql.insert(cast(Table, table.__table__))

    return sqlite.insert(cast(Table, table.__table__))


def dialect_of_session(session: Session) -> DialectName:
    """The dialect of a session's database."""
    return cast(DialectName, session.get_bind().dialect.name)
