"""Locks names and rows in a transaction, sends statements together, and serializes the
writers of a SQLite file.

On SQLite, the only write transaction excludes every other one, so names and rows need
no lock. SQLite lets one connection write at a time and makes the others poll, which
starves whole processes under load. So a writer takes two locks before it checks a
connection out of the pool and before ``BEGIN IMMEDIATE``: a thread lock, then ``flock``
on ``<database>.lock``. The kernel frees the file lock when a process dies, however it
dies.
"""

import fcntl
import hashlib
import os
import threading
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any
from weakref import WeakValueDictionary

from sqlalchemy import (
    BigInteger,
    BindParameter,
    Connection,
    Dialect,
    Select,
    bindparam,
    func,
    select,
    text,
)
from sqlalchemy.exc import DBAPIError
from sqlalchemy.orm import InstrumentedAttribute, Session

from app.core import limits
from app.core.errors import Unavailable

# Advisory locks of transactions, which the server frees at their end; those of sessions
# would stay with a connection that returns to the pool.
_number: BindParameter[int] = bindparam("number", type_=BigInteger)
_LOCK_ALONE = select(func.pg_advisory_xact_lock(_number))
_LOCK_SHARED = select(func.pg_advisory_xact_lock_shared(_number))

# Weak: when nothing uses a file any more, its lock goes, too.
_locks_by_path: "WeakValueDictionary[Path, WriteLock]" = WeakValueDictionary()
_locks_guard = threading.Lock()


@contextmanager
def sent_together(session: Session) -> Iterator[None]:
    """Sends the statements of the block together when the block ends; nobody reads rows
    of them.

    A SELECT that locks goes through ``session.connection()``, because the session would
    read its rows. The server runs the statements in order, and none after one that
    failed.

    Raises:
        DBAPIError: a statement failed, or the connection did, as if the statement had
            been sent alone.
    """
    connection = session.connection()
    if connection.dialect.name == "sqlite":
        yield
        return
    driver: Any = connection.connection.driver_connection
    dialect: Dialect = connection.dialect
    try:
        with driver.pipeline():
            yield
    except dialect.loaded_dbapi.Error as error:
        is_lost = dialect.is_disconnect(error, driver, None)
        raise DBAPIError.instance(
            None,
            None,
            error,
            dialect.loaded_dbapi.Error,
            hide_parameters=True,
            connection_invalidated=is_lost,
            dialect=dialect,
        ) from error


def lock_names(
    session: Session, *, shared: Collection[str] = (), exclusive: Collection[str] = ()
) -> None:
    """Locks names until the transaction ends, in the order of the names, before any row
    is locked.

    Requests are granted in order of arrival. A row lock would not do: PostgreSQL grants
    ``FOR SHARE`` to later transactions while an ``UPDATE`` of the row waits, so a row
    that is in use all the time is never changed.

    Args:
        session: a write transaction.
        shared: names that other transactions may lock ``shared`` at the same time.
        exclusive: names that no other transaction may lock at the same time. May be in
            ``shared`` as well.
    """
    if session.get_bind().dialect.name == "sqlite":
        return
    connection = session.connection()
    # A statement for each, since SQL promises no order within a statement; in one order
    # everywhere, since two transactions that lock crosswise would wait for ever.
    for name in sorted({*shared, *exclusive}):
        lock = _LOCK_ALONE if name in exclusive else _LOCK_SHARED
        connection.execute(lock, {"number": number_of(name)})


def lock_rows(
    session: Session, *tables: tuple[InstrumentedAttribute[str], Collection[str]]
) -> None:
    """Locks the rows of several tables that exist, until the transaction ends: table
    after table, in order of ids.

    On PostgreSQL, a statement sees the rows of the time when it began, but it may wait
    for locks. So what is read under the locks is read by later statements.

    Args:
        session: a write transaction.
        tables: for each table the column of its ids, and the ids to lock.
    """
    if session.get_bind().dialect.name == "sqlite":
        return
    with sent_together(session):
        # a statement for each: SQL promises no order within one
        for column, ids in tables:
            session.connection().execute(_locking(column), {"ids": ids})


@cache
def _locking(column: InstrumentedAttribute[str]) -> Select[Any]:
    return (
        select(column)
        .where(column.in_(bindparam("ids", expanding=True)))
        .order_by(column)
        .with_for_update()
    )


