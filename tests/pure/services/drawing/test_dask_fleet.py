"""Tests the Dask provider on a scheduler and a worker in this process: equal forests,
and receipts without rows.
"""

import asyncio
import importlib.metadata
import re
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import replace
from io import BytesIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import dask
import numpy as np
import pytest
from distributed import Client, SpecCluster
from distributed.security import Security

from app.core.dask_cluster import CONFIG, DaskCluster
from app.core.files import StoredFile
from app.core.object_store import ObjectStore
from app.datasets import private_rows
from app.services.drawing import dask_fleet, shard_tasks
from app.services.drawing.dask_fleet import (
    ClusterFailed,
    Connection,
    DaskFleet,
    WorkerUnfit,
)
from app.worker.dask_process import QuietScheduler, RowsKept
from grovekeeper_forests import remote
from grovekeeper_forests.releases.forest.draw import grow
from grovekeeper_forests.releases.forest.price import plan
from grovekeeper_forests.remote import ShardStates
from tests.privacy.noiseless import REQUESTS, Noiseless
from tests.support.stored_part import codes_of, in_store, local_rows, stored_part
from tests.support.uploads import SCHEMA
from tests.support.workers_here import WorkerHere, wait_for

NAMES = ("rpf", "nbrt", "mrf, sharded and apart")


