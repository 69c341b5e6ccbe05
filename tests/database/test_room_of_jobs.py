"""A job whose output cannot be stored is not charged; it waits in the queue, and its
failures are in the log.
"""

import os
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from errno import EACCES, EMFILE, ENOSPC
from pathlib import Path

import pytest

from app.core import limits
from app.core.errors import Unavailable
from app.registry.store import ArtifactStore
from app.services.execution import charge, run_job
from app.services.execution.run_job import JobFailed, claim_next
from app.services.jobs.show_jobs import show_job
from app.services.jobs.task import JobTask
from tests.support.crash_scene import OWNER, Scene
from tests.support.databases import on_one_database
from tests.support.disks import free_bytes
from tests.support.job_kinds import (
    evaluation,
    model,
    must_not_run,
    perform_here,
    profile,
    run,
)
from tests.support.sweeping import expired_at

pytestmark = pytest.mark.contract


def waits_uncharged(
    scene: Scene, job_id: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Runs a job, which must wait; the log says so."""
    caplog.clear()
    with pytest.raises(Unavailable):
        run(scene, must_not_run)
    assert scene.end(job_id) == ("queued", "no-room", ["reserve"])
    shown = show_job(scene.installation, OWNER, job_id)
    assert (shown.state, shown.reason, shown.held_by) == ("queued", None, "no-room")
    assert claim_next(scene.installation) is None, "other jobs take their turns"
    [line] = [record for record in caplog.records if record.levelname == "ERROR"]
    assert (
        line.message
        == "a job waits, uncharged: a file for it cannot be read or written"
    )
    assert vars(line)["job_id"] == job_id


def runs(scene: Scene, job_id: str) -> None:
    """Runs a job that waited to its end; the probe leaves no file."""
    expired_at(scene.installation, datetime.now(UTC) + timedelta(hours=1))
    assert show_job(scene.installation, OWNER, job_id).held_by == "no-room"
    run(scene)
    assert scene.end(job_id) == ("succeeded", None, ["reserve", "charge"])
    assert show_job(scene.installation, OWNER, job_id).held_by is None
    scene.assert_no_orphans()


@on_one_database
def test_a_store_of_models_that_cannot_be_written_costs_nothing(
    scene: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    job_id = scene.submit_job(key="k")
    artifacts = scene.installation.home / "artifacts"
    artifacts.write_text("in the way")
    waits_uncharged(scene, job_id, caplog)
    profiled = profile(scene)
    run(scene)
    assert scene.end(profiled) == ("succeeded", None, ["reserve", "charge"]), (
        "a profile is no file of the store"
    )
    artifacts.unlink()
    runs(scene, job_id)


@pytest.mark.parametrize("folder", ["jobs", "artifacts"])
def test_a_job_waits_for_the_space_of_its_public_size(
    scene: Scene, folder: str, caplog: pytest.LogCaptureFixture
) -> None:
    job_id = scene.submit_job(key="k", max_depth=2)
    with scene.installation.database.read() as session:
        size = charge.planned_bytes(session, scene.job(job_id))
    needed = 2 * size + limits.MIN_FREE_DISK_BYTES
    with free_bytes(needed - 1, folder):
        waits_uncharged(scene, job_id, caplog)
    with free_bytes(needed, folder):
        runs(scene, job_id)


@on_one_database
def test_a_folder_of_another_account_within_the_store_costs_nothing(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A part of the models was restored as root, and the digest of the next one decides
    where it goes.
    """
    model(scene, "first")
    job_id = scene.submit_job(key="k")
    [foreign] = [
        path.parent
        for path in scene.installation.home.glob("artifacts/*/*.safetensors")
    ]
    with monkeypatch.context() as restored:
        access = os.access
        restored.setattr(
            os, "access", lambda path, mode: path != foreign and access(path, mode)
        )
        waits_uncharged(scene, job_id, caplog)
    runs(scene, job_id)


@on_one_database
@pytest.mark.parametrize(
    ("method", "code", "held_by"),
    [
        ("write_bytes", ENOSPC, "no-room"),
        ("write_bytes", EMFILE, "cannot-load"),
        ("read_bytes", EACCES, "model-absent"),
        ("read_bytes", EMFILE, "cannot-load"),
    ],
)
def test_a_job_that_waits_names_what_its_worker_lacks(
    scene: Scene,
    method: str,
    code: int,
    held_by: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    job_id = evaluation(scene, model(scene, "a"))
    caplog.clear()

    def fails(path: Path, *_: object) -> bytes:
        raise OSError(code, os.strerror(code), str(path))

    with monkeypatch.context() as broken, pytest.raises(Unavailable):
        broken.setattr(Path, method, fails)
        run(scene, must_not_run)
    assert scene.end(job_id) == ("queued", held_by, ["reserve"])
    [line] = [record for record in caplog.records if record.levelname == "ERROR"]
    assert isinstance(line.exc_info, tuple)
    assert isinstance(line.exc_info[1], OSError)
    assert line.exc_info[1].errno == code


def test_the_planned_size_is_that_of_the_artifact(scene: Scene) -> None:
    job_id = scene.submit_job(key="k", max_depth=4)
    with scene.installation.database.read() as session:
        size = charge.planned_bytes(session, scene.job(job_id))
    run(scene)
    [artifact] = scene.installation.home.glob("artifacts/*/*.safetensors")
    assert abs(artifact.stat().st_size - size) < 16 * 1024


def _fail(_: JobTask, __: object) -> None:
    raise JobFailed


def _leave_nothing(_: JobTask, __: object) -> None:
    """A child that ends well without an output."""


@on_one_database
@pytest.mark.parametrize("work", [_fail, _leave_nothing, perform_here])
def test_every_failure_of_a_paid_job_is_logged_by_public_facts(
    scene: Scene,
    work: Callable[[JobTask, object], None],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    job_id = scene.submit_job(key="k")
    monkeypatch.setattr(run_job, "STORE_RETRY_S", (0.01,))

    def fill_up(task: JobTask, kept: object) -> None:
        monkeypatch.setattr(ArtifactStore, "put", _full)
        work(task, kept)

    run(scene, fill_up)
    assert scene.end(job_id) == ("failed", "failed", ["reserve", "charge"])
    lines = [
        record
        for record in caplog.records
        if record.message == "a paid job failed, and its charge stays"
    ]
    [line] = lines
    [part] = scene.job(job_id).parts
    fields = ("job_id", "account_id", "dataset_id", "reservation_id")
    assert [vars(line)[name] for name in fields] == [
        job_id,
        part.dataset,
        part.dataset,
        part.reservation_id,
    ]
    assert ("the output of a paid job cannot be stored" in caplog.text) is (
        work is not _fail
    )


@on_one_database
def test_a_paid_job_whose_process_fails_is_not_said_to_have_an_output(
    scene: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    def without_descriptors(*_: object) -> None:
        raise OSError(EMFILE, "Too many open files")

    job_id = scene.submit_job(key="k")
    run(scene, without_descriptors)
    assert scene.end(job_id) == ("failed", "failed", ["reserve", "charge"])
    [line] = [
        record
        for record in caplog.records
        if record.message == "the process of a paid job failed on this machine"
    ]
    assert isinstance(line.exc_info, tuple)
    assert isinstance(line.exc_info[1], OSError)
    assert line.exc_info[1].errno == EMFILE
    assert "the output of a paid job cannot be stored" not in caplog.text


@on_one_database
def test_a_disk_that_is_full_for_a_moment_loses_no_output_that_was_paid_for(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_job, "STORE_RETRY_S", (0.01, 0.01))
    job_id = scene.submit_job(key="k")
    put = ArtifactStore.put
    attempts: list[bytes] = []

    def full_once(store: ArtifactStore, content: bytes) -> str:
        attempts.append(content)
        # the first one is the probe before the charge
        return _full(store, content) if len(attempts) == 2 else put(store, content)

    monkeypatch.setattr(ArtifactStore, "put", full_once)
    run(scene)
    assert scene.end(job_id) == ("succeeded", None, ["reserve", "charge"])


def _full(_: ArtifactStore, __: bytes) -> str:
    raise OSError(28, "No space left on device")
