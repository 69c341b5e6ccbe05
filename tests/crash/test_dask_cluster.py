"""Kills workers and the scheduler of a Dask cluster with TLS, and knocks with plain TCP
and a foreign certificate.
"""

import os
import signal
import subprocess
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from app.core.object_store import ObjectStore
from app.core.processes import Stop
from app.core.settings import Settings
from app.jobs.states import EndReason, JobState
from app.services.drawing import dask_fleet
from app.services.drawing.dask_fleet import ClusterFailed, Connection, DaskFleet
from app.services.execution import run_job
from app.services.execution.lease import Lease
from app.services.installation import Installation
from app.services.jobs.task import Needs, PartRows
from app.worker.supervise import Supervisor
from grovekeeper_forests.releases.forest.draw import grow
from grovekeeper_forests.releases.forest.price import plan
from tests.privacy.noiseless import REQUESTS, Noiseless
from tests.support.crash_scene import Scene, opened
from tests.support.dask_cluster import Cluster, certificates, dask_cluster
from tests.support.s3_server import BUCKET, credentials, s3_server
from tests.support.stored_part import codes_of, in_store, local_rows, stored_part
from tests.support.uploads import SCHEMA
from tests.support.waiting import wait_for

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    folder = tmp_path_factory.mktemp("dask")
    with dask_cluster(folder, n_workers=2, **certificates(folder / "tls")) as running:
        yield running


@pytest.fixture(autouse=True)
def small_shards(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dask_fleet, "SHARD_ROWS", 250)


class Counting(Noiseless):
    """Counts selections."""

    n_draws = 0

    def permute_and_flip(self, *args: object, **named: object) -> int:
        self.n_draws += 1
        return super().permute_and_flip(*args, **named)

    select_exponential = permute_and_flip


def worker_pids(connection: Connection) -> list[int]:
    return sorted(connection.client.run(os.getpid).values())


def stop_a_worker(
    connection: Connection, monkeypatch: pytest.MonkeyPatch, *, at: int
) -> list[int]:
    """Stops a worker process after question ``at`` was divided and before its tasks
    arrive; returns its future pid.
    """
    honest, stopped, questions = DaskFleet._groups, list[int](), iter(range(10**6))

    def groups(fleet: DaskFleet, ends_at: float) -> list[tuple[str, list[str]]]:
        divided = honest(fleet, ends_at)
        if next(questions) == at:
            stopped.append(worker_pids(connection)[0])
            os.kill(stopped[0], signal.SIGSTOP)
        return divided

    monkeypatch.setattr(DaskFleet, "_groups", groups)
    return stopped


