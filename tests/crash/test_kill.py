"""Tests that kill -9 of a worker, of its child or of both, at every step of a job,
leaves a state that workers settle.

The fixture first kills one worker or child per point, each with a job of its own. Then
a healthy worker settles all killed jobs, as after a power cut. Each test checks one of
them.
"""

import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from app.jobs.tables import JobRow
from tests.crash.conftest import Launcher
from tests.support.crash import ABANDONED, CHILD_POINTS, WORKER_POINTS
from tests.support.crash_scene import open_reservations
from tests.support.waiting import wait_for

BOTH = tuple(f"{point}-both" for point in CHILD_POINTS)
POINTS = (*WORKER_POINTS, *CHILD_POINTS, *BOTH, ABANDONED)
UNCHARGED = ("claimed", "charge-not-committed")
SUCCEEDED = (
    "success-not-committed",
    "success-repeated",
    "success-committed",
    "job-ended",
)
"""The output is stored and noted, or registered."""
HEALTHY = "for-ever"


@dataclass(frozen=True)
class Wreck:
    """A job whose worker or child was killed: its entries at that time, and its row
    after the healthy worker.
    """

    job_id: str
    kinds_then: list[str]
    exit_code: int
    after: JobRow


@dataclass(frozen=True)
class Aftermath:
    """The killed jobs by point, and the launcher of their workers."""

    launcher: Launcher
    wrecks: dict[str, Wreck]

    def reads(self) -> dict[str, list[str]]:
        """The kinds of a job's committed entries at every opening of its rows, by job."""
        kinds_by_job: dict[str, list[str]] = {}
        for point in (*POINTS, HEALTHY):
            for job_id, *kinds in self.launcher.facts(point, "read"):
                kinds_by_job.setdefault(job_id, []).extend(kinds or ["nothing"])
        return kinds_by_job


@pytest.fixture(scope="module")
def aftermath(launcher: Launcher) -> Aftermath:
    """Kills one worker or child per point, then runs a healthy worker until all jobs
    are settled.
    """
    scene = launcher.scene
    for point in POINTS:
        scene.submit_job(key=point)
    exit_codes = launcher.exit_codes(POINTS)
    for point in POINTS:
        launcher.wait_for_children(point)
    job_ids = {point: launcher.facts(point, "claimed")[0][0] for point in POINTS}
    assert len(set(job_ids.values())) == len(POINTS), (
        "each worker claimed a job of its own"
    )
    kinds_then = {point: scene.kinds_of(job_id) for point, job_id in job_ids.items()}
    with launcher.running(HEALTHY):
        wait_for(
            "every job is settled",
            lambda: _is_settled(launcher, list(job_ids.values())),
        )
    return Aftermath(
        launcher,
        {
            point: Wreck(
                job_id,
                kinds_then[point],
                exit_codes[point],
                scene.job(job_id),
            )
            for point, job_id in job_ids.items()
        },
    )


def _is_settled(launcher: Launcher, job_ids: list[str]) -> bool:
    """Whether every job has ended, and the sweeper has removed the folders of jobs."""
    if any(
        launcher.scene.job(job_id).state in ("queued", "running") for job_id in job_ids
    ):
        return False
    folder = launcher.scene.installation.home / "jobs"
    return not folder.exists() or not list(folder.iterdir())


@pytest.mark.parametrize("point", POINTS)
def test_a_killed_job_fails_if_it_was_charged_and_runs_again_otherwise(
    aftermath: Aftermath, point: str
) -> None:
    wreck = aftermath.wrecks[point]
    kinds = aftermath.launcher.scene.kinds_of(wreck.job_id)
    assert kinds == ["reserve", "charge"]
    end = (wreck.after.state, wreck.after.reason)
    if point in UNCHARGED:
        assert wreck.kinds_then == ["reserve"], (
            "an uncommitted transaction left nothing"
        )
        assert end == ("succeeded", None), (
            "no row was read, so the job runs again at the same price"
        )
    else:
        assert wreck.kinds_then == ["reserve", "charge"]
        if point in SUCCEEDED:
            assert end == ("succeeded", None)
        else:
            assert end == ("failed", "failed" if point in CHILD_POINTS else "lost"), (
                "the budget is spent, and the job is not run again"
            )
    assert (wreck.after.release_id is not None) == (wreck.after.state == "succeeded")


@pytest.mark.parametrize("point", POINTS)
def test_the_right_process_was_killed_and_no_child_outlived_its_worker(
    aftermath: Aftermath, point: str
) -> None:
    wreck = aftermath.wrecks[point]
    assert wreck.exit_code == (0 if point in CHILD_POINTS else -signal.SIGKILL)
    assert aftermath.launcher.living_children(point) == []


def test_rows_are_read_after_the_committed_charge_and_once_per_job(
    aftermath: Aftermath,
) -> None:
    reads = aftermath.reads()
    assert set(map(tuple, reads.values())) == {("reserve,charge",)}
    for point in UNCHARGED:
        assert aftermath.wrecks[point].job_id in reads
    for point in ("charged", "child-began", "child-began-both"):
        assert aftermath.wrecks[point].job_id not in reads, (
            "charged without a read, so the budget is spent"
        )


def test_every_reservation_is_settled_once_and_balances_equal_the_entries(
    aftermath: Aftermath,
) -> None:
    scene = aftermath.launcher.scene
    assert open_reservations(scene.entries()) == set()
    summary = scene.verified()
    assert summary.kinds == {"open": 1, "reserve": len(POINTS), "charge": len(POINTS)}
    assert (summary.tightest.charged, summary.tightest.reserved) == (
        len(POINTS) * 10_000_000,
        0,
    )


def test_no_job_folder_and_no_artifact_without_a_model_is_left(
    aftermath: Aftermath,
) -> None:
    scene = aftermath.launcher.scene
    scene.assert_no_orphans()
    assert (scene.installation.home / "jobs").stat().st_mode & 0o777 == 0o700


def test_the_stand_alone_verifier_accepts_the_export(
    aftermath: Aftermath, tmp_path: Path
) -> None:
    export = tmp_path / "export.jsonl"
    export.write_bytes(b"".join(aftermath.launcher.scene.export()))
    command = [sys.executable, "-m", "grovekeeper_verifier", str(export)]
    done = subprocess.run(
        command, cwd=Path(__file__).parents[2], capture_output=True, check=False
    )
    assert done.returncode == 0, done.stdout
