"""Prices the statistics of a dataset, and states their error before they are paid for.
No row is read.

A table is one or more *measures*: integers, one for each cell. A row is counted in one
cell of a table at most, and adds to it at most ``steps`` in absolute value. So the L1
and the L2 sensitivity of a measure are ``steps`` where a row is added or removed. A
changed label, or several of a row at once, moves the row to another cell: L1 2 · ``steps``, squared L2 2 ·
``steps``². See docs/proofs/statistics.md.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import islice
from typing import Any, Final

from grovekeeper_forests.amounts import NotAnAmount
from grovekeeper_forests.bins import noisy_counts
from grovekeeper_forests.bins.noisy_counts import FINEST_GRID, per_row
from grovekeeper_forests.contract.algorithm import PublicFacts
from grovekeeper_forests.data.schema import Feature, Label, Schema
from grovekeeper_forests.errors import (
    GrovekeeperError,
    ParameterInvalid,
    ParameterProblem,
)
from grovekeeper_forests.json_types import JsonObject
from grovekeeper_forests.privacy import events
from grovekeeper_forests.privacy.events import (
    Adjacency,
    DiscreteLaplace,
    Event,
    Part,
    RoundedGaussian,
    Sequential,
    UnknownPrivacyEvent,
)
from grovekeeper_forests.releases.statistics.quantile_price import (
    quantile_parts,
    selections_of,
)
from grovekeeper_forests.releases.statistics.tables import (
    MEAN,
    SUM,
    VARIANCE,
    Table,
    read_tables,
    require_possible,
)

EDGES_SHARE: Final = Fraction(1, 4)
"""Share of a table's price for the edges of its private bins; the rest is for counts."""


class StatisticsInvalid(GrovekeeperError):
    """Stored bytes that are not valid statistics."""

    sentence = "not statistics of a known form"


@dataclass(frozen=True)
class Measure:
    """What a table adds up in each cell, in a unit in which a row adds from −reach to
    reach.

    Attributes:
        name: ``rows``, ``sum``, ``centred`` (distance from the centre of the bounds),
            or ``squares`` (its square, less half of the largest square); ``rank`` of a
            quantile, which is selected and not added up.
        reach: largest contribution of a row in absolute value.
        whole_steps: steps of ``reach`` in which every contribution is a whole number;
            ``None`` where there are none, or too many.
    """

    name: str
    reach: float
    whole_steps: int | None


def measures(table: Table) -> list[Measure]:
    """The measures of a table, in the order of release."""
    rows = Measure("rows", 1.0, 1)
    if table.quantiles:
        return [Measure("rank", 1.0, None)] * len(table.quantiles)
    if table.value is None:
        return [rows]
    feature = table.value
    radius = radius_of(table.value)
    is_whole = feature.type != "numeric"
    centred = Measure("centred", radius, _few(2 * radius) if is_whole else None)
    if table.statistic == SUM:
        reach = max(abs(feature.lower), abs(feature.upper))
        return [Measure("sum", reach, _few(reach) if is_whole else None)]
    if table.statistic == MEAN:
        return [rows, centred]
    assert table.statistic == VARIANCE
    return [rows, centred, Measure("squares", radius**2 / 2, None)]


def n_sums(table: Table) -> int:
    """Number of exact sums that a table is released from: one for each measure and
    cell, or one number of rows for each candidate of each group.
    """
    of_each = table.n_candidates if table.quantiles else len(measures(table))
    return table.exact.n_cells * of_each


def _few(steps: float) -> int | None:
    return int(steps) if steps <= FINEST_GRID else None


def centre_of(feature: Feature) -> float:
    """The middle of the bounds."""
    return feature.lower / 2 + feature.upper / 2


def radius_of(feature: Feature) -> float:
    """The largest distance of a number from :func:`centre_of`."""
    return feature.upper / 2 - feature.lower / 2


@dataclass(frozen=True)
class PricedTable:
    """A table with what it pays for.

    Attributes:
        edges: the events of the edges of private bins; empty without these.
        measured: the measures, each with its event.
    """

    table: Table
    edges: Sequence[Event]
    measured: list[tuple[Measure, Event]]


