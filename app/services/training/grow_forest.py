"""Growing a forest on private rows. It runs in the child, after the charge was committed."""

from collections.abc import Callable

from app.datasets import private_rows
from app.forests import artifacts, catalogue, planning
from app.forests.data.rows import SanitisedRows
from app.forests.data.schema import Schema
from app.forests.grow import grow
from app.forests.noise.randomness import SystemRandomness
from app.privacy.adjacency import Adjacency
from app.privacy.composition import Partitions
from app.services.jobs import output
from app.services.jobs.task import JobTask, PartRows


def grow_forest(task: JobTask, *, on_tree_done: Callable[[], None]) -> None:
    """Reads the rows of every part, grows the forest that was priced, and leaves the artifact in the task's folder.

    One call is one release, paid for by the job's charge. A second call would be another release: a job that broke
    after its charge is failed and stays charged.
    """
    labelled, *unlabelled = task.parts
    schema = Schema.from_json(labelled.schema)
    plan = planning.read(task.work["plan"])
    protects_labels = catalogue.algorithm(plan.algorithm).adjacency is Adjacency.LABEL
    rows = _rows(labelled, schema, keep_unlabelled=protects_labels)
    others = [_rows(part, Schema.from_json(part.schema), keep_unlabelled=True) for part in unlabelled]
    forest = grow(
        plan, schema, rows, SystemRandomness(), on_tree_done=on_tree_done, unlabelled=others[0] if others else None
    )
    # Not the task's schema: its JSON has been through a store, which writes 1e18 as an integer that RFC 8785 refuses.
    data = artifacts.dumps(forest, {**task.metadata, "schema": schema.to_json()})
    output.write(task, data)


def _rows(part: PartRows, schema: Schema, *, keep_unlabelled: bool) -> SanitisedRows:
    """The rows in the scope of a part; ``keep_unlabelled``: also those whose label is missing or unknown."""
    return private_rows.read(
        part.row_files,
        schema=schema,
        partitions=Partitions.from_json(part.partitions),
        scope=part.scope,
        keep_unlabelled=keep_unlabelled,
    )
