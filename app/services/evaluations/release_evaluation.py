"""Evaluates released models on the rows of a job, in the job's child process."""

import json

from app.datasets import private_rows
from app.forests import artifacts
from app.forests.data.schema import Schema
from app.forests.evaluation.grow import release
from app.forests.evaluation.price import EvaluationPlan
from app.forests.noise.randomness import SystemRandomness
from app.privacy.composition import Partitions
from app.services.jobs.task import JobTask


def release_evaluation(task: JobTask) -> None:
    """Reads the rows in scope, releases the priced evaluation and writes it to the task's folder.

    One call is one release, paid for by the job's charge. The models are in the
    task's folder.
    """
    [part] = task.parts
    schema = Schema.from_json(part.schema)
    evaluated = [artifacts.loads(task.input_path(model["digest"]).read_bytes()) for model in task.work["models"]]
    models = [(artifact.forest, artifact.schema) for artifact in evaluated]
    plan, partitions = EvaluationPlan.from_json(task.work["plan"]), Partitions.from_json(part.partitions)
    rows = private_rows.read(part.files, schema=schema, partitions=partitions, scope=part.scope)
    released = release(plan, models, rows, SystemRandomness())
    task.write_output(json.dumps(released.to_json()).encode("utf-8"))