@pytest.fixture(scope="module")
def scheduler(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    inside = {
        "protocol": "inproc://",
        "local_directory": str(tmp_path_factory.mktemp("dask")),
    }
    worker = {
        "cls": WorkerHere,
        "options": {**inside, "nthreads": 1, "plugins": (RowsKept(),)},
    }
    with (
        dask.config.set(CONFIG),
        SpecCluster(
            {0: worker},
            {"cls": QuietScheduler, "options": {**inside, "dashboard": False}},
        ) as cluster,
    ):
        yield cluster.scheduler_address


@pytest.fixture
def connection(scheduler: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Connection]:
    monkeypatch.setattr(dask_fleet, "SHARD_ROWS", 250)
    with dask.config.set(CONFIG), Client(scheduler) as client:
        yield Connection(client, 60, "job")


@pytest.mark.parametrize("name", NAMES)
def test_a_forest_on_workers_is_the_forest_of_one_process(
    name: str, connection: Connection, tmp_path: Path
) -> None:
    priced, part = plan(REQUESTS[name], SCHEMA), stored_part(tmp_path)
    expected = grow(
        priced, SCHEMA, local_rows(part, priced), Noiseless(), on_tree_done=lambda: None
    )

    rows = connection.rows(part, codes_of(priced), keep_unlabelled=False)
    assert len(shard_tasks._HERE.shards) == 3
    forest = grow(priced, SCHEMA, rows, Noiseless(), on_tree_done=lambda: None)

    assert forest.arrays.keys() == expected.arrays.keys()
    for array, values in expected.arrays.items():
        np.testing.assert_array_equal(forest.arrays[array], values)


def test_workers_read_a_store_by_range_and_keep_no_copy(
    connection: Connection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    priced, part = plan(REQUESTS["rpf"], SCHEMA), stored_part(tmp_path / "home")
    expected = grow(
        priced, SCHEMA, local_rows(part, priced), Noiseless(), on_tree_done=lambda: None
    )
    part = in_store(
        part, ObjectStore(f"file://{tmp_path / 'bucket'}", tmp_path / "writer")
    )
    monkeypatch.setattr(
        shard_tasks._HERE,
        "store",
        ObjectStore(f"file://{tmp_path / 'bucket'}", tmp_path / "reader"),
    )

    rows = connection.rows(part, codes_of(priced), keep_unlabelled=False)
    assert len(shard_tasks._HERE.shards) == 3
    forest = grow(priced, SCHEMA, rows, Noiseless(), on_tree_done=lambda: None)

    for array, values in expected.arrays.items():
        np.testing.assert_array_equal(forest.arrays[array], values)
    assert not (tmp_path / "reader").exists()


def test_a_name_without_a_store_fails(connection: Connection, tmp_path: Path) -> None:
    part = replace(stored_part(tmp_path), row_files=(Path("rows/ds_1/ep_1.parquet"),))
    with pytest.raises(ClusterFailed):
        connection.rows(
            part, codes_of(plan(REQUESTS["mrf"], SCHEMA)), keep_unlabelled=False
        )


def test_keys_of_shards_name_the_job_and_not_what_opens_its_rows(
    connection: Connection, tmp_path: Path
) -> None:
    """Schedulers and workers log them."""
    codes = codes_of(plan(REQUESTS["mrf"], SCHEMA))
    rows = connection.rows(stored_part(tmp_path), codes, keep_unlabelled=False)
    fleet = rows._parts.fleet
    assert isinstance(fleet, DaskFleet)
    for key in fleet._receipts:
        assert re.fullmatch("rows-job-[0-9a-f]{64}", key)


def test_every_file_of_a_part_is_divided_or_the_job_fails(
    connection: Connection, tmp_path: Path
) -> None:
    part = stored_part(tmp_path)
    codes = codes_of(plan(REQUESTS["mrf"], SCHEMA))
    missing = replace(part, row_files=(*part.row_files, tmp_path / "missing.parquet"))
    with pytest.raises(ClusterFailed):
        connection.rows(missing, codes, keep_unlabelled=False)


def test_a_cluster_whose_last_worker_has_just_ended_fails_the_job(
    connection: Connection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def no_workers(_: Client) -> dict[str, int]:
        return {}

    monkeypatch.setattr(Client, "nthreads", no_workers)
    part = stored_part(tmp_path)
    codes = codes_of(plan(REQUESTS["mrf"], SCHEMA))
    with pytest.raises(ClusterFailed):
        connection.rows(part, codes, keep_unlabelled=False)


def test_workers_drop_the_rows_when_the_connection_ends(
    connection: Connection, tmp_path: Path
) -> None:
    rows = connection.rows(
        stored_part(tmp_path),
        codes_of(plan(REQUESTS["mrf"], SCHEMA)),
        keep_unlabelled=False,
    )
    fleet = rows._parts.fleet
    assert isinstance(fleet, DaskFleet)
    assert shard_tasks._HERE.shards.keys() == fleet._receipts.keys()
    assert set(connection.client.gather(list(fleet._receipts.values()))) == {
        shard_tasks.ANSWER
    }, "no row in a result"

    connection.client.close()
    wait_for(lambda: not shard_tasks._HERE.shards)


@pytest.mark.parametrize(
    ("owner", "name"),
    [(private_rows, "shards"), (private_rows, "read_shard"), (ShardStates, "answer")],
)
def test_a_task_that_fails_says_and_logs_nothing(
    connection: Connection,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    owner: object,
    name: str,
) -> None:
    """Dividing a file, reading a shard, and counting it."""

    def unreadable(*_args: object, **_named: object) -> None:
        raise ValueError("39, Ann")

    monkeypatch.setattr(owner, name, unreadable)
    part = stored_part(tmp_path)
    with pytest.raises(ClusterFailed) as caught:
        connection.rows(
            part, codes_of(plan(REQUESTS["mrf"], SCHEMA)), keep_unlabelled=False
        ).code_counts(0)
    assert "Ann" not in caplog.text + str(caught.value)
    assert part.data_key.secret.hex() not in caplog.text
    assert "Compute Failed" not in caplog.text, (
        "Dask's line with the arguments of a task that raised"
    )
    assert caught.value.__cause__ is None


def test_a_message_that_cannot_be_read_is_one_opaque_failure() -> None:
    for task in (shard_tasks.divide, shard_tasks.hold, shard_tasks.count):
        n_messages = task.__code__.co_argcount
        assert task(*[b""] * n_messages) == shard_tasks.FAILED


@pytest.mark.parametrize("missing", [None, 0, 1, 2])
def test_a_worker_looks_at_every_file_of_a_job(
    tmp_path: Path, missing: int | None
) -> None:
    files = [tmp_path / f"{number}" for number in range(3)]
    for number, file in enumerate(files):
        if number != missing:
            file.write_bytes(b"rows")
    looked = asyncio.run(shard_tasks.look(remote.dumps(tuple(map(str, files)))))
    assert looked == (
        shard_tasks.FAILED
        if missing is not None
        else shard_tasks.ANSWER + shard_tasks.VERSION
    )


def test_a_worker_reads_of_a_file_before_it_says_that_it_can(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A store may find a file that it then does not give away."""

    class Withheld(BytesIO):
        def read(self, size: int | None = -1, /) -> bytes:
            if size:
                raise OSError
            return b""

    monkeypatch.setattr(StoredFile, "open", lambda _: Withheld())
    files = remote.dumps(("/rows",))
    looked = asyncio.run(shard_tasks.look(files))
    assert looked == shard_tasks.FAILED


def test_a_worker_says_the_version_that_it_loaded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Not that of an upgrade of its files, with which it would get tasks that it does
    not understand.
    """
    before = asyncio.run(shard_tasks.look(remote.dumps(())))
    monkeypatch.setattr(
        importlib.metadata, "distribution", lambda _: SimpleNamespace(version="99")
    )
    assert importlib.metadata.version("grovekeeper") == "99"
    assert asyncio.run(shard_tasks.look(remote.dumps(()))) == before


class AnsweringClient:
    """A client of a scheduler whose workers give some answers."""

    answers: dict[str, object]
    asked: list[object]

    def __init__(self, scheduler: str, *, security: Security) -> None:
        self.asked += [scheduler, security.require_encryption, security.tls_ca_file]

    def __enter__(self) -> "AnsweringClient":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self.asked.append("closed")

    def wait_for_workers(self, n_workers: int) -> None:
        self.asked.append(n_workers)

    def run(self, task: object, files: bytes, *, on_error: str) -> Any:
        self.asked += [task, remote.loads(files), on_error]
        return self.answers


@pytest.fixture
def answering(monkeypatch: pytest.MonkeyPatch) -> type[AnsweringClient]:
    monkeypatch.setattr(dask_fleet, "Client", AnsweringClient)
    AnsweringClient.asked = []
    return AnsweringClient


BEYOND = DaskCluster(
    "tls://10.0.0.5:8786", Path("ca.pem"), Path("cert.pem"), Path("key.pem"), 60
)


@pytest.mark.parametrize("unfit", ["", "a", "c", "bc", "abc"])
def test_a_job_needs_every_worker_and_the_log_names_those_that_are_unfit(
    answering: type[AnsweringClient],
    caplog: pytest.LogCaptureFixture,
    unfit: str,
) -> None:
    fit = shard_tasks.ANSWER + shard_tasks.VERSION
    failures = dict.fromkeys(unfit, OSError())
    answering.answers = dict.fromkeys("cab", fit) | failures
    with pytest.raises(WorkerUnfit) if unfit else nullcontext():
        dask_fleet.require_workers(BEYOND, iter(["one", "other"]))
    assert [record.dask_workers for record in caplog.records] == (  # type: ignore[attr-defined]
        [list(unfit)] if unfit else []
    )
    assert answering.asked == [
        *(BEYOND.scheduler, True, "ca.pem", 1),
        *(shard_tasks.look, ("one", "other"), "return", "closed"),
    ]


def test_a_job_shows_its_certificate_to_the_scheduler_and_has_keys_of_its_own(
    answering: type[AnsweringClient],
) -> None:
    with Connection.to(BEYOND, "jb_1") as connection:
        assert (connection.deadline_s, connection.job_id) == (60, "jb_1")
        assert isinstance(connection.client, answering)
    assert answering.asked == [BEYOND.scheduler, True, "ca.pem", "closed"]
