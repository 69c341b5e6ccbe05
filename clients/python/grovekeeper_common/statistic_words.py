"""Writes tables of statistics as words for people, and reads the conditions, bins and
errors that people type.
"""

import math
import re
from collections.abc import Iterable
from decimal import Decimal

from grovekeeper_common.json_types import JsonMapping, JsonObject
from grovekeeper_common.number_text import number_of, text_of_number
from grovekeeper_common.number_words import error_in_words

_DATE = r"[0-9]{4}-[0-9]{2}-[0-9]{2}"
_NUMBER = rf"{_DATE}|[+-]?(?:[0-9]+(?:\.[0-9]+)?|\.[0-9]+)(?:[eE][+-]?[0-9]{{1,3}})?"
_MOST_PLACES = 99
_MOST_CHARS = 160
_PRIVATE = "quantiles"
_COUNTED = re.compile(rf" *({_PRIVATE} *: *)?([0-9]+) *")
# ` *+` gives no blank back: else a long run of them takes time by its square
_RANGE = re.compile(rf" *+({_NUMBER})? *+\.\. *+({_NUMBER})? *+")
_LIKE_A_RANGE = re.compile(
    r"(?=[^,\"]*\Z) *+(?:[-+.]?[0-9][^,\"]*?)?\.\.(?:\Z| *+[-+.]?[0-9])"
)
"""How a range begins of which an end may be misspelt, as a day is in ``01.01.2020..``."""
_NAMED = re.compile(r' *(?:"((?:[^"]|"")+)"|([^"= ](?:[^=]*[^= ])?)) *=(.+)')
"""A name, in quotes or without, and what stands behind the equals sign."""
_ITEM = re.compile(r' *+(?:"((?:[^"]|"")*)"|MISSING|([^",][^,]*)),')
"""A category, in quotes or without, or what tables call no value; and a comma."""


def title(table: JsonMapping) -> str:
    """A table in words: ``mean of age by sex, where age from 18 below 65``.

    Args:
        table: as quotes and released statistics state it.
    """
    of = f" of {table['column']}" if table["column"] else ""
    crossed = f" of {', '.join(table['columns'])}" if table["columns"] else ""
    by = f" by {', '.join(table['by'])}" if table["by"] else ""
    conditions = conditions_in_words(table)
    where = f", where {conditions}" if conditions else ""
    return f"{table['statistic']}{of}{crossed}{by}{where}"


def errors(released: JsonMapping) -> str:
    """The 95 % half widths of released tables; a dash where they depend on rows."""
    words = []
    for statistic, width in zip(
        released["statistics"], released["half_widths"], strict=True
    ):
        rank = " in rank" if statistic in ("median", "quantiles") else ""
        words.append("–" if width is None else f"± {error_in_words(width)}{rank}")
    return ", ".join(words)


def conditions_in_words(table: JsonMapping) -> str:
    """Which rows a table reads; no text where it reads all."""
    return " and ".join(map(_condition_in_words, table["where"]))


def titles(tables: Iterable[JsonMapping]) -> str:
    """The name of tables that are released together, cut where it is long."""
    text = "; ".join(map(title, tables))
    return text if len(text) <= _MOST_CHARS else f"{text[:_MOST_CHARS]}…"


def _condition_in_words(condition: JsonMapping) -> str:
    column = condition["column"]
    if "in" in condition:
        values = ["(no value)" if value is None else value for value in condition["in"]]
        return f"{column} is {' or '.join(values)}"
    lower = condition["from"]
    below = condition["below"]
    words = [column]
    words += [] if lower is None else [f"from {_bound_in_words(lower)}"]
    words += [] if below is None else [f"below {_bound_in_words(below)}"]
    return " ".join(words)


def _bound_in_words(bound: float | str) -> str:
    if isinstance(bound, str):
        return bound
    return text_of_number(bound)


def error_of_some_rows(at_size: float | None) -> str:
    """Why the error of a mean or a variance of some rows is not known before, and what
    it is for as many rows as were declared.
    """
    words = "depends on the number of rows that it covers"
    if at_size is None:
        return words
    return f"{words}: ± {error_in_words(at_size)} at the declared size, more than twice that at half of it"


def error_of_quantiles(
    column: str,
    n_numbers: int,
    resolution: float,
    rank_error: float,
    unit: str | None = None,
) -> str:
    """What is known of quantiles, as sentences.

    Args:
        n_numbers: of the table.
        resolution: the widest cell from which a number is selected.
        rank_error: of the cells, in rows.
        unit: of the resolution; see :func:`width_of_cells`.
    """
    of = f"one value of {column}"
    if resolution > 0:
        width = width_of_cells(resolution, unit)
        of = f"the middle of a cell of {column} that is at most {width} wide"
    rows = f"± {error_in_words(rank_error)} rows"
    if n_numbers == 1:
        return (
            f"The number is {of}. With probability 95 %, its cell holds a value within "
            f"{rows} of the rank asked for. {_FEW}"
        )
    return (
        f"Each number is {of}. With probability 95 %, the cells of a group hold values "
        f"within {rows} of the ranks asked for. {_FEW}"
    )


