"""Writes noisy numbers for people, with the digits that the noise leaves. An interval
or an error is never written smaller than it is.
"""

from decimal import ROUND_CEILING, ROUND_FLOOR, ROUND_HALF_EVEN, Context, Decimal

from grovekeeper_common.json_types import JsonMapping
from grovekeeper_common.number_text import text_of_number

ON_TRAINING_ROWS = "on rows used in training"
"""What stands beside an accuracy that tells little about other rows."""

NO_SCORE = "none shown"
"""What a list of models says where the service shows no score: none was released, or on
datasets where the key may not train.
"""

_DIGITS_OF_WIDTH = 2
_DIGITS_WITHOUT_WIDTH = 6
_MOST_DIGITS = 15
_FIRST_ROUNDED_TO_ONE = 10
_FIRST_WITH_ALL_DIGITS = 1e5
_FIRST_WITH_POWER = Decimal(10**_MOST_DIGITS)
_DIGITS_WITH_POWER = 6


def estimate_in_words(
    value: float | str | None, low: float | str, high: float | str
) -> tuple[str, str]:
    """A number and its interval, which is rounded outwards; or a date and its interval.

    Args:
        value: ``None`` where the noise left none.
    """
    if isinstance(value, str) or isinstance(low, str) or isinstance(high, str):
        return str(value or "not told"), f"{low} to {high}"
    decimals = _decimals(value or 0.0, low, high)
    lowest = written(_rounded(low, decimals, ROUND_FLOOR))
    interval = f"{lowest} to {written(_rounded(high, decimals, ROUND_CEILING))}"
    if value is None:
        return "not told", interval
    return written(_rounded(value, decimals, ROUND_HALF_EVEN)), interval


def error_in_words(error: float) -> str:
    """A half width, or the width of a cell: rounded up, to two digits or to a whole
    number.
    """
    if error.is_integer() or error >= _FIRST_ROUNDED_TO_ONE:
        return written(_rounded(error, 0, ROUND_CEILING))
    rounded = Context(_DIGITS_OF_WIDTH, ROUND_CEILING).create_decimal(repr(error))
    return written(rounded)


def mean_error_in_words(error: JsonMapping) -> tuple[str, str]:
    """A noisy mean of errors as the service answers it, and its interval."""
    interval = error["interval"]
    return estimate_in_words(error["estimate"], interval["low"], interval["high"])


def r2_in_words(r2: JsonMapping) -> tuple[str, str]:
    """A noisy R² as the service answers it, and its interval, which may be open below."""
    interval = r2["interval"]
    if interval["low"] is not None:
        return mean_error_in_words(r2)
    highest = _rounded(interval["high"], _DIGITS_OF_WIDTH, ROUND_CEILING)
    value = "not told"
    if r2["estimate"] is not None:
        rounded = _rounded(r2["estimate"], _DIGITS_OF_WIDTH, ROUND_HALF_EVEN)
        value = written(rounded)
    return value, f"at most {written(highest)}"


def other_score_in_words(evaluation: JsonMapping) -> str | None:
    """What an evaluation released that has neither an accuracy nor a mean absolute error;
    ``None`` where that is no score either.
    """
    if evaluation["rmse"] is not None:
        return f"RMSE {mean_error_in_words(evaluation['rmse'])[0]}"
    if evaluation["auroc"] is None:
        return None
    area = evaluation["auroc"]["estimate"]
    return "AUROC not told" if area is None else f"AUROC {area:.3f}"


def few_digits(number: float | str) -> str:
    """A number with six digits, and with all that stand before its point; a class or a
    date as it is.
    """
    if isinstance(number, str):
        return number
    if abs(number) < _FIRST_WITH_ALL_DIGITS:
        return f"{number:.6g}"
    return text_of_number(round(number, 1))


def share_in_words(part: float) -> str:
    """A part of a whole, in percent with one decimal place."""
    return f"{100 * part:.1f} %"


def grouped(number: float) -> str:
    """A number with its thousands separated."""
    return f"{number:,}"


def counted(number: int, noun: str) -> str:
    """A number of things: ``1 row``, ``1,234 rows``."""
    return f"1 {noun}" if number == 1 else f"{grouped(number)} {noun}s"


def written(number: Decimal) -> str:
    """A decimal: thousands apart, powers of ten where it is very small or large, and
    zero without a sign.
    """
    if not number:
        return "0"
    return f"{number:,}".lower().replace("-", "−")


def _decimals(*numbers: float) -> int:
    """How many decimals the widest digits of a width need; the width is that from the
    second to the last number.
    """
    if all(number.is_integer() for number in numbers):
        return 0
    largest = _first_digit(max(map(abs, numbers)))
    half_width = numbers[-1] / 2 - numbers[-2] / 2
    if half_width <= 0.0:
        return _DIGITS_WITHOUT_WIDTH - min(largest + 1, 0)
    decimals = _DIGITS_OF_WIDTH - 1 - _first_digit(half_width)
    return max(min(decimals, _MOST_DIGITS - 1 - largest), 0)


def _first_digit(number: float) -> int:
    """The power of ten of the first digit of a number above zero."""
    return Decimal(repr(number)).adjusted()


def _rounded(number: float, decimals: int, rounding: str) -> Decimal:
    exact = Decimal(repr(number))
    if abs(exact) >= _FIRST_WITH_POWER:
        rounded = Context(_DIGITS_WITH_POWER, rounding).create_decimal(exact)
        return rounded.normalize()
    return exact.quantize(Decimal(1).scaleb(-decimals), rounding)
