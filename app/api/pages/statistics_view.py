"""Prepares what the pages of statistics show: tables of numbers with their intervals."""

from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from app.api.pages import pictures, words
from app.wire.profiles import ProfileOut, ProfileQuoteOut
from app.wire.statistics import (
    AxisOut,
    CellOut,
    EstimateOut,
    StatisticsSummary,
    StatisticsTableOut,
    TableQuoteOut,
)
from grovekeeper_common import statistic_words
from grovekeeper_common.declared_labels import labels_of
from grovekeeper_common.json_types import JsonMapping
from grovekeeper_common.number_words import (
    error_in_words,
    estimate_in_words,
    few_digits,
    grouped,
)
from grovekeeper_forests.bins.noisy_counts import noise_bound
from grovekeeper_forests.data.days import day_of
from grovekeeper_forests.privacy import events
from grovekeeper_forests.releases.names import PROFILE
from grovekeeper_forests.releases.profile.price import parts_of
from grovekeeper_forests.releases.statistics.read import LEVEL

_MOST_LINES = 300
"""Numbers of a table that a page shows one by one; the file has all of them."""
_FROM_ZERO = frozenset({"count", "histogram", "crosstab", "sum", "variance"})
"""Statistics whose bars begin at zero."""


@dataclass(frozen=True)
class SummaryRow:
    """Released statistics, or a profile, in a list."""

    released: StatisticsSummary
    path: str
    name: str
    kinds: str
    errors: str


def name_of(released: StatisticsSummary) -> str:
    """The name of released statistics, or what they tell."""
    return released.name or ", ".join(released.titles)


def summary_row(released: StatisticsSummary) -> SummaryRow:
    """Released statistics in words."""
    kinds = ", ".join(dict.fromkeys(released.statistics))
    folder = "profiles" if kinds == PROFILE else "statistics"
    path = f"/ui/{folder}/{released.id}"
    errors = statistic_words.errors(released.model_dump())
    return SummaryRow(released, path, name_of(released), kinds, errors)


def columns_by_kind(schema: JsonMapping) -> list[tuple[str, list[str]]]:
    """The columns of a schema as a form offers them: numbers, then categories."""
    kinds: dict[str, list[str]] = {"Numbers": [], "Categories": []}
    for column in [*schema["features"], *labels_of(schema)]:
        kinds["Numbers" if "lower" in column else "Categories"].append(column["name"])
    return list(kinds.items())


def errors_of_profile(plan: ProfileQuoteOut) -> list[str]:
    """The errors of a planned profile, as sentences."""
    parts = parts_of(events.from_json(plan.event))
    counted = "All rows" if plan.tables else "The rows of each class"
    errors = []
    for what, event in ((counted, parts.counts), ("All rows", parts.size)):
        if event is not None:
            width = error_in_words(noise_bound(event, level=LEVEL))
            errors.append(
                f"{what}: within ± {width} rows of the exact number, 95 times of 100."
            )
    for asked in plan.tables:
        name = words.sentence(statistic_words.title(asked.table))
        errors.append(f"{name} {error_before(asked)}")
    return errors


def counts_of_profile(released: ProfileOut, label: str) -> list[StatisticsTableOut]:
    """The counts of a profile as tables: of each class of its label, and of all rows
    where the profile counts them by themselves.

    Args:
        label: the name of the label, if the profile does not state it.
    """
    parts = parts_of(events.from_json(released.event))
    counts = [([count.label], count.count) for count in released.class_counts]
    tables = []
    if counts:
        tables.append(_counted(released.label or label, counts, parts.counts))
    if parts.size is not None or not counts:
        size, event = released.size.count, parts.size or parts.counts
        tables.append(_counted(None, [([], size)], event))
    return tables


