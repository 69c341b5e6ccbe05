"""Submits jobs of every kind on a scene and runs them in this process."""

import json
from collections.abc import Callable
from typing import Any

from app.access.idempotency import IdempotentRequest
from app.core.processes import Stop
from app.jobs.queue import Claim
from app.services.drawing.perform import perform
from app.services.execution import run_job
from app.services.execution.lease import Lease
from app.services.installation import Installation
from app.services.jobs.task import JobTask, Needs
from app.wire.evaluations import EvaluationIn, SelectionIn
from app.wire.profiles import ProfileIn
from tests.support.asking import submit_evaluation, submit_profile
from tests.support.crash_scene import OWNER, Scene


def request(route: str, key: str) -> IdempotentRequest:
    """The identity of an owner's request."""
    return IdempotentRequest(OWNER.key_id, route, key, key.encode().ljust(32, b"."))


def profile(scene: Scene, key: str = "p") -> str:
    """Submits a profile job and returns its id."""
    body = ProfileIn.model_validate({"epsilon": "0.5", "scope": {"shard": [1]}})
    answer = submit_profile(
        scene.installation,
        OWNER,
        scene.dataset_id,
        body,
        request=request("POST p", key),
    )
    return str(json.loads(answer.body)["job_id"])


def claimed(installation: Installation) -> Claim:
    """Claims the oldest queued job."""
    claim = run_job.claim_next(installation)
    assert claim is not None
    return claim


def submitted_and_claimed(scene: Scene, *, key: str = "k") -> tuple[str, Claim]:
    """Submits a training and claims it; returns the job's id and the claim."""
    job_id = scene.submit_job(key=key)
    return job_id, claimed(scene.installation)


def perform_here(task: JobTask, _: Lease | None = None) -> None:
    """Does the work of a job in this process."""
    perform(task, on_tree_done=lambda: None)


def run_here(
    installation: Installation,
    claim: Claim,
    work: Callable[[JobTask, Lease], None],
    *,
    stop: Stop | None = None,
) -> None:
    """Runs a claimed job in this process, which has loaded the code of jobs already."""

    def load(_: Lease, __: Needs) -> None:
        pass

    run_job.run_job(installation, claim, work, load=load, stop=stop)


def run(scene: Scene, work: Callable[[JobTask, Lease], None] = perform_here) -> None:
    """Claims and runs the oldest queued job."""
    run_here(scene.installation, claimed(scene.installation), work)


def must_not_run(_task: JobTask, _kept: Lease) -> None:
    """The work of a job that may not read rows."""
    raise AssertionError("rows would be read")


def model(scene: Scene, key: str) -> str:
    """Trains a model on one cell and returns its id."""
    job_id = scene.submit_job(key=key, scope={"shard": [0]})
    run(scene)
    return str(scene.job(job_id).release_id)


def evaluation(scene: Scene, *model_ids: str, key: str = "e") -> str:
    """Submits a job that evaluates models on held-out cells, and returns its id."""
    held_out: Any = {"epsilon": "0.5", "scope": {"shard": [1, 2]}}
    body = (
        EvaluationIn(**held_out)
        if len(model_ids) == 1
        else SelectionIn(models=list(model_ids), **held_out)
    )
    answer = submit_evaluation(
        scene.installation, OWNER, model_ids, body, request=request("POST e", key)
    )
    return str(json.loads(answer.body)["job_id"])


def evaluated(scene: Scene) -> tuple[str, str]:
    """Trains and evaluates a model; returns the ids of evaluation and model."""
    model_id = model(scene, "a")
    job_id = evaluation(scene, model_id)
    run(scene)
    return str(scene.job(job_id).release_id), model_id
