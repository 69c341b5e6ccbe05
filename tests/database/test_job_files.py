"""The files of a job are copied and stored while its lease is extended; a signal or a
cancellation ends the wait.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from app.core.errors import LeaseLost
from app.core.files import StoreUnreachable
from app.core.processes import Stop
from app.jobs.states import EndReason, JobState
from app.registry.store import ArtifactStore
from app.services.execution import run_job
from app.services.installation import Installation
from app.services.jobs import show_jobs
from app.services.jobs.task import JobTask
from tests.support.crash_scene import OWNER, Scene
from tests.support.databases import on_one_database
from tests.support.heartbeats import AfterHeartbeat
from tests.support.job_kinds import (
    claimed,
    must_not_run,
    perform_here,
    profile,
    run_here,
)

pytestmark = [pytest.mark.contract, on_one_database]
_GIVE_UP_S = 60


def brief(scene: Scene, **changes: Any) -> Installation:
    """The installation with short leases."""
    return replace(
        scene.installation,
        settings=replace(scene.installation.settings, lease_ttl_s=3, **changes),
    )


def is_charged(scene: Scene, job_id: str) -> bool:
    """Whether a job is past the check that its output can be stored."""
    return scene.job(job_id).charged_at is not None


@pytest.fixture
def _quick_retries(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two attempts more at a store that cannot be reached, at once."""
    monkeypatch.setattr(run_job, "STORE_RETRY_S", (0.01, 0.01))


@pytest.fixture
def beats(after_heartbeat: AfterHeartbeat) -> threading.Semaphore:
    """Released by every heartbeat."""
    released = threading.Semaphore(0)
    after_heartbeat(lambda _: released.release())
    return released


def test_copying_rows_keeps_the_lease_alive_before_and_after_the_charge(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, beats: threading.Semaphore
) -> None:
    job_id, claim, kinds = (
        profile(scene),
        claimed(scene.installation),
        list[list[str]](),
    )
    store = type(scene.installation.files)
    local = store.local

    def copied_slowly(files: Any, name: str) -> Path:
        kinds.append(scene.kinds_of(job_id))
        is_worker = len(kinds) <= 2  # then the child of the job opens its file
        assert not is_worker or beats.acquire(timeout=_GIVE_UP_S), (
            "the lease ends during a long copy"
        )
        return local(files, name)

    monkeypatch.setattr(store, "local", copied_slowly)
    run_here(brief(scene), claim, perform_here)
    assert kinds[:2] == [["reserve"], ["reserve", "charge"]]


def test_storing_the_output_keeps_the_lease_alive_and_the_progress(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, beats: threading.Semaphore
) -> None:
    job_id, claim, put, trees = (
        scene.submit_job(key="k"),
        claimed(scene.installation),
        ArtifactStore.put,
        list[int](),
    )

    def stored_slowly(artifacts: ArtifactStore, data: bytes) -> str:
        while (
            is_charged(scene, job_id)
            and beats.acquire(timeout=_GIVE_UP_S)
            and not trees
        ):
            trees.extend(done for done in [scene.job(job_id).trees_done] if done)
        assert trees or not is_charged(scene, job_id), (
            "the lease ends while a large artifact is stored"
        )
        return put(artifacts, data)

    monkeypatch.setattr(ArtifactStore, "put", stored_slowly)
    run_here(brief(scene), claim, perform_here)
    assert scene.end(job_id) == (JobState.SUCCEEDED, None, ["reserve", "charge"])
    assert trees == [2]


