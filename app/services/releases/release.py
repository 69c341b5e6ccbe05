"""Runs a charged job in the child process: a function for each kind of job reads rows and writes the output."""

import json
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Protocol

from app.datasets import private_rows
from app.datasets.private_rows import Selection
from app.forests import catalogue
from app.forests.bins import quantile_bins
from app.forests.contract.plan import Forest, Plan
from app.forests.data.coded_rows import CodeRequest, TrainingRows
from app.forests.data.schema import Schema
from app.forests.noise.randomness import SystemRandomness
from app.privacy.events import Adjacency
from app.privacy.partitions import Partitions
from app.releases.evaluation.draw import release as draw_evaluation
from app.releases.evaluation.price import EvaluationPlan
from app.releases.forest import price as forest_price
from app.releases.forest import read as released_forest
from app.releases.forest.draw import code_request, grow
from app.releases.profile.draw import release as draw_profile
from app.releases.profile.price import ProfilePlan
from app.services.jobs.task import JobTask, PartRows, input_path


def perform(task: JobTask, *, on_tree_done: Callable[[], None]) -> None:
    """Does the work of a job once and writes its output to the task's folder.

    Raises:
        KeyError: the task names no kind of job.
    """
    match task.kind:
        case "train":
            grow_forest(task, on_tree_done=on_tree_done)
        case "profile":
            release_profile(task)
        case "evaluation":
            release_evaluation(task)
        case _:
            raise KeyError("unknown kind of job")


class ReadRows(Protocol):
    """Reading the rows of a part of a job."""

    def __call__(self, part: PartRows, schema: Schema, plan: Plan, *, keep_unlabelled: bool) -> TrainingRows:
        """The PRIVATE rows in the scope; ``keep_unlabelled``: also those whose label is missing or unknown."""


def grow_forest(task: JobTask, *, on_tree_done: Callable[[], None]) -> None:
    """Reads the rows of every part, grows the priced forest and writes the artifact to the task's folder.

    One call is one release, paid for by the job's charge. A second call would be a second release, so a job that breaks
    after its charge fails and stays charged.
    """
    schema = Schema.from_json(task.parts[0].schema)
    plan = forest_price.read_plan(task.work["plan"])
    with ExitStack() as stack:
        forest = _grow(plan, schema, task.parts, _reader(task, stack), on_tree_done=on_tree_done)
    expected_rows = task.metadata.get("expected_rows")
    judged = {
        "only_answer": released_forest.only_answer_in_words(forest, schema, expected_rows)
    }  # post-processing, for cards and quotes
    # Not the task's schema: the database stores its 1e18 as an integer, which RFC 8785 refuses.
    data = released_forest.dumps(forest, {**task.metadata, **judged, "schema": schema.to_json()})
    task.write_output(data)


def _grow(
    plan: Plan, schema: Schema, parts: Sequence[PartRows], read: ReadRows, *, on_tree_done: Callable[[], None]
) -> Forest:
    labelled, *unlabelled = parts
    protects_labels = catalogue.algorithm(plan.algorithm).adjacency is Adjacency.LABEL
    rows = read(labelled, schema, plan, keep_unlabelled=protects_labels)
    others = [read(part, Schema.from_json(part.schema), plan, keep_unlabelled=True) for part in unlabelled]
    return grow(
        plan, schema, rows, SystemRandomness(), on_tree_done=on_tree_done, unlabelled=others[0] if others else None
    )


def _reader(task: JobTask, stack: ExitStack) -> ReadRows:
    """How the rows of a job are read: in this process, or by the workers of a Dask cluster while ``stack`` is open."""
    if task.cluster is None:
        return _read_rows
    from app.services.releases import dask_fleet  # the extra, which jobs in this process do not need

    return stack.enter_context(dask_fleet.Connection.to(task.cluster, task.job_id)).rows


def _read_rows(part: PartRows, schema: Schema, plan: Plan, *, keep_unlabelled: bool) -> TrainingRows:
    """The rows in the scope of a part; ``keep_unlabelled``: also those whose label is missing or unknown."""
    selection = _selection(part, schema, keep_unlabelled=keep_unlabelled)
    return private_rows.read(part.files, selection, codes=code_request(plan, schema))


def _selection(part: PartRows, schema: Schema, *, keep_unlabelled: bool = False) -> Selection:
    return Selection(schema, Partitions.from_json(part.partitions), part.scope, keep_unlabelled=keep_unlabelled)


def release_profile(task: JobTask) -> None:
    """Reads the rows in scope, releases the priced profile and writes it to the task's folder.

    One call is one release, paid for by the job's charge.
    """
    [part] = task.parts
    schema = Schema.from_json(part.schema)
    request = CodeRequest(quantile_bins.public_grid(schema))
    rows = private_rows.read(part.files, _selection(part, schema), codes=request)
    released = draw_profile(ProfilePlan.from_json(task.work["plan"]), schema, rows, SystemRandomness())
    task.write_output(json.dumps(released.to_json()).encode("utf-8"))


def release_evaluation(task: JobTask) -> None:
    """Reads the rows in scope, releases the priced evaluation and writes it to the task's folder.

    One call is one release, paid for by the job's charge. The models are in the task's folder.
    """
    [part] = task.parts
    schema = Schema.from_json(part.schema)
    evaluated = [
        released_forest.loads(input_path(task.folder, model["digest"]).read_bytes()) for model in task.work["models"]
    ]
    models = [(artifact.forest, artifact.schema) for artifact in evaluated]
    rows = private_rows.read(part.files, _selection(part, schema))
    released = draw_evaluation(EvaluationPlan.from_json(task.work["plan"]), models, rows, SystemRandomness())
    task.write_output(json.dumps(released.to_json()).encode("utf-8"))
