"""Serves the pages of statistics and profiles: those of a dataset, the forms that quote
and submit one table or a profile, and the released numbers.
"""

from collections.abc import Callable, Sequence
from typing import Annotated, TypeVar

from fastapi import Query, Response
from pydantic import Field

from app.access.grants import SEE_LEDGER
from app.api.pages.dataset_view import shown_dataset, tabs_of, unit_of_dataset
from app.api.pages.forms import checked
from app.api.pages.rendering import Visit, Visitor, as_file
from app.api.pages.spending import SpendingFields, Text, quoted_on, sold, title_of
from app.api.pages.statistics_view import (
    columns_by_kind,
    counts_of_profile,
    error_before,
    errors_of_profile,
    name_of,
    shown_bins,
    shown_table,
    summary_row,
)
from app.api.requests import Page, Router
from app.core import limits
from app.core.errors import InvalidRequest
from app.services.authorization import has_role
from app.services.jobs.show_jobs import jobs_of
from app.services.releases import profiles, statistics, statistics_files
from app.wire.datasets import ColumnName
from app.wire.profiles import ProfileIn, ProfileOut
from app.wire.statistics import StatisticsIn, StatisticsOut, StatisticsTableOut
from grovekeeper_common.declared_labels import labels_of
from grovekeeper_common.json_types import JsonMapping, JsonObject
from grovekeeper_common.statistic_words import (
    Bins,
    all_bins,
    condition_of,
    error_of,
    title,
)
from grovekeeper_forests import limits as forest_limits
from grovekeeper_forests.releases.names import PROFILE, STATISTICS
from grovekeeper_forests.releases.profile.price import BINS

statistics_pages = Router(prefix="/ui")


@statistics_pages.get("/datasets/{dataset}/statistics")
def list_statistics(visit: Visitor, dataset: str, page: Page) -> Response:
    """Show the statistics and profiles of a dataset, newest first."""
    kinds = (STATISTICS, PROFILE)
    listed = statistics.list_statistics(*visit.by, dataset, page, kinds=kinds)
    of = shown_dataset(visit, dataset)
    return visit.page(
        "statistics",
        dataset=of,
        tabs=tabs_of(visit, of["id"], "Statistics"),
        rows=list(map(summary_row, listed.statistics)),
        jobs=jobs_of(*visit.by, [released.job_id for released in listed.statistics]),
        following=listed.next,
    )


_Name = Annotated[str, Field(max_length=forest_limits.MAX_NAME_CHARS)]
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

    @property
    def is_priced(self) -> bool:
        return bool(self.epsilon or self.error)


def _statistics(
    visit: Visit, dataset: str, fields: StatisticsFields
) -> statistics.StatisticsRequest:
    error: dict[str, str] = {}
    if fields.error.strip():
        error = _read("/error", error_of, fields.error, _ERRORS)
    table = _table(fields, shown_dataset(visit, dataset)["schema"])
    body = {**fields.given(), **error, "tables": [table]}
    return statistics.StatisticsRequest(
        dataset=dataset, body=checked(StatisticsIn, body)
    )


@sold(
    statistics_pages,
    "/datasets/{dataset}/statistics/new",
    StatisticsFields,
    _statistics,
)
def quote_statistics(
    visit: Visitor, dataset: str, fields: Annotated[StatisticsFields, Query()]
) -> Response:
    """Show the form of a table, with its price and its error as soon as an ε or an error
    is given.
    """
    shown_quote = quoted_on(visit, dataset, fields, _statistics)
    plan = shown_quote.plan
    return shown_quote.page(
        "ask_statistics",
        title=plan and title_of(plan, title(plan.tables[0].table)),
        error=plan and error_before(plan.tables[0]),
        columns=columns_by_kind(shown_quote.dataset["schema"]),
    )


class ProfileFields(SpendingFields):
    """The fields of the form of a profile."""

    label: ColumnName = ""
    bins: Text = ""
    class_share: Text = ""
    size_share: Text = ""