@pytest.mark.parametrize("name", ["rpf", "nbrt", "mrf"])
def test_a_worker_killed_in_a_level_costs_a_recount_and_no_draw(
    name: str, cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    part = stored_part(tmp_path)
    kill_in_a_level(name, cluster, part, part, monkeypatch)


def test_a_worker_killed_in_a_level_is_replaced_by_one_that_reads_the_object_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The workers have neither a folder nor a path in common; the rows are in a server
    that speaks S3 alone.
    """
    part = stored_part(tmp_path / "home")
    with s3_server(tmp_path) as port:
        of_store = {**credentials(port), "GROVEKEEPER_STORE": f"s3://{BUCKET}/prefix"}
        for name, value in of_store.items():
            monkeypatch.setenv(name, value)
        stored = in_store(
            part, ObjectStore(of_store["GROVEKEEPER_STORE"], tmp_path / "cache")
        )
        with dask_cluster(tmp_path, n_workers=2, **of_store) as cluster:
            for name in ("rpf", "nbrt", "mrf"):
                with monkeypatch.context() as patched:
                    kill_in_a_level(name, cluster, part, stored, patched)


def test_a_cluster_that_is_asked_to_stop_serves_the_job_that_uses_it(
    tmp_path: Path,
) -> None:
    priced = plan(REQUESTS["mrf"], SCHEMA)
    with dask_cluster(tmp_path, n_workers=1) as cluster:
        processes = [*cluster.workers, cluster.scheduler]
        with Connection.to(cluster.address, "job-stop") as connection:
            rows = connection.rows(
                stored_part(tmp_path), codes_of(priced), keep_unlabelled=False
            )
            for process in processes:
                process.send_signal(signal.SIGTERM)
            told = "ends when no job uses it"
            wait_for(
                "every process is told to end",
                lambda: cluster.log().count(told) >= len(processes),
            )
            assert grow(priced, SCHEMA, rows, Noiseless(), on_tree_done=lambda: None)
            assert [process.poll() for process in processes] == [None, None]
        assert _exit_codes(processes) == [0, 0]


def _exit_codes(processes: Sequence[subprocess.Popen[bytes]]) -> list[int]:
    return [wait_for("a process ends", process.poll) for process in processes]


def kill_in_a_level(
    name: str,
    cluster: Cluster,
    part: PartRows,
    stored: PartRows,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Compares the forest of a cluster, one of whose workers is killed in a level, with
    that of one process.

    Args:
        name: of the request.
        cluster: of two workers.
        part: the rows as this process reads them.
        stored: the rows as the workers read them.
        monkeypatch: of the test.
    """
    priced = plan(REQUESTS[name], SCHEMA)
    alone, together = Counting(), Counting()
    expected = grow(
        priced, SCHEMA, local_rows(part, priced), alone, on_tree_done=lambda: None
    )

    with Connection.to(cluster.address, f"job-{name}") as connection:
        assert len(worker_pids(connection)) == 2
        stopped = stop_a_worker(connection, monkeypatch, at=5)
        rows = connection.rows(stored, codes_of(priced), keep_unlabelled=False)
        killer = threading.Thread(
            target=kill_when_stopped, args=(stopped,), daemon=True
        )
        killer.start()
        forest = grow(priced, SCHEMA, rows, together, on_tree_done=lambda: None)
        assert stopped, "the job asked too few questions"
        killer.join()
        wait_for(
            "the nanny starts another worker, for the next test",
            lambda: (
                stopped[0] not in worker_pids(connection)
                and len(worker_pids(connection)) == 2
            ),
        )

    assert together.n_draws == alone.n_draws
    for array, values in expected.arrays.items():
        np.testing.assert_array_equal(forest.arrays[array], values)


def kill_when_stopped(stopped: list[int]) -> None:
    """Kills a worker process half a second after it was stopped: its tasks are on their
    way.
    """
    while not stopped:
        time.sleep(0.01)
    time.sleep(0.5)
    os.kill(stopped[0], signal.SIGKILL)


def test_a_level_that_is_not_counted_in_time_fails_the_job(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    priced, part = plan(REQUESTS["mrf"], SCHEMA), stored_part(tmp_path)
    with Connection.to(cluster.address, "late") as connection:
        rows = connection.rows(part, codes_of(priced), keep_unlabelled=False)
        rows._parts.fleet._deadline_s = 3
        stopped = stop_a_worker(connection, monkeypatch, at=2)
        began = time.monotonic()
        try:
            with pytest.raises(ClusterFailed):
                grow(priced, SCHEMA, rows, Noiseless(), on_tree_done=lambda: None)
        finally:
            os.kill(stopped[0], signal.SIGCONT)
        assert time.monotonic() - began < 120


def test_a_scheduler_that_does_not_answer_fails_the_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It accepts connections, so nothing but the deadline ends a question."""
    priced, part = plan(REQUESTS["mrf"], SCHEMA), stored_part(tmp_path)
    with (
        dask_cluster(tmp_path, n_workers=1) as cluster,
        Connection.to(cluster.address, "silent") as connection,
    ):
        rows = connection.rows(part, codes_of(priced), keep_unlabelled=False)
        rows._parts.fleet._deadline_s = 3
        cluster.scheduler.send_signal(signal.SIGSTOP)
        waker = threading.Timer(60, cluster.scheduler.send_signal, (signal.SIGCONT,))
        waker.start()
        try:
            with pytest.raises(ClusterFailed):
                grow(priced, SCHEMA, rows, Noiseless(), on_tree_done=lambda: None)
            assert waker.is_alive(), "the job waited until the scheduler answered again"
        finally:
            waker.cancel()
            cluster.scheduler.send_signal(signal.SIGCONT)


def test_plain_tcp_is_refused(cluster: Cluster) -> None:
    plain = {
        "GROVEKEEPER_DASK_SCHEDULER": cluster.settings[
            "GROVEKEEPER_DASK_SCHEDULER"
        ].replace("tls", "tcp")
    }
    address = Settings.from_environment(plain).dask_cluster
    assert address is not None
    with pytest.raises(OSError), Connection.to(address, "plain"):
        pytest.fail("connected")


def test_a_foreign_certificate_is_refused(cluster: Cluster, tmp_path: Path) -> None:
    foreign = {**cluster.settings, **certificates(tmp_path / "foreign")}
    address = Settings.from_environment(foreign).dask_cluster
    assert address is not None
    with pytest.raises(OSError), Connection.to(address, "foreign"):
        pytest.fail("connected")
    # With the right authority, and so trusting the scheduler, but a certificate that
    # another authority signed.
    own = Settings.from_environment(cluster.settings).dask_cluster
    assert own is not None
    with (
        pytest.raises(OSError),
        Connection.to(replace(address, ca_file=own.ca_file), "foreign"),
    ):
        pytest.fail("connected")


def test_nothing_listens_beside_the_connections_of_the_cluster(
    cluster: Cluster,
) -> None:
    assert "dashboard at" not in cluster.log()
    assert "data_key" not in cluster.log()


def test_a_scheduler_that_is_gone_fails_the_job_and_keeps_the_charge(
    cluster: Cluster, sqlite_database_url: str, tmp_path: Path
) -> None:
    """A job on the cluster succeeds; once the scheduler is gone, the next one fails,
    charged, with no other cause.
    """
    address = cluster.address
    with opened(sqlite_database_url, tmp_path / "home", lease_ttl_s=60) as scene:
        settings = replace(
            scene.installation.settings,
            dask_scheduler=address.scheduler,
            dask_ca_file=address.ca_file,
            dask_cert_file=address.cert_file,
            dask_key_file=address.key_file,
            dask_rows=0,
        )
        installation = replace(scene.installation, settings=settings)
        jobs = [run_one(scene, installation, key="before")]
        cluster.scheduler.kill()
        cluster.scheduler.wait()
        jobs.append(run_one(scene, installation, key="after"))
        assert _exit_codes(cluster.workers) == [1, 1], (
            "workers end with their scheduler"
        )

        assert [scene.end(job) for job in jobs] == [
            (JobState.SUCCEEDED, None, ["reserve", "charge"]),
            (JobState.FAILED, EndReason.FAILED, ["reserve", "charge"]),
        ]
        scene.verified()


def run_one(scene: Scene, installation: Installation, *, key: str) -> str:
    """Submits a job and runs it in a child process; returns its id.

    Nobody looks for the cluster before the charge, as if the scheduler died in the
    moment between.
    """
    job_id = scene.submit_job(key=key)
    claim = run_job.claim_next(installation)
    assert claim is not None
    supervisor = Supervisor(interval_s=0, stop=Stop())

    def load(lease: Lease, needs: Needs) -> None:
        supervisor.load(lease, replace(needs, files=(), cluster=None))

    run_job.run_job(installation, claim, supervisor.run, load=load)
    return job_id
