"""The task that a worker passes to its child process."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from app.core.dask_cluster import DaskCluster
from app.core.sealed_files import DataKey
from app.services.jobs.task import JobTask, PartRows
from grovekeeper_forests.privacy.scope import WHOLE, Scope

PART = PartRows(
    schema={"features": [], "label": {"name": "a\nb \u2028", "classes": ["x", "y"]}},
    row_files=(
        Path("/home/rows/ds_1/ep_1.parquet"),
        Path("/home/rows/ds_1/ep_2.parquet"),
    ),
    partitions=[{"name": "shard", "kind": "hash", "cells": 4}],
    scope=Scope({"region": ("EU", "OTHER"), "shard": (0, 3)}),
    data_key=DataKey(bytes(range(32))),
)
TASK = JobTask(
    kind="train",
    job_id="jb_1",
    folder=Path("/home/jobs/jb_1"),
    work={"plan": {"n_trees": 3}},
    n_trees=3,
    parts=(PART,),
    metadata={"name": None},
)


CLUSTER = DaskCluster(
    "tls://10.0.0.5:8786",
    Path("/ca.pem"),
    Path("/cert.pem"),
    Path("/key.pem"),
    deadline_s=60,
)


@pytest.mark.parametrize(
    "task",
    [
        TASK,
        replace(TASK, parts=(PART, replace(PART, scope=WHOLE, partitions=[]))),
        replace(TASK, parts=()),
        replace(TASK, cluster=CLUSTER),
    ],
)
def test_a_task_survives_its_line_of_text(task: JobTask) -> None:
    text = task.to_text()
    assert text.isascii()
    assert len(text.splitlines()) == 1, "the child reads one line"
    assert JobTask.from_text(text) == task


def test_a_task_names_its_output_and_carries_no_more_than_it_says() -> None:
    assert TASK.output_path == Path("/home/jobs/jb_1/output")
    assert set(json.loads(TASK.to_text())) == {
        "kind", "job_id", "folder", "work", "n_trees", "parts", "metadata", "cluster",
    }  # fmt: skip
    assert set(json.loads(TASK.to_text())["parts"][0]) == {
        "schema", "row_files", "partitions", "scope", "data_key", "label",
    }  # fmt: skip


def test_no_key_is_in_the_repr() -> None:
    assert PART.data_key.secret.hex() in TASK.to_text()
    assert "data_key" not in repr(TASK)
    assert repr(PART.data_key.secret) not in repr(TASK)
