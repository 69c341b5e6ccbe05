"""Reads the rows of a prediction request from a CSV or JSON file and converts them to JSON values."""

import csv
import json
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeAlias

from app.cli import suggestions
from app.cli.command import WrongUse

Rows: TypeAlias = list[dict[str, Any]]


def read(file: Path, schema: Mapping[str, Any]) -> Rows:
    """Rows of a file, by its ending: ``.csv``, ``.jsonl``, or JSON (a list of rows or ``{"rows": […]}``).

    Args:
        file: named by the user.
        schema: the public schema on the model card, with the types of the columns.

    Raises:
        WrongUse: the file cannot be read, or a cell of a number column is not a number.
    """
    try:
        with file.open(encoding="utf-8-sig", newline="") as stream:
            if file.suffix == ".csv":
                return from_csv(stream, schema)
            if file.suffix == ".jsonl":
                return _objects([json.loads(line) for line in stream if line.strip()])
            value = json.load(stream)
    except OSError as error:
        raise WrongUse(f"{file} cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise WrongUse(f"{file} is not UTF-8 text, or not JSON") from error
    return _objects(value["rows"] if isinstance(value, dict) and set(value) == {"rows"} else value)


def from_csv(lines: Iterable[str], schema: Mapping[str, Any]) -> Rows:
    """Rows of CSV text with a header. The label's column is left out; an empty cell is missing.

    Raises:
        WrongUse: a row has more or fewer cells than the header, or a cell of a number column is not a number.
    """
    numbers = {feature["name"] for feature in schema["features"] if feature["type"] != "categorical"}
    label = schema["label"]["name"]
    reader = csv.DictReader(lines, strict=True)
    rows = []
    try:
        for cells in reader:
            if None in cells or None in cells.values():
                raise WrongUse(f"line {reader.line_num} has not as many cells as the header")
            rows.append(
                {
                    name: _value(text, is_number=name in numbers, line=reader.line_num)
                    for name, text in cells.items()
                    if name != label
                }
            )
    except csv.Error as error:
        raise WrongUse(f"line {reader.line_num} is not CSV") from error
    return rows


def check_columns(rows: Rows, schema: Mapping[str, Any]) -> None:
    """Checks that the model reads every column of the rows, and that no column is absent whose values must not be.

    Raises:
        WrongUse: names the column, and the features that resemble it; or the absent columns.
    """
    known = [feature["name"] for feature in schema["features"]]
    for name in dict.fromkeys(name for row in rows for name in row):
        if name not in known:
            meant = suggestions.question(suggestions.similar([name], known))
            raise WrongUse(f"the rows have a column {name!r}, which the model does not read{meant}")
    required = [feature["name"] for feature in schema["features"] if not feature["missing"]]
    absent = [name for name in required if rows and not any(name in row for row in rows)]
    if absent:
        raise WrongUse(f"the rows lack columns that the model needs: {', '.join(absent)}")


def _value(text: str, *, is_number: bool, line: int) -> str | int | float | None:
    if text == "":
        return None
    if not is_number:
        return text
    with suppress(ValueError):
        return int(text)
    try:
        number = float(text)
    except ValueError:
        raise WrongUse(f"line {line}: a cell of a number column is not a number") from None
    if number != number or number in (float("inf"), float("-inf")):
        raise WrongUse(f"line {line}: a cell of a number column is not a finite number")
    return number


def _objects(value: object) -> Rows:
    if not isinstance(value, list) or not all(isinstance(row, dict) for row in value):
        raise WrongUse("the file holds no list of rows")
    return value
