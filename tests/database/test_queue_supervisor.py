"""The supervisor of a child process settles the job correctly for every behaviour of
the child and the database.
"""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from app.core.errors import LeaseLost, Unavailable
from app.core.processes import Stop, scrubbed_environment
from app.services.execution import charge, lease
from app.services.execution.lease import Lease
from app.services.execution.run_job import JobFailed
from app.services.jobs import show_jobs
from app.services.jobs.task import Needs
from app.worker import supervise
from app.worker.supervise import Supervisor
from tests.support.crash_scene import OWNER, Scene, opened
from tests.support.heartbeats import AfterHeartbeat
from tests.support.job_kinds import claimed
from tests.support.set_limits import SetLimit

pytestmark = pytest.mark.contract

Popen = subprocess.Popen
BEGINS = TREE = "os.write(1, b'.');"
ANSWERS = f"{BEGINS} sys.stdin.readline();"
FOR_EVER = "time.sleep(60)"


def until(file: Path) -> str:
    """Code by which a child waits for an action of this process, for as long as a busy
    machine needs.
    """
    return (
        f"[time.sleep(0.02) for _ in iter(lambda: os.path.exists({str(file)!r}), True)]"
    )


class Job:
    """A charged job and its supervisor, whose child is a short Python program."""

    def __init__(self, scene: Scene) -> None:
        self.scene = scene
        self.id = scene.submit_job(key="k")
        claim = claimed(scene.installation)
        self.task = charge.charge_claimed(scene.installation, claim)
        self.task.folder.mkdir(parents=True)
        self.stop = Stop()
        self.supervisor = Supervisor(interval_s=0, stop=self.stop)
        self.lease = Lease(scene.installation, claim)
        self.children: list[subprocess.Popen[bytes]] = []

    def train(
        self, monkeypatch: pytest.MonkeyPatch, program: str, *, begins: str = BEGINS
    ) -> None:
        """Runs the program as the child, after what it does to say that it begins."""

        def take() -> "subprocess.Popen[bytes]":
            command = [
                sys.executable,
                "-ISc",
                f"import os, sys, time; {begins} {program}",
            ]
            self.children.append(
                Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
            )
            return self.children[-1]

        monkeypatch.setattr(supervise.CHILDREN, "take", take)
        with self.lease:
            self.supervisor.run(self.task, self.lease)

    def child_has_ended(self) -> bool:
        """Whether the only child was waited for."""
        (child,) = self.children
        return child.returncode is not None


@pytest.fixture
def job(sqlite_database_url: str, tmp_path: Path) -> Iterator[Job]:
    with opened(sqlite_database_url, tmp_path / "home", lease_ttl_s=3) as scene:
        yield Job(scene)


