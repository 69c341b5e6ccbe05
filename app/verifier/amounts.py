"""Exact amounts: decimal text to whole steps of a unit of account and back, without a float."""

import re

from app.verifier.canonical_json import Json

PLACES = {"pure": 9, "zcdp": 12, "gdp": 12}
"""Decimal places of a step: accounts count in multiples of 10⁻⁹ ε, 10⁻¹² ρ and 10⁻¹² μ²."""

SYMBOLS = {"pure": "ε", "zcdp": "ρ", "gdp": "μ²"}
"""What each kind of account counts."""

_SHORTEST = re.compile(r"(0|[1-9][0-9]{0,17})(?:\.([0-9]{0,119}[1-9]))?", re.ASCII)

DELTA_PLACES = 18
"""δ that is charged is counted in steps of 10⁻¹⁸."""


class NotAnAmount(ValueError):
    """``str()`` says what is wrong with it."""


def to_steps(value: Json, places: int) -> int:
    """Steps of 10^−places of the shortest exact decimal text: ``"0.7"`` is 700000000 steps of nine places.

    Raises:
        NotAnAmount: no text, a sign, a leading or trailing zero too many, an exponent, or finer than a step.
    """
    match = _SHORTEST.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        raise NotAnAmount("is not the shortest exact decimal of an amount")
    whole, fraction = match.group(1), match.group(2) or ""
    if len(fraction) > places:
        raise NotAnAmount(f"is not a multiple of 0.{'1'.rjust(places, '0')}")
    return int(whole + fraction.ljust(places, "0"))


def from_steps(steps: int, places: int) -> str:
    """Inverse of :func:`to_steps`; a negative remainder, after a cap was lowered, keeps its sign."""
    whole, fraction = divmod(abs(steps), 10**places)
    digits = str(fraction).rjust(places, "0").rstrip("0")
    sign = "-" if steps < 0 else ""
    return f"{sign}{whole}.{digits}" if digits else f"{sign}{whole}"
