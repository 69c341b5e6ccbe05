"""Rounds losses up: to decimal text, and through roots, logarithms and exponentials."""

from decimal import ROUND_CEILING, Context, Decimal
from fractions import Fraction
from math import ceil, isqrt

FLOAT_SLACK = 1 + 1e-9
"""A factor above the rounding errors of an accountant that computes with floats."""

_TEXT = Context(prec=15, rounding=ROUND_CEILING)
_DIGITS = Context(prec=60)
_SLACK = 1 + Fraction(1, 10**30)
"""A factor above the rounding errors of 60 digits, for ε from 10⁻²⁰."""


class Unpriced(ValueError):
    """No sound price is known for a mechanism on this account. Nothing was charged, and
    no row was read.
    """


def upward(loss: float | Fraction) -> str:
    """The smallest decimal of 15 digits that is at least a loss; a float is the exact
    number that it holds.

    Raises:
        Unpriced: the loss is not a finite number above zero.
    """
    if not 0 < loss < float("inf"):
        raise Unpriced(f"a loss of {loss} has no price")
    exact = Fraction(loss)
    return f"{_TEXT.divide(Decimal(exact.numerator), Decimal(exact.denominator)):E}"


def root_up(square: Fraction) -> Fraction:
    """The square root of a number above zero, rounded up to 20 decimals."""
    return Fraction(isqrt(ceil(square * 10**40) - 1) + 1, 10**20)


def rho_of_pure(epsilon: Fraction) -> Fraction:
    """ρ = ε·tanh(ε/2) of ε-DP, rounded up (docs/proofs/accounting.md, A4)."""
    grown = _grown(epsilon)
    return epsilon * (grown - 1) / (grown + 1) * _SLACK


def mu_squared_of_pure(epsilon: Fraction) -> Fraction:
    """μ² = ε²·π/2 of ε-DP, rounded up (docs/proofs/external.md)."""
    return Fraction("1.5708") * epsilon**2


def amplified(epsilon: Fraction, probability: Fraction) -> Fraction:
    """log(1 + q(e^ε − 1)), rounded up: the ε of what Poisson sampling precedes."""
    odds = 1 + probability * (_grown(epsilon) - 1)
    log = _DIGITS.ln(_DIGITS.divide(odds.numerator, odds.denominator))
    return min(epsilon, Fraction(log) * _SLACK)


def _grown(epsilon: Fraction) -> Fraction:
    """e^ε, with 60 digits."""
    return Fraction(_DIGITS.exp(_DIGITS.divide(epsilon.numerator, epsilon.denominator)))
