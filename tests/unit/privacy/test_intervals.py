"""Intervals hold the exact value, and stay narrow."""

from decimal import Context, Decimal
from fractions import Fraction

import pytest
from scipy.special import log_ndtr

from app.privacy.accountants import normal
from app.privacy.accountants.intervals import ONE, ZERO, Interval, around, root

NARROW = Decimal("1e-45")


def width(interval: Interval) -> Decimal:
    return (interval.high - interval.low) / interval.high


def test_third_lies_strictly_inside() -> None:
    third = Interval.of(Fraction(1, 3))

    assert Fraction(third.low) < Fraction(1, 3) < Fraction(third.high)
    assert width(third) < Decimal("1e-63")


@pytest.mark.parametrize(("one", "other"), [(Fraction(-7, 3), Fraction(5, 11)), (Fraction(2, 3), Fraction(-1, 7))])
def test_operations_hold_the_exact_result(one: Fraction, other: Fraction) -> None:
    left, right = Interval.of(one), Interval.of(other)

    for interval, exact in (
        (left + right, one + other),
        (left - right, one - other),
        (left * right, one * other),
        (left / right, one / other),
        (-left, -one),
    ):
        assert Fraction(interval.low) <= exact <= Fraction(interval.high)
        assert abs(interval.high - interval.low) < Decimal("1e-60")


def test_only_what_is_certain_is_at_most_a_bound() -> None:
    around_two = Interval(Decimal(1), Decimal(3))

    assert around_two.at_most(3)
    assert not around_two.at_most(2), "it may be above"
    assert not Interval.of(Fraction(1, 3)).at_most(Fraction(1, 3)), "equal, but not to the last digit"
    assert ONE.at_most(1)


def test_division_by_an_interval_around_zero_is_refused() -> None:
    with pytest.raises(ZeroDivisionError):
        _ = ONE / Interval(Decimal(-1), Decimal(1))


def test_functions_agree_with_more_digits() -> None:
    more = Context(prec=100)
    two = Interval.of(2)
    for interval, exact in (
        (two.exp(), more.exp(Decimal(2))),
        (two.ln(), more.ln(Decimal(2))),
        (two.sqrt(), more.sqrt(Decimal(2))),
    ):
        assert interval.low < exact < interval.high
        assert width(interval) < Decimal("1e-62")


def test_vanishing_exponential_stays_above_zero_and_can_be_written_out() -> None:
    vanishing = Interval.of(-(10**30)).exp()

    assert vanishing.low == 0 < vanishing.high
    assert vanishing.floor == 0 < vanishing.ceiling < Fraction(1, 10**900)
    assert vanishing.at_most(Fraction(1, 10**90))
    assert not ONE.at_most(Fraction(99, 100))


def test_root_of_two_pi_is_right() -> None:
    """π by Machin's formula, in integers."""
    scale = 10**80

    def arctan_of_inverse(x: int) -> int:
        term, total, odd = scale // x, 0, 1
        while term:
            total += term // odd if odd % 4 == 1 else -(term // odd)
            term, odd = term // x**2, odd + 2
        return total

    pi = Decimal(4 * (4 * arctan_of_inverse(5) - arctan_of_inverse(239))).scaleb(-80, Context(prec=90))
    exact = Context(prec=75).sqrt(Context(prec=75).multiply(pi, Decimal(2)))
    at_zero = ONE / normal.density(ZERO)
    assert at_zero.low < exact < at_zero.high
    assert width(at_zero) < Decimal("1e-60")


@pytest.mark.parametrize("x", ["-40", "-3", "0", "1e-9", "0.5", "3", "6.9999", "7", "7.5", "40", "1400"])
def test_tail_agrees_with_scipy(x: str) -> None:
    tail = normal.lower_tail(Interval.of(Fraction(x)))

    assert float(tail.ln().low) == pytest.approx(float(log_ndtr(-float(x))), rel=1e-12, abs=1e-60)
    assert width(tail) < NARROW


def test_expansions_agree_where_they_meet() -> None:
    """The series left of 7 and the continued fraction right of it, at two points so close that Φ hardly moves."""
    left, right = Decimal("6.99999999999999999999999999999999999999"), Decimal("7")
    below = normal.lower_tail(Interval(left, left)) - normal.lower_tail(Interval(right, right))
    slope = normal.density(Interval(right, right)) * Interval.of(Fraction(1, 10**38))

    assert abs(below.low - slope.high) < slope.high * Decimal("1e-9")


def test_mills_ratio_is_tail_over_density() -> None:
    for x in ("0.001", "2", "6.5", "9", "100"):
        point = Interval.of(Fraction(x))
        ratio = normal.lower_tail(point) / normal.density(point)
        mills = normal.mills_ratio(point)
        assert ratio.low <= mills.high
        assert mills.low <= ratio.high


def test_around_covers_its_error() -> None:
    near = around(Decimal(100), relative_error=Decimal("0.01"))

    assert (near.low, near.high) == (99, 101)


@pytest.mark.parametrize(("low", "high"), [("0", "2"), ("1", "100"), ("1.4142", "1.4143")])
def test_root_is_found_to_the_digits_asked_for(low: str, high: str) -> None:
    found = root(lambda x: x * x - 2, low=Decimal(low), high=Decimal(high), digits=20)

    assert abs(found - Decimal(2).sqrt()) < Decimal("1e-19")


def test_root_of_a_falling_function_and_at_an_end() -> None:
    assert root(lambda x: 1 - x, low=Decimal(1), high=Decimal(9), digits=9) == 1
    assert abs(root(lambda x: 3 - x, low=Decimal(1), high=Decimal(9), digits=9) - 3) < Decimal("1e-8")


def test_bracket_without_a_change_of_sign_is_refused() -> None:
    with pytest.raises(AssertionError):
        root(lambda x: x, low=Decimal(1), high=Decimal(2), digits=9)
