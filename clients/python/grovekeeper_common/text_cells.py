"""Reads cells of text by the public schema of a model: those of a file of CSV that is
predicted, and what people type into the dashboard.
"""

import re
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from grovekeeper_common import suspicions
from grovekeeper_common.json_types import JsonMapping
from grovekeeper_common.number_text import BLANKS, number_of

TYPES_OF_TEXT = ("categorical", "date")
"""Types of features whose cells a request has as texts."""

NO_CATEGORY = "[\r\n\0]"
"""Signs that no upload takes in a cell of categories, unless one is declared with them."""

_SIGN_OF_NO_CATEGORY = re.compile(NO_CATEGORY)


def marks_of(
    schema: JsonMapping, stated: Collection[str] = ()
) -> dict[str, frozenset[str]]:
    """The texts that mean a missing value, by feature; a declared category never does.

    Args:
        stated: such texts besides those of the declaration.
    """
    marks = frozenset(schema.get("missing_values") or ()).union(stated)
    return {
        feature["name"]: marks.difference(feature.get("categories") or ())
        for feature in schema["features"]
    }


def number_columns(schema: JsonMapping) -> set[str]:
    """The features of a public schema whose cells are numbers."""
    return {
        feature["name"]
        for feature in schema["features"]
        if feature["type"] not in TYPES_OF_TEXT
    }


def is_mark(cell: Any, marks: Collection[str]) -> bool:
    """Whether a cell is one of some texts; blanks around it do not count."""
    return isinstance(cell, str) and cell.strip(BLANKS) in marks


@dataclass
class WrongCell(Exception):
    """A text is no value of its feature.

    Attributes:
        problem: ``not a number``, say.
        suspected: what most likely caused it, in words; ``None`` if nothing is
            suspected.
        option: of an upload, which reads the text as it is; ``None`` if none does.
    """

    problem: str
    suspected: str | None = None
    option: str | None = None

    def __str__(self) -> str:
        if self.suspected is None:
            return self.problem
        return f"{self.problem}: {self.suspected}"


class CellReader:
    """Reads cells of text by the schema of a model, as uploads do.

    Args:
        schema: on the model card.
    """

    def __init__(self, schema: JsonMapping) -> None:
        self._features = {feature["name"]: feature for feature in schema["features"]}
        self._marks = marks_of(schema)

    def cell(self, name: str, text: str) -> str | int | float | None:
        """The value of a cell, as a prediction takes it; ``None`` for a missing value.
        The service judges an unknown name.

        Raises:
            WrongCell: the text is no number, no date, or no text of a category.
        """
        feature = self._features.get(name)
        if feature is None:
            return text or None
        if is_mark(text, self._marks[name]):
            return None
        match feature["type"]:
            case "date":
                _check_date(text, feature)
            case "categorical":
                _check_category(text, feature)
            case _:
                return _number(text, feature)
        return text or None


def _number(text: str, feature: JsonMapping) -> int | float | None:
    try:
        return number_of(text)
    except ValueError:
        suspected = suspicions.of_no_numbers([text])
    raise _wrong("not a number", suspected, text, feature)


def _check_date(text: str, feature: JsonMapping) -> None:
    trimmed = text.strip(BLANKS)
    if trimmed and not suspicions.is_date(trimmed):
        suspected = suspicions.of_no_dates([text])
        raise _wrong("not a date such as 2024-02-29", suspected, text, feature)


def _wrong(
    problem: str, suspected: str | None, text: str, feature: JsonMapping
) -> WrongCell:
    if not feature.get("missing"):
        suspected = suspicions.without_empty(suspected)
    return WrongCell(problem, suspected, suspicions.option_of(suspected, [text]))


def _check_category(text: str, feature: JsonMapping) -> None:
    sign = _SIGN_OF_NO_CATEGORY.search(text)
    if sign is None or text in feature["categories"]:
        return
    if sign[0] == "\0":
        raise WrongCell("not text", suspicions.NUL)
    raise WrongCell("not a category", suspicions.LINE_BREAK)
