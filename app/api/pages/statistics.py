"""Serves the pages of statistics: those of a dataset, the form that quotes and submits
one table, and the released numbers.
"""

from collections.abc import Callable, Mapping
from typing import Annotated, Any, TypeAlias, TypeVar

from fastapi import APIRouter, Query, Response
from pydantic import Field

from app.access.grants import SEE_LEDGER, TRAIN
from app.api.pages import words
from app.api.pages.dataset_view import tabs_of
from app.api.pages.forms import checked
from app.api.pages.rendering import Visit, Visitor, as_file
from app.api.pages.spending import SpendingFields, Text, bought, quoted
from app.api.pages.statistics_view import (
    columns_by_kind,
    error_before,
    quote_title,
    shown_table,
    summary_row,
)
from app.api.requests import BodyRoute, Page
from app.core import limits
from app.core.errors import InvalidRequest
from app.services.authorization import has_role, require_role
from app.services.datasets import show
from app.services.releases import statistics, statistics_files
from app.services.releases.requests import quote
from app.services.releases.statistics import StatisticsRequest
from app.wire.statistics import StatisticsIn, StatisticsQuoteOut
from grovekeeper_common.statistic_words import (
    Bins,
    all_bins,
    condition_of,
    error_of,
)
from grovekeeper_forests import limits as forest_limits

statistics_pages = APIRouter(prefix="/ui", route_class=BodyRoute)


@statistics_pages.get("/datasets/{dataset}/statistics")
def list_statistics(visit: Visitor, dataset: str, page: Page) -> Response:
    """Show the statistics of a dataset, newest first."""
    listed = statistics.list_statistics(*visit.by, dataset, page)
    of = show.show_dataset(*visit.by, dataset)
    return visit.page(
        "statistics",
        dataset=of,
        tabs=tabs_of(visit, of.id, "Statistics"),
        rows=list(map(summary_row, listed.statistics)),
        following=listed.next,
    )


_Name: TypeAlias = Annotated[str, Field(max_length=forest_limits.MAX_NAME_CHARS)]
"""The name of a column."""


class StatisticsFields(SpendingFields):
    """The fields of the form of one table.

    Attributes:
        second: the second column of a cross-table.
        where: a condition on each line, as the command line takes it.
        bins: of a number on each line, ``age=18,65``; without a name, those of the
            first number by which the table groups rows.
        quantiles: such as ``0.25, 0.5``.
        error: that is wanted, in place of an ε.
    """

    statistic: Text = "count"
    column: _Name = ""
    second: _Name = ""
    quantiles: Text = "0.25, 0.5, 0.75"
    by: _Name = ""
    where: Annotated[str, Field(max_length=limits.MAX_SCOPE_CHARS)] = ""
    bins: Annotated[str, Field(max_length=limits.MAX_SCOPE_CHARS)] = ""
    error: Text = ""

    def asking(self, epsilon: str) -> str:
        """See :class:`SpendingFields`; an ε stands for the wanted error."""
        settled = self.model_copy(update={"error": ""})
        return super(StatisticsFields, settled).asking(epsilon)


@statistics_pages.get("/datasets/{dataset}/statistics/new")
def quote_statistics(
    visit: Visitor, dataset: str, fields: Annotated[StatisticsFields, Query()]
) -> Response:
    """Show the form of a table, with its price and its error as soon as an ε or an error
    is given.
    """
    require_role(*visit.by, dataset, TRAIN)
    shown = _shown(visit, dataset)

    def ask() -> StatisticsQuoteOut:
        body = _body(fields, shown["schema"])
        return quote(*visit.by, StatisticsRequest(dataset=dataset, body=body))

    shown_quote = quoted(
        visit, shown, fields, ask if fields.epsilon or fields.error else None
    )
    plan = shown_quote.plan
    return shown_quote.page(
        "ask_statistics",
        title=plan and quote_title(plan),
        error=plan and error_before(plan),
        columns=columns_by_kind(shown["schema"]),
    )


@statistics_pages.post("/datasets/{dataset}/statistics/new")
async def release_statistics(visit: Visitor, dataset: str) -> Response:
    """Submit the job of the form; a refusal shows the form again with what would fit."""

    def ask(fields: StatisticsFields) -> StatisticsRequest:
        body = _body(fields, _shown(visit, dataset)["schema"])
        return StatisticsRequest(dataset=dataset, body=body)

    return await bought(
        visit,
        StatisticsFields,
        ask,
        lambda refused, fields: quote_statistics(refused, dataset, fields),
    )


