"""The standard normal law in intervals: density φ, lower tail Φ(−x), and their ratio.

For x ≥ 0 two expansions with explicit remainders are used; both are sums of positive terms, so nothing cancels:

* x < 7: Φ(x) − ½ = φ(x)·S(x) with S(x) = Σ_k x^(2k+1)/(1·3·…·(2k+1)).
* x ≥ 7: Φ(−x) = φ(x)·M(x), with Mills' ratio M(x) = 1/(x + 1/(x + 2/(x + 3/(x + …)))). All partial numerators are
  positive, so M lies between any two consecutive convergents.

The expansions are computed with 90 digits. Each of at most n = 1,000 steps errs by less than 4·10⁻⁹⁰ of its value and
what is left out is below 10⁻⁸⁶ of the sum, so a relative error of 10⁻⁸⁰ covers everything (docs/proofs/accounting.md).
"""

from decimal import ROUND_HALF_EVEN, Context, Decimal
from functools import lru_cache

from app.privacy.accountants.intervals import ONE, ZERO, Interval, around, falling

_CONTEXT = Context(prec=90, rounding=ROUND_HALF_EVEN)
_EXPANSION_ERROR = Decimal("1e-80")
_LEFT_OUT = Decimal("1e-87")
_FAR = Decimal(7)
_CONVERGENTS = 200
_MAX_TERMS = 1_000

_HALF = ONE / Interval.of(2)
_ROOT_OF_TWO_PI = Interval(
    Decimal("2.506628274631000502415765284811045253006986740609938316629923576"),
    Decimal("2.506628274631000502415765284811045253006986740609938316629923577"),
)


def density(x: Interval) -> Interval:
    """φ(x) = exp(−x²/2)/√(2π)."""
    return (-(x * x) * _HALF).exp() / _ROOT_OF_TWO_PI


def lower_tail(x: Interval) -> Interval:
    """Φ(−x), for every x."""
    return falling(_lower_tail, x)


def mills_ratio(x: Interval) -> Interval:
    """Φ(−x)/φ(x), for x > 0."""
    return falling(_mills_ratio, x)


def _lower_tail(x: Decimal) -> Interval:
    if x < 0:
        return ONE - _lower_tail(x.copy_negate())
    point = Interval.of(x)
    if x < _FAR:
        return (_HALF - density(point) * _central_ratio(x)).clamped()
    return density(point) * _mills_ratio(x)


def _mills_ratio(x: Decimal) -> Interval:
    if x < _FAR:
        return _HALF / density(Interval.of(x)) - _central_ratio(x)
    one, other = _convergent(x, _CONVERGENTS), _convergent(x, _CONVERGENTS + 1)
    return Interval(
        around(min(one, other), relative_error=_EXPANSION_ERROR).low,
        around(max(one, other), relative_error=_EXPANSION_ERROR).high,
    )


@lru_cache(maxsize=64)
def _central_ratio(x: Decimal) -> Interval:
    """S(x) = (Φ(x) − ½)/φ(x) for 0 ≤ x < 7."""
    if x == 0:
        return ZERO
    square = _CONTEXT.multiply(x, x)
    term = total = _CONTEXT.plus(x)
    for step in range(1, _MAX_TERMS):
        term = _CONTEXT.divide(_CONTEXT.multiply(term, square), Decimal(2 * step + 1))
        total = _CONTEXT.add(total, term)
        if term < _CONTEXT.multiply(total, _LEFT_OUT) and 2 * square < 2 * step + 3:
            return around(total, relative_error=_EXPANSION_ERROR)
    raise ArithmeticError("the series did not end")


@lru_cache(maxsize=64)
def _convergent(x: Decimal, depth: int) -> Decimal:
    tail = x
    for numerator in range(depth, 0, -1):
        tail = _CONTEXT.add(x, _CONTEXT.divide(Decimal(numerator), tail))
    return _CONTEXT.divide(Decimal(1), tail)
