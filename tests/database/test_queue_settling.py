"""The ends of a job, grown, failed, cancelled, deleted or interrupted, leave no stray
row, reservation or file.
"""

import errno
import os
import shutil
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from sqlalchemy.orm import Session

from app.core.errors import (
    DatasetDeleted,
    JobFinished,
    LeaseLost,
    RoleMissing,
    Unavailable,
)
from app.core.processes import Stop
from app.db.database import Database, transaction_time
from app.jobs import queue
from app.ledger import reservations as ledger
from app.registry import models, releases
from app.services.datasets.erase import delete_dataset
from app.services.execution import charge, run_job
from app.services.execution.run_job import JobFailed
from app.services.execution.sweep import tidy_jobs
from app.services.jobs import show_jobs
from app.services.jobs.task import OUTPUT, JobTask
from tests.support.crash_scene import OWNER, Scene
from tests.support.job_kinds import perform_here, run_here, submitted_and_claimed
from tests.support.ruled import SECOND, grant
from tests.support.sweeping import expired_at, tidy_after_a_lease

pytestmark = pytest.mark.contract

MUCH_LATER = timedelta(hours=1)


def test_a_grown_forest_is_a_model_and_nothing_else_is_left(scene: Scene) -> None:
    job_id, claim = submitted_and_claimed(scene)
    run_here(scene.installation, claim, perform_here)
    assert scene.end(job_id) == ("succeeded", None, ["reserve", "charge"])
    row = scene.job(job_id)
    with scene.installation.database.read() as session:
        model = releases.find(session, "train", str(row.release_id))
    artifact = scene.installation.cache.get(model.digest)
    assert artifact.metadata["ledger"]["reservation_id"] == row.parts[0].reservation_id
    assert row.trees_done == row.n_trees == 2
    scene.assert_no_orphans()
    scene.verified()


def _fail(task: JobTask, _kept: object) -> None:
    raise JobFailed


def _leave_nothing(task: JobTask, _kept: object) -> None:
    """The child reports success but leaves no file."""


def _leave_garbage(task: JobTask, _kept: object) -> None:
    task.output_path.write_bytes(b"not a forest")


@pytest.mark.parametrize("train", [_fail, _leave_nothing, _leave_garbage])
def test_a_child_that_leaves_no_forest_fails_the_job_and_the_charge_stays(
    scene: Scene, train: Callable[[JobTask], None]
) -> None:
    job_id, claim = submitted_and_claimed(scene)
    run_here(scene.installation, claim, train)
    assert scene.end(job_id) == ("failed", "failed", ["reserve", "charge"])
    assert scene.job(job_id).release_id is None
    scene.assert_no_orphans()


def test_a_full_disk_fails_the_job_and_leaves_no_half_of_an_artifact(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "no space left on device")

    def grow(task: JobTask, _kept: object) -> None:
        perform_here(task)
        monkeypatch.setattr(os, "fsync", full)

    monkeypatch.setattr(run_job, "STORE_RETRY_S", (0.01,))
    job_id, claim = submitted_and_claimed(scene)
    run_here(scene.installation, claim, grow)
    assert scene.end(job_id) == ("failed", "failed", ["reserve", "charge"])
    scene.assert_no_orphans()


@pytest.mark.parametrize("is_committed", [False, True])
def test_an_output_is_registered_once_whether_the_commit_or_its_answer_is_lost_with_the_worker(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, is_committed: bool
) -> None:
    job_id, claim = submitted_and_claimed(scene)
    stop = Stop()

    def cut(*arguments: object, **named: object) -> None:
        raise Unavailable("the connection broke")

    def grow(task: JobTask, _kept: object) -> None:
        perform_here(task)
        if not is_committed:
            stop.now.set()
            monkeypatch.setattr(queue, "finish", cut)

    if is_committed:
        monkeypatch.setattr(shutil, "rmtree", cut)
    with pytest.raises(Unavailable):
        run_here(scene.installation, claim, grow, stop=stop)
    monkeypatch.undo()
    assert expired_at(scene.installation, datetime.now(UTC) + MUCH_LATER) == (
        not is_committed
    )
    tidy_jobs(scene.installation)
    assert scene.end(job_id) == ("succeeded", None, ["reserve", "charge"])
    scene.assert_no_orphans()


