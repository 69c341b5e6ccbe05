"""Runs a charged job in the child process: one function per kind of job reads rows and writes the output."""

from collections.abc import Callable

from app.services.evaluations import release_evaluation
from app.services.jobs.task import JobTask
from app.services.profiles import release_profile
from app.services.training import grow_forest


def perform(task: JobTask, *, on_tree_done: Callable[[], None]) -> None:
    """Does the work of a job once and writes its output to the task's folder.

    Raises:
        KeyError: the task names no kind of job.
    """
    match task.kind:
        case "train":
            grow_forest.grow_forest(task, on_tree_done=on_tree_done)
        case "profile":
            release_profile.release_profile(task)
        case "evaluation":
            release_evaluation.release_evaluation(task)
        case _:
            raise KeyError("unknown kind of job")