def _profile(
    visit: Visit, dataset: str, fields: ProfileFields
) -> profiles.ProfileRequest:
    chosen = ((name, getattr(fields, name).strip()) for name in _PARAMETERS)
    parameters = {name: text for name, text in chosen if text}
    body = {**fields.given("label"), "parameters": parameters}
    return profiles.ProfileRequest(dataset=dataset, body=checked(ProfileIn, body))


@sold(statistics_pages, "/datasets/{dataset}/profiles/new", ProfileFields, _profile)
def quote_profile(
    visit: Visitor, dataset: str, fields: Annotated[ProfileFields, Query()]
) -> Response:
    """Show the form of a profile, with its price and its errors as soon as an ε is
    given.
    """
    shown_quote = quoted_on(visit, dataset, fields, _profile)
    plan = shown_quote.plan
    return shown_quote.page(
        "ask_profile",
        title=plan and title_of(plan, "Profile"),
        errors=plan and errors_of_profile(plan),
        bins=BINS,
    )


_Typed = TypeVar("_Typed")
_Value = TypeVar("_Value")
_CONDITIONS = ("sex=Female,Male", "age=18..65")
_BINS = ("5", "18,65", "quantiles:5", "age=18,65")
_ERRORS = ("50", "1%")
_PARAMETERS = ("bins", "class_share", "size_share")
_OF_A_GROUPED_COLUMN = ("histogram", "quantiles", "median")
"""Statistics that group rows by their column, or select among its cells."""


def _table(fields: StatisticsFields, schema: JsonMapping) -> JsonObject:
    """The table of a form. A field that the statistic does not have is ignored: a page
    without the script still shows it.
    """
    own: JsonObject = {"column": fields.column or None}
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


def _bins(fields: StatisticsFields, schema: JsonMapping) -> dict[str, Bins]:
    lines = _lines(fields.bins)
    of_first = ""
    if any("=" not in line for line in lines):
        name = _first_number(fields, schema).replace('"', '""')
        of_first = f'"{name}"='
    stated = [line if "=" in line else of_first + line for line in lines]
    return _read("/bins", all_bins, stated, _BINS)


def _first_number(fields: StatisticsFields, schema: JsonMapping) -> str:
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
    return _released(visit, released, name_of(released), released.tables)


@statistics_pages.get("/profiles/{profile_id}")
def show_profile(visit: Visitor, profile_id: str) -> Response:
    """Show a profile: counts with their intervals, and the edges of its bins."""
    released = profiles.show_profile(*visit.by, profile_id)
    label, *_ = labels_of(shown_dataset(visit, released.dataset)["schema"])
    tables = [*counts_of_profile(released, label["name"]), *released.tables]
    name = released.name or "Profile"
    return _released(visit, released, name, tables, shown_bins(released))


@statistics_pages.get("/profiles/{profile_id}/file")
def download_profile(visit: Visitor, profile_id: str) -> Response:
    """Download a profile as the API answers it."""
    text = profiles.show_profile(*visit.by, profile_id).model_dump_json(by_alias=True)
    answer = Response(text, media_type="application/json")
    return as_file(answer, f"{profile_id}.json")


def _released(
    visit: Visit,
    released: StatisticsOut | ProfileOut,
    name: str,
    tables: Sequence[StatisticsTableOut],
    bins: Sequence[tuple[str, str]] | None = None,
) -> Response:
    return visit.page(
        "released_statistics",
        released=released,
        job=jobs_of(*visit.by, [released.job_id]).get(released.job_id),
        name=name,
        tables=list(map(shown_table, tables)),
        counts_rows=any(table.total for table in tables),
        bins=bins,
        unit=unit_of_dataset(visit, released.dataset),
        may_see_ledger=has_role(*visit.by, released.dataset, SEE_LEDGER),
    )


@statistics_pages.get("/statistics/{statistics_id}/file")
def download(visit: Visitor, statistics_id: str) -> Response:
    """Download released statistics as CSV."""
    shown = statistics.show_statistics(*visit.by, statistics_id)
    text = statistics_files.as_csv(shown.tables)
    return as_file(Response(text, media_type="text/csv"), f"{statistics_id}.csv")