def _counted(
    column: str | None, counts: Sequence[tuple[list[str], float]], event: events.Event
) -> StatisticsTableOut:
    def estimate(count: float, n_counts: int = 1) -> dict[str, float]:
        bound = noise_bound(event, level=LEVEL, n_counts=n_counts)
        return {"value": count, "low": count - bound, "high": count + bound}

    statistic = "count" if column is None else "histogram"
    whole = sum(count for _, count in counts)
    return StatisticsTableOut(
        table={
            "statistic": statistic,
            "column": column,
            "columns": [],
            "by": [],
            "where": [],
        },
        unit="rows",
        axes=[] if column is None else [AxisOut(column=column, cells=[])],
        rows=[CellOut(cells=cells, **estimate(count)) for cells, count in counts],
        total=EstimateOut(**estimate(whole, len(counts))),
        rank_error=None,
        resolution=None,
        resolution_unit=None,
    )


def shown_bins(released: ProfileOut) -> list[tuple[str, str]]:
    """The number or date of each released bin's column, and the edges of its bins."""
    return [
        (feature.name, ", ".join(map(few_digits, feature.edges)))
        for feature in released.features
    ]


def error_before(asked: TableQuoteOut) -> str:
    """The error of a planned table, as a sentence."""
    which = "The number"
    if asked.n_cells > 1:
        which = f"Each of the {grouped(asked.n_cells)} numbers"
    if asked.half_width is None:
        known = statistic_words.error_of_some_rows(asked.half_width_at_size)
        return f"{which} comes with its interval, which {known}."
    if asked.resolution is not None:
        return statistic_words.error_of_quantiles(
            asked.table["column"],
            asked.n_cells,
            asked.resolution,
            asked.half_width,
            asked.resolution_unit,
        )
    width = error_in_words(asked.half_width)
    unit = asked.unit
    if unit not in ("rows", "days", "days²"):
        unit = f"(in the unit of {unit})"
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
    title = statistic_words.title(table.table)
    span, error = "95 % interval", ""
    if table.resolution is not None and table.rank_error is not None:
        span = "Selected from"
        error = statistic_words.error_of_quantiles(
            table.table["column"],
            len(table.rows),
            table.resolution,
            table.rank_error,
            table.resolution_unit,
        )
    return ShownTable(
        title=f"{title[:1].upper()}{title[1:]}",
        columns=[axis.column for axis in table.axes] or ["Of"],
        measure="Rows"
        if counts_rows
        else f"{statistic.capitalize()}, {_measured_in(table)}",
        span=span,
        error=error,
        lines=_lines(table, from_zero=statistic in _FROM_ZERO),
        n_left_out=max(len(table.rows) - _MOST_LINES, 0),
        total=total,
        grid=_grid(table) if counts_rows and len(table.axes) > 1 else None,
    )


def _measured_in(table: StatisticsTableOut) -> str:
    """What the numbers of a table are; those of some statistics of dates are dates."""
    if isinstance(table.rows[0].low, str):
        return "a date"
    return f"in {table.unit}"


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
    # at least one: noise alone may leave a table without rows
    largest = max(1.0, *map(_count, table.rows))
    lines = []
    for start in range(0, len(table.rows), n_across):
        numbers = table.rows[start : start + n_across]
        cells = [
            (in_words(row)[0], pictures.part_class(_count(row), largest))
            for row in numbers
        ]
        lines.append(GridLine(", ".join(numbers[0].cells[:-1]), cells))
    first = table.rows[0]
    interval = _as_number(first.high) - _as_number(first.low)
    return CountGrid(
        columns=[
            ", ".join(axis.column for axis in down),
            *(row.cells[-1] for row in table.rows[:n_across]),
        ],
        lines=lines,
        across=across.column,
        width=error_in_words(interval / 2),
    )


def _count(row: CellOut) -> float:
    return _as_number(row.value or 0.0)


def in_words(estimate: EstimateOut) -> tuple[str, str]:
    """A number and its interval."""
    return estimate_in_words(estimate.value, estimate.low, estimate.high)
