"""Tests jobs that are stopped while their child has private rows: by signals, a
request, or a lost lease.
"""

import signal
from collections.abc import Iterator
from contextlib import contextmanager

from app.services.datasets.erase import delete_dataset
from app.services.jobs import show_jobs
from tests.crash.conftest import Launcher
from tests.support.crash import SLOW, released
from tests.support.crash_scene import OWNER
from tests.support.forked_program import ForkedProgram
from tests.support.waiting import wait_for


@contextmanager
def _running_job(launcher: Launcher) -> Iterator[tuple[str, ForkedProgram]]:
    """Runs a worker whose job's child has opened its rows and does not end by itself."""
    job_id = launcher.scene.submit_job(key="k")
    with launcher.running(SLOW) as worker:
        wait_for("the child opens its rows", lambda: bool(launcher.facts(SLOW, "read")))
        assert launcher.facts(SLOW, "read") == [[job_id, "reserve,charge"]]
        yield job_id, worker


def _assert_spent_without_a_model(
    launcher: Launcher, job_id: str, *, state: str, reason: str
) -> None:
    row = launcher.scene.job(job_id)
    assert (row.state, row.reason, row.release_id) == (state, reason, None)
    assert launcher.scene.kinds_of(job_id) == ["reserve", "charge"]
    assert launcher.scene.verified().tightest.charged == 10_000_000
    launcher.scene.assert_no_orphans()


def _wait_until_told_to_finish(launcher: Launcher) -> None:
    log = launcher.folder / "log"
    wait_for(
        "the worker says that it finishes its job",
        lambda: "finishing the running job" in log.read_text(),
    )


def test_a_worker_that_gets_one_sigterm_finishes_its_job_and_ends(
    own_launcher: Launcher,
) -> None:
    scene = own_launcher.scene
    with _running_job(own_launcher) as (job_id, worker):
        worker.send_signal(signal.SIGTERM)
        _wait_until_told_to_finish(own_launcher)
        assert (worker.poll(), scene.job(job_id).state) == (None, "running")
        released(own_launcher.journal(SLOW)).touch()
        assert worker.wait() == 0
    row = scene.job(job_id)
    assert (row.state, row.reason, row.release_id is None) == ("succeeded", None, False)
    assert scene.kinds_of(job_id) == ["reserve", "charge"]


def test_a_worker_that_gets_two_sigterms_ends_its_child_and_settles_its_job(
    own_launcher: Launcher,
) -> None:
    with _running_job(own_launcher) as (job_id, worker):
        worker.send_signal(signal.SIGTERM)
        _wait_until_told_to_finish(own_launcher)
        worker.send_signal(signal.SIGTERM)
        assert worker.wait() == 0
        own_launcher.wait_for_children(SLOW)
    _assert_spent_without_a_model(own_launcher, job_id, state="failed", reason="lost")


def test_a_running_job_that_is_cancelled_loses_its_child_and_keeps_its_charge(
    own_launcher: Launcher,
) -> None:
    with _running_job(own_launcher) as (job_id, worker):
        assert (
            show_jobs.cancel_job(own_launcher.scene.installation, OWNER, job_id).state
            == "cancelled"
        )
        own_launcher.wait_for_children(SLOW)
        assert worker.wait() == 0
    _assert_spent_without_a_model(
        own_launcher, job_id, state="cancelled", reason="cancelled"
    )


def test_deleting_a_dataset_ends_its_running_job_and_keeps_its_spend(
    own_launcher: Launcher,
) -> None:
    with _running_job(own_launcher) as (job_id, worker):
        delete_dataset(
            own_launcher.scene.installation, OWNER, own_launcher.scene.dataset_id
        )
        own_launcher.wait_for_children(SLOW)
        assert worker.wait() == 0
    _assert_spent_without_a_model(
        own_launcher, job_id, state="cancelled", reason="dataset-erased"
    )
    assert not list((own_launcher.scene.installation.home / "rows").glob("*/*"))


def test_a_worker_that_resumes_after_its_lease_has_ended_writes_nothing(
    own_launcher: Launcher,
) -> None:
    with _running_job(own_launcher) as (job_id, worker):
        # A worker that is stopped within a transaction would keep SQLite's only write
        # lock.
        with own_launcher.scene.installation.database.write():
            worker.send_signal(signal.SIGSTOP)
        with own_launcher.running("for-ever"):
            scene = own_launcher.scene
            wait_for("the job fails", lambda: scene.job(job_id).state == "failed")
            folder = scene.installation.job_folder(job_id)
            wait_for("its folder is removed", lambda: not folder.exists())
        n_entries = len(scene.entries())
        worker.send_signal(signal.SIGCONT)
        assert worker.wait() == 0
        own_launcher.wait_for_children(SLOW)
    assert len(scene.entries()) == n_entries
    _assert_spent_without_a_model(own_launcher, job_id, state="failed", reason="lost")
