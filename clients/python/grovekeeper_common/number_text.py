"""Reads the text of a number as uploads do, wherever people type or export one, writes
one as a category, and rounds a declared size.
"""

import math
import re
import sys
from decimal import Decimal

NUMBER = (
    r"(?i)^[+-]?(?:(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:e[+-]?[0-9]+)?|inf|infinity|nan)$"
)
NAN = r"(?i)^[+-]?nan$"
LIKE_NUMBER = r"^[-+0-9.,'eE \t]*[0-9][-+0-9.,'eE \t]*$"
COMPUTED = r"^[=+@\t\r-]"
"""Begins texts that a spreadsheet computes, and numbers."""
BLANKS = " \t"
"""Around a number, they do not count."""
_LEAST_PLAIN = 1e-6
_FIRST_WITH_POWER = 1e21
"""Between them a number is written without a power of ten."""
_number = re.compile(NUMBER)
_nan = re.compile(NAN)
_computed = re.compile(COMPUTED)
_like_number = re.compile(LIKE_NUMBER)


def number_of(text: str) -> int | float | None:
    """The number in a cell of text, as JSON can hold it; ``None`` for an empty cell and
    for NaN.

    An infinity becomes the largest float of its sign, because the nearer bound counts
    for both.

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


def is_number(text: str) -> bool:
    """Whether a text is a number other than NaN, which is an empty cell anyway."""
    try:
        return not math.isnan(float(text))
    except ValueError:
        return False


def with_point(text: str) -> str:
    """A number that has a decimal comma, with a decimal point. A point is then a sign
    between thousands, which no number has.

    A text that is not like a number stays: marks for missing values have points, too.
    """
    if not _like_number.fullmatch(text):
        return text
    return text.replace(".", "'").replace(",", ".")


def not_computed(cell: object) -> object:
    """A cell of CSV, with an apostrophe before a text that a spreadsheet would compute.
    The text of a number, also with a decimal comma, stays as it is.
    """
    if not isinstance(cell, str) or not _computed.match(cell):
        return cell
    return cell if _number.fullmatch(cell.replace(",", ".", 1)) else f"'{cell}"


def text_of_number(number: float) -> str:
    """The shortest decimal that is read as a number, as JavaScript writes it, but for
    infinities.
    """
    if number and not _LEAST_PLAIN <= abs(number) < _FIRST_WITH_POWER:
        mantissa, sign, power = repr(number).partition("e")
        return f"{mantissa}e{int(power):+d}" if sign else mantissa
    return format(Decimal(repr(number or 0.0)), "f").removesuffix(".0")


def two_significant_digits(size: int) -> int:
    """A declared size rounded to two significant digits, half up; below 100 as it was
    declared. No row is counted.
    """
    scale: int = 10 ** max(len(str(size)) - 2, 0)
    return (2 * size + scale) // (2 * scale) * scale
