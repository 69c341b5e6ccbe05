"""Forks the child of a job from its worker, in place of the new interpreter that the
product starts.

The fork has the same pipes, folder and environment as the product's child. A new
interpreter needs a second to load Numba and the kernels, which is far longer than a
small job takes. The tests of ``grovekeeper serve`` and of the supervisor start children
as the product does.
"""

import multiprocessing
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from functools import partial

from app.core.processes import scrubbed_environment
from app.worker import supervise


def fork_children(run: Callable[[int], None]) -> None:
    """Makes the supervisor of this process fork its children, which call ``run`` with
    the supervisor's process id.
    """
    supervise.CHILDREN.start = partial(_Child, run)  # type: ignore[assignment]  # this process runs one worker, then ends
    supervise.CHILDREN.prepare = lambda: None  # type: ignore[method-assign]  # a fork takes no time to load


class _Child:
    """Implements the part of ``subprocess.Popen`` that the supervisor uses, for a
    forked process.
    """

    def __init__(self, run: Callable[[int], None]) -> None:
        task_reader, task_writer = os.pipe()
        progress_reader, progress_writer = os.pipe()
        self._process = multiprocessing.get_context("fork").Process(
            target=_run, args=(run, os.getpid(), task_reader, progress_writer)
        )
        self._process.start()
        os.close(task_reader)
        os.close(progress_writer)
        self.stdin, self.stdout = (
            os.fdopen(task_writer, "wb"),
            os.fdopen(progress_reader, "rb"),
        )

    @property
    def pid(self) -> int:
        assert self._process.pid is not None
        return self._process.pid

    @property
    def returncode(self) -> int | None:
        return self._process.exitcode

    def poll(self) -> int | None:
        return self._process.exitcode

    def wait(self, timeout: float | None = None) -> int | None:
        self._process.join(timeout)
        if self._process.exitcode is None:
            raise subprocess.TimeoutExpired("fork", timeout or 0)
        return self._process.exitcode

    def kill(self) -> None:
        self._process.kill()


def _run(
    run: Callable[[int], None],
    supervisor_pid: int,
    task_reader: int,
    progress_writer: int,
) -> None:
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_DFL)
    # standard error stays the worker's until the task, as that of the product's child
    for descriptor, standard in ((task_reader, 0), (progress_writer, 1)):
        os.dup2(descriptor, standard)
    os.closerange(3, os.sysconf("SC_OPEN_MAX"))
    sys.stdin = os.fdopen(0, encoding="utf-8")
    os.chdir("/")
    environ = scrubbed_environment()
    os.environ.clear()
    os.environ.update(environ)
    run(supervisor_pid)