def test_a_child_that_succeeds_is_success(
    job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    job.train(monkeypatch, f"sys.stdin.readline(); {TREE * 2}")
    assert job.child_has_ended()


@pytest.mark.parametrize(
    "program",
    ["os._exit(1)", "os.abort()", "os.kill(os.getpid(), 9)", f"{TREE * 2} os._exit(7)"],
)
def test_any_other_end_is_one_opaque_failure(
    job: Job, monkeypatch: pytest.MonkeyPatch, program: str
) -> None:
    with pytest.raises(JobFailed) as failed:
        job.train(monkeypatch, program)
    assert failed.value.reason == "failed"
    assert job.child_has_ended()


def test_a_child_that_does_not_read_its_task_causes_no_worker_error(
    job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(JobFailed):
        job.train(monkeypatch, "os.close(0); os._exit(1)")


def test_progress_never_passes_the_number_of_trees(
    job: Job,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    after_heartbeat: AfterHeartbeat,
) -> None:
    told = tmp_path / "told"

    def beat(trees_done: int) -> None:
        if trees_done >= 2:
            told.touch()

    after_heartbeat(beat)
    job.train(monkeypatch, f"{TREE * 9} {until(told)}")
    assert job.scene.job(job.id).trees_done == job.scene.job(job.id).n_trees == 2


def test_a_machine_that_is_prepared_is_shown_until_the_job_begins(
    job: Job,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    after_heartbeat: AfterHeartbeat,
) -> None:
    begin, end = tmp_path / "begin", tmp_path / "end"
    shown = list[tuple[bool, int, float]]()

    def beat(_: int) -> None:
        answer = show_jobs.show_job(job.scene.installation, OWNER, job.id)
        shown.append((answer.preparing, answer.trees_done, answer.progress))
        (end if answer.trees_done else begin).touch()

    after_heartbeat(beat)
    job.train(monkeypatch, f"{TREE} {until(end)}", begins=f"{until(begin)}; {BEGINS}")
    assert shown[0] == (True, 0, 0.0), "the child has not begun"
    assert shown[-1] == (False, 1, 0.5)


def test_a_machine_that_is_prepared_is_shown_before_the_charge(
    sqlite_database_url: str,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    after_heartbeat: AfterHeartbeat,
) -> None:
    """As on a machine whose cache of compiled code is empty: the child compiles before
    it says that it has loaded.
    """
    compiled = tmp_path / "compiled"
    shown = list[tuple[bool, bool]]()

    def new_child() -> "subprocess.Popen[bytes]":
        command = [
            sys.executable,
            "-ISc",
            f"import os, sys, time; {until(compiled)}; {2 * ANSWERS}",
        ]
        return Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    children = supervise.Children(new_child)
    monkeypatch.setattr(supervise, "CHILDREN", children)
    with opened(sqlite_database_url, tmp_path / "home", lease_ttl_s=3) as scene:
        job_id = scene.submit_job(key="k")
        claim = claimed(scene.installation)

        def beat(_: int) -> None:
            answer = show_jobs.show_job(scene.installation, OWNER, job_id)
            shown.append((answer.preparing, answer.charged))
            compiled.touch()

        after_heartbeat(beat)
        with Lease(scene.installation, claim) as held:
            Supervisor(interval_s=0, stop=Stop()).load(
                held, Needs(tmp_path, 0, (), None)
            )
    children.stop()
    assert shown[0] == (True, False)


def test_a_child_that_says_it_ended_but_stays_is_killed(
    job: Job, monkeypatch: pytest.MonkeyPatch, set_limit: SetLimit
) -> None:
    set_limit("CHILD_EXIT_S", 0.2)
    with pytest.raises(JobFailed):
        job.train(monkeypatch, f"os.close(1); {FOR_EVER}")
    assert job.child_has_ended()


def test_a_child_that_takes_too_long_is_killed(
    job: Job, monkeypatch: pytest.MonkeyPatch, set_limit: SetLimit
) -> None:
    set_limit("CHILD_TIMEOUT_S", 0.2)
    with pytest.raises(JobFailed):
        job.train(monkeypatch, FOR_EVER)
    assert job.child_has_ended()


def test_a_worker_that_is_to_stop_kills_its_child_and_calls_the_job_lost(
    job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    job.stop.now.set()
    with pytest.raises(JobFailed) as failed:
        job.train(monkeypatch, FOR_EVER)
    assert failed.value.reason == "lost"
    assert job.child_has_ended()


def test_a_lost_lease_kills_the_child(
    job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    show_jobs.cancel_job(job.scene.installation, OWNER, job.id)
    with pytest.raises(LeaseLost):
        job.train(monkeypatch, FOR_EVER)
    assert job.child_has_ended()


def test_a_charged_job_outlives_a_database_that_is_away_for_a_while(
    job: Job, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    told, heartbeat, asked = tmp_path / "told", lease.heartbeat, list[float]()

    def away_at_first(*arguments: Any, **named: Any) -> None:
        asked.append(time.monotonic())
        if len(asked) <= 2:
            raise Unavailable
        heartbeat(*arguments, **named)
        if named["trees_done"] > 0:
            told.touch()

    monkeypatch.setattr(lease, "heartbeat", away_at_first)
    before = job.scene.job(job.id).lease_until
    job.train(monkeypatch, f"{TREE} {until(told)}")
    after = job.scene.job(job.id)
    assert len(asked) > 2
    assert min(later - earlier for earlier, later in pairwise(asked)) > 0.4, (
        "it is not hammered"
    )
    assert after.trees_done == 1
    assert before is not None
    assert after.lease_until is not None
    assert after.lease_until > before


def test_the_environment_of_a_child_carries_no_address_and_no_key(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in (
        "GROVEKEEPER_DATABASE_URL",
        "GROVEKEEPER_ADMIN_KEY",
        "PGPASSWORD",
        "AWS_SECRET_ACCESS_KEY",
    ):
        monkeypatch.setenv(name, "secret")
    kept = scrubbed_environment()
    assert "secret" not in kept.values()
    assert kept["PATH"] == os.environ["PATH"]
