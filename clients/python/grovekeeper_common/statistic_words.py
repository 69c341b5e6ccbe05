"""Writes tables of statistics as words for people."""

from collections.abc import Mapping
from typing import Any


def title(table: Mapping[str, Any]) -> str:
    """A table in words: ``mean of age by sex, where age from 18 below 65``.

    Args:
        table: as quotes and released statistics state it.
    """
    of = f" of {table['column']}" if table["column"] else ""
    crossed = f" of {', '.join(table['columns'])}" if table["columns"] else ""
    by = f" by {', '.join(table['by'])}" if table["by"] else ""
    conditions = " and ".join(map(_condition_in_words, table["where"]))
    where = f", where {conditions}" if conditions else ""
    return f"{table['statistic']}{of}{crossed}{by}{where}"


def _condition_in_words(condition: Mapping[str, Any]) -> str:
    column = condition["column"]
    if "in" in condition:
        values = ["(empty)" if value is None else value for value in condition["in"]]
        return f"{column} is {' or '.join(values)}"
    lower, below = condition["from"], condition["below"]
    words = [column]
    words += [] if lower is None else [f"from {lower:.15g}"]
    words += [] if below is None else [f"below {below:.15g}"]
    return " ".join(words)
