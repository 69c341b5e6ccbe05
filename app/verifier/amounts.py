"""Exact amounts: decimal text to integer nano-ε and back, without a float."""

import re

from app.verifier.canonical import Json

NANO_PLACES = 9
"""A pure account counts in multiples of 10⁻⁹ ε."""

_SHORTEST = re.compile(r"(0|[1-9][0-9]{0,17})(?:\.([0-9]{0,17}[1-9]))?", re.ASCII)


class NotAnAmount(ValueError):
    """``str()`` says what is wrong with it."""


def to_nano(value: Json) -> int:
    """Nano-ε of the shortest exact decimal text: ``"0.7"`` is 700000000.

    Raises:
        NotAnAmount: no text, a sign, a leading or trailing zero too many, an exponent, or finer than 10⁻⁹.
    """
    match = _SHORTEST.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        raise NotAnAmount("is not the shortest exact decimal of an amount")
    whole, fraction = match.group(1), match.group(2) or ""
    if len(fraction) > NANO_PLACES:
        raise NotAnAmount("is not a multiple of 0.000000001")
    return int(whole + fraction.ljust(NANO_PLACES, "0"))


def from_nano(nano: int) -> str:
    """Inverse of :func:`to_nano`; a negative remainder, after a cap was lowered, keeps its sign."""
    whole, fraction = divmod(abs(nano), 10**NANO_PLACES)
    digits = str(fraction).rjust(NANO_PLACES, "0").rstrip("0")
    sign = "-" if nano < 0 else ""
    return f"{sign}{whole}.{digits}" if digits else f"{sign}{whole}"
