"""Caches what a process has read about callers and models for less than a second, so that predictions read no database.

Whatever takes authority away answers :data:`limits.REVOCATION_S` after its commit (:func:`wait_for_revocation`). An
entry lives for less, counted from before it was read. So a request that begins after the answer finds nothing in any
process that was read before the commit (docs/adr/0038-predictions-use-cached-authority.md).
"""

import threading
import time
from collections.abc import Callable, Hashable
from typing import Any, Final, NamedTuple, TypeVar

from app.core import limits

Value = TypeVar("Value")


class _Entry(NamedTuple):
    value: Any
    ends_s: float


# A revocation may be answered by another machine while this one sleeps. On Linux, CLOCK_BOOTTIME counts the seconds of
# sleep; CLOCK_MONOTONIC and CLOCK_MONOTONIC_RAW do not. macOS has no CLOCK_BOOTTIME; its CLOCK_MONOTONIC_RAW is
# mach_continuous_time, which counts them (clock_gettime(3): only the CLOCK_UPTIME clocks stop). Python's
# time.monotonic() stops on both systems.
_CLOCK: Final = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC_RAW)

_SHARE_OF_WAIT = 0.95
"""Life of an entry as a share of the wait, because the clocks of two machines run at slightly different rates."""


def elapsed_s() -> float:
    """Seconds of a clock that nobody sets, and that also counts while the machine sleeps."""
    return time.clock_gettime(_CLOCK)


def wait_for_revocation() -> None:
    """Waits, after the commit that takes authority away, until no process has an entry from before the commit."""
    time.sleep(limits.REVOCATION_S)


class CachedAuthority:
    """What one process has read. Threads may share an instance."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._entries: dict[Hashable, _Entry] = {}

    def get(self, name: Hashable) -> Any:
        """Returns an entry, or ``None`` if there is none or it has ended. A process that was stopped asks, too."""
        entry = self._entries.get(name)
        return None if entry is None or elapsed_s() >= entry.ends_s else entry.value

    def read(self, name: Hashable, reader: Callable[[], tuple[Value, float]]) -> Value:
        """Reads a value from the database and keeps it.

        Args:
            name: of the entry.
            reader: returns the value and the number of seconds for which it is valid, counted from the call.
        """
        began_s = elapsed_s()
        value, valid_s = reader()
        entry = _Entry(value, began_s + min(valid_s, _SHARE_OF_WAIT * limits.REVOCATION_S))
        with self._lock:
            if len(self._entries) >= limits.MAX_CACHED_AUTHORITIES:
                self._entries = {}
            self._entries[name] = entry
        return value
