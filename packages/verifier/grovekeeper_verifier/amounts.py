"""Converts exact decimal amounts to whole steps of an account's unit and back, without
a float.
"""

import re

from grovekeeper_verifier.canonical_json import Json

PLACES = {"pure": 9, "zcdp": 12, "gdp": 12}
"""Decimal places of a step, by accountant: 10⁻⁹ ε, 10⁻¹² ρ and 10⁻¹² μ²."""

SYMBOLS = {"pure": "ε", "zcdp": "ρ", "gdp": "μ²"}
"""Symbol of the unit, by accountant."""

_SHORTEST = re.compile(r"(0|[1-9][0-9]{0,17})(?:\.([0-9]{0,119}[1-9]))?", re.ASCII)

DELTA_PLACES = 18
"""Decimal places of a step of charged δ."""


class NotAnAmount(ValueError):
    """A value is not an amount; ``str()`` gives the reason."""


def to_steps(value: Json, places: int) -> int:
    """Steps of 10^−places of the shortest exact decimal text: ``"0.7"`` is 700000000
    steps of nine places.

    Raises:
        NotAnAmount: the value is no text, has a sign, an exponent or superfluous zeros,
            or is finer than a step.
    """
    match = _SHORTEST.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        raise NotAnAmount("is not the shortest exact decimal of an amount")
    whole, fraction = match.group(1), match.group(2) or ""
    if len(fraction) > places:
        raise NotAnAmount(f"is not a multiple of 0.{'1'.rjust(places, '0')}")
    return int(whole + fraction.ljust(places, "0"))


def from_steps(steps: int, places: int) -> str:
    """Inverse of :func:`to_steps`. Negative numbers keep their sign."""
    whole, fraction = divmod(abs(steps), 10**places)
    digits = str(fraction).rjust(places, "0").rstrip("0")
    sign = "-" if steps < 0 else ""
    return f"{sign}{whole}.{digits}" if digits else f"{sign}{whole}"


class InUnit:
    """The account of an export, whose amounts are steps of its unit."""

    accountant: str

    @property
    def places(self) -> int:
        """Decimal places of a step of the unit."""
        return PLACES[self.accountant]

    def text(self, steps: int) -> str:
        """An amount as exact decimal text."""
        return from_steps(steps, self.places)
