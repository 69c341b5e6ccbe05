"""Prepares what the pages of statistics show: tables of numbers with their intervals."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

from app.api.pages import pictures, words
from app.wire.spending import PriceOut
from app.wire.statistics import (
    CellOut,
    EstimateOut,
    StatisticsQuoteOut,
    StatisticsSummary,
    StatisticsTableOut,
)
from grovekeeper_common import scope_words, statistic_words
from grovekeeper_common.declared_labels import labels_of
from grovekeeper_common.number_words import error_in_words, estimate_in_words
from grovekeeper_forests.data.days import day_of

_MOST_LINES = 300
"""Numbers of a table that a page shows one by one; the file has all of them."""
_FROM_ZERO = frozenset({"count", "histogram", "crosstab", "sum", "variance"})
"""Statistics whose bars begin at zero."""


@dataclass(frozen=True)
class SummaryRow:
    """Released statistics in a list."""

    id: str
    name: str
    kinds: str
    scope: dict[str, object]
    price: PriceOut
    created_at: str


def summary_row(released: StatisticsSummary) -> SummaryRow:
    """Released statistics in words."""
    kinds = ", ".join(dict.fromkeys(released.statistics))
    return SummaryRow(
        id=released.id,
        name=released.name or ", ".join(released.titles),
        kinds=kinds,
        scope=released.scope,
        price=released.price,
        created_at=released.created_at,
    )


def columns_by_kind(schema: Mapping[str, Any]) -> list[tuple[str, list[str]]]:
    """The columns of a schema as a form offers them: numbers, then categories."""
    numbers: list[str] = []
    categories: list[str] = []
    for feature in schema["features"]:
        is_category = feature["type"] == "categorical"
        (categories if is_category else numbers).append(feature["name"])
    categories += [label["name"] for label in labels_of(schema)]
    return [
        ("Numbers", numbers),
        ("Categories", categories),
    ]


def quote_title(plan: StatisticsQuoteOut) -> str:
    """What a plan of one table would release, and on which rows."""
    [asked] = plan.tables
    title = f"{statistic_words.title(asked.table)} at ε = {plan.price.epsilon}"
    return f"{title} on {scope_words.cell(plan.scope)}" if plan.scope else title


def error_before(plan: StatisticsQuoteOut) -> str:
    """The error of a plan of one table, as a sentence."""
    [asked] = plan.tables
    which = "The number"
    if asked.n_cells > 1:
        which = f"Each of the {words.grouped(asked.n_cells)} numbers"
    if asked.half_width is None:
        return f"{which} comes with its interval, which depends on the number of rows that it covers."
    if asked.resolution is not None:
        return statistic_words.error_of_quantiles(
            asked.table["column"], asked.n_cells, asked.resolution, asked.half_width
        )
    width = error_in_words(asked.half_width)
    unit = "rows" if asked.unit == "rows" else f"(in the unit of {asked.unit})"
    return f"{which} will be within ± {width} {unit} of the exact one, 95 times of 100."


@dataclass(frozen=True)
class Line:
    """One released number.

    Attributes:
        places: on each axis.
        picture: the number with its interval, on the scale of its table.
    """

    places: Sequence[str]
    value: str
    interval: str
    picture: Markup


@dataclass(frozen=True)
class GridLine:
    """Numbers side by side, each with the class of its colour."""

    place: str
    cells: Sequence[tuple[str, str]]


@dataclass(frozen=True)
class CountGrid:
    """Numbers of rows by two columns or more; the last one goes from left to right.

    Attributes:
        across: the name of the last column.
        width: half of the interval of each number.
    """

    columns: Sequence[str]
    lines: Sequence[GridLine]
    across: str
    width: str


@dataclass(frozen=True)
class ShownTable:
    """A released table.

    Attributes:
        columns: the heads of the axes.
        measure: what is measured, and in which unit.
        span: what the two ends beside each number are.
        error: what is known of quantiles, in sentences; empty for other statistics.
        n_left_out: numbers that are only in the file.
        total: of the rows that it counts, in words; empty for one number, and where
            nothing is counted.
    """

    title: str
    columns: Sequence[str]
    measure: str
    span: str
    error: str
    lines: Sequence[Line]
    n_left_out: int
    total: str
    grid: CountGrid | None


def shown_table(table: StatisticsTableOut) -> ShownTable:
    """A released table, as :func:`app.services.releases.statistics.show_statistics`
    gives it.
    """
    statistic = table.table["statistic"]
    counts_rows = table.total is not None
    total = ""
    if table.total is not None and len(table.rows) > 1:
        value, interval = in_words(table.total)
        total = f"{value} ({interval})"
    span, error = "95 % interval", ""
    if table.resolution is not None and table.rank_error is not None:
        span = "selected from"
        error = statistic_words.error_of_quantiles(
            table.table["column"], len(table.rows), table.resolution, table.rank_error
        )
    return ShownTable(
        title=statistic_words.title(table.table),
        columns=[axis.column for axis in table.axes] or ["of"],
        measure="rows" if counts_rows else f"{statistic}, in {table.unit}",
        span=span,
        error=error,
        lines=_lines(table, from_zero=statistic in _FROM_ZERO),
        n_left_out=max(len(table.rows) - _MOST_LINES, 0),
        total=total,
        grid=_grid(table) if counts_rows and len(table.axes) > 1 else None,
    )


def _as_number(value: float | str) -> float:
    """A number of a table, or the day of a date, as pictures place it."""
    if isinstance(value, str):
        return day_of(value)
    return value


def _lines(table: StatisticsTableOut, *, from_zero: bool) -> list[Line]:
    lowest = min(_as_number(row.low) for row in table.rows)
    highest = max(_as_number(row.high) for row in table.rows)
    if from_zero:
        lowest, highest = min(lowest, 0.0), max(highest, 0.0)
    lines = []
    for row in table.rows[:_MOST_LINES]:
        value, interval = in_words(row)
        low = _as_number(row.low)
        high = _as_number(row.high)
        middle = None
        if row.value is not None:
            middle = _as_number(row.value)
        picture = pictures.estimate(
            (low, middle, high),
            (lowest, highest),
            from_zero=from_zero,
            label=f"{value}, {interval}",
        )
        lines.append(Line(row.cells or ["all these rows"], value, interval, picture))
    return lines


def _grid(table: StatisticsTableOut) -> CountGrid:
    *down, across = table.axes
    n_across = len(across.cells)
    largest = max(map(_count, table.rows))
    lines = []
    for start in range(0, len(table.rows), n_across):
        numbers = table.rows[start : start + n_across]
        cells = [(in_words(row)[0], _colour(row, largest)) for row in numbers]
        lines.append(GridLine(", ".join(numbers[0].cells[:-1]), cells))
    first = table.rows[0]
    low = _as_number(first.low)
    high = _as_number(first.high)
    half_width = (high - low) / 2
    return CountGrid(
        columns=[
            ", ".join(axis.column for axis in down),
            *(row.cells[-1] for row in table.rows[:n_across]),
        ],
        lines=lines,
        across=across.column,
        width=error_in_words(half_width),
    )


def _count(row: CellOut) -> float:
    return _as_number(row.value or 0.0)


def _colour(row: CellOut, largest: float) -> str:
    # At least one: noise alone may leave a table without rows.
    return pictures.part_class(_count(row), max(largest, 1.0))


def in_words(estimate: EstimateOut) -> tuple[str, str]:
    """A number and its interval."""
    return estimate_in_words(estimate.value, estimate.low, estimate.high)