def _shown(visit: Visit, dataset: str) -> dict[str, Any]:
    return show.show_dataset(*visit.by, dataset).model_dump(by_alias=True)


_Typed = TypeVar("_Typed")
_Value = TypeVar("_Value")
_CONDITIONS = ("sex=Female,Male", "age=18..65")
_BINS = ("5", "18,65", "quantiles:5", "age=18,65")
_ERRORS = ("50", "1%")
_OF_A_GROUPED_COLUMN = ("histogram", "quantiles", "median")
"""Statistics that group rows by their column, or select among its cells."""


def _body(fields: StatisticsFields, schema: Mapping[str, Any]) -> StatisticsIn:
    error: dict[str, str] = {}
    if fields.error.strip():
        error = _read("/error", error_of, fields.error, _ERRORS)
    given = {**fields.stated(), **fields.amounts(), **error}
    return checked(StatisticsIn, {**given, "tables": [_table(fields, schema)]})


def _table(fields: StatisticsFields, schema: Mapping[str, Any]) -> dict[str, Any]:
    """The table of a form. A field that the statistic does not have is ignored: a page
    without the script still shows it.
    """
    own: dict[str, Any] = {"column": fields.column or None}
    if fields.statistic == "crosstab":
        columns = (fields.column, fields.second)
        own = {"columns": [name for name in columns if name]}
    elif fields.statistic == "quantiles":
        own["quantiles"] = _listed(fields.quantiles)
    elif fields.statistic == "count":
        own = {}
    conditions = [
        _read("/where", condition_of, line, _CONDITIONS)
        for line in _lines(fields.where)
    ]
    return {
        **own,
        "statistic": fields.statistic,
        "by": [fields.by] if fields.by else [],
        "where": conditions,
        "bins": _bins(fields, schema),
    }


def _listed(text: str) -> list[str]:
    return [item.strip() for item in text.split(",") if item.strip()]


def _lines(text: str) -> list[str]:
    return [line.strip() for line in text.splitlines() if line.strip()]


def _bins(fields: StatisticsFields, schema: Mapping[str, Any]) -> dict[str, Bins]:
    stated = []
    for line in _lines(fields.bins):
        named = line
        if "=" not in line:
            name = _first_number(fields, schema).replace('"', '""')
            named = f'"{name}"={line}'
        stated.append(named)
    return _read("/bins", all_bins, stated, _BINS)


def _first_number(fields: StatisticsFields, schema: Mapping[str, Any]) -> str:
    """The column that bins without a name are of."""
    columns = [fields.by]
    if fields.statistic == "crosstab":
        columns = [fields.column, fields.second, fields.by]
    elif fields.statistic in _OF_A_GROUPED_COLUMN:
        columns = [fields.column, fields.by]
    grouped = [name for name in columns if name]
    if not grouped:
        raise InvalidRequest.at("/bins", "not-grouped-by")
    (_, numbers), _ = columns_by_kind(schema)
    return next((name for name in grouped if name in numbers), grouped[0])


def _read(
    pointer: str,
    read: Callable[[_Typed], _Value],
    typed: _Typed,
    accepted: tuple[str, ...],
) -> _Value:
    try:
        return read(typed)
    except ValueError:
        raise InvalidRequest.at(pointer, "malformed", accepted=accepted) from None


@statistics_pages.get("/statistics/{statistics_id}")
def show_statistics(visit: Visitor, statistics_id: str) -> Response:
    """Show released statistics with their intervals."""
    released = statistics.show_statistics(*visit.by, statistics_id)
    dataset = show.show_dataset(*visit.by, released.dataset)
    return visit.page(
        "released_statistics",
        released=released,
        summary=summary_row(released),
        tables=list(map(shown_table, released.tables)),
        counts_rows=any(table.total for table in released.tables),
        unit=words.unit_of(dataset.privacy_unit["column"]),
        may_see_ledger=has_role(*visit.by, dataset.id, SEE_LEDGER),
    )


@statistics_pages.get("/statistics/{statistics_id}/file")
def download(visit: Visitor, statistics_id: str) -> Response:
    """Download released statistics as CSV."""
    shown = statistics.show_statistics(*visit.by, statistics_id)
    text = statistics_files.as_csv(shown.tables)
    return as_file(Response(text, media_type="text/csv"), f"{statistics_id}.csv")
