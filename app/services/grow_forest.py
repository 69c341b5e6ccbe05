"""The only use case that reads private rows. It runs in the child, after the charge was committed."""

import os
from collections.abc import Callable

from app.datasets import private_rows
from app.forests import codec, planning
from app.forests.grow import grow
from app.forests.randomness import SystemRandomness
from app.forests.schema import Schema
from app.privacy.composition import HashPartition
from app.services.training_task import TrainingTask


def grow_forest(task: TrainingTask, *, on_tree_done: Callable[[], None]) -> None:
    """Reads the rows in scope, grows the forest that was priced, and leaves the artifact in the task's folder.

    One call is one release, paid for by the job's charge. Running it again would be another release: a job that broke
    after its charge is failed and stays charged.
    """
    schema = Schema.from_json(task.schema)
    partition = None if task.partition is None else HashPartition(task.partition["name"], task.partition["cells"])
    rows = private_rows.read(task.row_files, schema=schema, partition=partition, cells=task.cells)
    forest = grow(planning.read(task.plan), schema, rows, SystemRandomness(), on_tree_done=on_tree_done)
    # Not task.schema: its JSON has been through a store, which writes 1e18 as an integer that RFC 8785 refuses.
    data = codec.dumps(forest, {**task.metadata, "schema": schema.to_json()})
    unfinished = task.artifact_path.with_suffix(".part")
    with unfinished.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    unfinished.replace(task.artifact_path)
