"""A worker whose machine cannot load the code of jobs charges no job and takes no
further one.
"""

import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from subprocess import PIPE

import pytest
from sqlalchemy import select

from app.core.processes import Stop, code_digest
from app.jobs.tables import WorkerRow
from app.services.execution import run_job
from app.services.execution.lease import Lease, Stopped
from app.services.execution.run_job import CodeChanged, CodeNotLoaded
from app.services.jobs.task import JobTask
from app.wire.training import TrainIn
from app.worker import main, supervise
from grovekeeper_forests import catalogue
from grovekeeper_forests.errors import (
    AccountantMismatch,
    AdjacencyMismatch,
    ParameterInvalid,
)
from tests.support.asking import submit_training
from tests.support.crash_scene import OWNER, Scene
from tests.support.databases import on_one_database
from tests.support.job_kinds import claimed, evaluation, profile, request, run, run_here
from tests.support.set_limits import SetLimit

pytestmark = pytest.mark.contract


def never(_: JobTask, __: Lease) -> None:
    raise AssertionError("the job runs")


def _trained(
    scene: Scene, algorithm: str, work: Callable[[JobTask, Lease], None]
) -> str | None:
    """Trains a model on one cell; ``None`` if the account cannot hold the charge."""
    body = TrainIn.model_validate(
        {
            "dataset": scene.dataset_id,
            "algorithm": algorithm,
            "epsilon": "0.1",
            "scope": {"shard": [0]},
        }
    )
    try:
        answer = submit_training(
            scene.installation, OWNER, body, request=request("POST /train", algorithm)
        )
    except (AccountantMismatch, AdjacencyMismatch, ParameterInvalid):
        return None
    run(scene, work)
    return scene.job(str(json.loads(answer.body)["job_id"])).release_id


@on_one_database
def test_a_job_imports_nothing_after_its_code_was_loaded(scene: Scene) -> None:
    """The charge is between the two."""
    command = [sys.executable, "-m", "tests.support.late_imports"]
    late = list[list[str]]()
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        stdin, stdout = child.stdin, child.stdout

        def work(task: JobTask, _: Lease) -> None:
            print(task.to_text(), file=stdin, flush=True)
            late.append(
                [
                    f"{task.kind} {task.folder.name}: {module}"
                    for module in json.loads(stdout.readline())
                ]
            )

        model_ids = [
            _trained(scene, str(algorithm["slug"]), work)
            for algorithm in catalogue.algorithms()
        ]
        profile(scene)
        run(scene, work)
        evaluation(scene, next(filter(None, model_ids)))
        run(scene, work)
        stdin.close()
    assert len(late) > 12, "nearly all algorithms, a profile and an evaluation"
    assert [module for modules in late for module in modules] == []


@pytest.mark.parametrize("error", [CodeNotLoaded, Stopped])
def test_a_job_whose_code_is_not_loaded_is_uncharged_and_queued(
    scene: Scene, error: type[Exception]
) -> None:
    job_id = scene.submit_job(key="k")
    claim = claimed(scene.installation)

    def load(_: Lease, __: object) -> None:
        assert scene.job(job_id).charged_at is None
        raise error

    why = None
    if error is CodeNotLoaded:
        why = "cannot-load"
        with pytest.raises(CodeNotLoaded):
            run_job.run_job(scene.installation, claim, never, load=load)
    else:
        run_job.run_job(scene.installation, claim, never, load=load)
    assert scene.end(job_id) == ("queued", why, ["reserve"])
    assert not scene.installation.job_folder(job_id).exists()


def test_a_folder_that_cannot_be_written_costs_nothing(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    job_id = scene.submit_job(key="k")
    write = Path.write_bytes

    def full(path: Path, data: bytes) -> int:
        if path.parent.name == job_id:
            raise OSError(28, "No space left on device")
        return write(path, data)

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(run_job.Unavailable):
        run_here(scene.installation, claimed(scene.installation), never)
    assert scene.job(job_id).charged_at is None


def test_a_worker_that_cannot_load_claims_one_job_and_no_other(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, set_limit: SetLimit
) -> None:
    jobs = [scene.submit_job(key=key) for key in "ab"]
    stop, n_attempts = Stop(), list[int]()

    def load(_: Callable[[], None]) -> None:
        n_attempts.append(len(n_attempts))
        if len(n_attempts) == 3:
            stop.begun.set()
        raise CodeNotLoaded

    monkeypatch.setattr(supervise.CHILDREN, "load", load)
    set_limit("LOAD_RETRY_S", 0)
    claims = list[str]()
    claim_next = main.claim_next
    monkeypatch.setattr(
        main, "claim_next", lambda it: claims.append("claim") or claim_next(it)
    )
    loop = main._Loop(scene.installation, stop)
    loop.run()
    assert (len(n_attempts), claims) == (3, ["claim"])
    assert loop.cannot_load.is_set()
    uncharged = ["reserve"]
    assert [scene.end(job) for job in jobs] == [
        ("queued", "cannot-load", uncharged),
        ("queued", None, uncharged),
    ]


@pytest.mark.parametrize("loads", [True, False])
def test_a_worker_whose_code_was_replaced_charges_no_job_and_ends(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, loads: bool
) -> None:
    """Its children would run other code. The job stays in the queue, for the worker
    that takes over.
    """
    job_id = scene.submit_job(key="k")
    program = (
        "import os, sys; os.write(1, b'.'); sys.stdin.readline()"
        if loads
        else "raise SystemExit(1)"
    )
    monkeypatch.setattr(
        supervise.CHILDREN,
        "start",
        lambda: subprocess.Popen(
            [sys.executable, "-ISc", program], stdin=PIPE, stdout=PIPE
        ),
    )
    monkeypatch.setattr(supervise.CHILDREN, "code", code_digest())
    monkeypatch.setattr(supervise, "code_digest", lambda: "of a later version")
    loop = main._Loop(scene.installation, Stop())
    try:
        with pytest.raises(CodeChanged, match="start it again"):
            loop.run()
    finally:
        supervise.CHILDREN.stop()
    assert scene.end(job_id) == ("queued", "cannot-load", ["reserve"])
    assert not scene.installation.job_folder(job_id).exists()
    assert not loop.cannot_load.is_set(), "no worker that waits to load the code again"


def test_a_worker_that_cannot_load_is_not_counted(
    scene: Scene, set_limit: SetLimit
) -> None:
    set_limit("WORKER_NOTE_INTERVAL_S", 0.05)
    cannot_load = threading.Event()
    with main._seen(scene.installation, cannot_load):
        _until_counted(scene, 1)
        cannot_load.set()
        _until_counted(scene, 0)
        cannot_load.clear()
        _until_counted(scene, 1)


def _until_counted(scene: Scene, n_workers: int) -> None:
    deadline = time.monotonic() + 60
    while _n_counted(scene) != n_workers:
        assert time.monotonic() < deadline
        time.sleep(0.02)


def _n_counted(scene: Scene) -> int:
    with scene.installation.database.read() as session:
        return len(session.execute(select(WorkerRow.id)).all())