@dataclass(frozen=True)
class StatisticsPlan:
    """Statistics, settled and priced before any row is read.

    Attributes:
        tables: in the order of the request.
        event: in sequence, for each table one part for each edge of private bins, then
            one for each measure.
    """

    tables: Sequence[Table]
    event: Sequential

    @property
    def priced(self) -> Iterator[PricedTable]:
        """Each table with what it pays for."""
        events_left = (part.event for part in self.event.parts)
        for table in self.tables:
            edges = list(islice(events_left, _n_edges(table)))
            measured = [(measure, next(events_left)) for measure in measures(table)]
            yield PricedTable(table, edges, measured)

    @property
    def measured(self) -> Iterator[tuple[Table, list[tuple[Measure, Event]]]]:
        """Each table with its measures and their events."""
        for priced in self.priced:
            yield priced.table, priced.measured

    @property
    def columns(self) -> tuple[str, ...]:
        """Every column that a table reads, each once."""
        names = {name for table in self.tables for name in table.columns}
        return tuple(sorted(names))

    def to_json(self) -> JsonObject:
        """Exact."""
        return {
            "tables": [table.to_json() for table in self.tables],
            "event": self.event.to_json(),
        }

    @classmethod
    def from_json(cls, value: object, schema: Schema) -> StatisticsPlan:
        """Inverse of :meth:`to_json`.

        Raises:
            StatisticsInvalid: the value is not a valid plan.
        """
        match value:
            case {"tables": [*tables], "event": event, **rest} if not rest:
                try:
                    read = cls(read_tables(tables, schema), _sequence(event))
                    is_priced = _is_priced(read)
                except (
                    ParameterInvalid,
                    NotAnAmount,
                    UnknownPrivacyEvent,
                    AttributeError,
                    KeyError,
                    TypeError,
                ):
                    raise StatisticsInvalid from None
                if is_priced and read.to_json() == value:
                    return read
        raise StatisticsInvalid


def _sequence(event: object) -> Sequential:
    read = events.from_json(event)
    if not isinstance(read, Sequential):
        raise UnknownPrivacyEvent("not the event of statistics")
    return read


def _is_priced(plan: StatisticsPlan) -> bool:
    n_parts = sum(_n_edges(table) + len(measures(table)) for table in plan.tables)
    if n_parts != len(plan.event.parts):
        return False
    if any(part.times != 1 for part in plan.event.parts):
        return False
    for priced in plan.priced:
        if edges := priced.table.of_edges:
            selections_of(edges, priced.edges)
    for table, measured in plan.measured:
        released = [event for _, event in measured]
        if table.quantiles:
            selections_of(table, released)
        elif not all(_is_noise(event, table) for event in released):
            return False
    return True


def _n_edges(table: Table) -> int:
    """Number of edges that the release selects."""
    edges = table.of_edges
    return 0 if edges is None else len(edges.quantiles)


def _is_noise(event: Event, table: Table) -> bool:
    return (
        isinstance(event, DiscreteLaplace | RoundedGaussian)
        and per_row(event) > 0
        and event.coordinates == table.n_cells
    )


def plan(asked: Sequence[Mapping[str, Any]], facts: PublicFacts) -> StatisticsPlan:
    """Settles the tables and prices them. Reads no row and draws nothing.

    Tables share the price by their weights, and the measures or quantiles of a table
    its share equally, less :data:`EDGES_SHARE` where the table has private bins.

    Args:
        asked: see :func:`.tables.read_tables`.
        facts: stated under the adjacency of the account.

    Raises:
        ParameterInvalid: a table that is not of its form, conditions that exclude each
            other, or a share too small for any noise.
    """
    tables = read_tables(asked, facts.schema)
    require_possible(tables)
    if facts.budget.adjacency is Adjacency.LABEL:
        _require_label(tables, facts.schema.labels)
    total = sum(table.weight for table in tables)
    parts = []
    for table in tables:
        parts += _parts(table, table.weight / total, facts)
    priced = StatisticsPlan(tables, Sequential(tuple(parts)))
    facts.require_covered(priced.event)
    return priced


def _parts(table: Table, share: Fraction, facts: PublicFacts) -> list[Part]:
    """The events of a table at its share of the price."""
    if table.quantiles:
        return quantile_parts(table, facts.part(share))
    parts: list[Part] = []
    if edges := table.of_edges:
        parts = quantile_parts(edges, facts.part(share * EDGES_SHARE))
        share *= 1 - EDGES_SHARE
    summed = measures(table)
    of_each = facts.part(share / len(summed))
    return parts + [Part(1, _priced(measure, table, of_each)) for measure in summed]


def _require_label(tables: Sequence[Table], labels: Sequence[Label]) -> None:
    """On accounts that protect labels alone, membership and features are public.

    A table that does not read a label would be exact. Nothing is to be bought there.
    A table that adds up or ranks the numbers of a label is not priced there: a changed
    number moves no row to another cell, but moves one cell by up to twice the largest
    contribution, which costs more than a move.
    """
    names = tuple(label.name for label in labels)
    numbers = {label.name for label in labels if label.is_number}
    for index, table in enumerate(tables):
        if table.columns.isdisjoint(names):
            problem = ParameterProblem(
                ("tables", index), "needs-the-label", accepted=names
            )
            raise ParameterInvalid([problem])
        if table.ranked_or_added in numbers:
            raise ParameterInvalid(
                [ParameterProblem(("tables", index, "column"), "not-on-label-accounts")]
            )


def _priced(measure: Measure, table: Table, share: PublicFacts) -> Event:
    cells = noisy_counts.SENSITIVITIES[share.budget.adjacency]
    grid = noisy_counts.finest_steps(share.epsilon / cells)
    return noisy_counts.priced(
        share.epsilon,
        share.budget,
        coordinates=table.n_cells,
        steps=min(measure.whole_steps or grid, grid),
    )
