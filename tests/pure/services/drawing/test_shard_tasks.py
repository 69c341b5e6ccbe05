"""The tasks of workers without workers: what tells shards apart, and what of a message
reaches the reader of rows.
"""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from app.core.files import StoredFile
from app.core.sealed_files import DataKey
from app.datasets import private_rows
from app.datasets.row_layout import RowGroups
from app.services.drawing import shard_tasks
from app.services.drawing.shard_tasks import Order
from app.services.jobs.task import PartRows
from grovekeeper_forests import remote
from grovekeeper_forests.data.coded_rows import CodeRequest, ColumnRequest
from grovekeeper_forests.data.schema import Label, Schema
from grovekeeper_forests.privacy.partitions import Partitions
from grovekeeper_forests.privacy.scope import Scope
from grovekeeper_forests.remote import StateMissing
from tests.support.uploads import SCHEMA

CUT = Partitions.from_json(
    [{"name": name, "kind": "hash", "cells": 4} for name in ("shard", "site")]
)
DECLARED = Schema.from_json(SCHEMA.to_json())
READ = {
    "data_key": bytes(32),
    "schema": remote.Json(SCHEMA.to_json()),
    "label": "income",
    "partitions": remote.Json(CUT.to_json()),
    "scope": remote.Json({"shard": [1, 2], "site": [3]}),
    "asked": CodeRequest(SimpleNamespace(schema="a schema"), with_ids=True),  # type: ignore[arg-type]
    "keep_unlabelled": True,
}


def order(
    job: str = "jb_1",
    rows: bytes = b"rows",
    file: str = "/file",
    place: tuple[Any, ...] = (b"id", 0, 5),
) -> Order:
    return Order.of(job, rows, file, place)


def test_the_key_of_a_shard_tells_jobs_scopes_files_and_places_apart() -> None:
    orders = [
        order(), order("jb_2"), order(rows=b"other rows"), order(file="/other"), order(place=(b"other", 0, 5)),
        order(place=(b"id", 1, 5)), order(place=(b"id", 0, 6)),
    ]  # fmt: skip
    assert len({each.key for each in orders}) == len(orders)
    assert order() == order()
    assert order().key.startswith("rows-jb_1-")
    assert order().to_tuple() == (order().key, "/file", b"id", 0, 5)
    assert Order(*order().to_tuple()) == order()  # type: ignore[arg-type]


def test_a_shard_is_read_in_the_scope_of_its_job(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With every partition of the scope, and rows without a label where they are asked
    for.
    """
    seen: list[Any] = []
    monkeypatch.setattr(remote, "loads", lambda _rows: READ)
    monkeypatch.setattr(
        shard_tasks, "Selection", lambda *terms, **asked: (terms, asked)
    )
    monkeypatch.setattr(
        private_rows, "read_shard", lambda *read, codes: seen.append((*read, codes))
    )
    order().read(b"rows")
    [(groups, selection, codes)] = seen
    assert isinstance(groups, RowGroups)
    assert (groups.file.file, groups.file_id, groups.start, groups.stop) == (
        StoredFile.at(Path("/file")), b"id", 0, 5,
    )  # fmt: skip
    assert groups.file.key == DataKey(bytes(32))
    assert selection == (
        (DECLARED, CUT, Scope({"shard": [1, 2], "site": [3]})),
        {"label": "income", "keep_unlabelled": True},
    )  # fmt: skip
    assert codes is READ["asked"]


def test_the_label_of_a_job_reaches_the_worker(tmp_path: Path) -> None:
    labels = (Label("ill", ("no", "yes")), Label("back", ("no", "yes")))
    schema = Schema(SCHEMA.features, labels[0], (), labels[1:])
    part = PartRows(
        schema=schema.to_json(),
        row_files=(),
        partitions=CUT.to_json(),
        scope=Scope({}),
        data_key=DataKey(bytes(32)),
        label="back",
    )
    asked = ColumnRequest(part.columns, ("back",))
    rows = shard_tasks.rows_of(part, asked, keep_unlabelled=False)
    selection = shard_tasks._selection(remote.loads(rows))
    assert selection.schema.labels == labels[1:]
    assert selection.label_columns == {"back": "label1"}


def test_a_name_is_read_in_the_store_and_a_path_at_its_place(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(shard_tasks, "_HERE", shard_tasks._Process())
    assert shard_tasks._stored("/file") == StoredFile.at(Path("/file"))
    with pytest.raises(ValueError, match="no store"):
        shard_tasks._stored("name")
    store: Any = SimpleNamespace()
    shard_tasks.read_from(store)
    assert shard_tasks._stored("name") == StoredFile(store, "name")


def test_a_shard_is_kept_until_it_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shard_tasks, "_HERE", shard_tasks._Process())
    with pytest.raises(StateMissing):
        shard_tasks._shard(order(), b"")
    held = shard_tasks._shard(order(), b"rows")
    assert shard_tasks._shard(order(), b"") is held
    assert shard_tasks._shard(order("jb_2"), b"rows") is not held
    shard_tasks.forget(order("jb_3").key)
    shard_tasks.forget(order().key)
    assert list(shard_tasks._HERE.shards) == [order("jb_2").key]


class Forgetting(dict[str, Any]):
    """The shards of a process, where Dask drops a key between two looks at it."""

    def __contains__(self, key: object) -> bool:
        return True

    def __getitem__(self, key: str) -> Any:
        raise KeyError(key)


def test_a_shard_that_is_forgotten_beside_a_task_is_read_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shards = Forgetting()
    monkeypatch.setattr(shard_tasks._HERE, "shards", shards)
    shard = shard_tasks._shard(order(), b"rows")
    assert shards.get(order().key) is shard
    with pytest.raises(StateMissing):
        shard_tasks._shard(order("jb_2"), b"")
