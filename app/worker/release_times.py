"""Computes the public times at which changes of private jobs appear, and waits for them (ADR 0030)."""

import threading

from app.core import stamps


def released_at(at: float, interval_s: int) -> float:
    """The public time at which a change appears.

    Args:
        at: PRIVATE; the time of the change, in seconds since 1970 in UTC.
        interval_s: public; seconds between two public times, or 0.

    Returns:
        The first multiple of the interval after the time; the time itself without an interval.
    """
    return at if interval_s == 0 else (at // interval_s + 1) * interval_s


def now() -> float:
    """The current time in seconds since 1970 in UTC."""
    return stamps.now().timestamp()


def wait_until(at: float, *, stopping: threading.Event) -> None:
    """Waits until a time, or until the process is to stop. A wait that ends too early goes on."""
    while not stopping.is_set() and now() < at:
        stopping.wait(at - now())
