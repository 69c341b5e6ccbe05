"""Arithmetic that knows on which side of the truth it errs: intervals of decimals, every end rounded outwards.

Conversions between ρ, μ and (ε, δ) need logarithms and exponentials, which have no exact value to compute with. A
result here is a pair of decimals that the exact value lies between; what is charged is taken from the upper end, what
is granted from the lower one. ``decimal`` rounds +, −, × and ÷ in the direction that it is told, and rounds √, ``exp``
and ``ln`` correctly to nearest, so one unit in the last place outwards is enough for them.
"""

from collections.abc import Callable
from dataclasses import dataclass
from decimal import MAX_EMAX, MIN_EMIN, ROUND_CEILING, ROUND_FLOOR, Context, Decimal, DivisionByZero, InvalidOperation
from decimal import Overflow as DecimalOverflow
from fractions import Fraction
from typing import TypeAlias

DIGITS = 64
"""Significant digits of either end: about 210 bits."""

Exact: TypeAlias = "Fraction | Decimal | int"


def _context(digits: int, rounding: str) -> Context:
    traps = [InvalidOperation, DivisionByZero, DecimalOverflow]
    return Context(prec=digits, rounding=rounding, Emin=MIN_EMIN, Emax=MAX_EMAX, traps=traps)


_TINY = Decimal("1e-1000")
_DOWN = _context(DIGITS, ROUND_FLOOR)
_UP = _context(DIGITS, ROUND_CEILING)


@dataclass(frozen=True)
class Interval:
    """The exact value lies between ``low`` and ``high``, both included."""

    low: Decimal
    high: Decimal

    def __post_init__(self) -> None:
        assert self.low <= self.high

    @classmethod
    def of(cls, value: Exact) -> "Interval":
        """The narrowest interval around an exact number."""
        numerator, denominator = (Decimal(part) for part in Fraction(value).as_integer_ratio())
        return cls(_DOWN.divide(numerator, denominator), _UP.divide(numerator, denominator))

    @property
    def floor(self) -> Fraction:
        """The lower end as a fraction, exact unless it is too close to zero to be written out."""
        return Fraction(0) if 0 < self.low < _TINY else Fraction(self.low)

    @property
    def ceiling(self) -> Fraction:
        """The upper end as a fraction, exact unless it is too close to zero to be written out."""
        return Fraction(max(self.high, _TINY) if self.high > 0 else self.high)

    def at_most(self, bound: Exact) -> bool:
        """Whether the exact value is certainly at most ``bound``."""
        return self.high <= Interval.of(bound).low

    def __neg__(self) -> "Interval":
        return Interval(self.high.copy_negate(), self.low.copy_negate())

    def __add__(self, other: "Interval") -> "Interval":
        return Interval(_DOWN.add(self.low, other.low), _UP.add(self.high, other.high))

    def __sub__(self, other: "Interval") -> "Interval":
        return self + -other

    def __mul__(self, other: "Interval") -> "Interval":
        pairs = [(mine, others) for mine in (self.low, self.high) for others in (other.low, other.high)]
        return Interval(min(_DOWN.multiply(*pair) for pair in pairs), max(_UP.multiply(*pair) for pair in pairs))

    def __truediv__(self, other: "Interval") -> "Interval":
        if other.low <= 0 <= other.high:
            raise ZeroDivisionError
        pairs = [(mine, others) for mine in (self.low, self.high) for others in (other.low, other.high)]
        return Interval(min(_DOWN.divide(*pair) for pair in pairs), max(_UP.divide(*pair) for pair in pairs))

    def exp(self) -> "Interval":
        """e to the power of the value; never below zero."""
        low = _DOWN.next_minus(_DOWN.exp(self.low))
        return Interval(max(low, Decimal(0)), _UP.next_plus(_UP.exp(self.high)))

    def ln(self) -> "Interval":
        """Natural logarithm of a positive value."""
        return Interval(_DOWN.next_minus(_DOWN.ln(self.low)), _UP.next_plus(_UP.ln(self.high)))

    def sqrt(self) -> "Interval":
        """Square root of a non-negative value."""
        return Interval(_DOWN.next_minus(_DOWN.sqrt(self.low)), _UP.next_plus(_UP.sqrt(self.high))).clamped()

    def clamped(self) -> "Interval":
        """The same for a value that is known not to be negative."""
        return Interval(max(self.low, Decimal(0)), max(self.high, Decimal(0)))


ZERO, ONE = Interval.of(0), Interval.of(1)


def around(estimate: Decimal, *, relative_error: Decimal) -> Interval:
    """The interval of a positive estimate whose relative error is known to be at most ``relative_error``."""
    assert estimate > 0
    off = _UP.multiply(estimate, relative_error)
    return Interval(_DOWN.subtract(estimate, off), _UP.add(estimate, off))


def falling(function: Callable[[Decimal], Interval], value: Interval) -> Interval:
    """The range of a falling function over an interval, from its values at the two ends."""
    if value.low == value.high:
        return function(value.low)
    return Interval(function(value.high).low, function(value.low).high)


def root(function: Callable[[Decimal], Decimal], *, low: Decimal, high: Decimal, digits: int) -> Decimal:
    """Where a rising or falling function crosses zero between two signs: an estimate, with no claim about its side.

    False position with the weight of a stuck end halved (the Illinois rule), so that it converges faster than any
    fixed number of halvings on smooth functions and never leaves the bracket.

    Args:
        function: continuous; its values at ``low`` and ``high`` have different signs, or one of them is zero.
        low: end of the bracket.
        high: end of the bracket.
        digits: significant digits of the answer that shall be right.
    """
    context = _context(DIGITS, ROUND_FLOOR)
    at_low, at_high = function(low), function(high)
    if at_low == 0 or at_high == 0:
        return low if at_low == 0 else high
    assert (at_low < 0) is not (at_high < 0), "no change of sign in the bracket"
    for _ in range(_MAX_STEPS):
        slope = context.divide(context.subtract(at_high, at_low), context.subtract(high, low))
        between = context.subtract(high, context.divide(at_high, slope))
        value = function(between)
        if value == 0 or context.abs(context.subtract(between, high)) <= context.scaleb(context.abs(between), -digits):
            return between
        if (value < 0) is not (at_high < 0):
            low, at_low = high, at_high
        else:
            at_low = context.divide(at_low, Decimal(2))
        high, at_high = between, value
    return high


_MAX_STEPS = 200
