"""The one write lock of a SQLite file: first among the threads of a process, then among processes.

SQLite lets one connection write at a time and makes the others poll, which starves whole processes under load. So
writers queue here, before they check a connection out of the pool and before ``BEGIN IMMEDIATE``: a thread lock, then
``flock`` on ``<database>.lock``. The kernel frees the second when a process dies, however it dies.
"""

import fcntl
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from weakref import WeakValueDictionary

from app.core.errors import Unavailable

WAIT_S = 30.0
"""How long a thread waits for the other threads of its process; SQLite's ``busy_timeout`` says the same."""


class WriteLock:
    """Excludes every other writer of one database file. Not reentrant: a writer inside a writer is a bug.

    Use :meth:`of`, so that every engine of a process on the same file shares the thread lock.
    """

    def __init__(self, path: Path, *, wait_s: float = WAIT_S) -> None:
        self._path = path
        self._wait_s = wait_s
        self._threads = threading.Lock()
        self._owner: int | None = None

    @classmethod
    def of(cls, database: Path) -> "WriteLock":
        """The lock of a database file, the same object for the same file."""
        path = database.resolve()
        lock_path = path.with_name(f"{path.name}.lock")
        with _registry_guard:
            lock = _registry.get(lock_path)
            if lock is None:
                lock = _registry[lock_path] = cls(lock_path)
            return lock

    @contextmanager
    def held(self) -> Iterator[None]:
        """Holds the lock for the length of a ``with`` block.

        Raises:
            Unavailable: the other threads of this process kept it for too long.
            RuntimeError: this thread holds it already.
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
        # The file is opened anew each time and unlocked by name, not by closing: a child between fork and exec may
        # hold a copy of the descriptor, and LOCK_UN frees the lock for every copy.
        descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            try:
                yield
            finally:
                fcntl.flock(descriptor, fcntl.LOCK_UN)
        finally:
            os.close(descriptor)


_registry: WeakValueDictionary[Path, WriteLock] = WeakValueDictionary()
_registry_guard = threading.Lock()
