"""Converts amounts of privacy budget between Python's numbers and the exact decimal
text of the API.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from operator import index
from typing import Any, Self, SupportsIndex, TypeAlias

from grovekeeper_common.json_types import JsonMapping

Amount: TypeAlias = Decimal | str | float | SupportsIndex
"""An amount such as ``"0.5"``, ``Decimal("0.5")``, ``0.5`` or ``1``. Text and Decimal
are exact with any digits.
"""

SYMBOLS: Mapping[str, str] = {
    "epsilon": "ε",
    "rho": "ρ",
    "mu_squared": "μ²",
    "delta": "δ",
}
"""The units of amounts in sentences, by their names in answers."""

_EXACT_DIGITS = 15
"""Significant digits up to which a float has only one decimal text: more digits show
rounded arithmetic.
"""


def to_text(amount: Amount) -> str:
    """The text that the API reads; the service checks its range.

    Raises:
        ValueError: a float with more than 15 significant digits, such as ``0.1 + 0.2``,
            or not finite.
        TypeError: not a number and not text.
    """
    if isinstance(amount, bool):
        raise TypeError("an amount is a number or decimal text, not a bool")
    if isinstance(amount, str | Decimal):
        return str(amount)
    if isinstance(number := _plain(amount), float):
        text = repr(number)
        if len(re.sub(r"e.*|^0\.0*|\.", "", text)) > _EXACT_DIGITS or not re.match(
            r"[0-9]", text
        ):
            raise ValueError(f"{text} is not an exact amount: pass text or a Decimal")
        return text
    return str(index(number))


def _plain(number: Any) -> Any:
    """A NumPy scalar as a number of Python; other numbers unchanged."""
    return number.item() if hasattr(number, "item") else number


@dataclass(frozen=True)
class Price:
    """What a job costs.

    Attributes:
        amount: exact price in the account's unit; what the account loses.
        unit: ``epsilon``, ``rho`` or ``mu_squared``.
        epsilon: ε of the request.
        delta: δ of the request, on accounts that have one.
    """

    amount: Decimal
    unit: str
    epsilon: Decimal
    delta: Decimal | None

    def __str__(self) -> str:
        amount = f"{self.amount:f} {SYMBOLS[self.unit]}"
        if self.delta is None:
            return amount
        return f"{amount} (ε = {self.epsilon:f} at δ = {self.delta:f})"

    @classmethod
    def from_json(cls, value: JsonMapping) -> Self:
        """Reads the ``price`` of an answer."""
        delta = value["delta"]
        return cls(
            amount=Decimal(value["amount"]),
            unit=value["unit"],
            epsilon=Decimal(value["epsilon"]),
            delta=None if delta is None else Decimal(delta),
        )
