"""Draws the statistics of a dataset. Only the child process of a job imports this
module.
"""

import json

import numpy as np

from grovekeeper_forests.array_types import Int64Array
from grovekeeper_forests.bins.noisy_counts import per_row
from grovekeeper_forests.bins.releases import release_sums
from grovekeeper_forests.data.coded_rows import ColumnRequest, Parts
from grovekeeper_forests.noise.randomness import PaidRandomness, Randomness
from grovekeeper_forests.releases.drawing import Drawing
from grovekeeper_forests.releases.statistics.price import (
    PricedTable,
    StatisticsPlan,
    n_sums,
)
from grovekeeper_forests.releases.statistics.quantile_draw import (
    select_edges,
    select_quantiles,
)
from grovekeeper_forests.releases.statistics.read import Statistics
from grovekeeper_forests.releases.statistics.tables import Table


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
        for normal noise). Quantiles are selected from counts of rows by group and cell
        (:func:`.quantile_draw.select_quantiles`; Theorem 2), and so are the edges of
        private bins, before their counts (Theorem 3). Measures, quantiles and
        tables compose in sequence (Theorem L). *Not covered:* running time.

    Source:
        docs/proofs/statistics.md.
    """
    paid = PaidRandomness(randomness, plan.event)
    exact = rows.total("measure_sums", json.dumps(plan.to_json()))
    released = release_sums_of(plan, exact, paid)
    paid.note_unused()
    return released


def release_sums_of(
    plan: StatisticsPlan, exact: Int64Array, randomness: Randomness
) -> Statistics:
    """Releases the tables from their exact sums, within a release that pays for them;
    see :func:`release`.

    Args:
        plan: priced.
        exact: PRIVATE; see :meth:`.sums.StoredRows.measure_sums`.
    """
    end = 0
    tables = []
    for priced in plan.priced:
        start = end
        end = end + n_sums(priced.table)
        tables.append(_released(priced, exact[start:end], randomness))
    return Statistics(plan, tables)


def _released(
    priced: PricedTable, exact: Int64Array, paid: Randomness
) -> list[Int64Array]:
    """The released numbers of a table, from its PRIVATE exact sums."""
    table = priced.table
    events = [event for _, event in priced.measured]
    if edges := table.of_edges:
        counts = exact.reshape(table.exact.shape)
        by_cell = _by_grid_cell(counts, table) // per_row(events[0])
        starts = select_edges(edges, priced.edges, by_cell, paid)
        return [starts, release_sums(_binned(counts, starts, table), events[0], paid)]
    if table.quantiles:
        counts = exact.reshape(table.n_cells, table.n_candidates)
        return select_quantiles(table, events, counts, paid)
    measured = exact.reshape(len(events), table.n_cells)
    return [
        release_sums(sums, event, paid)
        for sums, event in zip(measured, events, strict=True)
    ]


def _by_grid_cell(counts: Int64Array, table: Table) -> Int64Array:
    """PRIVATE numbers of rows in each cell of the grid of private bins, in steps."""
    assert table.private_axis is not None
    lined_up = np.moveaxis(counts, table.private_axis, 0)
    by_cell: Int64Array = lined_up.reshape(len(lined_up), -1).sum(axis=1)
    n_cells = len(table.axes[table.private_axis].edges) + 1
    return by_cell[:n_cells]


def _binned(counts: Int64Array, starts: Int64Array, table: Table) -> Int64Array:
    """PRIVATE sums over the cells of each private bin; missing cells are a bin."""
    assert table.private_axis is not None
    axis = table.axes[table.private_axis]
    first = [0, *starts.tolist()]
    if axis.has_missing:
        first.append(len(axis.edges) + 1)
    binned: Int64Array = np.add.reduceat(counts, first, axis=table.private_axis)
    return binned.ravel()
