"""With a release interval, everything about a job appears at public times, whatever the
rows and the duration.

A clock of the test runs only while somebody waits, and while the child of a job works.
"""

import logging
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from sqlalchemy import select

from app.core import stamps
from app.core.processes import Stop
from app.ledger.tables import EntryRow
from app.services.execution import lease, run_job
from app.services.execution.lease import Lease
from app.services.jobs import show_jobs
from app.services.jobs.task import JobTask
from app.worker import main, supervise
from app.worker.supervise import Supervisor
from tests.support import people
from tests.support.crash_scene import OWNER, Scene, opened
from tests.support.job_kinds import perform_here
from tests.support.uploads import path_of

pytestmark = pytest.mark.contract

INTERVAL_S = 60
START = datetime(2026, 1, 1, 12, 0, 10, tzinfo=UTC).timestamp()
Popen = subprocess.Popen


class Clock(threading.Event):
    """The time, and the event by which a worker is stopped: waiting for it lets the
    time pass.
    """

    def __init__(self) -> None:
        super().__init__()
        self.time, self.end = START, float("inf")
        self.at: dict[float, Any] = {}

    def wait(self, timeout: float | None = None) -> bool:
        assert timeout is not None
        self.pass_(timeout)
        return self.is_set()

    def pass_(self, seconds: float) -> None:
        self.time += seconds
        for at in sorted(at for at in self.at if at <= self.time):
            self.at.pop(at)()
        if self.time >= self.end:
            self.set()


class FirstSignal(threading.Event):
    """The event of the first signal: waiting for it lets the time of a clock pass."""

    def __init__(self, clock: Clock) -> None:
        super().__init__()
        self._clock = clock

    def wait(self, timeout: float | None = None) -> bool:
        self._clock.wait(timeout)
        return self.is_set()


@dataclass
class Run:
    """A worker with public times, whose children take the given times, and what it
    wrote.
    """

    scene: Scene
    clock: Clock
    durations: list[float]
    progress: list[tuple[float, int]]

    def submit(self, key: str) -> str:
        """Submits a job a little later than the one before, because jobs are claimed in
        order of time.
        """
        self.clock.time += 0.001
        return self.scene.submit_job(key=key)

    def work(self, *, until: float, first_signal: float | None = None) -> None:
        """Runs the worker until it has to stop now, in seconds after the first public
        time; or after a first signal.
        """
        self.clock.end = START + 50 + until
        stop = Stop(begun=self.clock, now=self.clock)
        if first_signal is not None:
            stop = replace(stop, begun=FirstSignal(self.clock))
            self.clock.at[START + 50 + first_signal] = stop.begun.set
        main._Loop(self.scene.installation, stop).run()

    def times(self, job_id: str) -> list[float]:
        """When a job was charged, when its progress changed and when it ended, after
        the first public time.
        """
        job = self.scene.job(job_id)
        with self.scene.installation.database.read() as session:
            query = select(EntryRow.at).where(
                EntryRow.job_id == job_id, EntryRow.kind != "reserve"
            )
            entries = [stamps.from_text(at) for at in session.execute(query).scalars()]
        ends = [
            at for at in (job.charged_at, job.finished_at, *entries) if at is not None
        ]
        return sorted({at.timestamp() - START - 50 for at in ends})


@pytest.fixture
def run(
    sqlite_database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Run]:
    test_clock = Clock()
    monkeypatch.setattr(
        stamps, "now", lambda: datetime.fromtimestamp(test_clock.time, UTC)
    )
    with opened(sqlite_database_url, tmp_path / "home", lease_ttl_s=600) as scene:
        settings = replace(scene.installation.settings, release_interval_s=INTERVAL_S)
        scene = replace(
            scene, installation=replace(scene.installation, settings=settings)
        )
        run, heartbeat = Run(scene, test_clock, [], []), lease.heartbeat

        run_task, tasks = Supervisor.run, list[JobTask]()

        def run_noted(supervisor: Supervisor, task: JobTask, lease: Lease) -> None:
            tasks.append(task)
            run_task(supervisor, task, lease)

        def take() -> "subprocess.Popen[bytes]":
            task = tasks.pop()
            perform_here(task)
            test_clock.pass_(run.durations.pop(0))
            program = f"import os; os.write(1, b'{'.' * (1 + task.n_trees)}')"
            return Popen(
                [sys.executable, "-ISc", program],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
            )

        def beat(*arguments: Any, trees_done: int) -> None:
            heartbeat(*arguments, trees_done=trees_done)
            run.progress.append((test_clock.time - START - 50, trees_done))

        class ClockedLease(Lease):
            """A lease that is extended whenever a second of the test's clock has
            passed, and by no thread.
            """

            extended_at = START

            def __enter__(self) -> "ClockedLease":
                return self

            def __exit__(self, *_: object) -> None:
                pass  # no thread has to end

            def require(self) -> None:
                if test_clock.time - self.extended_at >= 1:
                    self.extended_at = test_clock.time
                    self._extend()
                super().require()

        monkeypatch.setattr(run_job, "Lease", ClockedLease)
        monkeypatch.setattr(Supervisor, "run", run_noted)
        monkeypatch.setattr(supervise.CHILDREN, "take", take)
        monkeypatch.setattr(
            supervise, "time", SimpleNamespace(monotonic=lambda: test_clock.time)
        )
        monkeypatch.setattr(lease, "heartbeat", beat)
        yield run


