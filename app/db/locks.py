"""Serializes the writers of a SQLite file: first the threads of a process, then the processes.

SQLite lets one connection write at a time and makes the others poll, which starves whole processes under load. So
a writer takes two locks before it checks a connection out of the pool and before ``BEGIN IMMEDIATE``: a thread lock,
then ``flock`` on ``<database>.lock``. The kernel frees the file lock when a process dies, however it dies.
"""

import fcntl
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from weakref import WeakValueDictionary

from app.core import limits
from app.core.errors import Unavailable


class WriteLock:
    """Excludes every other writer of one database file. Not reentrant: nested writers are a bug.

    Make it with :meth:`of`, so that all engines of a process on one file share the thread lock.
    """

    def __init__(self, path: Path, *, wait_s: float = limits.DATABASE_WRITE_WAIT_S) -> None:
        self._path = path
        self._wait_s = wait_s
        self._threads = threading.Lock()
        self._owner: int | None = None
        self._wait: _Wait | None = None

    @classmethod
    def of(cls, database: Path) -> "WriteLock":
        """The lock of a database file; one object per file."""
        path = database.resolve()
        lock_path = path.with_name(f"{path.name}.lock")
        with _registry_guard:
            lock = _registry.get(lock_path)
            if lock is None:
                lock = _registry[lock_path] = cls(lock_path)
            return lock

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Holds the lock until the ``with`` block ends.

        Raises:
            Unavailable: other threads or processes held the lock for too long, or the lock file cannot be used.
            RuntimeError: this thread holds the lock already.
        """
        if self._owner == threading.get_ident():
            raise RuntimeError("a write transaction inside a write transaction")
        if not self._threads.acquire(timeout=self._wait_s):
            raise Unavailable("the database is busy")
        try:
            self._owner = threading.get_ident()
            with self._processes():
                yield
        finally:
            self._owner = None
            self._threads.release()

    @contextmanager
    def _processes(self) -> Iterator[None]:
        # LOCK_UN, not closing the file, ends the lock: a child between fork and exec may hold a copy of the
        # descriptor, and LOCK_UN frees the lock for every copy.
        try:
            descriptor = self._locked_file()
        except OSError as error:
            raise Unavailable("the database cannot answer at the moment") from error
        try:
            yield
        finally:
            _free(descriptor)

    def _locked_file(self) -> int:
        """Locks the file and returns its descriptor."""
        if self._wait is not None and self._wait.goes_on:
            raise Unavailable("the database is busy")  # at once, because a wait of the whole time was in vain
        descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self._wait = _Wait(descriptor)
            self._wait.until_locked(self._wait_s)
        except OSError:
            os.close(descriptor)
            raise
        return descriptor


class _Wait:
    """A thread that waits for ``flock``, which takes no limit of time.

    Attempts at intervals would starve a process beside a busy one; the kernel keeps waiting threads in a queue. If the
    writer gives up, the thread frees the lock as soon as it gets it.
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


def _free(descriptor: int) -> None:
    fcntl.flock(descriptor, fcntl.LOCK_UN)
    os.close(descriptor)


_registry: WeakValueDictionary[Path, WriteLock] = WeakValueDictionary()
_registry_guard = threading.Lock()
