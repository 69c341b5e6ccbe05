"""Which child a worker gives a job, that none waits longer than it should, and when changes of jobs appear."""

import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.worker import supervise
from app.worker import supervise as module
from app.worker.supervise import Children, released_at

_WAITS = "import sys; sys.stdin.readline()"


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> Iterator[list["subprocess.Popen[bytes]"]]:
    """All children; each waits for a line and ends."""
    every: list[subprocess.Popen[bytes]] = []

    def new_child() -> "subprocess.Popen[bytes]":
        command = [sys.executable, "-ISc", _WAITS]
        every.append(subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE))
        return every[-1]

    monkeypatch.setattr(module, "_new_child", new_child)
    yield every
    for child in every:
        module.end_child(child)


def test_a_worker_that_ran_no_job_has_no_child(started: list["subprocess.Popen[bytes]"]) -> None:
    Children().prepare()
    assert started == []


def test_the_next_job_gets_the_child_that_waits(started: list["subprocess.Popen[bytes]"]) -> None:
    children = Children()
    first = children.start()
    children.prepare()
    children.prepare()
    assert len(started) == 2
    assert children.start() is started[1] is not first
    assert children.start() is started[2]  # each child runs one job


def test_a_child_that_ended_while_it_waited_is_replaced(started: list["subprocess.Popen[bytes]"]) -> None:
    children = Children()
    children.start()
    children.prepare()
    started[1].kill()
    started[1].wait()
    assert children.start() is started[2]


def test_no_child_waits_for_ever(started: list["subprocess.Popen[bytes]"], monkeypatch: pytest.MonkeyPatch) -> None:
    children = Children()
    children.start()
    children.prepare()
    children.stop_if_idle()
    assert started[1].poll() is None
    monkeypatch.setattr(module, "WAIT_S", -1.0)
    children.stop_if_idle()
    assert started[1].returncode is not None
    children.prepare()
    assert len(started) == 2  # not before the next job


def test_a_worker_that_ends_leaves_no_child(started: list["subprocess.Popen[bytes]"]) -> None:
    children = Children()
    children.start()
    children.prepare()
    children.stop()
    children.stop()
    assert started[1].returncode is not None


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
