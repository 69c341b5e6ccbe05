"""Plans and quotes statistics (``POST /datasets/{id}/statistics``), checks the released
ones, and shows them.

Nothing in a quote depends on rows: the error of a table follows from its noise.
"""

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import product
from typing import Any

from sqlalchemy.orm import Session

from app.access.grants import Principal
from app.core import stamps
from app.core.errors import InvalidRequest
from app.registry.tables import ReleaseRow
from app.services import guarantees
from app.services.installation import Installation
from app.services.pagination import PageRequest
from app.services.releases.contract import (
    Named,
    Planned,
    ReleaseRequest,
    StoredPlan,
    visible,
)
from app.services.releases.numbers import NumbersKind, details, head, page_of_kinds
from app.services.spending.asked import AskedDataset, AskedPart, PricedPart, ask_part
from app.services.spending.quotes import PartQuote
from app.wire.spending import SpendIn
from app.wire.statistics import (
    AxisOut,
    CellOut,
    EstimateOut,
    StatisticsIn,
    StatisticsList,
    StatisticsOut,
    StatisticsQuoteOut,
    StatisticsSummary,
    StatisticsTableOut,
    TableIn,
    TableQuoteOut,
)
from grovekeeper_common import statistic_words
from grovekeeper_common.json_types import JsonObject
from grovekeeper_forests import amounts
from grovekeeper_forests.data.days import date_of
from grovekeeper_forests.data.schema import Schema
from grovekeeper_forests.releases.contract import public_facts
from grovekeeper_forests.releases.names import PROFILE, STATISTICS
from grovekeeper_forests.releases.statistics import price
from grovekeeper_forests.releases.statistics.price import StatisticsPlan
from grovekeeper_forests.releases.statistics.quantile_read import resolution
from grovekeeper_forests.releases.statistics.read import (
    Estimate,
    Statistics,
    epsilon_for,
    error_at_size,
    error_before,
    total,
)
from grovekeeper_forests.releases.statistics.tables import (
    QUANTILES,
    SUM,
    VARIANCE,
    Table,
)

_RANK = "rank"
"""Unit of the error of a quantile."""

_AMOUNTS = ("epsilon", "error", "error_share")


@dataclass(frozen=True, kw_only=True)
class PlannedStatistics(Planned[StatisticsQuoteOut]):
    """Statistics with their plan."""

    plan: StatisticsPlan

    def quoted(self, quotes: Sequence[PartQuote]) -> StatisticsQuoteOut:
        """See :class:`Planned`."""
        [quote] = quotes
        tables = table_quotes(self.plan, quote.part.asked.public_size)
        return StatisticsQuoteOut(
            **quote.fields, tables=tables, warnings=quote.warnings
        )


def table_quotes(plan: StatisticsPlan, size: int | None) -> list[TableQuoteOut]:
    """The tables of a plan with their errors; ``size`` as in
    :func:`~grovekeeper_forests.releases.statistics.read.error_before`.
    """
    return [
        TableQuoteOut(
            table=table.to_json(),
            n_cells=table.n_numbers,
            half_width=error_before(table, priced, size),
            half_width_at_size=error_at_size(table, priced, size),
            unit=_RANK if table.quantiles else _unit(table),
            **_resolution(table),
        )
        for table, priced in plan.measured
    ]


