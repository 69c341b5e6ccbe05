"""Releases the profile of a dataset. Only the child process of a job imports this
module.
"""

import json
from collections.abc import Generator

import numpy as np

from grovekeeper_forests.array_types import Int32Array
from grovekeeper_forests.bins import quantile_bins, releases
from grovekeeper_forests.data.coded_rows import CodedRows, CodeRequest, LocalRows
from grovekeeper_forests.data.sanitiser import ColumnBlock, written_numbers
from grovekeeper_forests.data.schema import Schema
from grovekeeper_forests.noise.randomness import PaidRandomness, Randomness
from grovekeeper_forests.releases.drawing import Drawing
from grovekeeper_forests.releases.profile.price import ProfilePlan, parts_of
from grovekeeper_forests.releases.profile.read import Profile
from grovekeeper_forests.releases.statistics.draw import release_sums_of
from grovekeeper_forests.releases.statistics.price import StatisticsPlan
from grovekeeper_forests.releases.statistics.read import Statistics
from grovekeeper_forests.releases.statistics.sums import StoredRows


def draw(job: Drawing) -> bytes:
    """Draws a profile; see :data:`grovekeeper_forests.releases.drawing.Draw`."""
    schema = job.schema()
    plan = ProfilePlan.from_json(job.work["plan"])
    grid = quantile_bins.grid_of(plan.event)
    rows = job.codes(CodeRequest(quantile_bins.public_grid(schema, grid)))
    assert isinstance(rows, CodedRows), "no cluster reads the rows of a profile"
    released = release(plan, schema, rows, job.randomness)
    return json.dumps(released.to_json()).encode("utf-8")


def release(
    plan: ProfilePlan, schema: Schema, rows: LocalRows, randomness: Randomness
) -> Profile:
    """Releases a profile. One call is one release and costs what was priced.

    Args:
        plan: the priced plan, whose event holds every noise scale.
        schema: public.
        rows: PRIVATE, sanitised.

    Privacy:
        The loss of ``plan.event`` under add/remove, twice that (four times, in ρ and
        μ²) under replace-one. Bins by Theorem 1 of docs/proofs/bins.md. Class counts
        and size are tables of statistics (docs/proofs/statistics.md, Theorem 1): a row
        is counted in the cell of its class and in no other, so L1 and L2 sensitivity
        are what one row adds (lemma L3). Mean and quantiles of a label that is a number
        are statistics as they are (Theorems 1 and 2 there). The releases compose in
        sequence (Theorem L). Everything that is shown is post-processing (lemma L7).
        *Not covered:* running time.

    Source:
        docs/proofs/bins.md, Theorem 2.
    """
    parts = parts_of(plan.event)
    paid = PaidRandomness(randomness, plan.event)
    cuts = releases.cuts(parts.bins, schema, rows, paid)
    numbers = None
    counts = np.zeros(0, dtype=np.int64)
    label_plan = plan.label_plan(schema)
    if label_plan is not None:
        numbers = _release_numbers(label_plan, schema, rows.y, paid)
    else:
        exact = np.bincount(rows.y, minlength=schema.n_classes).astype(np.int64)
        counts = releases.release_counts(exact, parts.counts, paid)
    size = None
    if parts.size is not None:
        n_rows = np.array([len(rows.y)], dtype=np.int64)
        size = int(releases.release_counts(n_rows, parts.size, paid)[0])
    paid.note_unused()
    return Profile(plan, schema, cuts, counts, size, numbers)


def _release_numbers(
    plan: StatisticsPlan, schema: Schema, y: Int32Array, randomness: Randomness
) -> Statistics:
    """Releases mean and quantiles of a label that is a number.

    Args:
        plan: priced.
        y: PRIVATE codes of the label.
    """

    def blocks() -> Generator[ColumnBlock, None, None]:
        label = schema.label
        yield ColumnBlock({label.name: written_numbers(label, y)}, len(y))

    exact = StoredRows(schema, blocks).measure_sums(json.dumps(plan.to_json()))
    return release_sums_of(plan, exact, randomness)
