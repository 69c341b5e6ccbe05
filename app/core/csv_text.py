"""Writes lines of CSV that a spreadsheet opens without running anything in them."""

import csv
import io
from collections.abc import Sequence

_READ_AS_FORMULAS = ("=", "+", "-", "@", "\t", "\r")


def line(cells: Sequence[object]) -> str:
    """A line of CSV. ``None`` is an empty cell; a text that a spreadsheet would read as a
    formula has an apostrophe before it.
    """
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerow(map(_cell, cells))
    return text.getvalue()


def _cell(value: object) -> object:
    if isinstance(value, str) and value.startswith(_READ_AS_FORMULAS):
        return f"'{value}"
    return "" if value is None else value
