"""How a child leaves what it released: whole and durable, or not at all."""

import os

from app.services.jobs.task import JobTask


def write(task: JobTask, data: bytes) -> None:
    """Writes the job's output into its folder."""
    unfinished = task.output_path.with_suffix(".part")
    with unfinished.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    unfinished.replace(task.output_path)
