"""The worker pool restarts workers after growing pauses, and stops all of them in
bounded time.
"""

import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from app.cli.worker_pool import FIRST_PAUSE_S, HEALTHY_AFTER_S, MAX_PAUSE_S, WorkerPool

SECRETS = {"storage_key": "k" * 44}
POLITE = "import sys; sys.stdin.read()"
PARENT = (
    "import signal, subprocess, sys, time; signal.signal(15, signal.SIG_IGN);"
    "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)']);"
    "open(sys.argv[1], 'w').write(f'{child.pid} '); time.sleep(600)"
)


class Clock:
    """A clock whose seconds pass only when a test advances it."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def start() -> Iterator[Callable[..., WorkerPool]]:
    pools: list[WorkerPool] = []

    def make(
        code: str, *arguments: str, n_workers: int = 1, clock: Clock | None = None
    ) -> WorkerPool:
        command = [sys.executable, "-c", code, *arguments]
        pool = WorkerPool(
            n_workers,
            environ={"PATH": os.defpath},
            secrets=SECRETS,
            command=command,
            clock=clock or Clock(),
        )
        pools.append(pool)
        return pool

    yield make
    for pool in pools:
        pool.stop(grace_s=0)


def _process_ids(code: str = POLITE) -> list[int]:
    """The ids of the running workers of a pool: children of this process with the
    pool's command, without zombies.
    """
    ids = []
    for child in psutil.Process().children():
        # a zombie's command cannot be read, and is no running worker
        with suppress(psutil.NoSuchProcess):
            # Linux shows an empty command until a process that starts has its arguments
            _wait_until(child.cmdline)
            if child.cmdline()[1:3] == ["-c", code]:
                ids.append(child.pid)
    return sorted(ids)


def _wait_until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.01)


def test_the_pool_starts_the_requested_number_of_workers_once(
    start: Callable[..., WorkerPool],
) -> None:
    pool = start(POLITE, n_workers=3)
    pool.tend()
    first = _process_ids()
    pool.tend()
    assert _process_ids() == first
    assert len(set(first)) == 3


def test_no_workers_is_legal(start: Callable[..., WorkerPool]) -> None:
    pool = start(POLITE, n_workers=0)
    pool.tend()
    assert _process_ids() == []


def test_a_dead_worker_is_started_again_after_pauses_that_double(
    start: Callable[..., WorkerPool],
) -> None:
    clock = Clock()
    pool = start(POLITE, clock=clock)
    pool.tend()
    pause = FIRST_PAUSE_S
    for _ in range(7):
        os.kill(_process_ids()[0], signal.SIGKILL)
        _wait_until(lambda: _process_ids() == [])
        pool.tend()
        clock.now += pause - 0.01
        pool.tend()
        assert _process_ids() == [], "the pause was cut short"
        clock.now += 0.02
        pool.tend()
        assert len(_process_ids()) == 1
        pause = min(pause * 2, MAX_PAUSE_S)
    clock.now += HEALTHY_AFTER_S
    os.kill(_process_ids()[0], signal.SIGKILL)
    _wait_until(lambda: _process_ids() == [])
    pool.tend()
    clock.now += FIRST_PAUSE_S
    pool.tend()
    assert len(_process_ids()) == 1, (
        "a worker that lived long starts with a short pause again"
    )


def test_stopping_a_worker_sends_a_signal_before_a_kill(
    start: Callable[..., WorkerPool], tmp_path: Path
) -> None:
    code = (
        "import pathlib, signal, sys\n"
        "def end(*_):\n    pathlib.Path(sys.argv[1], 'asked').touch(); sys.exit()\n"
        "signal.signal(15, end); pathlib.Path(sys.argv[1], 'up').touch(); signal.pause()"
    )
    pool = start(code, str(tmp_path))
    pool.tend()
    _wait_until((tmp_path / "up").exists)
    pool.stop(grace_s=60)
    assert (tmp_path / "asked").exists()
    assert _process_ids(code) == []


def test_a_worker_that_does_not_listen_is_killed_with_its_children(
    start: Callable[..., WorkerPool], tmp_path: Path
) -> None:
    note = tmp_path / "child"
    pool = start(PARENT, str(note))
    pool.tend()
    _wait_until(lambda: note.exists() and note.read_text().endswith(" "))
    child = int(note.read_text())
    began = time.monotonic()
    pool.stop(grace_s=0.2)
    assert time.monotonic() - began < 120, "its ten minutes were not waited for"
    _wait_until(
        lambda: (
            not psutil.pid_exists(child)
            or psutil.Process(child).status() == psutil.STATUS_ZOMBIE
        )
    )


def test_secrets_reach_a_worker_on_its_stdin_alone(
    start: Callable[..., WorkerPool], tmp_path: Path
) -> None:
    code = "import sys; open(sys.argv[1], 'w').write(sys.stdin.readline()); sys.stdin.read()"
    received = tmp_path / "received"
    start(code, str(received)).tend()
    _wait_until(lambda: received.exists() and received.read_text())
    assert json.loads(received.read_text()) == SECRETS
    (process_id,) = _process_ids(code)
    process = Path(f"/proc/{process_id}")
    assert (
        SECRETS["storage_key"]
        not in (process / "cmdline").read_text() + (process / "environ").read_text()
    )


def test_a_worker_sees_the_end_of_its_stdin_only_when_the_supervisor_is_gone(
    start: Callable[..., WorkerPool],
) -> None:
    pool = start(POLITE)
    pool.tend()
    time.sleep(0.3)
    assert len(_process_ids()) == 1


def test_workers_are_out_of_reach_of_the_terminal(
    start: Callable[..., WorkerPool],
) -> None:
    pool = start(POLITE)
    pool.tend()
    assert os.getpgid(_process_ids()[0]) != os.getpgid(0)
