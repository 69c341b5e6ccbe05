"""Machines with nothing in common but PostgreSQL and a server that speaks S3:
processes, and homes of their own.

The rules of the store and of its copies are tested in one process
(tests/database/test_machines.py).
"""

import os
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import pytest

from app.cli.prepare import register_configured_admin
from app.core import processes
from app.core.sealed_files import StorageKeys
from app.core.settings import Settings
from app.ledger.checkpoints import Signer
from grovekeeper_client.client import Client
from grovekeeper_client.errors import ApiProblem
from tests.faults.proxy import Proxy, proxies
from tests.support.dask_cluster import dask_cluster
from tests.support.forked_program import ForkedProgram
from tests.support.forked_program import start as fork
from tests.support.ports import free_port
from tests.support.processes import fetched
from tests.support.s3_server import BUCKET, credentials, s3_server

_GIVE_UP_S = 300
_ADMIN_KEY = "key_admin." + "k" * 43
_DECLARATION = {
    "name": "visits",
    "schema": {
        "features": [{"name": "age", "type": "integer", "lower": 0, "upper": 120}],
        "label": {"name": "income", "classes": ["low", "high"]},
    },
    "budget": {"accountant": "pure", "epsilon": "100"},
    "privacy_unit": {"column": "patient", "max_rows": 2},
}

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def s3_port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    with s3_server(tmp_path_factory.mktemp("s3")) as port:
        yield port


def _wait(is_true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + _GIVE_UP_S
    while time.monotonic() < deadline:
        with suppress(httpx.TransportError):
            if is_true():
                return
        time.sleep(0.1)
    raise TimeoutError


class Machines:
    """Starts processes of machines, each with a home of its own."""

    def __init__(self, folder: Path, database_url: str, store: Proxy) -> None:
        self._folder = folder
        self.started: list[ForkedProgram] = []
        self.settings = Settings(
            home=folder / "keys",
            database_url=database_url,
            storage_key=StorageKeys.new_text(),
            signing_key_file=folder / "keys" / "signing.key",
            admin_key=_ADMIN_KEY,
        )
        self.settings.home.mkdir()
        Signer.open(folder / "keys" / "signing.key", make=True)
        register_configured_admin(self.settings)
        clean = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("GROVEKEEPER_", "AWS_"))
        }
        self.environ = processes.module_environment(
            clean
            | {
                "GROVEKEEPER_DATABASE_URL": database_url,
                "GROVEKEEPER_STORE": f"s3://{BUCKET}/{folder.name}",
                "GROVEKEEPER_STORAGE_KEY": str(self.settings.storage_key),
                "GROVEKEEPER_SIGNING_KEY_FILE": str(self.settings.signing_key_file),
                "GROVEKEEPER_LEASE_TTL_S": "3",
                "GROVEKEEPER_POLL_INTERVAL_S": "0.1",
            }
            | credentials(store.port)
        )

    def home(self, name: str) -> Path:
        return self._folder / name

    def log(self, name: str) -> Path:
        return self._folder / f"{name}.log"

    def start(self, name: str, *arguments: str) -> ForkedProgram:
        environ = self.environ | {"GROVEKEEPER_HOME": str(self.home(name))}
        process = fork(
            "app.cli.main",
            *arguments,
            folder=self._folder,
            environ=environ,
            log=self.log(name),
        )
        self.started.append(process)
        return process

    def api(self, name: str) -> Client:
        port = free_port()
        self.start(name, "api", "--port", str(port))
        url = f"http://127.0.0.1:{port}"
        _wait(lambda: fetched(f"{url}/readyz").status_code == 200)
        return Client(url, _ADMIN_KEY)


@pytest.fixture
def store(s3_port: int) -> Iterator[Proxy]:
    with proxies(s3_port, 1) as [proxy]:
        yield proxy


@pytest.fixture
def machines(
    postgresql_database_url: str, store: Proxy, tmp_path: Path
) -> Iterator[Machines]:
    machines = Machines(tmp_path, postgresql_database_url, store)
    yield machines
    for process in machines.started:
        process.end()


def _upload(client: Client, file: Path, rows: list[tuple[str, int]]) -> dict[str, Any]:
    lines = [f"{patient},{age},{('low', 'high')[age % 2]}" for patient, age in rows]
    file.write_text("\n".join(["patient,age,income", *lines, ""]))
    return dict(client.upload_rows("visits", file))


def _train(client: Client) -> str:
    parameters = {"n_estimators": 2, "max_depth": 2}
    request = {
        "dataset": "visits",
        "algorithm": "rdt-ta",
        "epsilon": "1",
        "parameters": parameters,
    }
    return str(client.train(request)["job_id"])


