"""Which child a worker gives a job, that none waits longer than it should, and when
changes of jobs appear.
"""

import gc
import os
import resource
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from errno import EMFILE
from pathlib import Path
from subprocess import PIPE
from unittest.mock import create_autospec

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.core.errors import LeaseLost
from app.core.processes import Stop
from app.services.execution.lease import Lease
from app.services.execution.run_job import CodeNotLoaded
from app.services.jobs.task import Needs
from app.worker import supervise
from app.worker import supervise as module
from app.worker.supervise import Children, Supervisor, public_time_after
from tests.support.set_limits import SetLimit

_WAITS = "import os, sys; os.write(1, b'.'); sys.stdin.readline()"


def run_a_job(children: Children) -> "subprocess.Popen[bytes]":
    children.load(lambda: None)
    return children.take()


def child_of(program: str) -> "subprocess.Popen[bytes]":
    command = [sys.executable, "-ISc", program]
    return subprocess.Popen(command, stdin=PIPE, stdout=PIPE)


class Started(list["subprocess.Popen[bytes]"]):
    """All children that were started; each waits for a line and ends."""

    def new_child(self) -> "subprocess.Popen[bytes]":
        self.append(child_of(_WAITS))
        return self[-1]


@pytest.fixture
def started() -> Iterator[Started]:
    every = Started()
    yield every
    for child in every:
        module.end_child(child)


def test_a_child_is_heard_without_a_free_descriptor(started: Started) -> None:
    """What is missing after the charge loses what a job spent."""
    children = Children(started.new_child)
    run_a_job(children)
    children.prepare()
    # so that nothing closes a file meanwhile, or says that it was left open
    gc.collect()
    gc.disable()
    free = os.dup(0)
    os.close(free)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (free, hard))
    try:
        with pytest.raises(OSError) as missing:  # its number says it
            os.dup(0)
        assert children._answers(lambda: None)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        gc.enable()
    assert missing.value.errno == EMFILE
    assert children.take() is started[1]


def test_a_worker_that_ran_no_job_has_no_child(
    started: Started,
) -> None:
    Children(started.new_child).prepare()
    assert started == []


def test_the_next_job_gets_the_child_that_waits(
    started: Started,
) -> None:
    children = Children(started.new_child)
    first = run_a_job(children)
    children.prepare()
    children.prepare()
    assert len(started) == 2
    assert run_a_job(children) is started[1] is not first
    assert run_a_job(children) is started[2]  # each child runs one job


def test_a_child_that_ended_while_it_waited_is_replaced(
    started: Started,
) -> None:
    children = Children(started.new_child)
    run_a_job(children)
    children.prepare()
    started[1].kill()
    started[1].wait()
    assert run_a_job(children) is started[2]


def test_no_child_waits_for_ever(
    started: Started, monkeypatch: pytest.MonkeyPatch
) -> None:
    children = Children(started.new_child)
    run_a_job(children)
    children.prepare()
    children.stop_if_idle()
    assert started[1].poll() is None
    monkeypatch.setattr(module, "WAIT_S", -1.0)
    children.stop_if_idle()
    assert started[1].returncode is not None
    children.prepare()
    assert len(started) == 2  # not before the next job


def test_a_child_that_cannot_load_its_code_runs_no_job(
    caplog: pytest.LogCaptureFixture,
) -> None:
    programs = [
        "raise SystemExit(1)",
        "import os, time; os.write(1, b'.'); time.sleep(60)",
    ]

    children = Children(lambda: child_of(programs.pop(0)))
    with pytest.raises(CodeNotLoaded):
        children.load(lambda: None)
    # a killed child says nothing itself
    assert "before it had loaded the code of jobs" in caplog.text
    children.load(lambda: None)
    assert programs == [], "the next attempt starts another child"
    children.stop()


def test_a_child_that_takes_too_long_to_load_is_ended(
    set_limit: SetLimit,
) -> None:
    slow = child_of("import time; time.sleep(60)")
    set_limit("CHILD_LOAD_S", 0)
    with pytest.raises(CodeNotLoaded):
        Children(lambda: slow).load(lambda: None)
    assert slow.returncode is not None


def test_a_wait_for_the_code_ends_when_the_job_does() -> None:
    slow = child_of("import time; time.sleep(60)")
    children = Children(lambda: slow)

    def look() -> None:
        raise LeaseLost

    with pytest.raises(LeaseLost):
        children.load(look)
    assert slow.poll() is None, "the next job may have the child"
    children.stop()


