"""A job whose rows a Dask cluster reads is charged only when this machine sees a worker
of the cluster.
"""

from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from app.core import limits
from app.core.errors import Unavailable
from app.core.processes import Stop
from app.core.sealed_files import StorageKeys
from app.core.settings import Settings
from app.datasets import row_files
from app.services.drawing import dask_fleet
from app.services.drawing.dask_fleet import WorkerUnfit
from app.services.execution import run_job
from app.services.execution.lease import Lease
from app.services.execution.run_job import JobFailed
from app.services.installation import Installation
from app.services.jobs.task import JobTask
from app.worker import supervise
from tests.support.crash_scene import Scene, open_with
from tests.support.dask_cluster import dask_cluster
from tests.support.databases import on_one_database
from tests.support.job_kinds import claimed, must_not_run
from tests.support.ports import free_port

pytestmark = [pytest.mark.contract, on_one_database]


@pytest.fixture(autouse=True)
def no_child(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervise.CHILDREN, "load", lambda _: None)
    monkeypatch.setattr(supervise.CHILDREN, "look", lambda *_: None)


def with_cluster(scene: Scene, scheduler: str) -> Installation:
    """The installation with a cluster that reads the rows of every dataset."""
    settings = replace(
        scene.installation.settings,
        dask_scheduler=scheduler,
        dask_rows=0,
        lease_ttl_s=300,
    )
    return replace(scene.installation, settings=settings)


def run(installation: Installation, work: Callable[[JobTask, Lease], None]) -> None:
    """Claims the oldest job and runs it as a worker does, but for its child."""
    supervisor = supervise.Supervisor(interval_s=0, stop=Stop())
    run_job.run_job(installation, claimed(installation), work, load=supervisor.load)


def test_a_scheduler_that_cannot_be_reached_costs_nothing(
    scene: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    job_id = scene.submit_job(key="k")
    with pytest.raises(Unavailable, match="the Dask cluster cannot be used"):
        run(with_cluster(scene, f"tcp://127.0.0.1:{free_port()}"), must_not_run)
    assert scene.end(job_id) == ("queued", "cannot-load", ["reserve"])
    assert (
        "a job waits, uncharged: the Dask cluster cannot be reached or has no worker"
        in caplog.text
    )


def test_a_job_is_charged_when_the_cluster_has_a_worker(
    scene: Scene, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs, began = [scene.submit_job(key=key) for key in "ab"], list[str]()

    def begin(task: JobTask, _: Lease) -> None:
        assert task.cluster is not None
        began.append(task.job_id)
        raise JobFailed

    with dask_cluster(tmp_path, n_workers=0) as cluster:
        installation = with_cluster(scene, cluster.address.scheduler)
        with monkeypatch.context() as impatient, pytest.raises(Unavailable):
            impatient.setattr(limits, "CLUSTER_LOOK_S", 6)
            run(installation, must_not_run)
        cluster.add_worker()
        run(installation, begin)
    assert [scene.end(job) for job in jobs] == [
        ("queued", "cannot-load", ["reserve"]),
        ("failed", "failed", ["reserve", "charge"]),
    ]
    assert began == jobs[1:]


def test_a_worker_that_cannot_read_the_rows_or_is_of_another_version_costs_nothing(
    database_url: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The first worker was started without the address of the store."""
    store = {"GROVEKEEPER_STORE": f"file://{tmp_path / 'bucket'}"}
    settings = Settings(
        home=tmp_path / "home",
        database_url=database_url,
        store=store["GROVEKEEPER_STORE"],
        storage_key=StorageKeys.new_text(),
    )

    def begin(_: JobTask, __: Lease) -> None:
        raise JobFailed

    with (
        closing(open_with(settings)) as opened,
        dask_cluster(tmp_path, n_workers=1) as cluster,
    ):
        scene = Scene.declared(opened)
        jobs, installation = (
            [scene.submit_job(key=key) for key in "ab"],
            with_cluster(scene, cluster.address.scheduler),
        )
        with pytest.raises(Unavailable):
            run(installation, must_not_run)
        assert "or one cannot read the rows" in caplog.text
        assert "this Dask worker cannot read the rows of a job" in cluster.log()
        cluster.workers[0].terminate()
        cluster.workers[0].wait()
        cluster.settings |= store
        cluster.add_worker()
        run(installation, begin)
        assert [scene.end(job)[2] for job in jobs] == [
            ["reserve"],
            ["reserve", "charge"],
        ]

        names = [
            row_files.rows_name(scene.dataset_id, epoch)
            for epoch in scene.job(jobs[0]).parts[0].epochs
        ]
        dask_fleet.require_workers(cluster.address, names)
        with pytest.raises(WorkerUnfit):
            dask_fleet.require_workers(
                cluster.address, [*names, "rows/ds_other/ep_other.parquet"]
            )
        monkeypatch.setattr(dask_fleet.shard_tasks, "VERSION", b"0.0.9")
        with pytest.raises(WorkerUnfit):
            dask_fleet.require_workers(cluster.address, names)
