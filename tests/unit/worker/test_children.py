"""Tests which child a worker gives a job: one that waits, or a new one; and that none waits longer than it should."""

import subprocess
import sys
from collections.abc import Iterator

import pytest

from app.worker import supervise as module
from app.worker.supervise import Children

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
