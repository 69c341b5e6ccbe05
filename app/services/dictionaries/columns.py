"""Describes the columns of a data dictionary in the terms of a declaration, whichever form the dictionary has."""

import math
import re
from dataclasses import dataclass

from app.forests.data.schema import FeatureType, plain_number

_DECIMAL = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?", re.ASCII)


@dataclass(frozen=True)
class Column:
    """A column of a data dictionary.

    Attributes:
        name: as in the header of the rows.
        type: of the feature; ``None`` where the dictionary's type is neither a number nor a category.
        lower: smallest legal value of a number; ``None`` where the dictionary does not say.
        upper: largest legal value of a number.
        categories: of a categorical feature; ``None`` where the dictionary does not list them.
        ordered: whether the categories are in a meaningful order.
        missing: whether a cell may be empty.
        bounds: the note on the source of the bounds.
        described_as: the dictionary's type, in its words.
        spellings: how the dictionary lets a value be written, where it allows several ways; else empty.
        marks: texts other than an empty cell that stand for a missing value.
    """

    name: str
    type: FeatureType | None
    lower: float | None = None
    upper: float | None = None
    categories: tuple[str, ...] | None = None
    ordered: bool = False
    missing: bool = False
    bounds: str | None = "documented"
    described_as: str = ""
    spellings: tuple[str, ...] = ()
    marks: tuple[str, ...] = ()


def number(value: object) -> float | None:
    """A bound of a dictionary, which may write it as text; ``None`` if it is no finite number."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    if isinstance(value, str) and not _DECIMAL.fullmatch(value):
        return None
    try:
        converted = float(value)
    except OverflowError:
        return None
    return converted if math.isfinite(converted) else None


def number_column(
    name: str, *, is_integer: bool, least: tuple[object, object], most: tuple[object, object], missing: bool
) -> Column:
    """A column of numbers.

    Args:
        name: of the column.
        is_integer: whether the numbers are whole.
        least: smallest legal value, and a value that every number exceeds; ``None`` where the dictionary has none.
        most: largest legal value, and a value that exceeds every number.
        missing: whether a cell may be empty.
    """
    lower = _bound(least, step=1, is_integer=is_integer)
    upper = _bound(most, step=-1, is_integer=is_integer)
    return Column(name, "integer" if is_integer else "numeric", lower=lower, upper=upper, missing=missing)


def category_column(name: str, values: list[object] | None, *, ordered: bool = False, missing: bool = False) -> Column:
    """A column of categories. An empty text among them stands for a missing value.

    Args:
        name: of the column.
        values: as the dictionary lists them, texts or numbers; ``None`` where it lists none.
        ordered: whether their order has a meaning.
        missing: whether a cell may be empty.
    """
    categories = None if values is None else tuple(dict.fromkeys(text(value) for value in values))
    missing = missing or "" in (categories or ())
    kept = tuple(value for value in categories or () if value)
    return Column(name, "categorical", categories=kept or None, ordered=ordered, missing=missing, bounds=None)


def text(value: object) -> str:
    """A value of a dictionary as a cell of the rows shows it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(plain_number(value) if isinstance(value, float) else value)


def _bound(given: tuple[object, object], *, step: int, is_integer: bool) -> float | None:
    """A closed bound: the neighbour of an open bound of integers, and an open bound of other numbers itself."""
    closed, beyond = map(number, given)
    if is_integer:
        closed = None if closed is None or not closed.is_integer() else closed
        beyond = None if beyond is None or not beyond.is_integer() else beyond + step
    bounds = [bound for bound in (closed, beyond) if bound is not None]
    return None if not bounds else max(bounds) if step > 0 else min(bounds)
