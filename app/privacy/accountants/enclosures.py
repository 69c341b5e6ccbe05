"""Computes certified bounds of real numbers, as Arb balls that contain the exact value.

Conversions between ρ, μ and (ε, δ) need logarithms, exponentials and the normal law, whose values computers cannot
represent exactly. ``flint.arb`` computes with balls (a midpoint and a radius) and widens every result by its rounding
error, so a ball always contains the exact value. A charge is rounded up from the upper end of a ball, a grant down from
the lower end. A comparison of balls is true only if it holds for all values in them (docs/proofs/accounting.md A1).
"""

from collections.abc import Callable
from fractions import Fraction
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # imported at the first computation
    from flint import arb, fmpq

_PRECISION_BITS = 256
"""Bits of a midpoint, for the whole process. With fewer bits, balls are wider but still contain the exact value."""

_MAX_DOUBLINGS = 256


@cache
def _types() -> "tuple[type[arb], type[fmpq]]":
    """The types of balls and exact ratios. A process at rest needs neither: they take 0.04 s to import, and 10 MB."""
    from flint import arb, ctx, fmpq

    ctx.prec = _PRECISION_BITS
    return arb, fmpq


def enclosure(value: Fraction | int) -> "arb":
    """The ball around an exact number."""
    ball, ratio = _types()
    return ball(ratio(*Fraction(value).as_integer_ratio()))


def pi() -> "arb":
    """The ball around π."""
    ball, _ = _types()
    return ball.pi()


def lower_end(value: "arb") -> Fraction:
    """The smallest number in a ball.

    Raises:
        ValueError: the ball is unbounded or undefined.
    """
    return _exact(value.lower())


def upper_end(value: "arb") -> Fraction:
    """The largest number in a ball.

    Raises:
        ValueError: the ball is unbounded or undefined.
    """
    return _exact(value.upper())


def _exact(end: "arb") -> Fraction:
    ratio = end.fmpq()
    return Fraction(int(ratio.p), int(ratio.q))


def largest_holding(holds: Callable[[int], bool]) -> int:
    """The largest n ≥ 0 that meets a condition, by doubling and halving; −1 if 0 does not meet it.

    Args:
        holds: the condition. If n meets it, every smaller number does.

    Raises:
        ArithmeticError: no number up to 2²⁵⁵ fails the condition.
    """
    if not holds(0):
        return -1
    low, high = 0, 1
    for _ in range(_MAX_DOUBLINGS):
        if not holds(high):
            break
        low, high = high, 2 * high
    else:
        raise ArithmeticError("no number fails the condition")
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low


def normal_lower_tail(x: "arb") -> "arb":
    """Φ(−x), the probability that a standard normal variable is below −x."""
    return (x / enclosure(2).sqrt()).erfc() / 2
