"""ε, δ and numbers in requests: one grammar, exact values, and one slug for each error."""

from decimal import Decimal
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from app.api import problems
from app.wire.base import FiniteNumber, PositiveAmount, Request
from grovekeeper_forests import amounts


class _Amount(Request):
    value: PositiveAmount


class _Number(Request):
    value: FiniteNumber


def _slug(model: type[Request], value: object) -> str:
    with pytest.raises(ValidationError) as caught:
        model.model_validate({"value": value})
    (error,) = caught.value.errors()
    assert error["loc"] == ("value",)
    assert error["type"] == "grovekeeper"
    return str(error["ctx"]["slug"])


@pytest.mark.parametrize(
    ("value", "exact"),
    [
        ("1", "1"), ("0.1", "1/10"), ("1e-9", "1/1000000000"), ("999999999999", "999999999999"), ("1E+2", "100"),
        ("0.000000000000000001", "1/1000000000000000000"), (2, "2"), (Decimal("0.3"), "3/10"), (Decimal("1e2"), "100"),
        (100_000_000_000_000_000, "100000000000000000"), (Decimal("123456789012345"), "123456789012345"), ("007", "7"),
    ],
)  # fmt: skip
def test_an_amount_is_read_exactly(value: object, exact: str) -> None:
    assert _Amount.model_validate({"value": value}).value == Fraction(exact)


@pytest.mark.parametrize(
    "value",
    [
        "", " 1", "1 ", "1\n", "+1", "-1", "1_0", "1e-9999999", "1e100", "NaN", "Infinity", "０.5", "٣", ".5", "5.",
        "0x1", "1,5", "1" * 13, "0." + "1" * 19, True, False, None, [], {}, 0.5, float("nan"),
        Decimal("Infinity"), Decimal("1e100"), Decimal("1e-200"), Decimal("-0"), b"1",
        1234567890123456,
    ],
)  # fmt: skip
def test_a_text_outside_the_grammar_is_not_an_amount(value: object) -> None:
    assert _slug(_Amount, value) == "not-an-amount"


@pytest.mark.parametrize(
    "value", [Decimal("0.1234567890123456"), Decimal("1234567890.123456")]
)
def test_a_json_number_of_too_many_digits_is_to_be_sent_as_text(value: object) -> None:
    assert _slug(_Amount, value) == "too-many-digits"
    assert _Amount.model_validate({"value": str(value)}).value == Fraction(str(value))


@pytest.mark.parametrize(
    ("value", "form"),
    [
        ("1,5", amounts.NotAnAmount.accepted),
        ("0", "above 0, such as 0.5 or 1e-6"),
        (-1, "above 0, such as 0.5 or 1e-6"),
        (
            Decimal("0.1234567890123456"),
            "at most 15 digits as a JSON number; send more digits as text",
        ),
    ],
)
def test_a_refused_amount_states_the_expected_form(value: object, form: str) -> None:
    with pytest.raises(ValidationError) as caught:
        _Amount.model_validate({"value": value})
    (problem,) = problems.invalid_request(caught.value.errors()).errors
    assert problem.accepted == (form,)


@pytest.mark.parametrize(
    "value", ["0", "0.000", "0e9", 0, Decimal("0.0"), -1, Decimal("-0.5"), -(10**400)]
)
def test_zero_and_less_are_not_positive(value: object) -> None:
    assert _slug(_Amount, value) == "not-positive"


@given(st.integers(0, 10**30), st.integers(0, 30))
def test_the_text_of_an_answer_is_the_shortest_exact_one(
    numerator: int, places: int
) -> None:
    value = Fraction(numerator, 10**places)
    text = amounts.to_text(value)
    assert Fraction(text) == value
    assert "e" not in text.lower()
    whole, _, fraction = text.partition(".")
    assert not fraction.endswith("0")
    assert whole == "0" or not whole.startswith("0")


@pytest.mark.parametrize("value", [0, -3, 2.5, Decimal("1e300"), 10**300, 5e-324])
def test_a_finite_number_fits_a_double(value: Any) -> None:
    assert _Number.model_validate({"value": value}).value == float(value)


@pytest.mark.parametrize(
    ("value", "slug"),
    [
        (10**400, "not-finite"), (Decimal("1e400"), "not-finite"), (Decimal("-1e9999999"), "not-finite"),
        ("1", "not-a-number"), (True, "not-a-number"), (None, "not-a-number"), ([1], "not-a-number"),
    ],
)  # fmt: skip
def test_values_that_are_no_exact_number_get_their_slug(
    value: object, slug: str
) -> None:
    assert _slug(_Number, value) == slug
