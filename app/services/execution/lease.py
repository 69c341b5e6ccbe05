"""Keeps the lease of a job while this process works on the job, and stores the job's
progress.
"""

import logging
import threading
import time
from collections.abc import Callable
from concurrent.futures import wait
from typing import Self, TypeVar

from app.core.errors import LeaseLost, Unavailable
from app.db.database import transaction_time
from app.jobs import queue
from app.jobs.states import PutBack
from app.services.installation import Installation
from grovekeeper_forests.errors import GrovekeeperError
from grovekeeper_forests.threads import begun

Result = TypeVar("Result")

_log = logging.getLogger(__name__)
_LOOK_S = 0.2  # seconds between two looks at the signal to stop, and at the lease
_NEWS_S = 0.5  # seconds between two extensions that store progress
# most seconds between two extensions, so that a cancellation ends the job soon
_MOST_S = 1.0


class Stopped(GrovekeeperError):
    """This process was asked to stop before a charge, or while it brought the files of a
    charged job.
    """

    sentence = "a worker stopped while it brought the files of a job"


_SENTENCES = {
    PutBack.NO_ROOM: "the output of a job cannot be stored",
    PutBack.ROWS_ABSENT: "the rows of a job cannot be read",
    PutBack.MODEL_ABSENT: "the file of a model cannot be read",
    PutBack.CANNOT_LOAD: "the process of a job cannot use what the job needs",
}


class CannotRun(Unavailable):
    """This worker cannot run a job, which is uncharged and is put back into the queue.

    Attributes:
        hold: the public reason.
    """

    def __init__(self, hold: PutBack, sentence: str | None = None) -> None:
        super().__init__(sentence or _SENTENCES[hold])
        self.hold = hold


def heartbeat(
    installation: Installation, claim: queue.Claim, *, trees_done: int
) -> None:
    """Extends the lease and stores the number of finished trees."""
    with installation.database.write() as session:
        queue.heartbeat(
            session,
            claim,
            at=transaction_time(session),
            ttl_s=installation.settings.lease_ttl_s,
            trees_done=trees_done,
        )


class Lease:
    """The lease of one job. A thread extends it for as long as the block of the object
    lasts.

    If the database is unreachable or an extension fails, the work goes on and the
    thread tries again: what a charged job spent stays spent. The token of the claim
    keeps out a job that another process has ended meanwhile, so the last transaction
    notices a lost lease, too.

    Attributes:
        trees_done: the progress that the next extension stores; public.
    """

    def __init__(self, installation: Installation, claim: queue.Claim) -> None:
        self._installation = installation
        self._claim = claim
        self.trees_done = self._stored_trees = 0
        self._lost = threading.Event()
        self._ended = threading.Event()
        self._thread = threading.Thread(
            target=self._extend_until_the_end, name="lease", daemon=True
        )

    def __enter__(self) -> Self:
        try:
            self._thread.start()
        except RuntimeError:
            # a limit of threads; nothing is charged
            raise CannotRun(
                PutBack.CANNOT_LOAD, "this machine starts no further thread"
            ) from None
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def require(self) -> None:
        """Checks the lease as the last extension found it.

        Raises:
            LeaseLost: the job was cancelled, or another worker has it.
        """
        if self._lost.is_set():
            raise LeaseLost

    def wait_for(
        self, work: Callable[[], Result], *, stopping: threading.Event
    ) -> Result:
        """Does work that waits for a disk or a store, and returns or raises what the work
        does.

        A read from a store cannot be interrupted. When nobody waits for the work any
        more, its thread is left to end by itself, so the work must leave nothing but
        copies.

        Raises:
            Stopped: ``stopping`` was set.
        """
        outcome = begun(work, name="files")
        while wait([outcome], timeout=_LOOK_S).not_done:
            if stopping.is_set():
                raise Stopped
            self.require()
        return outcome.result()

    def _extend_until_the_end(self) -> None:
        # at most a quarter: two extensions may fail, also of the shortest lease
        interval_s = min(self._installation.settings.lease_ttl_s / 4, _MOST_S)
        extended_at = time.monotonic()
        while not (self._lost.is_set() or self._ended.wait(min(_NEWS_S, interval_s))):
            has_news = self.trees_done != self._stored_trees
            if has_news or time.monotonic() - extended_at >= interval_s:
                self._extend()
                extended_at = time.monotonic()

    def _extend(self) -> None:
        # read once: the main thread may set a newer number while this one is stored
        trees_done = self.trees_done
        try:
            heartbeat(self._installation, self._claim, trees_done=trees_done)
            self._stored_trees = trees_done
        except LeaseLost:
            self._lost.set()
        except Unavailable:
            _log.warning("a heartbeat was missed", extra={"job_id": self._claim.job_id})
        except Exception:  # noqa: BLE001  (whatever it was, the next attempt may succeed, and the job is paid)
            _log.exception("a heartbeat failed", extra={"job_id": self._claim.job_id})
