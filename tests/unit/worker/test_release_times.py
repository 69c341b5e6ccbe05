"""Tests the public times at which changes of jobs appear."""

import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.worker import supervise
from app.worker.supervise import released_at


@given(at=st.floats(0, 4e9), interval_s=st.integers(1, 86_400))
def test_a_public_time_is_a_multiple_of_the_interval_after_the_change(at: float, interval_s: int) -> None:
    public = released_at(at, interval_s)
    assert public % interval_s == 0
    assert at < public <= at + interval_s


def test_without_an_interval_a_change_appears_at_once() -> None:
    assert released_at(12.5, 0) == 12.5


def test_a_wait_that_ends_too_early_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    times, waits = iter([1.0, 1.0, 4.9, 4.9, 5.0]), list[float]()

    class Impatient(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            waits.append(timeout or 0)
            return False

    monkeypatch.setattr(supervise, "now", lambda: next(times))
    supervise.wait_until(5.0, stopping=Impatient())
    assert waits == pytest.approx([4.0, 0.1])


def test_no_wait_outlasts_the_signal_to_stop() -> None:
    stopping = threading.Event()
    stopping.set()
    supervise.wait_until(float("inf"), stopping=stopping)
