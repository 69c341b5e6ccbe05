"""A declared size is stored as an order of magnitude."""

from decimal import ROUND_HALF_UP, Context, Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.core import limits
from grovekeeper_common.number_text import two_significant_digits


@pytest.mark.parametrize(
    ("declared", "stored"),
    [
        (1, 1),
        (99, 99),
        (100, 100),
        (104, 100),
        (105, 110),
        (994, 990),
        (995, 1000),
        (32_561, 33_000),
        (32_499, 32_000),
    ],
)
def test_two_digits_are_kept_and_half_rounds_up(declared: int, stored: int) -> None:
    assert two_significant_digits(declared) == stored


@given(st.integers(1, limits.MAX_PUBLIC_SIZE))
def test_rounding_to_two_digits_is_decimal_and_idempotent(declared: int) -> None:
    stored = two_significant_digits(declared)
    assert stored == int(
        Context(prec=2, rounding=ROUND_HALF_UP).create_decimal(Decimal(declared))
    )
    assert two_significant_digits(stored) == stored