@pytest.mark.parametrize("durations", [(0.01, 0.01), (59.9, 0.5), (3, 59.99)])
def test_durations_within_an_interval_cannot_be_told_apart(
    run: Run, durations: tuple[float, float]
) -> None:
    run.durations[:] = durations
    first, second = (run.submit(key) for key in "ab")
    run.work(until=200)
    assert run.times(first) == [0, 60], (
        "charged at a public time, ended at the next one"
    )
    assert run.times(second) == [60, 120], (
        "and claimed when the first one has visibly ended"
    )
    # At the public time of its claim, before the charge, a machine is shown as
    # preparing: the first child loads code.
    after_the_claim = [trees for at, trees in run.progress if trees and at > 0]
    assert after_the_claim == [], "a job of one interval has no progress"


def test_a_longer_job_shows_at_a_later_public_time(run: Run) -> None:
    run.durations[:] = [60.5, 1]
    first, second = (run.submit(key) for key in "ab")
    run.work(until=300)
    assert (run.times(first), run.times(second)) == ([0, 120], [120, 180])


def test_a_failure_shows_when_a_success_would(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def take() -> "subprocess.Popen[bytes]":
        run.clock.pass_(7)
        return Popen(
            [sys.executable, "-ISc", "raise SystemExit(1)"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )

    monkeypatch.setattr(supervise.CHILDREN, "take", take)
    job_id = run.submit("a")
    run.work(until=100)
    assert (run.scene.job(job_id).state, run.times(job_id)) == ("failed", [0, 60])


def test_a_paid_job_whose_rows_are_damaged_says_so_at_a_public_time(
    run: Run, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Files are not read between a public time and a charge, whose time would show how
    many rows there are.
    """

    def take() -> "subprocess.Popen[bytes]":
        run.clock.pass_(7)
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        return Popen([sys.executable, "-ISc", "raise SystemExit(1)"], **pipes)

    monkeypatch.setattr(supervise.CHILDREN, "take", take)
    job_id = run.submit("a")
    (file,) = people.files(run.scene.installation, run.scene.dataset_id)
    path = path_of(file)
    path.write_bytes(path.read_bytes()[:-1])
    logged = list[int]()

    def note(record: logging.LogRecord) -> bool:
        if "damaged" in record.msg:
            logged.append(round(run.clock.time - START - 50))
        return True

    caplog.handler.addFilter(note)
    try:
        run.work(until=100)
    finally:  # the handler is that of all tests of the process
        caplog.handler.removeFilter(note)
    assert logged == [60], "when the child ended, would say how long it ran"
    assert (run.scene.job(job_id).state, run.times(job_id)) == ("failed", [0, 60])
    (line,) = (record for record in caplog.records if "damaged" in record.message)
    assert (line.levelname, line.__dict__["upload_id"]) == ("ERROR", path.stem)


def test_progress_shows_at_a_public_time_while_files_of_a_failed_job_are_looked_at(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Old progress would tell that the child has ended, before its end shows."""
    is_told = threading.Event()

    def take() -> "subprocess.Popen[bytes]":
        program = "import os; os.write(1, b'..'); raise SystemExit(1)"
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        return Popen([sys.executable, "-ISc", program], **pipes)

    def look(_: JobTask) -> list[str]:
        n_told = len(run.progress)
        run.clock.pass_(61)
        is_told.wait(timeout=60)
        assert len(run.progress) > n_told
        return []

    def report(supervisor: Supervisor, lease: Lease) -> None:
        honest(supervisor, lease)
        if run.clock.time > START + 50 + 60:
            is_told.set()

    honest = Supervisor._report
    monkeypatch.setattr(Supervisor, "_report", report)
    monkeypatch.setattr(supervise.CHILDREN, "take", take)
    monkeypatch.setattr(supervise, "_damaged_files", look)
    job_id = run.submit("a")
    run.work(until=200)
    assert (run.scene.job(job_id).state, run.times(job_id)) == ("failed", [0, 120])
    shown = [trees for at, trees in run.progress if 60 < at < 120]
    assert set(shown) == {1}


def test_a_job_that_is_submitted_between_two_public_times_waits(run: Run) -> None:
    run.durations[:] = [1]
    submitted = list[str]()
    run.clock.at[START + 51] = lambda: submitted.append(run.scene.submit_job(key="a"))
    run.work(until=200)
    assert run.times(*submitted) == [60, 120]


def test_the_next_claim_waits_after_a_cancellation(run: Run) -> None:
    run.durations[:] = [20, 1]
    first, second = (run.submit(key) for key in "ab")
    run.clock.at[START + 60] = lambda: show_jobs.cancel_job(
        run.scene.installation, OWNER, first
    )
    run.work(until=200)
    assert run.scene.job(first).state == "cancelled"
    assert run.times(second) == [60, 120]


def test_whether_a_child_had_ended_when_the_worker_stopped_does_not_show(
    run: Run,
) -> None:
    run.durations[:] = [5]
    job_id = run.submit("a")
    run.work(until=30)
    job = run.scene.job(job_id)
    assert (job.state, job.reason, job.release_id) == ("failed", "lost", None)


def test_a_worker_that_was_asked_to_stop_still_ends_its_job_at_a_public_time(
    run: Run,
) -> None:
    run.durations[:] = [5]
    first, second = (run.submit(key) for key in "ab")
    run.work(until=1_000, first_signal=3)
    assert (run.scene.job(first).state, run.times(first)) == ("succeeded", [0, 60])
    assert run.scene.job(second).state == "queued"


def test_progress_is_what_was_finished_at_the_last_public_time(run: Run) -> None:
    supervisor = Supervisor(interval_s=INTERVAL_S, stop=Stop(now=run.clock))
    shown = list[int]()
    for seconds, trees in ((1, 1), (48, 2), (2, 3), (30, 5), (30, 6), (1, 6)):
        run.clock.pass_(seconds)
        supervisor._trees_done = trees
        shown.append(supervisor._trees_to_show())
    assert shown == [0, 0, 3, 3, 6, 6]
