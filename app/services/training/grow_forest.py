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
from app.services.jobs.task import JobTask, OtherRows


def grow_forest(task: JobTask, *, on_tree_done: Callable[[], None]) -> None:
    """Reads the rows in scope, grows the forest that was priced, and leaves the artifact in the task's folder.

    One call is one release, paid for by the job's charge. Running it again would be another release: a job that broke
    after its charge is failed and stays charged.
    """
    schema = Schema.from_json(task.schema)
    plan = planning.read(task.work["plan"])
    rows = private_rows.read(
        task.row_files,
        schema=schema,
        partitions=Partitions.from_json(task.partitions),
        scope=task.scope,
        keep_unlabelled=catalogue.mechanism(plan.algorithm).adjacency is Adjacency.LABEL,
    )
    forest = grow(
        plan, schema, rows, SystemRandomness(), on_tree_done=on_tree_done, unlabelled=_unlabelled_rows(task.unlabelled)
    )
    # Not task.schema: its JSON has been through a store, which writes 1e18 as an integer that RFC 8785 refuses.
    data = artifacts.dumps(forest, {**task.metadata, "schema": schema.to_json()})
    output.write(task, data)


def _unlabelled_rows(other: OtherRows | None) -> SanitisedRows | None:
    """Every row in scope of the second dataset, whatever stands where its label would."""
    if other is None:
        return None
    return private_rows.read(
        other.row_files,
        schema=Schema.from_json(other.schema),
        partitions=Partitions.from_json(other.partitions),
        scope=other.scope,
        keep_unlabelled=True,
    )
