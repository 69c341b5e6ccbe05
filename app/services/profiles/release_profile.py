"""Releases a profile of private rows, in the child process of a charged job."""

import json

from app.datasets import private_rows
from app.forests.bins import quantile_bins
from app.forests.data.coded_rows import CodeRequest
from app.forests.data.schema import Schema
from app.forests.noise.randomness import SystemRandomness
from app.forests.profile.grow import release
from app.forests.profile.price import ProfilePlan
from app.privacy.composition import Partitions
from app.services.jobs.task import JobTask


def release_profile(task: JobTask) -> None:
    """Reads the rows in scope, releases the priced profile and writes it to the task's folder.

    One call is one release, paid for by the job's charge.
    """
    [part] = task.parts
    schema = Schema.from_json(part.schema)
    partitions = Partitions.from_json(part.partitions)
    request = CodeRequest(quantile_bins.public_grid(schema))
    rows = private_rows.read(part.files, schema=schema, partitions=partitions, scope=part.scope, codes=request)
    released = release(ProfilePlan.from_json(task.work["plan"]), schema, rows, SystemRandomness())
    task.write_output(json.dumps(released.to_json()).encode("utf-8"))