@pytest.mark.usefixtures("_quick_retries")
def test_an_outage_while_the_output_is_stored_loses_no_output(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    job_id, put, outages = (
        scene.submit_job(key="k"),
        ArtifactStore.put,
        iter([True, True, False]),
    )

    def put_later(artifacts: ArtifactStore, data: bytes) -> str:
        if is_charged(scene, job_id) and next(outages):
            raise StoreUnreachable("canary")
        return put(artifacts, data)

    monkeypatch.setattr(ArtifactStore, "put", put_later)
    run_here(scene.installation, claimed(scene.installation), perform_here)
    assert scene.end(job_id) == (JobState.SUCCEEDED, None, ["reserve", "charge"])


@contextmanager
def held_copy(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> Iterator[threading.Event]:
    """Lets no copy of rows end in the block; yields an event that is set when a copy
    began.
    """
    began, ends, store = (
        threading.Event(),
        threading.Event(),
        type(scene.installation.files),
    )

    def held(files: Any, name: str) -> Path:
        began.set()
        ends.wait(timeout=_GIVE_UP_S)
        raise StoreUnreachable("canary")

    with monkeypatch.context() as patched:
        patched.setattr(store, "local", held)
        try:
            yield began
        finally:
            ends.set()


def run_until(
    installation: Installation,
    began: threading.Event,
    act: Callable[[], object],
    *,
    stop: Stop,
) -> None:
    """Runs the next job, and acts once a copy of its rows began."""
    claim = claimed(installation)
    actor = threading.Thread(target=lambda: began.wait(timeout=_GIVE_UP_S) and act())
    actor.start()
    try:
        run_here(installation, claim, must_not_run, stop=stop)
    finally:
        actor.join()


def test_a_signal_during_a_copy_returns_the_uncharged_job_to_the_queue(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    job_id, stop = scene.submit_job(key="k"), Stop()
    with held_copy(scene, monkeypatch) as began:
        run_until(brief(scene), began, stop.begun.set, stop=stop)
    assert scene.end(job_id) == (JobState.QUEUED, None, ["reserve"])


def test_a_second_signal_during_a_copy_after_the_charge_loses_the_job(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    job_id, stop = scene.submit_job(key="k"), Stop()
    with held_copy(scene, monkeypatch) as began:
        run_until(brief(scene, release_interval_s=1), began, stop.now.set, stop=stop)
    assert scene.end(job_id) == (JobState.FAILED, EndReason.LOST, ["reserve", "charge"])


def test_a_job_that_is_cancelled_during_a_copy_frees_its_worker(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    job_id = scene.submit_job(key="k")
    with held_copy(scene, monkeypatch) as began, pytest.raises(LeaseLost):
        run_until(
            brief(scene),
            began,
            lambda: show_jobs.cancel_job(scene.installation, OWNER, job_id),
            stop=Stop(),
        )
    assert scene.end(job_id) == (
        JobState.CANCELLED,
        EndReason.CANCELLED,
        ["reserve", "void"],
    )


@pytest.mark.parametrize("interval_s", [0, 1])
@pytest.mark.usefixtures("_quick_retries")
def test_an_outage_right_after_the_charge_costs_nothing(
    scene: Scene, interval_s: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    job_id, store, outages = (
        profile(scene),
        type(scene.installation.files),
        iter([True, True]),
    )
    local = store.local

    def away(files: Any, name: str) -> Path:
        if is_charged(scene, job_id) and next(outages, False):
            raise StoreUnreachable("canary")
        return local(files, name)

    monkeypatch.setattr(store, "local", away)
    run_here(
        brief(scene, release_interval_s=interval_s),
        claimed(scene.installation),
        perform_here,
    )
    assert scene.end(job_id) == (JobState.SUCCEEDED, None, ["reserve", "charge"])
    assert next(outages, None) is None


@pytest.mark.usefixtures("_quick_retries")
def test_rows_that_cannot_be_copied_after_the_charge_fail_the_job_when_its_child_ends(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With public times, the end of a child shows at such a time, and the moment of an
    outage must not.
    """
    job_id, ran, store = (
        scene.submit_job(key="k"),
        list[JobTask](),
        type(scene.installation.files),
    )

    def fails(files: Any, name: str) -> Path:
        raise StoreUnreachable("canary")

    def run(task: JobTask, _kept: object) -> None:
        ran.append(task)
        assert scene.kinds_of(job_id) == ["reserve", "charge"]
        assert scene.job(job_id).state == JobState.RUNNING
        raise run_job.JobFailed

    monkeypatch.setattr(store, "local", fails)
    run_here(brief(scene, release_interval_s=1), claimed(scene.installation), run)
    assert scene.end(job_id) == (
        JobState.FAILED,
        EndReason.FAILED,
        ["reserve", "charge"],
    )
    assert not any(path.is_absolute() for path in ran[0].parts[0].row_files)
