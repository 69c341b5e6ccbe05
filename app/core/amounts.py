"""Exact decimal amounts: the grammar of requests, and the shortest exact text of answers.

Amounts (ε, δ, ρ, μ²) never pass through a float. In a request an amount is ASCII text, or a JSON number taken from
its own characters; ``json.loads(..., parse_float=Decimal)`` keeps them. pydantic's own ``Decimal`` reads "1_0" as 10
and accepts "1e-9999999", so it is not used.
"""

import re
from decimal import Decimal
from fractions import Fraction

_GRAMMAR = re.compile(r"[0-9]{1,12}(\.[0-9]{1,18})?([eE][+-]?[0-9]{1,2})?", re.ASCII)
_MAX_JSON_NUMBER_DIGITS = 15
_MAX_EXPONENT = 99


class NotAnAmount(ValueError):
    """The text or number is no amount. The value itself is not part of the message."""


def parse(value: object) -> Fraction:
    """The exact value of an amount of a request.

    Args:
        value: text that matches the grammar, or a JSON number (``int`` or ``Decimal``) of at most 15 significant
            digits.

    Returns:
        The exact, non-negative value.

    Raises:
        NotAnAmount: anything else: booleans, floats, signs, NaN, infinities, underscores, huge exponents.
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
    if not isinstance(exponent, int) or abs(number.adjusted()) > _MAX_EXPONENT or abs(exponent) > _MAX_EXPONENT + 18:
        raise NotAnAmount
    if len("".join(map(str, digits)).strip("0")) > _MAX_JSON_NUMBER_DIGITS:
        raise NotAnAmount
    return Fraction(number)


def to_text(value: Fraction | int) -> str:
    """The shortest exact decimal of a value that has one: ``0.7``, ``3``, ``1250``. No exponent, no trailing zeros.

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
    """Exact decimal text of an amount that is counted in whole steps of 10^−places."""
    return to_text(Fraction(steps, 10**places))
