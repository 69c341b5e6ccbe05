"""Reads and writes dates. Inside, a date is a whole number of days.

Every way in reads a date by :func:`day_of`, and every way out writes one by
:func:`date_of`.
"""

import math
import re
from datetime import date

NO_DAY = 0.5
"""What is no date: a half, which no date is."""

_ISO = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", re.ASCII)
_BLANKS = " \t"
_FIRST = date(1970, 1, 1).toordinal()


def day_of(cell: object) -> float:
    """The whole days from 1970-01-01 to a date of the form 2024-02-29; NaN for an empty
    cell, and :data:`NO_DAY` for anything else.

    Args:
        cell: PRIVATE, or a caller's. Spaces and tabs around a text do not count.
    """
    if cell is None:
        return math.nan
    if not isinstance(cell, str):
        return NO_DAY
    text = cell.strip(_BLANKS)
    if not text:
        return math.nan
    if not _ISO.fullmatch(text):
        return NO_DAY
    try:
        return float(date.fromisoformat(text).toordinal() - _FIRST)
    except ValueError:  # such as 2023-02-29
        return NO_DAY


def date_of(day: float) -> str:
    """The date of a number of days from 1970-01-01; a part of a day does not count."""
    return date.fromordinal(math.floor(day) + _FIRST).isoformat()
