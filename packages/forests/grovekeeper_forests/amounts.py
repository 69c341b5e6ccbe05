"""Reads and writes exact decimal amounts: ε, δ, ρ and μ².

Amounts never pass through a float. A request states an amount as ASCII text or as a
JSON number, whose characters ``json.loads(..., parse_float=Decimal)`` preserves.
pydantic's ``Decimal`` is not used, because it reads "1_0" as 10 and accepts
"1e-9999999". Answers state an amount as its shortest exact text.
"""

import re
from collections.abc import Mapping
from decimal import Decimal
from fractions import Fraction
from types import MappingProxyType

from grovekeeper_forests import limits

_GRAMMAR = re.compile(r"[0-9]{1,12}(\.[0-9]{1,18})?([eE][+-]?[0-9]{1,2})?", re.ASCII)

SYMBOLS: Mapping[str, str] = MappingProxyType(
    {"epsilon": "ε", "rho": "ρ", "mu_squared": "μ²", "delta": "δ"}
)
"""The units of amounts in sentences, by their names in answers."""

AS_TEXT = f"at most {limits.MAX_JSON_NUMBER_DIGITS} digits as a JSON number; send more digits as text"
"""What a JSON number of too many digits should be."""

BELOW_ONE = "above 0 and below 1, such as 1e-6"
"""What a δ should be."""


MORE = "more, such as 0.001"
"""What an ε should be that pays for no draw of noise. How much a request needs follows
from all of its draws.
"""


class NotAnAmount(ValueError):
    """The text or number is not an amount. The message does not contain the value.

    Attributes:
        problem: stable slug.
        accepted: what an amount is, with an example.
    """

    problem = "not-an-amount"
    accepted = (
        "a decimal number such as 0.5 or 1e-6: digits, with a point and no sign or blank, "
        "at most 12 before the point and 18 behind it"
    )


class TooManyDigits(NotAnAmount):
    """A JSON number of more digits than every reader of JSON preserves; text of these
    digits is an amount.
    """

    problem = "too-many-digits"
    accepted = AS_TEXT


class NotPositive(NotAnAmount):
    """Zero, or a negative number of JSON."""

    problem = "not-positive"
    accepted = "above 0, such as 0.5 or 1e-6"


def parse(value: object, *, above_zero: bool = False) -> Fraction:
    """Reads an amount of a request, whatever way it comes in.

    Args:
        value: text that matches the grammar, or a JSON number (``int`` or ``Decimal``)
            of at most 15 significant digits.
        above_zero: whether zero is refused.

    Returns:
        The exact, non-negative value.

    Raises:
        TooManyDigits: a JSON number of more than 15 significant digits.
        NotPositive: a negative JSON number, or zero where it is refused.
        NotAnAmount: any other value: a boolean, a float, a sign, NaN, an infinity, an
            underscore, a huge exponent.
    """
    if isinstance(value, bool):
        raise NotAnAmount
    if isinstance(value, int | Decimal):
        exact = _from_json_number(Decimal(value))
    elif isinstance(value, str) and _GRAMMAR.fullmatch(value):
        exact = Fraction(value)
    else:
        raise NotAnAmount
    if above_zero and exact == 0:
        raise NotPositive
    return exact


def _from_json_number(number: Decimal) -> Fraction:
    if not number.is_finite():
        raise NotAnAmount
    if number.is_signed():
        raise NotPositive if number else NotAnAmount
    _, digits, exponent = number.as_tuple()
    largest = limits.MAX_DECIMAL_EXPONENT
    if (
        not isinstance(exponent, int)
        or abs(number.adjusted()) > largest
        or abs(exponent) > largest + 18
    ):
        raise NotAnAmount
    if len("".join(map(str, digits)).strip("0")) > limits.MAX_JSON_NUMBER_DIGITS:
        raise TooManyDigits if _GRAMMAR.fullmatch(f"{number:f}") else NotAnAmount
    return Fraction(number)


def to_text(value: Fraction | int) -> str:
    """Writes a value as its shortest exact decimal, without exponent and trailing
    zeros: ``0.7``, ``3``, ``1250``.

    Raises:
        ValueError: the value has no finite decimal expansion.
    """
    value = Fraction(value)
    # 2^a × 5^b divides 10^max(a, b), and max(a, b) is at most log₂ of it
    places = value.denominator.bit_length() - 1
    if 10**places % value.denominator:
        raise ValueError("no finite decimal expansion")
    digits = str(abs(value.numerator) * 10**places // value.denominator).rjust(
        places + 1, "0"
    )
    whole, fraction = (
        digits[: len(digits) - places],
        digits[len(digits) - places :].rstrip("0"),
    )
    return f"{'-' if value < 0 else ''}{whole}{'.' if fraction else ''}{fraction}"


def text_or_none(value: Fraction | None) -> str | None:
    """Writes a value as :func:`to_text` does, if there is one."""
    return None if value is None else to_text(value)


def from_steps(steps: int, places: int) -> str:
    """Writes an amount that is counted in whole steps of 10^−places as its shortest
    exact decimal.
    """
    return to_text(Fraction(steps, 10**places))
