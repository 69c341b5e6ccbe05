"""Runs the product's worker for HTTP tests, with forks as the children of jobs, and woken by the tests.

``python -m tests.support.forking_worker <descriptor>`` takes the settings of the worker from its environment. A byte on
the descriptor wakes the idle worker before its poll interval is over.
"""

import os
import select
import sys

from app.cli import worker_process
from app.worker import child
from app.worker.main import _Loop
from tests.support.forked_child import fork_children, load_modules_of_jobs


def main() -> int:
    """Imports the modules that jobs need, then runs the worker."""
    load_modules_of_jobs()
    fork_children(child.main)
    _wake_by(int(sys.argv[1]))
    return worker_process.main()


def _wake_by(descriptor: int) -> None:
    wait_for_a_public_time = _Loop._wait_for_a_job

    def wait(self: _Loop) -> None:
        if self._interval_s:
            wait_for_a_public_time(self)
        elif select.select([descriptor], [], [], self._installation.settings.poll_interval_s)[0]:
            os.read(descriptor, 4096)

    _Loop._wait_for_a_job = wait  # type: ignore[method-assign]  # this process runs one worker, then ends


if __name__ == "__main__":
    sys.exit(main())
