"""Starts the child of one job and watches it until it ends: progress, lease, cancellation.

All work runs on the main thread. Linux sends a child its parent-death signal when the *thread* that started it ends, so
a child of a short-lived helper thread would be killed.
"""

import contextlib
import logging
import os
import selectors
import subprocess
import time
from typing import Final

from app.core import limits
from app.core.errors import Unavailable
from app.core.processes import Stop
from app.jobs.queue import Claim
from app.jobs.states import PREPARING, EndReason
from app.services.execution import lease
from app.services.execution.run_job import JobFailed
from app.services.installation import Installation
from app.services.jobs.task import JobTask
from app.worker import release_times
from app.worker.children import Children, end

_log = logging.getLogger(__name__)
_POLL_S = 0.1
_PROGRESS_INTERVAL_S = 0.5

CHILDREN: Final = Children()
"""The children of this process, which runs one worker."""


class Supervisor:
    """One job's child process, from its start to its end."""

    def __init__(self, installation: Installation, claim: Claim, *, stop: Stop) -> None:
        self._installation = installation
        self._claim = claim
        self._stop = stop
        self._told_of_stop = False
        self._trees_done = PREPARING
        self._written_at = time.monotonic()
        self._written_trees = 0
        self._interval_s = installation.settings.release_interval_s
        self._shown_trees = 0
        self._next_shown_at = release_times.released_at(release_times.now(), self._interval_s)

    def run(self, task: JobTask) -> None:
        """Runs the child to its end and waits for the next public time; its output is then in the task's folder.

        Raises:
            JobFailed: the child did not succeed, or this process was asked to stop now and killed the child.
            LeaseLost: the job was cancelled or another worker has it; the child was killed.
        """
        child = _start(task)
        try:
            assert child.stdin is not None
            # The pipe stays open: the child ends when it closes, so it dies with this process.
            with contextlib.suppress(BrokenPipeError):
                child.stdin.write(task.to_text().encode("utf-8") + b"\n")
                child.stdin.flush()
            self._watch(child, n_trees=task.n_trees)
        finally:
            end(child)
        self._wait_for_release()
        if child.returncode != 0:
            raise JobFailed

    def _watch(self, child: "subprocess.Popen[bytes]", *, n_trees: int) -> None:
        assert child.stdout is not None
        started_at = time.monotonic()
        with selectors.DefaultSelector() as selector:
            selector.register(child.stdout, selectors.EVENT_READ)
            while True:
                self._heed_signals()
                if selector.select(self._pause_s()):
                    done = os.read(child.stdout.fileno(), 4096)
                    if not done:
                        break
                    self._trees_done = min(self._trees_done + len(done), n_trees)
                self._report_when_due()
                if time.monotonic() - started_at > limits.CHILD_TIMEOUT_S:
                    return
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(timeout=limits.CHILD_EXIT_S)

    def _heed_signals(self) -> None:
        """Raises ``JobFailed`` if this process is to stop now; says once that it stops after this job."""
        if self._stop.now.is_set():
            raise JobFailed(EndReason.LOST)
        if self._stop.begun.is_set() and not self._told_of_stop:
            self._told_of_stop = True
            _log.warning("finishing the running job; a second signal (Ctrl-C) stops now and loses what the job spent")

    def _wait_for_release(self) -> None:
        """Holds the lease until the next public time, so that the end of the child shows then, however it ended.

        Raises:
            JobFailed: this process was asked to stop now. Whether the child had ended does not show.
            LeaseLost: see :meth:`run`.
        """
        if self._interval_s == 0:
            return
        until = release_times.released_at(release_times.now(), self._interval_s)
        while release_times.now() < until:
            self._report_when_due()
            self._heed_signals()
            self._stop.now.wait(max(min(_POLL_S, until - release_times.now()), 0))

    def _pause_s(self) -> float:
        """Seconds until the next look at the child: at a public time, or soon."""
        left = self._next_shown_at - release_times.now()
        return left if 0 < left < _POLL_S else _POLL_S

    def _trees_to_show(self) -> int:
        """The number of finished trees at the last public time."""
        if release_times.now() >= self._next_shown_at:
            self._shown_trees = self._trees_done
            self._next_shown_at = release_times.released_at(release_times.now(), self._interval_s)
        return self._shown_trees

    def _report_when_due(self) -> None:
        """Stores progress, extends the lease and notices a cancellation, in one transaction when it is due.

        If the database is unreachable, the child continues, because the charge is spent, and the next report tries
        again. The lease token fences a job that another process settled meanwhile.
        """
        waited = time.monotonic() - self._written_at
        trees_done = self._trees_to_show()
        has_news = trees_done > self._written_trees
        is_time_for_news = waited >= _PROGRESS_INTERVAL_S or self._interval_s  # with public times, news come at one
        interval = min(self._installation.settings.lease_ttl_s / 4, 1.0)
        if waited >= interval or (has_news and is_time_for_news):
            try:
                lease.heartbeat(self._installation, self._claim, trees_done=trees_done)
                self._written_trees = trees_done
            except Unavailable:
                _log.warning("a heartbeat was missed")
            self._written_at = time.monotonic()


def _start(_task: JobTask) -> "subprocess.Popen[bytes]":
    """The child that runs a task; it goes to the task's folder itself."""
    return CHILDREN.start()