@dataclass(frozen=True, kw_only=True)
class StatisticsRequest(ReleaseRequest[StatisticsQuoteOut]):
    """A request for statistics of a dataset, or for their quote."""

    kind = STATISTICS
    route = "POST /datasets/{dataset}/statistics"
    dataset: str
    body: StatisticsIn

    def find(self, session: Session, principal: Principal) -> Named:
        """See :class:`ReleaseRequest`."""
        return Named([self.dataset])

    def plan(
        self, installation: Installation, named: Named, sources: Sequence[AskedDataset]
    ) -> PlannedStatistics:
        """See :class:`ReleaseRequest`."""
        [source], tables = sources, list(map(_table, self.body.tables))

        def plan_at(epsilon: Fraction) -> StatisticsPlan:
            return _planned(tables, self._part(source, epsilon))

        asked = self._part(source, self._epsilon(source, plan_at))
        plan = _planned(tables, asked)
        return PlannedStatistics(
            parts=[PricedPart(asked, plan.event)],
            work={"plan": plan.to_json()},
            plan=plan,
        )

    def _part(self, source: AskedDataset, epsilon: Fraction) -> AskedPart:
        body = self.body
        spending = SpendIn.model_construct(
            epsilon=epsilon, delta=body.delta, scope=body.scope
        )
        return ask_part(source, spending)

    def _epsilon(self, source: AskedDataset, plan_at: Any) -> Fraction:
        """The ε of the request, or the smallest one that keeps the error."""
        body = self.body
        named = [name for name in _AMOUNTS if getattr(body, name) is not None]
        if len(named) != 1:
            problem = "one-of-these" if named else "missing"
            raise InvalidRequest.at("/epsilon", problem, accepted=_AMOUNTS)
        if body.epsilon is not None:
            return body.epsilon
        if body.error is not None:
            return epsilon_for(body.error, plan_at)
        assert body.error_share is not None
        if any(table.statistic == SUM for table in body.tables):
            # a share of a number of rows says nothing of a sum
            raise InvalidRequest.at("/error_share", "not-of-this-statistic")
        size = self._part(source, Fraction(1)).public_size
        if size is None:
            raise InvalidRequest.at("/error_share", "needs-public-size")
        return epsilon_for(body.error_share * size, plan_at)


def _table(table: TableIn) -> JsonObject:
    """A table of a request in the form that plans store."""
    weight = amounts.text_or_none(table.weight)
    quantiles = list(map(amounts.to_text, table.quantiles))
    settled = {"weight": weight, "quantiles": quantiles}
    return {**table.model_dump(by_alias=True), **settled}


def _planned(tables: Sequence[JsonObject], asked: AskedPart) -> StatisticsPlan:
    terms = asked.terms
    schema = asked.dataset.schema
    return price.plan(tables, public_facts(terms, None, schema, terms.adjacency))


class StatisticsKind(NumbersKind):
    """Jobs that release tables of statistics."""

    kind = STATISTICS
    prefix = stamps.STATISTICS

    def is_planned(self, stored: StoredPlan) -> bool:
        """See :class:`ReleaseKind`."""
        [paid] = stored.terms
        plan = StatisticsPlan.from_json(stored.work["plan"], stored.schema)
        facts = public_facts(paid, None, stored.schema, paid.adjacency)
        return price.plan(list(map(Table.to_json, plan.tables)), facts) == plan

    def needs_sums_alone(self, algorithm: str | None) -> bool:
        """See :class:`ReleaseKind`."""
        return True

    def read(self, value: object, schema: Schema) -> Statistics:
        """See :class:`NumbersKind`."""
        return Statistics.from_json(value, schema)


def show_statistics(
    installation: Installation, principal: Principal, statistics_id: str
) -> StatisticsOut:
    """Shows released statistics: numbers, intervals, guarantee, receipt."""
    with installation.database.read() as session:
        row = visible(session, principal, STATISTICS, statistics_id)
        released = _released(row)
        return StatisticsOut(
            **details(row),
            **_names(row),
            tables=tables_out(released),
            guarantee=guarantees.today(session, row.dataset_id, row.facts),
            event=released.plan.event.to_json(),
        )


def list_statistics(
    installation: Installation,
    principal: Principal,
    reference: str,
    page: PageRequest,
    *,
    kinds: Sequence[str] = (STATISTICS,),
) -> StatisticsList:
    """Lists the statistics of one dataset, and its profiles if ``kinds`` has them,
    newest first.
    """
    with installation.database.read() as session:
        shown, following = page_of_kinds(session, principal, kinds, reference, page)
        return StatisticsList(statistics=list(map(_summary, shown)), next=following)


def _released(row: ReleaseRow) -> Statistics:
    schema = Schema.from_json(row.facts["schema"])
    return Statistics.from_json(row.facts["statistics"], schema)


def _summary(row: ReleaseRow) -> StatisticsSummary:
    return StatisticsSummary(job_id=row.job_id, **head(row), **_names(row))


