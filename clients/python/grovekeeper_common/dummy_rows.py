"""Draws dummy rows from the public declaration of a dataset. They mean nothing: a
program that reads the dataset is developed with them.
"""

import math
import random
import sys
from collections.abc import Container, Iterator, Sequence
from datetime import date, timedelta
from itertools import islice
from typing import TextIO

from grovekeeper_common.declared_columns import (
    Columns,
    Feature,
    Scalar,
    declared_columns,
    write,
)
from grovekeeper_common.json_types import JsonMapping

NOTE = "Dummy rows, drawn from the declaration alone. They mean nothing."
_MISSING_SHARE = 0.1
_LARGEST = sys.float_info.max
_FIRST_INEXACT = 2**53
"""From here on, not every integer is a float."""


class DummyRows:
    """Rows that a dataset would accept. They mean nothing: no row was read, and each
    cell is drawn by itself, every declared value with the same probability.

    Args:
        facts: answer of ``GET /datasets/{id}``, or a declaration that has them.
        n_rows: number of rows.
        seed: the same facts and seed give the same rows.
    """

    def __init__(self, facts: JsonMapping, n_rows: int, *, seed: int) -> None:
        chance = random.Random(seed)  # noqa: S311 - not private, and repeatable
        self._declared = declared_columns(facts)
        self._marks = facts["schema"].get("missing_values") or ()
        self.columns: Columns = {
            column["name"]: [_cell(column, chance) for _ in range(n_rows)]
            for column in self._declared
        }
        """Cells by column, in declared order; ``None`` is an empty cell."""
        unit = facts["privacy_unit"]
        if unit["column"] is not None:
            names = islice(_units(unit, self._marks, chance), n_rows)
            self.columns[unit["column"]] = list(names)

    def __repr__(self) -> str:
        return f"DummyRows({', '.join(self.columns)})"

    def write_csv(self, stream: TextIO) -> None:
        """Writes the rows as CSV; an empty cell has the first text that the declaration
        has for it.
        """
        spelled = dict(self.columns)
        for column in self._declared:
            declared = column.get("categories", ())
            marks = (mark for mark in self._marks if mark not in declared)
            mark = next(marks, "")
            cells = self.columns[column["name"]]
            spelled[column["name"]] = [mark if cell is None else cell for cell in cells]
        write(spelled, stream)


def _units(
    unit: JsonMapping, marks: Container[str], chance: random.Random
) -> Iterator[Scalar]:
    """Names of units without end, each as often as a unit may have rows, or less
    often. No name is a text for a missing value.
    """
    number = 0
    while True:
        number += 1
        name = number if unit.get("form") == "integer" else f"unit-{number}"
        if name in marks:
            continue
        for _ in range(1 + int(chance.random() * unit["max_rows"])):
            yield name


def _cell(column: Feature, chance: random.Random) -> Scalar | date:
    share = chance.random()
    if column.get("missing") and chance.random() < _MISSING_SHARE:
        return None
    if column["type"] == "categorical":
        categories = column["categories"]
        return str(categories[int(share * len(categories))])
    if column["type"] == "date":
        first = date.fromisoformat(column["lower"])
        last = date.fromisoformat(column["upper"])
        width = last - first
        n_days = width.days + 1
        days = math.floor(share * n_days)
        return first + timedelta(days)
    if "cuts" in column:
        return _of_a_class(column["cuts"], share, chance)
    lower = float(column["lower"])
    upper = float(column["upper"])
    is_integer = column["type"] == "integer"
    value = lower * (1 - share) + (upper + is_integer) * share
    if is_integer:
        value = float(math.floor(value))
    value = min(max(value, lower), upper)
    return int(value) if is_exact(column) else value


def _of_a_class(
    cuts: Sequence[float], share: float, chance: random.Random
) -> int | float:
    """A number that points cut into one of the classes, each with the same probability:
    a whole number where all points are.
    """
    first = cuts[0]
    last = cuts[-1]
    # most numbers that are cut, such as days and counts, are not negative
    lowest = 0 if first > 0 else max(first - max(1, -first), -_LARGEST)
    highest = min(last + max(1, last - first), _LARGEST)
    ends = [lowest, *cuts, highest]
    place = int(share * (len(cuts) + 1))
    low = ends[place]
    high = ends[place + 1]
    value = low + (high - low) * chance.random()
    if _are_whole(cuts):
        return math.floor(value)
    # rounding may reach the next class
    return value if value < high else low


def _are_whole(numbers: Sequence[float]) -> bool:
    """Whether numbers are integers that are exact as floats."""
    return all(
        float(number).is_integer() and -_FIRST_INEXACT < number < _FIRST_INEXACT
        for number in numbers
    )


def is_exact(column: Feature) -> bool:
    """Whether a column has integers alone that are exact as floats."""
    if "cuts" in column:
        return _are_whole(column["cuts"])
    if column["type"] != "integer":
        return False
    return _are_whole((column["lower"], column["upper"]))
