"""Amounts become exact text, and a float that stands for rounded arithmetic is refused."""

from decimal import Decimal
from typing import Any

import numpy as np
import pytest

from grovekeeper_client.amounts import SYMBOLS, to_text
from grovekeeper_forests import amounts


def test_symbols_are_those_of_the_service() -> None:
    assert SYMBOLS == amounts.SYMBOLS


@pytest.mark.parametrize(
    ("amount", "text"),
    [
        ("0.5", "0.5"), ("1e-6", "1e-6"), (Decimal("0.1") + Decimal("0.2"), "0.3"), (1, "1"), (0.1, "0.1"),
        (1e-06, "1e-06"), (0.000123456789012345, "0.000123456789012345"), (np.float64(0.7), "0.7"), (np.int64(3), "3"),
        (np.float32(0.5), "0.5"),
    ],
)  # fmt: skip
def test_an_amount_keeps_its_digits(amount: Any, text: str) -> None:
    assert to_text(amount) == text


@pytest.mark.parametrize(
    "amount", [0.1 + 0.2, float("nan"), float("inf"), -0.5, np.float32(0.1), 1 / 3]
)
def test_a_float_that_is_no_exact_amount_is_refused(amount: Any) -> None:
    with pytest.raises(ValueError, match="not an exact amount"):
        to_text(amount)


@pytest.mark.parametrize("amount", [True, None, [1], 1j])
def test_an_amount_is_a_number_or_text(amount: Any) -> None:
    with pytest.raises(TypeError):
        to_text(amount)