def _names(row: ReleaseRow) -> JsonObject:
    if row.kind == PROFILE:
        return {"statistics": [PROFILE], "titles": ["Profile"], "half_widths": [None]}
    # without a declared size, which may have changed since
    quoted = table_quotes(_released(row).plan, None)
    tables = [quote.table for quote in quoted]
    return {
        "statistics": [table["statistic"] for table in tables],
        "titles": list(map(statistic_words.title, tables)),
        "half_widths": [quote.half_width for quote in quoted],
    }


def tables_out(released: Statistics) -> list[StatisticsTableOut]:
    """Released tables as answers show them."""
    return [_table_out(released, index) for index in range(len(released.plan.tables))]


def _table_out(released: Statistics, index: int) -> StatisticsTableOut:
    table = released.plan.tables[index]
    of_all = total(released, index)
    axes = _axes_out(released.table(index))
    rows = [
        CellOut(cells=list(cells), **_shown(table, number))
        for cells, number in zip(_places(axes), released.estimates(index), strict=True)
    ]
    return StatisticsTableOut(
        table=table.to_json(),
        unit=_unit(table),
        axes=axes,
        rows=rows,
        total=None if of_all is None else EstimateOut(**vars(of_all)),
        rank_error=_rank_error(released, index),
        **_resolution(table),
    )


def _shown(table: Table, number: Estimate) -> JsonObject:
    """A number of a table. A quantile or a mean of dates is a date, and its interval has
    every day of which it holds a part.
    """
    shown = dict(vars(number))
    value = table.value
    if value is None or value.first_day is None or table.statistic == VARIANCE:
        return shown
    shown["high"] = math.ceil(number.high)
    for name, day in shown.items():
        if day is not None:
            shown[name] = date_of(day + value.first_day)
    return shown


def _rank_error(released: Statistics, index: int) -> float | None:
    table, priced = list(released.plan.measured)[index]
    return error_before(table, priced, None) if table.quantiles else None


def _resolution(table: Table) -> JsonObject:
    """The widest cell of quantiles, and its unit if it is not that of the column."""
    value = table.value
    if value is None or not table.quantiles:
        return {"resolution": None, "resolution_unit": None}
    unit = None if value.first_day is None else "days"
    return {"resolution": resolution(table), "resolution_unit": unit}


def _axes_out(table: Table) -> list[AxisOut]:
    """The axes of a table; those of several quantiles have one more."""
    axes = [AxisOut(column=axis.column, cells=axis.cells) for axis in table.axes]
    if table.statistic == QUANTILES:
        texts = map(amounts.to_text, table.quantiles)
        cells: list[JsonObject] = [{"quantile": text} for text in texts]
        axes.append(AxisOut(column="quantile", cells=cells))
    return axes


def _places(axes: Sequence[AxisOut]) -> Iterator[tuple[str, ...]]:
    """The place of each cell of a table, in words; the last axis runs fastest."""
    return product(*(list(map(_in_words, axis.cells)) for axis in axes))


_OF_OURS = re.compile(r'("*)(OTHER|MISSING)\1')
"""Categories that words for a cell of ours could be confused with."""


def _in_words(cell: JsonObject) -> str:
    """A cell in words, which no other cell of its axis has: a declared category that is
    named like a cell of ours, in quotes or without, is in one more pair of quotes.
    """
    match cell:
        case {"category": category}:
            is_ours = _OF_OURS.fullmatch(category)
            return f'"{category}"' if is_ours else str(category)
        case {"quantile": text}:
            return str(text)
        case {"from": low, "below": high}:
            return f"{low} to below {high}"
        case {"from": low, "to": high}:
            return f"{low} to {high}" if low < high else str(high)
        case {"other": True}:
            return "OTHER"
    return "MISSING"


def _unit(table: Table) -> str:
    """What the numbers of a table are measured in; distances of dates are in days."""
    if table.value is None:
        return "rows"
    name = table.value.name
    if table.value.first_day is not None:
        name = "days"
    if table.statistic == VARIANCE:
        return f"{name}²"
    return name
