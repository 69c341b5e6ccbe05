"""Repeats a task in a thread of a serving process until the thread is stopped."""

import logging
import threading
from collections.abc import Callable

_log = logging.getLogger(__name__)


class Periodic:
    """A thread that runs a task at once and then at an interval.

    Args:
        name: of the thread.
        task: takes an event that is set when the thread is to end. Whatever it raises is logged, and the next turn
            tries again.
        interval_s: seconds between the end of a turn and the next turn.
    """

    def __init__(self, name: str, task: Callable[[threading.Event], object], *, interval_s: float) -> None:
        self._task = task
        self._interval_s = interval_s
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Starts the thread."""
        self._thread.start()

    def stop(self) -> None:
        """Ends the thread after the step that its task is in."""
        self._stopping.set()
        self._thread.join(timeout=1.0)

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                self._task(self._stopping)
            except Exception:  # noqa: BLE001 - no database now; the next turn tries again
                _log.exception("a periodic task failed; will try again")
            self._stopping.wait(self._interval_s)