def width_of_cells(resolution: float, unit: str | None) -> str:
    """The width of the widest cell from which a quantile is selected.

    Args:
        unit: ``days`` of dates; else ``None``.
    """
    width = error_in_words(resolution)
    if unit is None:
        return width
    return f"{width} day" if width == "1" else f"{width} {unit}"


_FEW = "Of fewer rows than that, any value can come out."
"""Else a reader takes the number of an empty group for one of its rows."""


def condition_of(text: str) -> JsonObject:
    """A condition from ``sex=Female,Male``, ``age=18..65`` (without 65) or
    ``admitted=2020-01-01..2021-01-01``, in the form of a request. A name or a category
    with other signs stands in double quotes, as in CSV: ``"a=b"="10..19","x, y"``.
    ``MISSING``, or ``""``, means rows without a value.

    Raises:
        ValueError: the text is no condition.
    """
    name, values = _named(text)
    found = _RANGE.fullmatch(values)
    if found is None:
        if _LIKE_A_RANGE.match(values):
            raise ValueError(
                f"{values.strip()} is no range of numbers or of dates such as "
                "2020-01-01..2021-01-01; a category of this name stands in quotes"
            )
        return {"column": name, "in": _listed(values)}
    limits = zip(("from", "below"), found.groups(), strict=True)
    bounds = {key: _finite(value) for key, value in limits if value is not None}
    if not bounds:
        raise ValueError(f"{text} has no bound")
    return {"column": name, **bounds}


Bins = int | list[float | str] | dict[str, int]
"""How many bins of equal width; their edges; or how many with private edges, under
``quantiles``.
"""


def bins_of(text: str) -> tuple[str, Bins]:
    """A column and its bins, from ``age=5`` (how many of equal width), ``age=18,65``
    (their edges) or ``age=quantiles:5`` (how many with private edges).

    Raises:
        ValueError: the text states no bins.
    """
    name, values = _named(text)
    counted = _COUNTED.fullmatch(values)
    if counted is None:
        edges = values.strip().removesuffix(",").split(",")
        return name, list(map(_finite, edges))
    number = int(counted[2])
    return name, {_PRIVATE: number} if counted[1] else number


def all_bins(texts: Iterable[str]) -> dict[str, Bins]:
    """The bins of several columns, each as :func:`bins_of` reads it.

    Raises:
        ValueError: a text states no bins, or two name a column.
    """
    bins: dict[str, Bins] = {}
    for text in texts:
        name, edges = bins_of(text)
        if name in bins:
            raise ValueError(f"{name} is named twice; separate edges with commas")
        bins[name] = edges
    return bins


def error_of(text: str) -> dict[str, str]:
    """The member of a request that says which error is wanted: ``50``, or ``1%`` of the
    declared size.

    Raises:
        ValueError: the text is no share.
    """
    percent = text.strip().removesuffix("%")
    if percent == text.strip():
        return {"error": percent}
    try:
        # refuses 1_0, which is ten for Decimal
        number_of(percent)
        share = Decimal(percent) / 100
    except (ArithmeticError, ValueError):
        share = Decimal("nan")
    # a few characters, such as 1e99999, can be a number of very many digits
    if not share.is_finite() or abs(share.adjusted()) > _MOST_PLACES:
        raise ValueError("an error is a number, or a share such as 1%")
    return {"error_share": format(share, "f")}


def _named(text: str) -> tuple[str, str]:
    found = _NAMED.fullmatch(text)
    if found is None:
        raise ValueError(f"write column=values, not {text!r}")
    quoted, plain, values = found.groups()
    return plain or quoted.replace('""', '"'), values


def _listed(values: str) -> list[str | None]:
    """Categories between commas, each in quotes or without; ``None`` for no value."""
    text = f"{values},"
    if _ITEM.sub("", text):
        raise ValueError(f"{values} has quotes that do not fit, or names no category")
    return [
        plain or quoted.replace('""', '"') or None
        for quoted, plain in _ITEM.findall(text)
    ]


def _finite(text: str) -> float | str:
    """A number that JSON can hold, or a date."""
    if re.fullmatch(_DATE, text.strip()):
        return text.strip()
    if number_of(text) is None:
        raise ValueError("a number is missing")
    number = float(text)
    if not math.isfinite(number):
        raise ValueError("a number of this size does not exist")
    return number
