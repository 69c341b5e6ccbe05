"""Enclosures contain the exact value and are narrow; an undefined value has no enclosure."""

from decimal import Decimal, localcontext
from fractions import Fraction

import pytest
from flint import arb, ctx
from scipy.special import log_ndtr

from app.privacy.accountants.accountant import enclosure, largest_holding, lower_end, normal_lower_tail, upper_end

RELATIVE_WIDTH = Fraction(1, 10**70)


def assert_narrow_around(value: arb, exact: Fraction) -> None:
    assert lower_end(value) <= exact <= upper_end(value)
    assert upper_end(value) - lower_end(value) <= abs(exact) * RELATIVE_WIDTH


@pytest.mark.parametrize("exact", [Fraction(1, 3), Fraction(-7, 3), Fraction(10**30 + 1, 10**60), Fraction(0)])
def test_enclosure_of_a_fraction_contains_it(exact: Fraction) -> None:
    assert_narrow_around(enclosure(exact), exact)


def test_ends_of_an_inexact_number_lie_on_both_sides() -> None:
    third = enclosure(Fraction(1, 3))

    assert lower_end(third) < Fraction(1, 3) < upper_end(third)


def test_functions_agree_with_100_digits_of_decimal() -> None:
    two = enclosure(2)
    with localcontext() as context:
        context.prec = 100
        exact = [Decimal(2).exp(), Decimal(2).ln(), Decimal(2).sqrt()]

    for value, digits in zip((two.exp(), two.log(), two.sqrt()), exact, strict=True):
        assert_narrow_around(value, Fraction(digits))


@pytest.mark.parametrize("x", ["0.001", "0.5", "1", "3", "6.5", "9", "20"])
def test_normal_tail_agrees_with_its_series(x: str) -> None:
    """Φ(−x) = ½ − φ(x)·(x + x³/3 + x⁵/(3·5) + …), with 300 digits, because nearly all of ½ cancels."""
    with localcontext() as context:
        context.prec = 300
        term = total = Decimal(x)
        for odd in range(3, 4_000, 2):
            term = term * Decimal(x) ** 2 / odd
            total += term
        exact = Decimal("0.5") - total * (-(Decimal(x) ** 2) / 2).exp() / (2 * _pi()).sqrt()

    assert_narrow_around(normal_lower_tail(enclosure(Fraction(x))), Fraction(exact))


def _pi() -> Decimal:
    """π by Machin's formula, in integers."""
    scale = 10**310

    def arctan_of_inverse(x: int) -> int:
        term, total, odd = scale // x, 0, 1
        while term:
            total += term // odd if odd % 4 == 1 else -(term // odd)
            term, odd = term // x**2, odd + 2
        return total

    return Decimal(4 * (4 * arctan_of_inverse(5) - arctan_of_inverse(239))).scaleb(-310)


@pytest.mark.parametrize("x", ["-40", "-3", "0", "1e-9", "0.5", "3", "7.5", "40", "1400"])
def test_normal_tail_agrees_with_scipy(x: str) -> None:
    log_tail = normal_lower_tail(enclosure(Fraction(x))).log()

    assert float(log_tail) == pytest.approx(float(log_ndtr(-float(x))), rel=1e-12, abs=1e-60)


def test_an_uncertain_comparison_is_false() -> None:
    wide, third = arb(2, 0.9), enclosure(Fraction(1, 3))

    assert wide <= 3
    assert not wide <= 2.5
    assert not wide > 1.5
    assert not third * 3 <= 1, "equal, but not to the last bit"


@pytest.mark.parametrize("value", [arb("nan"), arb("inf"), 1 / arb(0, 1), arb(0).log()], ids=str)
def test_undefined_value_has_no_ends_and_meets_no_limit(value: arb) -> None:
    assert not value <= 1
    for end in (lower_end, upper_end):
        with pytest.raises(ValueError):
            end(value)


def test_fewer_bits_widen_an_enclosure_and_keep_it_right() -> None:
    enclosure(1)  # the first enclosure of a process sets the precision
    with ctx.workprec(20):
        coarse = enclosure(2).sqrt()
    fine = enclosure(2).sqrt()

    assert lower_end(coarse) < lower_end(fine) <= upper_end(fine) < upper_end(coarse)


@pytest.mark.parametrize("largest", [-1, 0, 1, 2, 3, 7, 8, 1000, 10**30 + 7])
def test_search_ends_with_the_largest_number_that_meets_the_condition(largest: int) -> None:
    assert largest_holding(lambda n: n <= largest) == largest


def test_condition_that_every_number_meets_is_refused() -> None:
    with pytest.raises(ArithmeticError):
        largest_holding(lambda n: n >= 0)
