"""Submits requests that form one group, in a given order."""

import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from threading import Event
from typing import Any

from app.services.installation import Installation

_PATIENCE_S = 120.0


def in_one_group(installation: Installation, requests: Sequence[Callable[[], Any]]) -> list[Any]:
    """Runs requests for jobs in threads so that they form one group, and returns their results or errors in order."""
    with ThreadPoolExecutor(len(requests) + 1) as pool:
        return [_result(running) for running in begin_group(installation, requests, pool)]


def begin_group(
    installation: Installation, requests: Sequence[Callable[[], Any]], pool: ThreadPoolExecutor
) -> list[Future[Any]]:
    """Starts requests that form one group, each after the one before waits; they run when all of them wait."""
    leads, ends = Event(), Event()

    def lead(items: Sequence[object]) -> list[None]:
        leads.set()
        assert ends.wait(_PATIENCE_S)
        return [None for _ in items]

    leader = pool.submit(installation.submissions.run, None, lead)
    assert leads.wait(_PATIENCE_S)
    running = []
    for number, request in enumerate(requests, start=1):
        running.append(pool.submit(request))
        _until_waiting(installation, number, running[-1])
    ends.set()
    leader.result(_PATIENCE_S)
    return running


def outcome_of(request: Callable[[], Any]) -> Any:
    """The result of a request, or its error."""
    try:
        return request()
    except Exception as error:  # noqa: BLE001 - the test compares it
        return error


def _result(running: Future[Any]) -> Any:
    return outcome_of(lambda: running.result(_PATIENCE_S))


def _until_waiting(installation: Installation, n_waiting: int, running: Future[Any]) -> None:
    until = time.monotonic() + _PATIENCE_S
    while len(installation.submissions._waiting) < n_waiting:
        assert not running.done(), "the request does not wait for its group"
        assert time.monotonic() < until
        time.sleep(0.001)
