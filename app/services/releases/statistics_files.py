"""Writes released statistics as files: CSV, and a stream of Arrow. Both have the same
records, one for each number, with its place on up to three axes.
"""

from collections.abc import Iterator, Sequence
from itertools import chain, repeat
from typing import Any

from app.core import csv_text
from app.wire.statistics import StatisticsTableOut
from grovekeeper_common.statistic_words import conditions_in_words
from grovekeeper_forests.releases.statistics.tables import MAX_AXES

_PLACES = [
    (f"{name}_{axis}", str)
    for axis in range(1, MAX_AXES + 1)
    for name in ("by", "cell")
]
_COLUMNS = dict[str, type](
    [
        ("table", int),
        ("statistic", str),
        ("column", str),
        *_PLACES,
        ("value", float),
        ("low", float),
        ("high", float),
        ("rank_error", float),
        ("where", str),
    ]
)
"""The columns of a record, with their types. What a table does not have is empty."""


def as_csv(tables: Sequence[StatisticsTableOut]) -> str:
    """A line for each number."""
    return "".join(map(csv_text.line, chain([[*_COLUMNS]], _records(tables))))


def as_arrow(tables: Sequence[StatisticsTableOut]) -> bytes:
    """One record batch, with a row for each number."""
    # here alone, so that nothing else of statistics loads the library
    from app.services import arrow_tables

    columns = zip(*_records(tables), strict=True)
    named = zip(_COLUMNS.items(), columns, strict=True)
    return arrow_tables.write_columns(
        {name: _typed(kind, values) for (name, kind), values in named}
    )


def _typed(kind: type, values: Sequence[Any]) -> tuple[type, Sequence[Any]]:
    """A column that has dates has texts alone."""
    if str not in map(type, values):
        return kind, values
    texts = list(values)
    for number, value in enumerate(values):
        if value is not None:
            texts[number] = str(value)
    return str, texts


def _records(tables: Sequence[StatisticsTableOut]) -> Iterator[list[Any]]:
    for number, table in enumerate(tables, start=1):
        # the column of a histogram is one of its axes
        column = table.table["column"] if table.total is None else None
        where = conditions_in_words(table.table) or None
        for row in table.rows:
            places: list[str | None] = []
            for axis, cell in zip(table.axes, row.cells, strict=True):
                places += [axis.column, cell]
            places += repeat(None, len(_PLACES) - len(places))
            numbers = [row.value, row.low, row.high, table.rank_error]
            yield [number, table.table["statistic"], column, *places, *numbers, where]