@pytest.mark.parametrize("is_committed", [False, True])
def test_a_last_commit_that_fails_once_is_tried_again_and_happens_once(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, is_committed: bool
) -> None:
    write = Database.write
    cuts = iter([True])

    @contextmanager
    def cut_once(database: Database) -> Iterator[Session]:
        with write(database) as session:
            yield session
            if not is_committed and next(cuts, False):
                raise Unavailable("the connection broke before the commit")
        if is_committed and next(cuts, False):
            raise Unavailable("the connection broke after the commit")

    def grow(task: JobTask, _kept: object) -> None:
        perform_here(task)
        monkeypatch.setattr(Database, "write", cut_once)

    job_id, claim = submitted_and_claimed(scene)
    run_here(scene.installation, claim, grow)
    assert next(cuts, None) is None
    assert scene.end(job_id) == ("succeeded", None, ["reserve", "charge"])
    with scene.installation.database.read() as session:
        assert [
            model.id
            for model in models.page(session, dataset_ids=None, before=None, limit=9)
        ] == [scene.job(job_id).release_id]
    scene.assert_no_orphans()


def test_a_queued_job_that_is_cancelled_costs_nothing_and_never_runs(
    scene: Scene,
) -> None:
    job_id = scene.submit_job(key="k")
    cancelled = show_jobs.cancel_job(scene.installation, OWNER, job_id)
    assert (cancelled.state, cancelled.charged) == ("cancelled", False)
    assert scene.end(job_id) == ("cancelled", "cancelled", ["reserve", "void"])
    assert run_job.claim_next(scene.installation) is None
    assert scene.verified().tightest.load == 0
    with pytest.raises(JobFinished):
        show_jobs.cancel_job(scene.installation, OWNER, job_id)
    assert scene.kinds_of(job_id) == ["reserve", "void"]


def test_a_submitter_that_lost_its_role_does_not_cancel_its_job(scene: Scene) -> None:
    """A job that is not its submitter's any more is the owner's alone to end."""
    grant(scene, "analyst")
    job_id = scene.submit_job(key="k", by=SECOND)
    grant(scene, "predictor")
    with pytest.raises(RoleMissing):
        show_jobs.cancel_job(scene.installation, SECOND, job_id)
    assert scene.end(job_id) == ("queued", None, ["reserve"])


def test_a_claimed_job_that_is_cancelled_is_never_charged(scene: Scene) -> None:
    job_id, claim = submitted_and_claimed(scene)
    show_jobs.cancel_job(scene.installation, OWNER, job_id)
    with pytest.raises(LeaseLost):
        run_here(scene.installation, claim, perform_here)
    assert scene.end(job_id) == ("cancelled", "cancelled", ["reserve", "void"])
    # Who lost the lease leaves the folder to the sweeper: the next worker of the job
    # may use it by now. A worker that has not looked at its lease yet is in it.
    folder = scene.installation.job_folder(job_id)
    tidy_jobs(scene.installation)
    assert folder.is_dir()
    tidy_after_a_lease(scene.installation)
    scene.assert_no_orphans()


def test_a_running_job_that_is_cancelled_stays_charged_and_leaves_no_model(
    scene: Scene,
) -> None:
    def cancel(task: JobTask, _kept: object) -> None:
        perform_here(task)
        assert show_jobs.cancel_job(scene.installation, OWNER, task.job_id).charged

    job_id, claim = submitted_and_claimed(scene)
    with pytest.raises(LeaseLost):
        run_here(scene.installation, claim, cancel)
    assert scene.end(job_id) == ("cancelled", "cancelled", ["reserve", "charge"])
    scene.assert_no_orphans()
    assert scene.verified().tightest.charged == 10_000_000


