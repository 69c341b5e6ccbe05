"""A database, and its two kinds of transaction. A service opens one of them and commits before it answers."""

import sqlite3
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from datetime import UTC, datetime
from typing import Self

from sqlalchemy import URL, Engine, func, select
from sqlalchemy.exc import OperationalError
from sqlalchemy.exc import TimeoutError as PoolExhausted
from sqlalchemy.orm import Session, sessionmaker

from app.core import clock
from app.core.errors import Unavailable
from app.db.engine import ACCESS, DEFAULT_POOL_SIZE, DialectName, database_file, dialect_of, open_engine, parse_url
from app.db.locks import WriteLock

_TEMPORARY_ON_SQLITE = frozenset(
    (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_FULL, sqlite3.SQLITE_CANTOPEN)
)
"""SQLite's driver calls a missing table and a write in a read transaction "operational" too: those are bugs."""


class Database:
    """One database, safe to share among threads. Each thread has at most one transaction open at a time.

    Attributes:
        dialect: ``"sqlite"`` or ``"postgresql"``.
        engine: for migrations, tests and nothing else; services use :meth:`read` and :meth:`write`.
    """

    def __init__(self, url: URL, *, pool_size: int = DEFAULT_POOL_SIZE) -> None:
        self.dialect: DialectName = dialect_of(url)
        self.engine: Engine = open_engine(url, pool_size=pool_size)
        self._write_lock = WriteLock.of(database_file(url)) if self.dialect == "sqlite" else None
        self._writers = sessionmaker(self.engine.execution_options(**{ACCESS: "write"}), expire_on_commit=False)
        self._readers = sessionmaker(self._reading(), expire_on_commit=False)

    @classmethod
    def open(cls, url: str, *, pool_size: int = DEFAULT_POOL_SIZE) -> Self:
        """Opens the database at an address. Nothing is migrated, and no connection is made yet.

        A missing SQLite file is created empty, readable by its owner only; its folder has to be there.

        Args:
            url: ``sqlite:///<file>`` or ``postgresql://…``.
            pool_size: the largest number of connections; as many as threads that may want one.

        Raises:
            InstallationError: the address is not usable.
        """
        return cls(parse_url(url), pool_size=pool_size)

    def write(self) -> AbstractContextManager[Session]:
        """One write transaction: commits when the block ends, rolls back when it raises.

        On SQLite writers wait for one another before they take a connection. On PostgreSQL the isolation is read
        committed: lock the rows that a decision rests on (``with_for_update``).

        Raises:
            Unavailable: the database cannot be reached or is too busy; nothing was committed, unless the connection
                broke during the commit itself, which only the next read can tell.
        """
        return self._write()

    def read(self) -> AbstractContextManager[Session]:
        """One read transaction on one snapshot. It cannot write, and is never upgraded to one that can.

        Raises:
            Unavailable: the database cannot be reached or is too busy.
        """
        return self._read()

    def now(self, session: Session) -> datetime:
        """The clock that all processes on this database share, in UTC: never a worker's own on PostgreSQL.

        A SQLite file is used by the processes of one machine, so there it is the machine's clock.
        """
        if self.dialect == "sqlite":
            return clock.now()
        at: datetime = session.execute(select(func.clock_timestamp())).scalar_one()
        return at.astimezone(UTC)

    def close(self) -> None:
        """Closes every idle connection. Safe to call twice."""
        self.engine.dispose()

    @contextmanager
    def _write(self) -> Iterator[Session]:
        with self._exclusive(), _unavailable_if_unreachable(), self._writers.begin() as session:
            yield session

    @contextmanager
    def _read(self) -> Iterator[Session]:
        with _unavailable_if_unreachable(), self._readers() as session:
            yield session

    def _exclusive(self) -> AbstractContextManager[None]:
        return nullcontext() if self._write_lock is None else self._write_lock.held()

    def _reading(self) -> Engine:
        if self.dialect == "sqlite":
            return self.engine.execution_options(**{ACCESS: "read"})
        return self.engine.execution_options(isolation_level="REPEATABLE READ", postgresql_readonly=True)


@contextmanager
def _unavailable_if_unreachable() -> Iterator[None]:
    try:
        yield
    except PoolExhausted as error:
        raise Unavailable("the database is busy") from error
    except OperationalError as error:
        if isinstance(error.orig, sqlite3.Error) and error.orig.sqlite_errorcode & 0xFF not in _TEMPORARY_ON_SQLITE:
            raise
        raise Unavailable("the database cannot answer now") from error
