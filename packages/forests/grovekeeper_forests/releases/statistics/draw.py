"""Draws the statistics of a dataset. Only the child process of a job imports this
module.
"""

import json

import numpy as np
from numpy.typing import NDArray

from grovekeeper_forests.bins.noisy_counts import SCALE_BITS
from grovekeeper_forests.data.coded_rows import ColumnRequest, Parts
from grovekeeper_forests.noise.randomness import PaidRandomness, Randomness
from grovekeeper_forests.privacy.events import DiscreteLaplace, Event
from grovekeeper_forests.releases.drawing import Drawing
from grovekeeper_forests.releases.statistics.price import StatisticsPlan
from grovekeeper_forests.releases.statistics.read import Statistics


def draw(job: Drawing) -> bytes:
    """Draws statistics; see :data:`grovekeeper_forests.releases.drawing.Draw`."""
    schema = job.schema()
    plan = StatisticsPlan.from_json(job.work["plan"], schema)
    request = ColumnRequest(schema, plan.columns)
    # a row without a known label is a row, too: its label is OTHER
    rows = job.columns(request, keep_unlabelled=True)
    released = release(plan, rows, job.randomness)
    return json.dumps(released.to_json()).encode("utf-8")


def release(plan: StatisticsPlan, rows: Parts, randomness: Randomness) -> Statistics:
    """Releases the tables. One call is one release and costs what was priced.

    Args:
        plan: the priced plan, whose event holds every noise scale.
        rows: PRIVATE, sanitised; class −1 where the label is not a declared class. Of
            :class:`.sums.StoredRows`, in this process or on other machines.

    Privacy:
        The loss of ``plan.event`` under its adjacency. Each row is mapped, by itself
        and public facts alone, to one cell of a table or to none (lemma L6), and to an
        integer of at most ``steps`` in absolute value. So a measure has L1 and L2
        sensitivity ``steps`` under add/remove, and twice and √2 times that where a
        label changes (docs/proofs/statistics.md, Theorem 1; lemma L3 for Laplace, GDP
        for normal noise). Measures and tables compose in sequence (Theorem L). *Not
        covered:* running time.

    Source:
        docs/proofs/statistics.md.
    """
    paid = PaidRandomness(randomness, plan.event)
    exact, end, tables = rows.total("measure_sums", json.dumps(plan.to_json())), 0, []
    for table, priced in plan.measured:
        measures = []
        for _, event in priced:
            start, end = end, end + table.n_cells
            measures.append(_noisy(exact[start:end], event, paid))
        tables.append(measures)
    paid.note_unused()
    return Statistics(plan, tables)


def _noisy(
    exact: NDArray[np.int64], event: Event, paid: PaidRandomness
) -> NDArray[np.int64]:
    if isinstance(event, DiscreteLaplace):
        return exact + paid.discrete_laplace(
            exact.shape, inverse_scale=event.inverse_scale
        )
    return exact + paid.rounded_gaussian(exact.shape, scale_bits=SCALE_BITS)
