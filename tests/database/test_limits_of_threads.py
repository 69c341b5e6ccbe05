"""A machine that starts no further thread or process: an uncharged job waits, and a
paid job goes on.
"""

import errno
import fcntl
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from app.core.errors import Unavailable
from app.db.locks import WriteLock
from app.jobs.states import JobState
from app.services.execution import run_job
from app.services.execution.run_job import CodeNotLoaded
from app.worker import supervise
from app.worker.supervise import Children
from grovekeeper_forests.data import coded_rows
from grovekeeper_forests.threads import begun
from tests.support.crash_scene import Scene
from tests.support.databases import on_one_database
from tests.support.forest_fixtures import DivideRows
from tests.support.job_kinds import (
    claimed,
    evaluation,
    model,
    must_not_run,
    perform_here,
    profile,
    run_here,
)

pytestmark = pytest.mark.contract


def allow(n_threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets this process start so many further threads."""
    start, started = threading.Thread.start, count()

    def limited(thread: threading.Thread) -> None:
        if next(started) >= n_threads:
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", limited)


def after_the_charge(monkeypatch: pytest.MonkeyPatch, act: Callable[[], None]) -> None:
    """Acts when the charge of a job is committed."""
    charge = run_job.charge_claimed

    def charged(*arguments: Any) -> Any:
        task = charge(*arguments)
        act()
        return task

    monkeypatch.setattr(run_job, "charge_claimed", charged)


@on_one_database
@pytest.mark.parametrize("kind", ["train", "profile", "evaluation"])
def test_a_paid_job_needs_no_further_thread(
    scene: Scene, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    submit = {
        "train": lambda: scene.submit_job(key="k"),
        "profile": lambda: profile(scene),
        "evaluation": lambda: evaluation(scene, model(scene, "m")),
    }
    job_id, claim = submit[kind](), claimed(scene.installation)
    with monkeypatch.context() as limited:
        after_the_charge(limited, lambda: allow(0, limited))
        run_here(scene.installation, claim, perform_here)
    assert scene.end(job_id) == (JobState.SUCCEEDED, None, ["reserve", "charge"])


@on_one_database
@pytest.mark.parametrize("n_threads", [0, 1])
def test_a_job_waits_uncharged_or_runs(
    scene: Scene, n_threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The lease needs a thread; the copies of files do not."""
    job_id, claim = scene.submit_job(key="k"), claimed(scene.installation)
    with monkeypatch.context() as limited:
        allow(n_threads, limited)
        if n_threads == 0:
            with pytest.raises(
                Unavailable, match="this machine starts no further thread"
            ):
                run_here(scene.installation, claim, must_not_run)
        else:
            run_here(scene.installation, claim, perform_here)
    charged = [["reserve"], ["reserve", "charge"]]
    assert scene.end(job_id)[2] == charged[n_threads]


@pytest.mark.parametrize("n_threads", [0, 1, 2, 9])
def test_every_part_is_counted_once_by_as_many_threads_as_start(
    n_threads: int, monkeypatch: pytest.MonkeyPatch, divide_rows: DivideRows
) -> None:
    divide_rows(n_threads=4)
    allow(n_threads, monkeypatch)
    assert coded_rows.made_of(range(100), lambda part: part * part) == [
        part * part for part in range(100)
    ]
    assert list(coded_rows.made_ahead(range(100), str)) == [
        str(part) for part in range(100)
    ]


def test_a_failure_of_work_arrives_where_its_result_is_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    allow(0, monkeypatch)
    outcome = begun(lambda: 1 / 0, name="files")
    with pytest.raises(ZeroDivisionError):
        outcome.result()


def test_a_child_that_cannot_watch_its_input_takes_no_job() -> None:
    program = """
import os, threading
from app.worker import child

def start(thread):
    raise RuntimeError("can't start new thread")

child._NEEDED = ("app.datasets.private_rows",)
threading.Thread.start = start
child.main(os.getppid())
"""
    ran = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, input=b"{}\n", check=False
    )
    assert (ran.returncode, ran.stdout) == (1, b"")
    assert b"the code of jobs cannot be loaded" in ran.stderr
    assert b"RuntimeError" in ran.stderr


def test_a_child_that_cannot_be_started_takes_no_job(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refused(*_: object, **__: object) -> None:
        raise BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")

    monkeypatch.setattr(supervise.subprocess, "Popen", refused)
    children = Children()
    with pytest.raises(CodeNotLoaded):
        children.load(lambda: None)
    assert "the process of a job cannot be started" in caplog.text
    children._has_started = True
    children.prepare()
    children.stop()


def test_a_database_whose_lock_cannot_be_waited_for_is_busy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So the last commit of a paid job is repeated."""
    lock = WriteLock.of(tmp_path / "database")
    with other_writer(tmp_path / "database.lock"), monkeypatch.context() as limited:
        allow(0, limited)
        for _ in range(2):
            with (
                pytest.raises(Unavailable, match="the database is busy"),
                lock.locked(),
            ):
                raise AssertionError("the lock is another's")
    with lock.locked():
        pass  # the lock is free again, and can be taken


@contextmanager
def other_writer(path: Path) -> Any:
    """Holds a lock file as another process does."""
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


@pytest.mark.skipif(
    not Path("/proc/self/task").is_dir(),
    reason="threads are counted as Linux shows them",
)
def test_rows_are_read_in_the_threads_that_were_there_before_the_charge() -> None:
    """pyarrow has threads of its own, and fails where one of them cannot start."""
    program = """
import os
from io import BytesIO
import pyarrow as pa
import pyarrow.parquet as pq
from app.datasets import private_rows

def threads():
    return len(os.listdir("/proc/self/task"))

private_rows.start_reading()
before, file = threads(), BytesIO()
pq.write_table(pa.table({"age": list(range(1000))}), file, row_group_size=10)
for group in range(100):
    pq.ParquetFile(file).read_row_group(group, use_threads=False)
print(before, threads())
"""
    ran = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    before, after = ran.stdout.split()
    assert before == after
