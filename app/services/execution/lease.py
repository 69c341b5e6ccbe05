"""Extends the lease of a claimed job while files are copied or stored, which may take longer than a lease."""

import logging
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, wait
from contextlib import contextmanager
from typing import TypeVar

from app.core.errors import GrovekeeperError, LeaseLost, Unavailable
from app.jobs import queue
from app.jobs.queue import Claim
from app.services.installation import Installation

Result = TypeVar("Result")

_log = logging.getLogger(__name__)
_LOOK_S = 0.2
"""Seconds between two looks at the signal to stop."""


class Stopped(GrovekeeperError):
    """This process was asked to stop while it brought the files of a job."""

    def __str__(self) -> str:
        return "a worker stopped while it brought the files of a job"


def heartbeat(installation: Installation, claim: Claim, *, trees_done: int) -> None:
    """Extends the lease and stores the number of finished trees.

    Raises:
        LeaseLost: the job was cancelled or another worker has it; the caller stops and writes nothing.
    """
    with installation.database.write() as session:
        queue.heartbeat(
            session,
            claim,
            at=installation.database.now(session),
            ttl_s=installation.settings.lease_ttl_s,
            trees_done=trees_done,
        )


def while_leased(
    installation: Installation, claim: Claim, work: Callable[[], Result], *, stopping: threading.Event
) -> Result:
    """Does work before a job's child begins, and extends the lease meanwhile; returns or raises what the work does.

    A read from a store cannot be interrupted. When nobody waits for the work any more, its thread is left to end by
    itself, so the work must leave nothing but copies.

    Raises:
        LeaseLost: the job was cancelled, or another worker has it.
        Stopped: ``stopping`` was set.
    """
    outcome: Future[Result] = Future()

    def run() -> None:
        try:
            outcome.set_result(work())
        except BaseException as error:  # noqa: BLE001  (raised again by the caller's thread)
            outcome.set_exception(error)

    threading.Thread(target=run, name="files", daemon=True).start()
    extended_at = time.monotonic()
    while wait([outcome], timeout=_LOOK_S).not_done:
        if stopping.is_set():
            raise Stopped
        if time.monotonic() - extended_at >= _interval_s(installation):
            _extend(installation, claim, trees_done=0)
            extended_at = time.monotonic()
    return outcome.result()


@contextmanager
def extended(installation: Installation, claim: Claim, *, trees_done: int) -> Iterator[None]:
    """Extends the lease from another thread until the block ends. The next transaction notices a lease that is lost."""
    ended = threading.Event()

    def extend() -> None:
        while not ended.wait(_interval_s(installation)):
            try:
                _extend(installation, claim, trees_done=trees_done)
            except LeaseLost:
                return

    thread = threading.Thread(target=extend, name="lease", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def _extend(installation: Installation, claim: Claim, *, trees_done: int) -> None:
    try:
        heartbeat(installation, claim, trees_done=trees_done)
    except Unavailable:
        _log.warning("a heartbeat was missed")


def _interval_s(installation: Installation) -> float:
    return installation.settings.lease_ttl_s / 4