def test_a_child_that_was_asked_for_a_job_that_ended_gets_no_other() -> None:
    """Its late answer would stand for the next job, which needs other things."""
    late = child_of("import os, time; os.write(1, b'.'); time.sleep(60)")
    children = Children(lambda: late)
    children.load(lambda: None)

    def look() -> None:
        raise LeaseLost

    with pytest.raises(LeaseLost):
        children.look(Needs(Path("/"), 0, (), None), look)
    is_ended = late.poll() is not None
    module.end_child(late)
    assert is_ended


def test_a_worker_that_ends_leaves_no_child(
    started: Started,
) -> None:
    children = Children(started.new_child)
    run_a_job(children)
    children.prepare()
    children.stop()
    children.stop()
    assert started[1].returncode is not None


@given(at=st.floats(0, 4e9), interval_s=st.integers(1, 86_400))
def test_a_public_time_is_a_multiple_of_the_interval_after_the_change(
    at: float, interval_s: int
) -> None:
    public = public_time_after(at, interval_s)
    assert public % interval_s == 0
    assert at < public <= at + interval_s


def test_without_an_interval_a_change_appears_at_once() -> None:
    assert public_time_after(12.5, 0) == 12.5


class Clock(threading.Event):
    """The clock of a machine, and an event whose waits move it; somebody changes the
    clock during the first wait.
    """

    def __init__(self, at: float, *, change: float = 0.0, passes: float = 1.0) -> None:
        super().__init__()
        self.at, self.waits = at, list[float]()
        self._change, self._passes = change, passes

    def wait(self, timeout: float | None = None) -> bool:
        assert timeout is not None
        self.waits.append(timeout)
        self.at += timeout * self._passes + self._change
        self._change = 0.0
        return self.is_set()


@pytest.fixture
def set_clock(monkeypatch: pytest.MonkeyPatch) -> Callable[[Clock], None]:
    return lambda clock: monkeypatch.setattr(supervise, "now", lambda: clock.at)


def test_a_wait_that_ends_too_early_goes_on(set_clock: Callable[[Clock], None]) -> None:
    clock = Clock(1.0, passes=0.75)
    set_clock(clock)
    supervise.wait_for_public_time(5, stopping=clock)
    assert clock.waits[:2] == pytest.approx([4.0, 1.0])
    assert clock.at == pytest.approx(5.0)


def test_no_wait_outlasts_the_signal_to_stop() -> None:
    stopping = threading.Event()
    stopping.set()
    supervise.wait_for_public_time(86_400, stopping=stopping)


def test_a_clock_that_is_set_back_stops_no_claim_for_longer_than_an_interval(
    set_clock: Callable[[Clock], None],
) -> None:
    clock = Clock(1_800_007_210.0, change=-7200.0)
    set_clock(clock)
    supervise.wait_for_public_time(60, stopping=clock)
    assert sum(clock.waits) <= 2 * 60
    assert clock.at % 60 == 0, "claims are at public times of the clock as it is"


def test_a_clock_that_is_set_back_holds_no_ended_job_and_no_progress_for_longer_than_an_interval(
    set_clock: Callable[[Clock], None],
) -> None:
    clock = Clock(1_800_007_210.0, change=-7200.0)
    set_clock(clock)
    lease = create_autospec(Lease, instance=True)
    supervisor = Supervisor(interval_s=60, stop=Stop(now=clock))
    supervisor._trees_done = 7
    supervisor._hold_until_public_time(lease)
    assert sum(clock.waits) <= 2 * 60
    assert clock.at % 60 == pytest.approx(0, abs=1e-6)
    supervisor._report(lease)
    assert lease.trees_done == 7


def test_progress_is_shown_at_the_next_public_time_of_a_clock_that_was_set_back(
    set_clock: Callable[[Clock], None],
) -> None:
    clock = Clock(1_800_007_210.0)
    set_clock(clock)
    supervisor = Supervisor(interval_s=60, stop=Stop())
    supervisor._trees_done = 7
    clock.at -= 7200.0
    assert supervisor._trees_to_show() == 0, "not before a public time"
    clock.at += 50.0
    assert supervisor._trees_to_show() == 7
