"""Conversion between exact decimals and integers, in both directions."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from grovekeeper_forests import amounts as service
from grovekeeper_verifier.amounts import NotAnAmount, from_steps, to_steps


@given(st.integers(0, 10**18))
def test_round_trip_in_the_text_of_the_service(nano: int) -> None:
    assert from_steps(nano, 9) == service.from_steps(nano, 9)
    assert to_steps(from_steps(nano, 9), 9) == nano


def test_a_negative_remainder_keeps_its_sign() -> None:
    assert from_steps(-1_500_000_000, 9) == "-1.5"
    assert from_steps(-2_000_000_000, 9) == "-2"


@pytest.mark.parametrize(
    "text",
    ["", "01", "1.", ".5", "1.0", "0.50", "+1", "-1", "1e3", "1_0", " 1", "1 ", "1\n", "٣", "NaN", "0.0000000001",
     "9" * 19, 1, True, None, ["1"]],
)  # fmt: skip
def test_anything_but_the_shortest_exact_decimal_is_refused(text: object) -> None:
    with pytest.raises(NotAnAmount):
        to_steps(text, 9)  # type: ignore[arg-type]
