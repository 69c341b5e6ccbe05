"""Kills machines at steps of a job over S3: another machine, with a home of its own,
finishes the job or settles it.
"""

import os
import signal
from collections.abc import Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path

import pytest

from app.core.sealed_files import StorageKeys
from app.core.settings import Settings
from app.ledger.checkpoints import Signer
from app.registry import models
from app.services.datasets.erase import delete_dataset
from app.services.execution import sweep
from app.services.installation import Installation
from app.services.ledger.heads import Heads
from tests.support.crash_scene import OWNER, Scene, open_reservations, open_with
from tests.support.databases import MigratedDatabase
from tests.support.forked_program import ForkedProgram, start
from tests.support.s3_server import BUCKET, credentials, s3_server
from tests.support.waiting import wait_for

SUCCEED = (
    "claimed",
    "rows-half-copied",
    "success-not-committed",
    "success-repeated",
    "success-committed",
)
LOST = ("charged", "artifact-grown", "artifact-put", "artifact-stored")
POINTS = (*SUCCEED, *LOST)
_ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.long


@dataclass(frozen=True)
class Machines:
    """A scene, whose process only submits, and the homes of the machines that were
    killed.

    Attributes:
        jobs: by the point at which the job's machine was killed.
    """

    scene: Scene
    homes: dict[str, Path]
    jobs: dict[str, str]

    def objects(self, folder: str) -> set[str]:
        """The names of the objects in a folder of the store."""
        return {file.basename for file in self.scene.installation.files.files(folder)}


@pytest.fixture(scope="module")
def machines(
    migrated_database: MigratedDatabase, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Machines]:
    """Kills one machine per point, each with a job of its own; then a healthy machine
    settles all jobs.
    """
    folder = tmp_path_factory.mktemp("machines")
    with (
        s3_server(folder) as port,
        pytest.MonkeyPatch.context() as patched,
        migrated_database("postgresql", folder) as url,
        ExitStack() as closes,
    ):
        for name, value in credentials(port).items():
            patched.setenv(name, value)
        settings = Settings(
            home=folder / "api",
            database_url=url,
            store=f"s3://{BUCKET}/prefix",
            storage_key=StorageKeys.new_text(),
            signing_key_file=folder / "api" / "signing.key",
            lease_ttl_s=3,
        )
        settings.home.mkdir()
        Signer.open(folder / "api" / "signing.key", make=True)
        installation = closes.enter_context(closing(open_with(settings)))
        Heads(installation).confirm()
        scene = Scene.declared(installation)
        machines = Machines(
            scene,
            {point: folder / point for point in POINTS},
            _killed(scene, folder, port),
        )
        healthy = _start(scene, folder / "healthy", port, "for-ever")
        wait_for("every job is settled", lambda: _are_settled(machines))
        healthy.end()
        yield machines


def _killed(scene: Scene, folder: Path, port: int) -> dict[str, str]:
    """Runs a job for each point on a machine that is killed there, and sweeps nothing;
    returns the jobs by point.
    """
    jobs = {}
    for point in POINTS:
        scene.submit_job(key=point)
        machine = _start(scene, folder / point, port, point)
        assert machine.wait() == -signal.SIGKILL, (folder / "log").read_text()
        machine.close()
        [[jobs[point]]] = [
            line.split()[1:]
            for line in _journal(folder, point).read_text().splitlines()
            if line.startswith("claimed ")
        ]
    return jobs


def _start(scene: Scene, home: Path, port: int, point: str) -> ForkedProgram:
    settings = scene.installation.settings
    environ = credentials(port) | {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": str(_ROOT),
        "GROVEKEEPER_HOME": str(home),
        "GROVEKEEPER_DATABASE_URL": settings.database_url,
        "GROVEKEEPER_STORE": str(settings.store),
        "GROVEKEEPER_STORAGE_KEY": str(settings.storage_key),
        "GROVEKEEPER_SIGNING_KEY_FILE": str(settings.signing_key_file),
        "GROVEKEEPER_LEASE_TTL_S": "3",
        "GROVEKEEPER_POLL_INTERVAL_S": "0.1",
    }
    arguments = ("worker", point, str(_journal(home.parent, point)))
    return start(
        "tests.support.crash",
        *arguments,
        folder=home.parent,
        environ=environ,
        log=home.parent / "log",
    )


def _journal(folder: Path, point: str) -> Path:
    return folder / f"{point}.journal"


def _are_settled(machines: Machines) -> bool:
    return all(
        machines.scene.job(job).state not in ("queued", "running")
        for job in machines.jobs.values()
    )


@pytest.mark.parametrize("point", POINTS)
def test_another_machine_finishes_an_uncharged_job_and_settles_a_charged_one(
    machines: Machines, point: str
) -> None:
    end = machines.scene.end(machines.jobs[point])
    assert end == (
        *(("succeeded", None) if point in SUCCEED else ("failed", "lost")),
        ["reserve", "charge"],
    )


def test_nothing_is_charged_twice_and_no_reservation_is_left(
    machines: Machines,
) -> None:
    assert open_reservations(machines.scene.entries()) == set()
    assert machines.scene.verified().kinds == {
        "open": 1,
        "reserve": len(POINTS),
        "charge": len(POINTS),
    }


def test_artifacts_of_lost_machines_are_removed_by_another(
    machines: Machines, monkeypatch: pytest.MonkeyPatch
) -> None:
    installation = machines.scene.installation
    with installation.database.read() as session:
        needed = {f"{digest}.safetensors" for digest in models.digests(session)}
    assert len(needed) == len(SUCCEED)
    assert len(machines.objects("artifacts") - needed) == 2, "put, and stored"
    monkeypatch.setattr(sweep, "STALE_ARTIFACT", timedelta(minutes=-1))
    sweep.tidy_artifacts(installation)
    assert machines.objects("artifacts") == needed


def test_an_erasure_leaves_no_object_and_no_copy_on_a_machine_that_comes_back(
    machines: Machines, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Runs last: it deletes the dataset."""
    scene = machines.scene
    assert any(_files(home) for home in machines.homes.values()), (
        "machines had copies of rows"
    )
    delete_dataset(scene.installation, OWNER, scene.dataset_id)
    assert machines.objects("rows") == machines.objects("prints") == set()
    monkeypatch.setattr("app.core.limits.CACHED_OBJECT_STAYS_S", -1)
    for home in machines.homes.values():
        again = Installation.open(
            replace(scene.installation.settings, home=home), pool_size=2
        )
        sweep.tidy_rows(again)
        sweep.tidy_jobs(again)
        again.close()
        assert _files(home) == []
        assert not list((home / "jobs").glob("*"))


def _files(home: Path) -> list[Path]:
    """Copies of rows, unfinished ones included."""
    return [
        path for path in home.rglob("*") if path.is_file() and ".parquet" in path.name
    ]
