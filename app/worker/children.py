"""Starts the child processes of jobs: the first one cold, the next ones from a child that has loaded its modules.

A child needs a second of processor time to load its modules, far longer than a small job takes. So when a job has
ended, the worker starts the child of the next job, which loads its modules and waits for its task. A waiting child has
read no task and holds no key and no row; it runs one job and ends. It is stopped when no job came for
:data:`WAIT_S`, so that a worker that is idle takes no memory for it.

Children must be started on the main thread: Linux kills a child when the thread that started it ends.
"""

import contextlib
import os
import signal
import subprocess
import sys
import time
from typing import Final

from app.core.memory import LARGE_PAGES
from app.core.processes import TERMINAL_SIGNALS, scrubbed_environment

WAIT_S: Final = 600.0
"""Longest time that a child waits for a job."""


class Children:
    """The children of one worker process: one that runs a job, and at most one that waits for the next."""

    def __init__(self) -> None:
        self._waiting: subprocess.Popen[bytes] | None = None
        self._waits_since = 0.0
        self._has_started = False

    def start(self) -> "subprocess.Popen[bytes]":
        """A child for the next job: the one that waits, or a new one."""
        child, self._waiting = self._waiting, None
        self._has_started = True
        if child is not None and child.poll() is None:
            return child
        return _new_child()

    def prepare(self) -> None:
        """Starts the child of the next job, after a job; a worker that ran no job has none."""
        if self._has_started and self._waiting is None:
            self._waiting, self._waits_since = _new_child(), time.monotonic()

    def stop_if_idle(self) -> None:
        """Stops a child that waited for too long; the next one is started after the next job."""
        if self._waiting is not None and time.monotonic() - self._waits_since > WAIT_S:
            self._has_started = False
            self.stop()

    def stop(self) -> None:
        """Stops the child that waits, if there is one."""
        if self._waiting is not None:
            end(self._waiting)
            self._waiting = None


def end(child: "subprocess.Popen[bytes]") -> None:
    """Kills a child that has not ended, closes its pipes and waits for its end."""
    if child.poll() is None:
        child.kill()
    for pipe in (child.stdin, child.stdout):
        if pipe is not None:
            with contextlib.suppress(OSError):
                pipe.close()
    child.wait()


def _new_child() -> "subprocess.Popen[bytes]":
    # A child inherits the mask, from its first instruction on: Ctrl-C in a terminal, and a service manager that signals
    # every process of a service, reach the worker alone, which finishes the job or kills the child.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, TERMINAL_SIGNALS)
    try:
        return subprocess.Popen(
            [sys.executable, "-m", "app.worker.child", str(os.getpid())],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd="/",
            env={**scrubbed_environment(), **LARGE_PAGES},
            close_fds=True,
        )
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
