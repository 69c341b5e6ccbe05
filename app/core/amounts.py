"""Reads and writes exact decimal amounts: ε, δ, ρ and μ².

Amounts never pass through a float. A request states an amount as ASCII text or as a JSON number, whose characters
``json.loads(..., parse_float=Decimal)`` preserves. pydantic's ``Decimal`` is not used, because it reads "1_0" as 10 and
accepts "1e-9999999". Answers state an amount as its shortest exact text.
"""

import re
from decimal import Decimal
from fractions import Fraction

from app.core import limits

_GRAMMAR = re.compile(r"[0-9]{1,12}(\.[0-9]{1,18})?([eE][+-]?[0-9]{1,2})?", re.ASCII)


class NotAnAmount(ValueError):
    """The text or number is not an amount. The message does not contain the value."""


def parse(value: object) -> Fraction:
    """Reads an amount of a request.

    Args:
        value: text that matches the grammar, or a JSON number (``int`` or ``Decimal``) of at most 15 significant
            digits.

    Returns:
        The exact, non-negative value.

    Raises:
        NotAnAmount: any other value: a boolean, a float, a sign, NaN, an infinity, an underscore, a huge exponent.
    """
    if isinstance(value, bool):
        raise NotAnAmount
    if isinstance(value, int | Decimal):
        return _from_json_number(Decimal(value))
    if isinstance(value, str) and _GRAMMAR.fullmatch(value):
        return Fraction(value)
    raise NotAnAmount


def _from_json_number(number: Decimal) -> Fraction:
    if not number.is_finite() or number.is_signed():
        raise NotAnAmount
    _, digits, exponent = number.as_tuple()
    largest = limits.MAX_DECIMAL_EXPONENT
    if not isinstance(exponent, int) or abs(number.adjusted()) > largest or abs(exponent) > largest + 18:
        raise NotAnAmount
    if len("".join(map(str, digits)).strip("0")) > limits.MAX_JSON_NUMBER_DIGITS:
        raise NotAnAmount
    return Fraction(number)


def to_text(value: Fraction | int) -> str:
    """Writes a value as its shortest exact decimal, without exponent and trailing zeros: ``0.7``, ``3``, ``1250``.

    Raises:
        ValueError: the value has no finite decimal expansion.
    """
    value = Fraction(value)
    denominator, places = value.denominator, 0
    while denominator % 10 == 0:
        denominator //= 10
        places += 1
    twos = fives = 0
    while denominator % 2 == 0:
        denominator //= 2
        twos += 1
    while denominator % 5 == 0:
        denominator //= 5
        fives += 1
    if denominator != 1:
        raise ValueError("no finite decimal expansion")
    places += max(twos, fives)
    if places == 0:
        return str(value.numerator)
    scaled = abs(value.numerator) * 10**places // value.denominator
    text = str(scaled).rjust(places + 1, "0")
    whole, fraction = text[:-places], text[-places:].rstrip("0")
    sign = "-" if value < 0 else ""
    return f"{sign}{whole}.{fraction}" if fraction else f"{sign}{whole}"


def from_steps(steps: int, places: int) -> str:
    """Writes an amount that is counted in whole steps of 10^−places as its shortest exact decimal."""
    return to_text(Fraction(steps, 10**places))
