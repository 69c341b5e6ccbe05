"""Caches what a process has read about callers and models, for as long as a lease guarantees that it is still true.

The lease is a row of the database (:mod:`app.access.leases`). Without a lease, :meth:`CachedAuthority.get` finds
nothing, and the process reads the database.
"""

import threading
import time
from collections.abc import Callable, Hashable
from typing import Any, Final, NamedTuple, TypeVar

from app.core import ids, limits

Value = TypeVar("Value")


class _Entry(NamedTuple):
    value: Any
    ends_s: float


# A lease ends by the clock of another machine while this one sleeps. On Linux, CLOCK_BOOTTIME counts the seconds of
# sleep; CLOCK_MONOTONIC and CLOCK_MONOTONIC_RAW do not. macOS has no CLOCK_BOOTTIME; its CLOCK_MONOTONIC_RAW is
# mach_continuous_time, which counts them (clock_gettime(3): only the CLOCK_UPTIME clocks stop). Python's
# time.monotonic() stops on both systems.
_CLOCK: Final = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC_RAW)


def elapsed_s() -> float:
    """Seconds of a clock that nobody sets, and that also counts while the machine sleeps."""
    return time.clock_gettime(_CLOCK)


class CachedAuthority:
    """What one process has read. Threads may share an instance.

    Attributes:
        process_id: the name of the lease.
        last_act: the administrative act up to which every entry is valid; ``None`` before the first lease.
    """

    def __init__(self) -> None:
        self.process_id = ids.new(ids.PROCESS)
        self.last_act: int | None = None
        self._lock = threading.Lock()
        self._entries: dict[Hashable, _Entry] = {}
        self._generation = 0
        self._lease_ends_s = 0.0
        self._n_uses = 0

    def get(self, name: Hashable) -> Any:
        """Returns an entry, or ``None`` if there is none, it has ended, or the process has no lease."""
        self._n_uses += 1
        at_s = elapsed_s()
        entry = self._entries.get(name)
        return None if entry is None or at_s >= entry.ends_s or at_s >= self._lease_ends_s else entry.value

    def read(self, name: Hashable, reader: Callable[[], tuple[Value, float]]) -> Value:
        """Reads a value from the database and keeps it, unless entries were dropped since the reading began.

        Args:
            name: of the entry.
            reader: returns the value and the number of seconds for which it is valid, counted from the call.
        """
        generation, began_s = self._generation, elapsed_s()
        value, valid_s = reader()
        with self._lock:
            if generation == self._generation:
                if len(self._entries) >= limits.MAX_CACHED_AUTHORITIES:
                    self._entries = {}
                self._entries[name] = _Entry(value, began_s + min(valid_s, limits.AUTHORITY_AGE_S))
        return value

    def drop(self) -> None:
        """Forgets every entry, also those that other threads are reading now."""
        with self._lock:
            self._generation += 1
            self._entries = {}

    def hold(self, *, until_s: float) -> None:
        """Begins or extends the lease, by :func:`elapsed_s`."""
        self._lease_ends_s = until_s

    def take_uses(self) -> int:
        """How often the cache was asked since the last call, about: threads that ask at once may count once."""
        n_uses, self._n_uses = self._n_uses, 0
        return n_uses
