"""What crosses from a worker to its child."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from app.services.training_task import TrainingTask

TASK = TrainingTask(
    job_id="jb_1",
    folder=Path("/home/jobs/jb_1"),
    schema={"features": [], "label": {"name": "a\nb \u2028", "classes": ["x", "y"]}},
    plan={"n_trees": 3},
    row_files=(Path("/home/rows/ds_1/ep_1.parquet"), Path("/home/rows/ds_1/ep_2.parquet")),
    partition={"name": "shard", "cells": 4},
    cells=(0, 3),
    metadata={"name": None},
)


@pytest.mark.parametrize("task", [TASK, replace(TASK, cells=None, partition=None), replace(TASK, cells=())])
def test_a_task_survives_its_line_of_text(task: TrainingTask) -> None:
    text = task.to_text()
    assert text.isascii()
    assert len(text.splitlines()) == 1, "the child reads one line"
    assert TrainingTask.from_text(text) == task


def test_a_task_names_its_artifact_and_its_trees_and_carries_no_more_than_it_says() -> None:
    assert TASK.artifact_path == Path("/home/jobs/jb_1/artifact.safetensors")
    assert TASK.n_trees == 3
    assert set(json.loads(TASK.to_text())) == {
        "job_id", "folder", "schema", "plan", "row_files", "partition", "cells", "metadata",
    }  # fmt: skip
