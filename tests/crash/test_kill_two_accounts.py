"""kill -9 of the worker or the child of a job that two accounts pay for: both sides tell the same story."""

import signal

import pytest

from tests.crash.conftest import Launcher, eventually
from tests.support.crash_scene import open_reservations
from tests.support.two_datasets import Pair

POINTS = ("claimed", "charge-not-committed", "charged", "rows-opened", "success-not-committed")
UNCHARGED = ("claimed", "charge-not-committed")
"""``rows-opened`` kills the child between the rows of the one dataset and those of the other."""


@pytest.fixture(scope="module")
def wrecks(launcher: Launcher) -> tuple[Launcher, Pair, dict[str, tuple[str, object, int]]]:
    """One job per point, killed there; then a healthy worker. By point: the job, its entries at the kill, the exit."""
    pair, found = Pair.beside(launcher.scene), {}
    for point in POINTS:
        pair.submit(key=point)
        with launcher.running(point) as worker:
            exit_code = worker.wait(timeout=600)
        ((job_id,),) = launcher.facts(point, "claimed")
        found[point] = (job_id, pair.kinds_of(job_id), exit_code)
    with launcher.running("for-ever"):
        states = lambda: {pair.first.job(job_id).state for job_id, _, _ in found.values()}  # noqa: E731
        assert eventually(lambda: not states() & {"queued", "running"}, within_s=600)
    return launcher, pair, found


@pytest.mark.parametrize("point", POINTS)
def test_both_accounts_say_the_same_of_a_killed_job(wrecks: tuple, point: str) -> None:
    _, pair, found = wrecks
    job_id, kinds_then, exit_code = found[point]
    state = pair.first.job(job_id).state

    assert exit_code == (0 if point == "rows-opened" else -signal.SIGKILL)
    then = ["reserve"] if point in UNCHARGED else ["reserve", "charge"]
    assert kinds_then == (then, then), "a transaction that did not commit left nothing on either account"
    assert pair.kinds_of(job_id) == (["reserve", "charge"], ["reserve", "charge"])
    assert state == ("succeeded" if point in UNCHARGED else "failed")


def test_nothing_is_left_open_and_both_exports_verify(wrecks: tuple) -> None:
    _, pair, _ = wrecks
    pair.verify()
    for scene in (pair.first, pair.second):
        assert open_reservations(scene.entries()) == set()
