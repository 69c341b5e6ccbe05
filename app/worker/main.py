"""Runs the loop of a worker process: claims jobs, sweeps at intervals, and ends after
the job that runs at a signal.
"""

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from app.core import limits, stamps
from app.core.errors import InstallationError, LeaseLost, Unavailable
from app.core.logging import about, configure
from app.core.memory import forbid_core_dumps
from app.core.processes import Periodic, Stop, stop_signals
from app.core.settings import Settings
from app.db import revisions
from app.db.database import transaction_time
from app.jobs import queue
from app.services.datasets.erase import erase_due
from app.services.execution.lease import Stopped
from app.services.execution.run_job import CodeNotLoaded, claim_next, run_job
from app.services.execution.sweep import (
    settle_overdue,
    tidy_artifacts,
    tidy_jobs,
    tidy_rows,
)
from app.services.installation import Installation, require_writable
from app.services.ledger.heads import Heads
from app.worker.supervise import CHILDREN, Supervisor, wait_for_public_time
from grovekeeper_forests import code_cache
from grovekeeper_forests.errors import GrovekeeperError

TIDY_ROWS_INTERVAL_S = 600.0
_log = logging.getLogger(__name__)


def run(
    settings: Settings, *, code: str, announce: Callable[[], None] = lambda: None
) -> int:
    """Works until a signal, then finishes the running job; at the second signal kills
    its child, whose charge stays.

    Must be called on the main thread: children are started from it, so that they die
    with this process.

    Args:
        settings: of the installation.
        code: digest of the program from before this module was imported, so that a
            change during the import shows.
        announce: called once, before the first look for a job.

    Returns:
        The exit code: 0.

    Raises:
        CodeChanged: the files of the program changed; this process ends, and the new
            code takes over.
        InstallationError: a folder of the installation cannot be written.
    """
    assert threading.current_thread() is threading.main_thread()
    configure(settings.log_level)
    # children inherit the folder, and find in it what the first child compiled
    code_cache.choose()
    forbid_core_dumps()
    CHILDREN.code = code
    # before the installation is opened: a signal meanwhile ends this worker in order
    with stop_signals() as stop:
        require_writable(settings)
        installation = Installation.open(settings, pool_size=2)
        try:
            loop = _Loop(installation, stop, announce)
            with _seen(installation, loop.cannot_load):
                loop.run()
        finally:
            CHILDREN.stop()
            installation.close()
    return 0


@contextmanager
def _seen(installation: Installation, cannot_load: threading.Event) -> Iterator[None]:
    """Notes that this process can run jobs, at an interval that no job changes, so that
    metrics can count it.
    """
    database = installation.database
    worker_id = stamps.new(stamps.PROCESS)

    def note(_: threading.Event) -> None:
        if revisions.is_current(database):
            with database.write() as session:
                if cannot_load.is_set():
                    queue.forget_worker(session, worker_id)
                else:
                    queue.see_worker(session, worker_id, at=transaction_time(session))

    notes = Periodic("worker", note, interval_s=limits.WORKER_NOTE_INTERVAL_S)
    notes.start()
    try:
        yield
    finally:
        notes.stop()
        with suppress(Unavailable):
            if revisions.is_current(database):
                with database.write() as session:
                    queue.forget_worker(session, worker_id)


class _Loop:
    """Claims and runs jobs until a signal.

    Attributes:
        cannot_load: set while this machine cannot load the code of jobs.
    """

    def __init__(
        self,
        installation: Installation,
        stop: Stop,
        announce: Callable[[], None] = lambda: None,
    ) -> None:
        self._installation = installation
        self._stop = stop
        self._announce: Callable[[], None] | None = announce
        self._swept_at = float("-inf")
        self._tidied_rows_at = float("-inf")
        self._heads = Heads(installation)
        self._interval_s = installation.settings.release_interval_s
        self.cannot_load = threading.Event()

    def run(self) -> None:
        # With public times, the first claim waits for one, too: the start of a worker
        # that takes the job of a dead one is no public time.
        if self._interval_s:
            self._wait_for_a_job()
        while not self._stop.begun.is_set():
            try:
                worked = self._is_ready() and self._work_once()
            except LeaseLost:
                # a job that was cancelled ended at no public time
                worked = not self._interval_s
            except InstallationError:
                # no repetition helps: the code or the installation changed
                raise
            except Stopped:
                worked = False
            except CodeNotLoaded:
                self._wait_to_load_again()
                worked = True
            except GrovekeeperError:
                _log.warning("will try again", exc_info=True)
                worked = False
            if not worked:
                self._wait_for_a_job()

    def _wait_for_a_job(self) -> None:
        """Waits until the next look for a job. With public times, claims wait for the
        next one, and a job that ran has ended at one.
        """
        CHILDREN.stop_if_idle()
        if self._interval_s:
            wait_for_public_time(self._interval_s, stopping=self._stop.begun)
        else:
            self._stop.begun.wait(self._installation.settings.poll_interval_s)

    def _wait_to_load_again(self) -> None:
        """Takes no job meanwhile. Another machine may run the job, which is uncharged
        and in the queue.
        """
        _log.error(
            "this worker cannot load the code of jobs and takes none; the cause is in the line before"
        )
        self.cannot_load.set()
        self._stop.begun.wait(limits.LOAD_RETRY_S)

    def _is_ready(self) -> bool:
        if self._heads.read_revision():
            self._heads.confirm()
            if self._announce is not None:
                self._announce()
                self._announce = None
            return True
        return False

    def _work_once(self) -> bool:
        try:
            self._sweep_when_due()
        except OSError:  # the home may hold files of others; jobs go on
            _log.warning("sweeping failed", exc_info=True)
        if self.cannot_load.is_set():
            self._load_again()
        claim = claim_next(self._installation)
        if claim is None:
            return False
        supervisor = Supervisor(interval_s=self._interval_s, stop=self._stop)
        with about(job_id=claim.job_id):
            _log.info("job claimed")
            run_job(
                self._installation,
                claim,
                supervisor.run,
                load=supervisor.load,
                stop=self._stop,
            )
            _log.info("job ended")
        # the child of the next job loads while this worker looks for it
        if not self._stop.begun.is_set():
            CHILDREN.prepare()
        return True

    def _load_again(self) -> None:
        CHILDREN.load(self._require_unstopped)
        self.cannot_load.clear()
        _log.info("this worker can load the code of jobs again")

    def _require_unstopped(self) -> None:
        if self._stop.begun.is_set():
            raise Stopped

    def _sweep_when_due(self) -> None:
        # The times are set first: a sweep that fails is tried again after the interval,
        # and not before every look for a job.
        if time.monotonic() - self._swept_at >= limits.SWEEP_INTERVAL_S:
            self._swept_at = time.monotonic()
            self._publish_heads()
            erase_due(self._installation)
            settle_overdue(self._installation)
            tidy_jobs(self._installation)
        if time.monotonic() - self._tidied_rows_at >= TIDY_ROWS_INTERVAL_S:
            self._tidied_rows_at = time.monotonic()
            tidy_rows(self._installation)
            tidy_artifacts(self._installation)

    def _publish_heads(self) -> None:
        """Publishes heads. Failures are only logged, so that the sweep continues if the
        folder of heads is full.
        """
        try:
            self._heads.publish()
        except OSError:
            _log.warning("heads were not written; will try again", exc_info=True)