def take_name(connection: Connection, name: str, *, wait_s: float) -> None:
    """Locks a name until the transaction of a connection to PostgreSQL ends, which may
    be idle for any time.
    """
    connection.execute(text("SET LOCAL idle_in_transaction_session_timeout = 0"))
    # the limit of a statement would end a wait that the next limit allows
    connection.execute(text("SET LOCAL statement_timeout = 0"))
    connection.execute(text(f"SET LOCAL lock_timeout = {int(wait_s * 1000)}"))
    connection.execute(_LOCK_ALONE, {"number": number_of(name)})


def number_of(name: str) -> int:
    """PostgreSQL names such a lock by 64 bits."""
    # not ``hash()``, which differs from process to process
    digest = hashlib.sha256(name.encode("utf-8")).digest()
    return int.from_bytes(digest[:8], "big", signed=True)


class WriteLock:
    """Excludes every other writer of one database file. Not reentrant: nested writers
    are a bug.

    Make it with :meth:`of`, so that all engines of a process on one file share the
    thread lock.
    """

    def __init__(
        self, path: Path, *, wait_s: float = limits.DATABASE_WRITE_WAIT_S
    ) -> None:
        self._path = path
        self._wait_s = wait_s
        # ``flock`` does not separate threads that share a descriptor
        self._threads = threading.Lock()
        self._owner: int | None = None
        self._wait: _Wait | None = None

    @classmethod
    def of(cls, database: Path) -> "WriteLock":
        """The lock of a database file; one object per file."""
        path = database.resolve()
        lock_path = path.with_name(f"{path.name}.lock")
        with _locks_guard:
            lock = _locks_by_path.get(lock_path)
            if lock is None:
                lock = _locks_by_path[lock_path] = cls(lock_path)
            return lock

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Holds the lock until the ``with`` block ends.

        Raises:
            Unavailable: other threads or processes held the lock for too long, or the
                lock file cannot be used.
            RuntimeError: this thread holds the lock already.
        """
        # at once: the thread would wait for itself until the time is over
        if self._owner == threading.get_ident():
            raise RuntimeError("a write transaction inside a write transaction")
        if not self._threads.acquire(timeout=self._wait_s):
            raise Unavailable("the database is busy")
        try:
            self._owner = threading.get_ident()
            descriptor = self._locked_file()
            try:
                yield
            finally:
                _free(descriptor)
        finally:
            self._owner = None
            self._threads.release()

    def _locked_file(self) -> int:
        """Locks the file and returns its descriptor."""
        if self._wait is not None and self._wait.goes_on:
            # at once, because a wait of the whole time was in vain
            raise Unavailable("the database is busy")
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
        try:
            descriptor = os.open(self._path, flags, 0o600)
        except OSError as error:
            raise Unavailable("the database cannot answer at the moment") from error
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self._wait = _begin_to_wait(descriptor)
            self._wait.until_locked(self._wait_s)
        except OSError as error:
            os.close(descriptor)
            raise Unavailable("the database cannot answer at the moment") from error
        return descriptor


class _Wait:
    """A thread that waits for ``flock``, which takes no limit of time.

    Attempts at intervals would starve a process beside a busy one; the kernel keeps
    waiting threads in a queue. If the writer gives up, the thread frees the lock as
    soon as it gets it.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._changed = threading.Condition()
        self._is_locked = False
        self._is_needed = True
        threading.Thread(target=self._run, name="write-lock", daemon=True).start()

    @property
    def goes_on(self) -> bool:
        """Whether the thread still waits."""
        return not self._is_locked

    def until_locked(self, wait_s: float) -> None:
        """Waits for the thread.

        Raises:
            Unavailable: other processes held the lock for too long.
        """
        with self._changed:
            if not self._changed.wait_for(lambda: self._is_locked, wait_s):
                self._is_needed = False
                raise Unavailable("the database is busy")

    def _run(self) -> None:
        fcntl.flock(self._descriptor, fcntl.LOCK_EX)
        with self._changed:
            self._is_locked = True
            if not self._is_needed:
                _free(self._descriptor)
            self._changed.notify()


def _begin_to_wait(descriptor: int) -> _Wait:
    try:
        return _Wait(descriptor)
    except RuntimeError:  # this machine starts no further thread now
        os.close(descriptor)
        raise Unavailable("the database is busy") from None


def _free(descriptor: int) -> None:
    # LOCK_UN, not closing the file, ends the lock: a child between fork and exec may
    # hold a copy of the descriptor, and LOCK_UN frees the lock for every copy.
    fcntl.flock(descriptor, fcntl.LOCK_UN)
    os.close(descriptor)
