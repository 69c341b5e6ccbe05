"""Writes the output of a job's child process durably: completely or not at all."""

from app.core import durable
from app.services.jobs.task import JobTask


def write(task: JobTask, data: bytes) -> None:
    """Writes the job's output into its folder."""
    durable.write(task.output_path, data)
