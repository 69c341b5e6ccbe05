"""Draws the statistics of a dataset. Only the child process of a job imports this
module.
"""

import json

import numpy as np
from numpy.typing import NDArray

from grovekeeper_forests.bins.noisy_counts import SCALE_BITS
from grovekeeper_forests.data.sanitiser import SanitisedRows
from grovekeeper_forests.data.schema import Feature, Schema
from grovekeeper_forests.noise.randomness import PaidRandomness, Randomness
from grovekeeper_forests.privacy.events import DiscreteLaplace, Event
from grovekeeper_forests.releases.drawing import Drawing
from grovekeeper_forests.releases.statistics.price import (
    Measure,
    StatisticsPlan,
    centre_of,
    radius_of,
    steps_of,
)
from grovekeeper_forests.releases.statistics.read import Statistics
from grovekeeper_forests.releases.statistics.tables import Axis, Condition, Table

_HALF_WORD = 16
_LEFT_OUT = -1
"""The cell of a row that a table does not read."""


def draw(job: Drawing) -> bytes:
    """Draws statistics; see :data:`grovekeeper_forests.releases.drawing.Draw`."""
    schema = job.schema()
    plan = StatisticsPlan.from_json(job.work["plan"], schema)
    # a row without a known label is a row, too: its label is OTHER
    rows = job.values(keep_unlabelled=True)
    released = release(plan, schema, rows, job.randomness)
    return json.dumps(released.to_json()).encode("utf-8")


def release(
    plan: StatisticsPlan, schema: Schema, rows: SanitisedRows, randomness: Randomness
) -> Statistics:
    """Releases the tables. One call is one release and costs what was priced.

    Args:
        plan: the priced plan, whose event holds every noise scale.
        schema: public.
        rows: PRIVATE, sanitised; class −1 where the label is not a declared class.

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
    tables = []
    for table, priced in plan.measured:
        cells = _cells(table, schema, rows)
        tables.append(
            [
                _noisy(_exact(measure, event, table, schema, rows, cells), event, paid)
                for measure, event in priced
            ]
        )
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


def _cells(table: Table, schema: Schema, rows: SanitisedRows) -> NDArray[np.int64]:
    """The PRIVATE cell of every row: one, or none where the row does not meet the
    conditions or has no number to add.
    """
    cells = np.zeros(rows.features.n_rows, dtype=np.int64)
    for axis in table.axes:
        cells = cells * axis.n_cells + _codes(axis, schema, rows)
    for condition in table.where:
        cells[~_meets(condition, schema, rows)] = _LEFT_OUT
    if table.value is not None:
        cells[np.isnan(_column(table.value, schema, rows))] = _LEFT_OUT
    return cells


def _codes(axis: Axis, schema: Schema, rows: SanitisedRows) -> NDArray[np.int64]:
    if axis.column == schema.label.name:
        return np.where(rows.y < 0, schema.n_classes, rows.y).astype(np.int64)
    values = _column(_feature(schema, axis.column), schema, rows)
    if axis.categories:
        return values.astype(np.int64)
    bins = np.searchsorted(axis.edges, values, side="right").astype(np.int64)
    return np.where(np.isnan(values), len(axis.edges) + 1, bins)


def _meets(
    condition: Condition, schema: Schema, rows: SanitisedRows
) -> NDArray[np.bool_]:
    if condition.column == schema.label.name:
        assert condition.values is not None
        classes = schema.label.classes
        wanted = [classes.index(v) for v in condition.values if v is not None]
        is_empty = (rows.y < 0) & (None in condition.values)
        return np.isin(rows.y, wanted) | is_empty
    feature = _feature(schema, condition.column)
    values = _column(feature, schema, rows)
    if condition.values is not None:
        codes = [
            feature.missing_code if value is None else feature.categories.index(value)
            for value in condition.values
        ]
        return np.isin(values, codes)
    # an empty cell is in no range
    meets = ~np.isnan(values)
    if condition.lower is not None:
        meets &= values >= condition.lower
    if condition.below is not None:
        meets &= values < condition.below
    return meets


def _exact(
    measure: Measure,
    event: Event,
    table: Table,
    schema: Schema,
    rows: SanitisedRows,
    cells: NDArray[np.int64],
) -> NDArray[np.int64]:
    """PRIVATE exact sums of a measure, one for each cell, in steps."""
    is_in, steps = cells != _LEFT_OUT, steps_of(event)
    if table.value is None or measure.name == "rows":
        counts = np.bincount(cells[is_in], minlength=table.n_cells)
        return steps * counts.astype(np.int64)
    values = _column(table.value, schema, rows)[is_in]
    added = np.rint(_contribution(measure, table.value, values) / measure.reach * steps)
    # Neither rounding nor a number that is none may carry a row beyond the sensitivity
    # that the event states.
    bounded = np.clip(np.nan_to_num(added, nan=0.0), -steps, steps).astype(np.int64)
    return _sums(cells[is_in], bounded, table.n_cells)


def _contribution(
    measure: Measure, feature: Feature, values: NDArray[np.float64]
) -> NDArray[np.float64]:
    if measure.name == "sum":
        return values
    distances = values - centre_of(feature)
    if measure.name == "centred":
        return distances
    assert measure.name == "squares"
    return distances**2 - radius_of(feature) ** 2 / 2


def _sums(
    cells: NDArray[np.int64], added: NDArray[np.int64], n_cells: int
) -> NDArray[np.int64]:
    """Exact sums of integers below 2³² by cell.

    ``bincount`` adds up doubles, which hold 53 bits: the halves of 2³¹ numbers fit.
    """
    high = np.bincount(cells, weights=added >> _HALF_WORD, minlength=n_cells)
    low = np.bincount(cells, weights=added & (2**_HALF_WORD - 1), minlength=n_cells)
    return (high.astype(np.int64) << _HALF_WORD) + low.astype(np.int64)


def _feature(schema: Schema, name: str) -> Feature:
    return next(feature for feature in schema.features if feature.name == name)


def _column(
    feature: Feature, schema: Schema, rows: SanitisedRows
) -> NDArray[np.float64] | NDArray[np.int32]:
    return rows.features.columns[schema.features.index(feature)]
