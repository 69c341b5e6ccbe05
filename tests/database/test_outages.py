"""An outage of the database costs no paid output while the worker lives, nor when it
stops and leaves a note of it.
"""

import json
import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import func, select
from sqlalchemy.orm import Session

from app.core import limits
from app.core.errors import LeaseLost, Unavailable
from app.core.files import Directory, StoreUnreachable
from app.core.processes import Stop
from app.db.database import Database, transaction_time
from app.jobs import queue
from app.registry import models, releases
from app.registry.tables import ReleaseRow
from app.services.execution import charge, finished, lease, run_job, sweep
from app.services.execution.lease import Lease
from app.services.installation import FINISHED_FOLDER
from app.services.jobs import show_jobs
from app.services.jobs.task import JobTask
from grovekeeper_common.durable_files import UNFINISHED, Existing
from tests.support.crash_scene import OWNER, Scene
from tests.support.databases import on_one_database
from tests.support.job_kinds import (
    claimed,
    evaluation,
    model,
    perform_here,
    profile,
    run_here,
    submitted_and_claimed,
)
from tests.support.sweeping import expired_at, tidy_after_a_lease
from tests.support.waiting import wait_for

pytestmark = pytest.mark.contract

PAID = ["reserve", "charge"]
_FORMER_ATTEMPTS = 4
"""A last commit was once given up after so many attempts."""


@dataclass
class Outage:
    """An outage of the database for all threads but those that look past it.

    Attributes:
        refused: the number of transactions that it has refused.
    """

    refused: int = 0
    is_on: bool = False

    def begin(self, *_: object) -> None:
        self.is_on = True

    @contextmanager
    def over(self) -> Iterator[None]:
        """The test sees the database as if there was no outage."""
        self.is_on = False
        yield
        self.is_on = True


@pytest.fixture
def outage(monkeypatch: pytest.MonkeyPatch) -> Outage:
    """An outage that the test begins and ends; the pauses between attempts are short."""
    state = Outage()
    for name in ("write", "read"):
        monkeypatch.setattr(Database, name, _cut(getattr(Database, name), state))
    monkeypatch.setattr(run_job, "COMMIT_RETRY_S", 0.01)
    monkeypatch.setattr(run_job, "COMMIT_STOP_S", 0.0)
    return state


def _cut(original: Callable[..., Any], state: Outage) -> Callable[..., Any]:
    def transaction(database: Database) -> Any:
        if state.is_on:
            state.refused += 1
            raise Unavailable("the database does not answer")
        return original(database)

    return transaction


@pytest.fixture
def scene(scene: Scene) -> Scene:
    """A lease ends when a test ends it, and not before on a busy machine."""
    return scene.with_leases(600)


def _end_lease(scene: Scene, job_id: str) -> None:
    """Makes the lease of a job one that ended a second ago, as an outage does that is
    longer than the lease.
    """
    with scene.installation.database.write() as session:
        row = queue.locked(session, job_id)
        if row.lease_until is not None:
            row.lease_until = transaction_time(session) - timedelta(seconds=1)


def _long_ago(scene: Scene, job_id: str) -> int:
    """Ends the lease, and sweeps as a process does in the time of another lease.
    Returns the number of ended jobs.
    """
    _end_lease(scene, job_id)
    with scene.installation.database.read() as session:
        at = transaction_time(session)
    return expired_at(scene.installation, at)


def _submit(scene: Scene, kind: str) -> str:
    if kind == "evaluation":
        return evaluation(scene, model(scene, "model"))
    return profile(scene) if kind == "profile" else scene.submit_job(key="k")


def _make_stale(file: Path) -> None:
    """Makes a file older than one that a worker may still write or register."""
    long_ago = file.stat().st_mtime - sweep.STALE_ARTIFACT.total_seconds() - 60
    os.utime(file, (long_ago, long_ago))


