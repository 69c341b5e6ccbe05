"""Tests kill -9 during profile and evaluation jobs, which follow the rules of
trainings.
"""

import json
import signal

import pytest

from app.access.idempotency import IdempotentRequest
from app.jobs.tables import JobRow
from app.wire.evaluations import EvaluationIn
from app.wire.profiles import ProfileIn
from tests.crash.conftest import Launcher
from tests.support.asking import submit_evaluation, submit_profile
from tests.support.crash_scene import OWNER, Scene
from tests.support.waiting import wait_for

HEALTHY = "for-ever"


def _request(key: str) -> IdempotentRequest:
    return IdempotentRequest(
        OWNER.key_id, "POST kill", key, key.encode().ljust(32, b".")
    )


def _profile(scene: Scene, key: str) -> str:
    body = ProfileIn(epsilon="0.01")  # type: ignore[arg-type]  # as it comes over the wire
    answer = submit_profile(
        scene.installation, OWNER, scene.dataset_id, body, request=_request(key)
    )
    return str(json.loads(answer.body)["job_id"])


def _evaluation(scene: Scene, model_id: str, key: str) -> str:
    body = EvaluationIn(epsilon="0.01", metrics=["accuracy"])  # type: ignore[arg-type]
    answer = submit_evaluation(
        scene.installation, OWNER, [model_id], body, request=_request(key)
    )
    return str(json.loads(answer.body)["job_id"])


def _settled(launcher: Launcher, job_id: str) -> JobRow:
    scene = launcher.scene
    with launcher.running(HEALTHY):
        wait_for(
            "the job ends",
            lambda: scene.job(job_id).state not in ("queued", "running"),
        )
        jobs = scene.installation.home / "jobs"
        wait_for("its folder is removed", lambda: not list(jobs.glob("*")))
    return scene.job(job_id)


@pytest.mark.parametrize(
    ("launcher", "kind"),
    [
        ("sqlite", "profile"),
        ("postgresql", "evaluation"),
        pytest.param("sqlite", "evaluation", marks=pytest.mark.long),
        pytest.param("postgresql", "profile", marks=pytest.mark.long),
    ],
    indirect=["launcher"],
)
def test_a_killed_release_fails_if_it_was_charged_and_runs_again_otherwise(
    launcher: Launcher, kind: str
) -> None:
    scene = launcher.scene
    model_id = ""
    if kind == "evaluation":
        model_id = str(_settled(launcher, scene.submit_job(key="model")).release_id)

    ends = {}
    for point in ("charge-not-committed", "rows-opened-both"):
        key = f"{kind}-{point}"
        job_id = _evaluation(scene, model_id, key) if model_id else _profile(scene, key)
        with launcher.running(point) as worker:
            assert worker.wait() == -signal.SIGKILL
        then = scene.kinds_of(job_id)
        ends[point] = (then, _settled(launcher, job_id), scene.kinds_of(job_id))
    then, row, kinds = ends["charge-not-committed"]
    assert (then, row.state, kinds) == (["reserve"], "succeeded", ["reserve", "charge"])
    assert row.release_id is not None
    then, row, kinds = ends["rows-opened-both"]
    assert (then, row.state, row.reason, kinds) == (
        ["reserve", "charge"],
        "failed",
        "lost",
        ["reserve", "charge"],
    )
    assert row.release_id is None
    scene.verified()
    scene.assert_no_orphans()
