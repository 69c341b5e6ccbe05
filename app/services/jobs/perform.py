"""What the child of a charged job does: each kind of job reads private rows in one function of its own."""

from collections.abc import Callable

from app.services.jobs.task import JobTask


def perform(task: JobTask, *, on_tree_done: Callable[[], None]) -> None:
    """Does the work of a job once and leaves its output in the task's folder.

    Raises:
        KeyError: a kind that this version does not know.
    """
    if task.kind == "train":
        from app.services.training.grow_forest import grow_forest  # here: the compiled kernels of a kind load slowly

        grow_forest(task, on_tree_done=on_tree_done)
    elif task.kind == "profile":
        from app.services.profiles.release_profile import release_profile

        release_profile(task)
    elif task.kind == "evaluation":
        from app.services.evaluations.release_evaluation import release_evaluation

        release_evaluation(task)
    else:
        raise KeyError("unknown kind of job")
