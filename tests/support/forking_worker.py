"""Runs the product's worker for HTTP tests, with forks as the children of jobs, and
woken by the tests.

The worker takes its settings from its environment and the first line of its standard
input. A byte on descriptor 3 wakes the idle worker before its poll interval is over.
"""

import os
import select
import time

from app.cli import worker_pool
from app.worker import child
from app.worker.main import _Loop
from tests.support.forked_child import fork_children

_WAKER = 3


def main() -> int:
    """Runs the worker."""
    fork_children(child.main)
    _wake_by(_WAKER)
    return worker_pool.main()


def _wake_by(descriptor: int) -> None:
    wait_for_a_public_time = _Loop._wait_for_a_job

    def wait(self: _Loop) -> None:
        if self._interval_s:
            wait_for_a_public_time(self)
        else:
            ends_at = time.monotonic() + self._installation.settings.poll_interval_s
            while not self._stop.begun.is_set() and time.monotonic() < ends_at:
                if select.select([descriptor], [], [], 0.1)[0]:
                    os.read(descriptor, 4096)
                    return

    _Loop._wait_for_a_job = wait  # type: ignore[method-assign]  # this process runs one worker, then ends