def _predict(client: Client, model: str) -> Any:
    return client.predict(model, {"rows": [{"age": 41}]})


def test_machines_share_nothing_but_the_database_and_the_store(
    machines: Machines, store: Proxy, tmp_path: Path
) -> None:
    first, second = machines.api("first"), machines.api("second")
    worker = machines.start("worker", "worker")
    first.declare_dataset(_DECLARATION)
    people = [(f"person-{number}", number % 90) for number in range(100)]
    _upload(first, tmp_path / "rows.csv", people)
    again = _upload(second, tmp_path / "rows.csv", [*people, *people])
    assert again["dropped"] == {"without_unit": 0, "over_bound": 100}

    job = second.wait_for_job(_train(first))
    assert job["state"] == "succeeded"
    assert _predict(first, job["model_id"]) == _predict(second, job["model_id"])
    assert second.erase_unit("visits", "person-7")["erased"] == 2
    assert first.wait_for_job(_train(second))["state"] == "succeeded"

    store.disconnect()
    waiting = _train(first)
    with pytest.raises(ApiProblem) as refused:
        _upload(second, tmp_path / "rows.csv", people)
    assert refused.value.status == 503
    time.sleep(2)
    assert first.job(waiting)["state"] in ("queued", "running")
    assert first.balance("visits")["charged"] == "2", (
        "nothing is charged while rows cannot be read"
    )
    assert _predict(first, job["model_id"]), "a model in memory needs no store"
    store.heal()
    assert first.wait_for_job(waiting)["state"] == "succeeded", (
        "the outage cost nothing"
    )
    worker.kill()
    last = _train(second)
    machines.start("another worker", "worker")
    assert first.wait_for_job(last)["state"] == "succeeded", (
        "a lost machine loses nothing"
    )

    first.delete_dataset("visits")
    assert _predict(machines.api("third"), job["model_id"])
    for name in ("first", "second", "worker", "another worker", "third"):
        files = {
            path.relative_to(machines.home(name)).parts[0]
            for path in machines.home(name).rglob("*")
        }
        assert files <= {"cache", "jobs"}, "a machine has copies only"
        assert "person-7" not in machines.log(name).read_text(), (
            "no log has a private value"
        )


def test_one_machine_serves_and_trains_with_rows_in_the_store(
    machines: Machines, tmp_path: Path
) -> None:
    port = free_port()
    machines.start("one", "serve", "--port", str(port))
    url = f"http://127.0.0.1:{port}"
    client = Client(url, _ADMIN_KEY)
    _wait(lambda: fetched(f"{url}/readyz").status_code == 200)
    client.declare_dataset(_DECLARATION)
    _upload(
        client,
        tmp_path / "rows.csv",
        [(f"person-{number}", number % 90) for number in range(100)],
    )
    job = client.wait_for_job(_train(client))
    assert job["state"] == "succeeded"
    assert _predict(client, job["model_id"])
    files = {
        path.relative_to(machines.home("one")).parts[0]
        for path in machines.home("one").rglob("*")
    }
    assert not files & {"rows", "artifacts", "checkpoints"}, (
        "the worker uses the store, too"
    )


def test_a_dask_cluster_reads_rows_from_the_store_and_no_machine_has_a_copy(
    machines: Machines, tmp_path: Path
) -> None:
    of_store = {
        name: machines.environ[name]
        for name in machines.environ
        if name.startswith("AWS_")
    }
    of_store["GROVEKEEPER_STORE"] = machines.environ["GROVEKEEPER_STORE"]
    with dask_cluster(tmp_path, n_workers=2, **of_store) as cluster:
        address = {
            name: value
            for name, value in cluster.settings.items()
            if name.startswith("GROVEKEEPER_DASK_")
        }
        machines.environ |= address | {"GROVEKEEPER_DASK_ROWS": "0"}
        api = machines.api("api")
        machines.start("worker", "worker")
        api.declare_dataset(_DECLARATION)
        for first in (0, 100):
            _upload(
                api,
                tmp_path / "rows.csv",
                [(f"person-{first + number}", number % 90) for number in range(100)],
            )
        job = api.wait_for_job(_train(api))
        assert job["state"] == "succeeded"
        assert _predict(api, job["model_id"])
        assert api.erase_unit("visits", "person-7")["erased"] == 1
        assert api.wait_for_job(_train(api))["state"] == "succeeded"
        assert machines.environ["GROVEKEEPER_STORAGE_KEY"] not in cluster.log()
    copied = {
        path.name
        for path in (machines.home("worker") / "cache").rglob("*")
        if path.is_file()
    }
    assert not [name for name in copied if name.endswith((".parquet", ".codes"))]
