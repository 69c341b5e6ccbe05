"""Tests kill -9 of the worker or the child of a job that two accounts pay for: both
accounts agree.
"""

import signal

import pytest

from tests.crash.conftest import Launcher
from tests.support.crash_scene import open_reservations
from tests.support.two_datasets import Pair
from tests.support.waiting import wait_for

POINTS = (
    "claimed",
    "charge-not-committed",
    "charged",
    "rows-opened",
    "success-not-committed",
)
UNCHARGED = ("claimed", "charge-not-committed")
"""``rows-opened`` kills the child after it read the rows of one dataset and before it
reads those of the other.
"""


@pytest.fixture(scope="module")
def wrecks(
    launcher: Launcher,
) -> tuple[Launcher, Pair, dict[str, tuple[str, object, int]]]:
    """Kills one job per point, then runs a healthy worker. By point: job id, entries at
    the kill, exit code.
    """
    pair, jobs = Pair.beside(launcher.scene), {}
    for point in POINTS:
        pair.submit(key=point)
    for point, exit_code in launcher.exit_codes(POINTS).items():
        ((job_id,),) = launcher.facts(point, "claimed")
        jobs[point] = (job_id, pair.kinds_of(job_id), exit_code)
    with launcher.running("for-ever"):

        def all_ended() -> bool:
            states = {pair.first.job(job_id).state for job_id, _, _ in jobs.values()}
            return not states & {"queued", "running"}

        wait_for("every job ends", all_ended)
    return launcher, pair, jobs


@pytest.mark.parametrize("point", POINTS)
def test_both_accounts_have_the_same_entries_of_a_killed_job(
    wrecks: tuple, point: str
) -> None:
    _, pair, jobs = wrecks
    job_id, kinds_then, exit_code = jobs[point]
    state = pair.first.job(job_id).state

    assert exit_code == (0 if point == "rows-opened" else -signal.SIGKILL)
    then = ["reserve"] if point in UNCHARGED else ["reserve", "charge"]
    assert kinds_then == (then, then), (
        "an uncommitted transaction left nothing on either account"
    )
    assert pair.kinds_of(job_id) == (["reserve", "charge"], ["reserve", "charge"])
    # The output of a worker that died in its last transaction is registered by the
    # process that finds the job.
    assert state == (
        "succeeded" if point in (*UNCHARGED, "success-not-committed") else "failed"
    )


def test_no_reservation_is_open_and_both_exports_verify(wrecks: tuple) -> None:
    _, pair, _ = wrecks
    pair.verify()
    for scene in (pair.first, pair.second):
        assert open_reservations(scene.entries()) == set()