def _n_outputs(scene: Scene, job_id: str) -> int:
    with scene.installation.database.read() as session:
        query = select(func.count()).where(ReleaseRow.job_id == job_id)
        return session.execute(query).scalar_one()


@pytest.fixture
def no_beats(monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers extend no lease, as if each of their connections hung."""
    monkeypatch.setattr(lease, "heartbeat", lambda *_, **__: None)


@pytest.mark.parametrize("kind", ["train", "profile", "evaluation"])
def test_the_last_commit_is_repeated_until_the_database_answers(
    scene: Scene, outage: Outage, kind: str
) -> None:
    job_id = _submit(scene, kind)

    def work(task: JobTask, _: Lease) -> None:
        perform_here(task)
        outage.begin()
        threading.Thread(target=end_after_many_attempts).start()

    def end_after_many_attempts() -> None:
        try:
            wait_for(
                "the commit is tried again and again",
                lambda: outage.refused > 5 * _FORMER_ATTEMPTS,
            )
        finally:
            outage.is_on = False

    run_here(scene.installation, claimed(scene.installation), work)
    assert outage.refused > 5 * _FORMER_ATTEMPTS
    assert scene.end(job_id) == ("succeeded", None, PAID)
    assert _n_outputs(scene, job_id) == 1
    assert finished.noted_jobs(scene.installation) == []
    scene.assert_no_orphans()
    scene.verified()


@pytest.mark.usefixtures("no_beats")
def test_a_sweep_that_is_first_after_an_outage_registers_what_the_worker_is_about_to_register(
    scene: Scene, outage: Outage, monkeypatch: pytest.MonkeyPatch
) -> None:
    job_id, claim = submitted_and_claimed(scene)
    register, n_swept = run_job.ClaimedJob.register, list[int]()

    def sweep_first(*arguments: Any) -> None:
        if not n_swept:
            n_swept.append(_long_ago(scene, job_id))
        register(*arguments)

    monkeypatch.setattr(run_job.ClaimedJob, "register", sweep_first)
    run_here(scene.installation, claim, perform_here)
    assert n_swept == [1]
    assert scene.end(job_id) == ("succeeded", None, PAID)
    with scene.installation.database.read() as session:
        assert len(models.page(session, dataset_ids=None, before=None, limit=9)) == 1
    scene.assert_no_orphans()


def test_a_worker_whose_lease_ended_in_an_outage_extends_it_after_the_first_sweeps(
    scene: Scene,
) -> None:
    job_id, claim = submitted_and_claimed(scene)

    def work(task: JobTask, _: Lease) -> None:
        _end_lease(scene, job_id)
        sweep.settle_overdue(scene.installation)
        assert scene.job(job_id).state == "running", (
            "no worker could extend its lease before"
        )

        def is_extended() -> bool:
            with scene.installation.database.read() as session:
                until = scene.job(job_id).lease_until
                return until is not None and until > transaction_time(session)

        wait_for("the lease is extended", is_extended)
        perform_here(task)

    run_here(scene.installation, claim, work)
    assert scene.end(job_id) == ("succeeded", None, PAID)


@on_one_database
@pytest.mark.parametrize(
    "error",
    [RuntimeError("can't start new thread"), MemoryError(), OSError(28, "canary")],
)
def test_an_extension_that_fails_is_tried_again(
    scene: Scene,
    error: Exception,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    (job_id, claim), extended, heartbeat = (
        submitted_and_claimed(scene),
        threading.Event(),
        lease.heartbeat,
    )
    failures = iter([error, error])

    def beat(*arguments: Any, **named: Any) -> None:
        if failure := next(failures, None):
            raise failure
        heartbeat(*arguments, **named)
        extended.set()

    def work(task: JobTask, kept: Lease) -> None:
        monkeypatch.setattr(lease, "heartbeat", beat)
        assert extended.wait(timeout=60)
        kept.require()
        perform_here(task)

    run_here(scene.installation, claim, work)
    assert scene.end(job_id) == ("succeeded", None, PAID)
    assert caplog.text.count("a heartbeat failed") == 2


def test_a_paid_job_is_lost_after_the_sweeps_of_another_lease_and_not_before(
    scene: Scene,
) -> None:
    job_id, claim = submitted_and_claimed(scene)
    charge.charge_claimed(scene.installation, claim)
    n_looks = 1 + round(
        scene.installation.settings.lease_ttl_s / limits.SWEEP_INTERVAL_S + 0.499
    )
    _end_lease(scene, job_id)
    assert [sweep.settle_overdue(scene.installation) for _ in range(n_looks - 1)] == [
        0
    ] * (n_looks - 1)
    lease.heartbeat(scene.installation, claim, trees_done=0)
    _end_lease(scene, job_id)
    assert [sweep.settle_overdue(scene.installation) for _ in range(n_looks)] == [
        *[0] * (n_looks - 1),
        1,
    ]
    assert scene.end(job_id) == ("failed", "lost", PAID)


def test_an_uncharged_job_goes_back_to_the_queue_at_the_first_sweep(
    scene: Scene,
) -> None:
    job_id, _ = submitted_and_claimed(scene)
    _end_lease(scene, job_id)
    assert sweep.settle_overdue(scene.installation) == 1
    assert scene.end(job_id) == ("queued", None, ["reserve"])


@on_one_database
@pytest.mark.parametrize("kind", ["train", "profile", "evaluation"])
@pytest.mark.parametrize("signal", ["begun", "now"])
def test_a_worker_that_stops_in_an_outage_leaves_its_output_to_a_sweep(
    scene: Scene, outage: Outage, kind: str, signal: str
) -> None:
    job_id, stop = _submit(scene, kind), Stop()

    def work(task: JobTask, _: Lease) -> None:
        perform_here(task)
        outage.begin()
        getattr(stop, signal).set()

    with pytest.raises(Unavailable):
        run_here(scene.installation, claimed(scene.installation), work, stop=stop)
    with outage.over():
        assert scene.end(job_id) == ("running", None, PAID)
    outage.is_on = False
    sweep.tidy_artifacts(scene.installation)
    sweep.tidy_jobs(scene.installation)
    assert sweep.settle_overdue(scene.installation) == 0, (
        "the lease holds, so the worker may live"
    )
    again = replace(
        scene.installation, late_leases=type(scene.installation.late_leases)()
    )
    _end_lease(scene, job_id)
    assert sweep.settle_overdue(again) == 1
    assert scene.end(job_id) == ("succeeded", None, PAID)
    assert _n_outputs(scene, job_id) == 1
    assert sweep.settle_overdue(again) == 0
    assert finished.noted_jobs(scene.installation) == []
    sweep.tidy_jobs(scene.installation)
    scene.assert_no_orphans()
    scene.verified()


def _digest_of(scene: Scene, job_id: str) -> str:
    """The digest of the model that a job released."""
    with scene.installation.database.read() as session:
        found = releases.find(session, "train", str(scene.job(job_id).release_id))
    return str(found.digest)


def _noted(scene: Scene, outage: Outage) -> str:
    """A job whose worker stopped in an outage before the last commit."""
    job_id, stop = scene.submit_job(key="k"), Stop()

    def work(task: JobTask, _: Lease) -> None:
        perform_here(task)
        outage.begin()
        stop.now.set()

    with pytest.raises(Unavailable):
        run_here(scene.installation, claimed(scene.installation), work, stop=stop)
    outage.is_on = False
    assert finished.noted_jobs(scene.installation) == [job_id]
    return job_id


@on_one_database
@pytest.mark.parametrize(
    "content",
    [b"", b"{}", b'{"token": "0", "output": {"new": 1}}', b"another", b"half"],
)
def test_a_note_of_another_claim_or_version_registers_nothing(
    scene: Scene, outage: Outage, content: bytes
) -> None:
    job_id = _noted(scene, outage)
    file = scene.installation.home / "finished" / f"{job_id}.json"
    if content == b"another":
        token = scene.job(job_id).lease_token
        assert token is not None
        content = file.read_bytes().replace(token.encode(), b"0" * len(token))
    if content == b"half":
        noted = json.loads(file.read_bytes())
        content = json.dumps(
            {**noted, "output": {"digest": noted["output"]["digest"]}}
        ).encode()
    file.write_bytes(content)
    assert _long_ago(scene, job_id) == 1
    assert scene.end(job_id) == ("failed", "lost", PAID)
    sweep.tidy_jobs(scene.installation)
    sweep.tidy_artifacts(scene.installation)
    assert finished.noted_jobs(scene.installation) == []
    scene.assert_no_orphans()


def test_a_job_is_not_lost_while_the_store_cannot_tell_whether_it_has_an_output(
    scene: Scene, outage: Outage, monkeypatch: pytest.MonkeyPatch
) -> None:
    job_id = _noted(scene, outage)

    def silent(*_: object) -> None:
        raise StoreUnreachable("canary")

    with monkeypatch.context() as broken:
        broken.setattr(type(scene.installation.files), "open", silent)
        assert _long_ago(scene, job_id) == 0
    assert scene.end(job_id) == ("running", None, PAID)
    assert _long_ago(scene, job_id) == 1
    assert scene.end(job_id) == ("succeeded", None, PAID)


@on_one_database
def test_the_artifact_of_a_noted_output_stays_however_old_it_is(
    scene: Scene, outage: Outage
) -> None:
    job_id = _noted(scene, outage)
    [artifact] = (scene.installation.home / "artifacts").rglob("*.safetensors")
    _make_stale(artifact)
    sweep.tidy_artifacts(scene.installation)
    assert _long_ago(scene, job_id) == 1
    digest = _digest_of(scene, job_id)
    assert scene.installation.cache.get(digest).metadata["job_id"] == job_id


@on_one_database
@pytest.mark.parametrize(
    ("module", "read"), [(finished, "noted_jobs"), (models, "digests")]
)
def test_an_artifact_that_another_sweep_registers_meanwhile_stays(
    scene: Scene,
    outage: Outage,
    monkeypatch: pytest.MonkeyPatch,
    module: Any,
    read: str,
) -> None:
    job_id, reads = _noted(scene, outage), getattr(module, read)
    monkeypatch.setattr(sweep, "STALE_ARTIFACT", timedelta(minutes=-1))

    def register(*arguments: Any) -> Any:
        monkeypatch.setattr(module, read, reads)
        assert _long_ago(scene, job_id) == 1
        return reads(*arguments)

    monkeypatch.setattr(module, read, register)
    sweep.tidy_artifacts(scene.installation)
    assert scene.end(job_id) == ("succeeded", None, PAID)
    scene.installation.cache.get(_digest_of(scene, job_id))


@on_one_database
def test_a_note_that_was_half_written_is_removed(scene: Scene) -> None:
    half = scene.installation.home / "finished" / f".jb_1.json.0{UNFINISHED}"
    half.parent.mkdir()
    half.write_bytes(b"{")
    sweep.tidy_artifacts(scene.installation)
    assert half.exists(), "its worker may still write it"
    _make_stale(half)
    sweep.tidy_artifacts(scene.installation)
    assert not half.exists()


def test_a_job_that_is_cancelled_after_an_outage_leaves_neither_output_nor_note(
    scene: Scene, outage: Outage
) -> None:
    job_id = _noted(scene, outage)
    assert show_jobs.cancel_job(scene.installation, OWNER, job_id).state == "cancelled"
    assert sweep.settle_overdue(scene.installation) == 0
    tidy_after_a_lease(scene.installation)
    sweep.tidy_artifacts(scene.installation)
    assert scene.end(job_id) == ("cancelled", "cancelled", PAID)
    assert finished.noted_jobs(scene.installation) == []
    scene.assert_no_orphans()


@on_one_database
def test_a_note_that_cannot_be_written_does_not_fail_the_job(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    job_id, claim = submitted_and_claimed(scene)

    new = Directory.new

    def full(store: Directory, name: str, *, existing: Existing) -> Any:
        if name.startswith(FINISHED_FOLDER):
            raise OSError("no space left on device")
        return new(store, name, existing=existing)

    def work(task: JobTask, _: Lease) -> None:
        perform_here(task)
        monkeypatch.setattr(Directory, "new", full)

    run_here(scene.installation, claim, work)
    assert scene.end(job_id) == ("succeeded", None, PAID)


@pytest.mark.usefixtures("no_beats")
@pytest.mark.parametrize("has_note", [True, False])
def test_a_last_commit_and_a_sweep_at_once_end_the_job_once(
    scene: Scene, has_note: bool
) -> None:
    succeed = run_job.ClaimedJob.succeed
    for number in range(6):
        job_id, claim = submitted_and_claimed(scene, key=f"k{number}")
        both = threading.Barrier(2, timeout=60)

        def work(task: JobTask, _: Lease, job_id: str = job_id) -> None:
            perform_here(task)
            _end_lease(scene, job_id)

        with pytest.MonkeyPatch.context() as patched, ThreadPoolExecutor(1) as pool:
            if not has_note:
                patched.setattr(finished, "note", lambda *_, **__: None)

            def at_once(
                *arguments: Any, both: threading.Barrier = both, **named: Any
            ) -> None:
                both.wait()
                succeed(*arguments, **named)

            patched.setattr(run_job.ClaimedJob, "succeed", at_once)
            patched.setattr(limits, "SWEEP_INTERVAL_S", 3_600.0)
            scene.installation.late_leases.clear()
            swept = pool.submit(
                lambda job_id=job_id, both=both: _swept(scene, job_id, both)
            )
            try:
                run_here(scene.installation, claim, work)
            except LeaseLost:
                assert not has_note
            swept.result(timeout=60)
        state, reason, kinds = scene.end(job_id)
        assert kinds == PAID
        assert (state, reason) == ("succeeded", None) or (
            not has_note and (state, reason) == ("failed", "lost")
        )
        assert _n_outputs(scene, job_id) == (state == "succeeded")
    sweep.tidy_jobs(scene.installation)
    scene.assert_no_orphans()
    scene.verified()


def _swept(scene: Scene, job_id: str, both: threading.Barrier) -> None:
    both.wait()
    for _ in range(2):
        sweep.settle_overdue(scene.installation)


@pytest.mark.parametrize("is_committed", [True, False])
def test_a_charge_whose_answer_is_lost_is_not_spent_for_nothing(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, is_committed: bool
) -> None:
    job_id, claim = submitted_and_claimed(scene)
    write, cuts, ran = Database.write, iter([True]), list[str]()

    @contextmanager
    def cut_once(database: Database) -> Iterator[Session]:
        with write(database) as session:
            yield session
            is_charge = queue.job(session, job_id).charged_at is not None and next(
                cuts, False
            )
            if is_charge and not is_committed:
                raise Unavailable("the connection broke before the commit")
        if is_charge:
            raise Unavailable("the connection broke after the commit")

    def work(task: JobTask, _: Lease) -> None:
        ran.append(task.job_id)
        perform_here(task)

    monkeypatch.setattr(Database, "write", cut_once)
    if is_committed:
        run_here(scene.installation, claim, work)
        assert (scene.end(job_id), ran) == (("succeeded", None, PAID), [job_id])
    else:
        with pytest.raises(Unavailable):
            run_here(scene.installation, claim, work)
        assert (scene.end(job_id), ran) == (("running", None, ["reserve"]), [])
    scene.verified()
