"""Runs work beside the thread that asks for it."""

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

Result = TypeVar("Result")


def begun(work: Callable[[], Result], *, name: str) -> Future[Result]:
    """Begins work in a thread of its own, or does it at once in this thread if the
    machine starts no further one.

    An account, a service and a container have limits of threads, and a paid job goes on
    at the limit.
    """
    outcome: Future[Result] = Future()

    def run() -> None:
        try:
            outcome.set_result(work())
        except BaseException as error:  # noqa: BLE001  (raised again where the result is asked for)
            outcome.set_exception(error)

    try:
        threading.Thread(target=run, name=name, daemon=True).start()
    except RuntimeError:  # "can't start new thread"
        run()
    return outcome
