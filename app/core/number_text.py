"""Reads the text of a number as uploads do, wherever people type or export one."""

import re
import sys
from typing import Final

NUMBER: Final = r"(?i)^[+-]?(?:(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:e[+-]?[0-9]+)?|inf|infinity|nan)$"
NAN: Final = r"(?i)^[+-]?nan$"
BLANKS: Final = " \t"
"""Around a number, they do not count."""
_number = re.compile(NUMBER)
_nan = re.compile(NAN)


def number_of(text: str) -> int | float | None:
    """The number in a cell of text, as JSON can hold it; ``None`` for an empty cell and for NaN.

    An infinity becomes the largest float of its sign, because the nearer bound counts for both.

    Raises:
        ValueError: the text is no number.
    """
    text = text.strip(BLANKS)
    if not text or _nan.fullmatch(text):
        return None
    if not _number.fullmatch(text):
        raise ValueError("not a number")
    if text.lstrip("+-").isdecimal() and len(text) < sys.get_int_max_str_digits():
        return int(text)
    return min(max(float(text), -sys.float_info.max), sys.float_info.max)