def test_deleting_a_dataset_voids_what_waits_keeps_what_was_charged_and_erases_rows(
    scene: Scene,
) -> None:
    charged, claim = submitted_and_claimed(scene)
    charge.charge_claimed(scene.installation, claim)
    claimed = scene.submit_job(key="second")
    waiting_claim = run_job.claim_next(scene.installation)
    queued = scene.submit_job(key="third")
    for _ in range(2):  # a repeated call is allowed
        delete_dataset(scene.installation, OWNER, scene.dataset_id)
    assert scene.end(charged) == ("cancelled", "dataset-erased", ["reserve", "charge"])
    assert scene.end(claimed) == ("cancelled", "dataset-erased", ["reserve", "void"])
    assert scene.end(queued) == ("cancelled", "dataset-erased", ["reserve", "void"])
    assert not list((scene.installation.home / "rows" / scene.dataset_id).glob("*"))
    assert waiting_claim is not None
    with pytest.raises(LeaseLost):
        charge.charge_claimed(scene.installation, waiting_claim)
    with pytest.raises(DatasetDeleted):
        scene.submit(key="fourth")
    assert scene.verified().tightest.charged == 10_000_000


@pytest.mark.parametrize("which", [0, 1])
def test_a_charge_and_the_deletion_of_its_dataset_do_not_wait_for_each_other(
    postgresql_scene: Scene, which: int
) -> None:
    scene = postgresql_scene
    claims = []
    for key in ("first", "second"):
        scene.submit(key=key)
        claims.append(run_job.claim_next(scene.installation))
    claim = claims[which]
    assert claim is not None
    held, database = threading.Event(), scene.installation.database

    def delete() -> None:
        assert held.wait(timeout=60)
        delete_dataset(scene.installation, OWNER, scene.dataset_id)

    with ThreadPoolExecutor(1) as pool:
        deletion = pool.submit(delete)
        with database.write() as session:
            row = queue.leased(session, claim)
            held.set()
            with pytest.raises(TimeoutError):
                deletion.result(timeout=0.5)  # the request waits for this job
            ledger.charge(session, row.parts[0].reservation_id, actor="worker")
            row.charged_at = transaction_time(session)
        deletion.result(timeout=60)
    kinds = [scene.kinds_of(each.job_id) for each in claims if each is not None]
    assert kinds.pop(which) == ["reserve", "charge"]
    assert kinds == [["reserve", "void"]]


def test_tidying_leaves_running_jobs_alone_and_removes_folders_of_unknown_ones(
    scene: Scene,
) -> None:
    job_id, _ = submitted_and_claimed(scene)
    running, unknown = (
        scene.installation.job_folder(job_id),
        scene.installation.job_folder("jb_unknown"),
    )
    for folder in (running, unknown):
        folder.mkdir(parents=True)
        (folder / "artifact.part").write_bytes(b"half")
    tidy_jobs(scene.installation)
    assert running.exists()
    assert not unknown.exists()


def test_a_folder_that_disappears_during_tidying_is_ignored(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = scene.installation.job_folder("jb_gone")
    folder.mkdir(parents=True)
    (folder / OUTPUT).write_bytes(b"artifact")
    read_bytes = Path.read_bytes

    def vanish_first(path: Path) -> bytes:
        path.unlink()
        return read_bytes(path)

    monkeypatch.setattr(Path, "read_bytes", vanish_first)
    tidy_jobs(scene.installation)
    assert not folder.exists()


def test_a_job_is_charged_once_and_a_second_worker_has_lost_its_lease(
    scene: Scene,
) -> None:
    job_id, claim = submitted_and_claimed(scene)
    charge.charge_claimed(scene.installation, claim)
    with pytest.raises(LeaseLost):
        charge.charge_claimed(scene.installation, claim)
    assert scene.kinds_of(job_id) == ["reserve", "charge"]
