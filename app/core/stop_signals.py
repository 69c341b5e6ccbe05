"""Turns signals into two requests to a process: take no new work, and end now."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import FrameType
from typing import Final

TERMINAL_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
"""What service managers and terminals send to end a program; a terminal sends the last two to all its processes."""


@dataclass(frozen=True)
class Stop:
    """The requests to stop that a process has received.

    Attributes:
        begun: take no new work, finish the work that runs, then end.
        now: end at once; a running job is lost and stays charged.
    """

    begun: threading.Event = field(default_factory=threading.Event)
    now: threading.Event = field(default_factory=threading.Event)


@contextmanager
def stop_signals() -> Iterator[Stop]:
    """Sets ``begun`` at the first SIGTERM, SIGINT (Ctrl-C) or SIGHUP, and ``now`` at the second SIGTERM or SIGINT.

    SIGHUP is never the second signal: a terminal that closes sends it, often twice.
    """
    stop = Stop()
    n_signals = 0

    def handle(number: int, _frame: FrameType | None) -> None:
        nonlocal n_signals
        n_signals += number != signal.SIGHUP
        if n_signals > 1:
            stop.now.set()
        stop.begun.set()

    before = {number: signal.signal(number, handle) for number in TERMINAL_SIGNALS}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
