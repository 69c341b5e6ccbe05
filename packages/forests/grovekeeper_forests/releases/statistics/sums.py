"""Adds up PRIVATE rows exactly: maps each row to the cell of a table, and to what it adds
there.

The child process of a job and the workers of a cluster share these functions. So the
numbers under the noise do not depend on where rows are.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Generator
from contextlib import closing
from dataclasses import dataclass

import numpy as np

from grovekeeper_forests.array_types import (
    BoolArray,
    Float64Array,
    Int32Array,
    Int64Array,
)
from grovekeeper_forests.bins.noisy_counts import per_row
from grovekeeper_forests.data.sanitiser import ColumnBlock
from grovekeeper_forests.data.schema import Feature, Schema
from grovekeeper_forests.privacy.events import Event
from grovekeeper_forests.releases.statistics.price import (
    Measure,
    StatisticsPlan,
    centre_of,
    n_sums,
    radius_of,
)
from grovekeeper_forests.releases.statistics.tables import Axis, Condition, Table

_HALF_WORD = 16
_N_BUCKETS = 2**12
_MOST_ALIKE = 4
"""Most edges in one bucket that are compared one after another."""

_LEFT_OUT = -1
"""The cell of a row that a table does not read."""


@dataclass(frozen=True)
class StoredRows:
    """PRIVATE rows, read a block at a time for each question.

    Attributes:
        schema: public.
        blocks: reads the rows, in the columns that questions need.
    """

    schema: Schema
    blocks: Callable[[], Generator[ColumnBlock, None, None]]

    def measure_sums(self, plan: str) -> Int64Array:
        """Exact PRIVATE sums of every measure of every table of a plan, one for each
        cell, in steps, one after another; of quantiles, numbers of rows by group and
        candidate.

        Args:
            plan: as JSON, which can be sent to another machine.
        """
        settled = StatisticsPlan.from_json(json.loads(plan), self.schema)
        sums = np.zeros(sum(map(n_sums, settled.tables)), dtype=np.int64)
        with closing(self.blocks()) as blocks:
            for block in blocks:
                sums += _of_block(settled, self.schema, block)
        return sums


def _of_block(plan: StatisticsPlan, schema: Schema, rows: ColumnBlock) -> Int64Array:
    sums = []
    for settled, priced in plan.measured:
        table = settled.exact
        cells = _cells(table, schema, rows)
        if table.quantiles:
            sums.append(_by_candidate(table, rows, cells))
        else:
            sums += [
                _exact(measure, event, table, rows, cells) for measure, event in priced
            ]
    return np.concatenate(sums)


def _cells(table: Table, schema: Schema, rows: ColumnBlock) -> Int64Array:
    """The PRIVATE cell of every row: one, or none where the row does not meet the
    conditions or has no number to add.
    """
    cells = np.zeros(rows.n_rows, dtype=np.int64)
    for axis in table.axes:
        cells = cells * axis.n_cells + _codes(axis, rows)
    for condition in table.where:
        cells[~_meets(condition, schema, rows)] = _LEFT_OUT
    if table.value is not None:
        cells[np.isnan(rows.columns[table.value.name])] = _LEFT_OUT
    return cells


def _codes(axis: Axis, rows: ColumnBlock) -> Int64Array:
    values = rows.columns[axis.column]
    if axis.is_label and axis.categories:
        return np.where(values < 0, len(axis.categories), values).astype(np.int64)
    if axis.categories:
        return values.astype(np.int64)
    if not axis.has_missing:
        return _bins(axis, values)
    is_empty = np.isnan(values)
    bins = _bins(axis, np.where(is_empty, axis.bounds[0], values))
    return np.where(is_empty, len(axis.edges) + 1, bins)


def _bins(axis: Axis, values: Float64Array | Int32Array) -> Int64Array:
    """How many edges are at or below each number, none of which is NaN: what
    ``np.searchsorted(side="right")`` finds in several times the time, because a
    processor guesses each step of a search wrong half of the time.

    The bounds are divided into buckets. Rounding keeps the order of numbers, so an edge
    in a lower bucket than a number is below it, and an edge in a higher bucket above
    it. Edges in the same bucket are compared.
    """
    low, high = axis.bounds
    edges = np.array([*axis.edges, np.inf])
    with np.errstate(all="ignore"):  # bounds so near or so far that buckets fail
        scale = np.float64(_N_BUCKETS) / (np.float64(high) - low)
    if not 0.0 < scale < np.inf:
        return np.searchsorted(axis.edges, values, side="right").astype(np.int64)
    of_edges = ((edges[:-1] - low) * scale).astype(np.int64)
    below = np.searchsorted(of_edges, np.arange(_N_BUCKETS + 2))
    n_alike = int(np.bincount(of_edges, minlength=1).max())
    if n_alike > _MOST_ALIKE:
        return np.searchsorted(axis.edges, values, side="right").astype(np.int64)
    bins = below[((values - low) * scale).astype(np.int64)]
    for _ in range(n_alike):
        bins += values >= edges[bins]
    return bins


def _meets(condition: Condition, schema: Schema, rows: ColumnBlock) -> BoolArray:
    values = rows.columns[condition.column]
    classes = schema.classes_of(condition.column)
    if classes:
        assert condition.values is not None
        wanted = [classes.index(v) for v in condition.values if v is not None]
        is_empty = (values < 0) & (None in condition.values)
        return np.isin(values, wanted) | is_empty
    if condition.values is not None:
        feature = _feature(schema, condition.column)
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
    rows: ColumnBlock,
    cells: Int64Array,
) -> Int64Array:
    """PRIVATE exact sums of a measure, one for each cell, in steps."""
    is_in = cells != _LEFT_OUT
    steps = per_row(event)
    if table.value is None or measure.name == "rows":
        counts = np.bincount(cells[is_in], minlength=table.n_cells)
        return steps * counts.astype(np.int64)
    values = rows.columns[table.value.name][is_in].astype(np.float64, copy=False)
    added = np.rint(_contribution(measure, table.value, values) / measure.reach * steps)
    # Neither rounding nor a number that is none may carry a row beyond the sensitivity
    # that the event states.
    bounded = np.clip(np.nan_to_num(added, nan=0.0), -steps, steps).astype(np.int64)
    return _sums(cells[is_in], bounded, table.n_cells)


def _by_candidate(table: Table, rows: ColumnBlock, cells: Int64Array) -> Int64Array:
    """PRIVATE numbers of rows by group and candidate of quantiles."""
    assert table.grid is not None
    is_in = cells != _LEFT_OUT
    candidates = _bins(table.grid, rows.columns[table.grid.column][is_in])
    n_counts = table.n_cells * table.n_candidates
    counts = np.bincount(
        cells[is_in] * table.n_candidates + candidates, minlength=n_counts
    )
    return counts.astype(np.int64)


def _contribution(
    measure: Measure, feature: Feature, values: Float64Array
) -> Float64Array:
    if measure.name == "sum":
        return values
    distances = values - centre_of(feature)
    if measure.name == "centred":
        return distances
    assert measure.name == "squares"
    return distances**2 - radius_of(feature) ** 2 / 2


def _sums(cells: Int64Array, added: Int64Array, n_cells: int) -> Int64Array:
    """Exact sums of integers below 2³² by cell.

    ``bincount`` adds up doubles, which hold 53 bits: the halves of 2³¹ numbers fit.
    """
    high = np.bincount(cells, weights=added >> _HALF_WORD, minlength=n_cells)
    low = np.bincount(cells, weights=added & (2**_HALF_WORD - 1), minlength=n_cells)
    return (high.astype(np.int64) << _HALF_WORD) + low.astype(np.int64)


def _feature(schema: Schema, name: str) -> Feature:
    return next(feature for feature in schema.features if feature.name == name)
