"""Computes upper bounds on the ρ and the μ² of every ε-DP mechanism.

* ρ = ε·tanh(ε/2).
* μ = 2x, where Φ(−x) = 1/(1 + e^ε) and Φ is the standard normal distribution function.

Both are computed with 90 digits and enlarged by far more than the rounding error. The
enlarged x is checked: Φ(−x), computed with a known error, must be below 1/(1 + e^ε).
Proofs: docs/proofs/accounting.md, A1 and A4.
"""

from decimal import ROUND_HALF_EVEN, Context, Decimal, localcontext
from fractions import Fraction
from functools import lru_cache

_CONTEXT = Context(prec=90, rounding=ROUND_HALF_EVEN)
_ENLARGED = Fraction(10**70 + 1, 10**70)
_MARGIN = Decimal("1e-70")
_STEP_UP = Decimal("1.00000000000000000000000000000001")
_ROOT_OF_TWO_PI = Decimal(
    "2.50662827463100050241576528481104525300698674060993831662992357634229365460784197494659583837"
)
_HALF_PI = Fraction("1.5707963267948966192313216916398")
"""Rounded up."""

_SMALL, _LARGE = Fraction(1, 10**14), Fraction(10**6)
_NEAR = 6
_LEVELS = 260
_MAX_STEPS = 60


@lru_cache(maxsize=1024)
def rho_of_pure(epsilon: Fraction) -> Fraction:
    """ε·tanh(ε/2), rounded up. Its upper bounds ε²/2 and ε are used for very small and
    very large ε.
    """
    if epsilon < _SMALL:
        return epsilon**2 / 2
    if epsilon > _LARGE:
        return epsilon
    with localcontext(_CONTEXT):
        decayed = (-_decimal(epsilon)).exp()
        tanh = (1 - decayed) / (1 + decayed)
    return epsilon * min(Fraction(tanh) * _ENLARGED, Fraction(1))


@lru_cache(maxsize=1024)
def mu_squared_of_pure(epsilon: Fraction) -> Fraction:
    """μ², rounded up. Its upper bounds πε²/2 and 8ε are used for very small and very
    large ε.
    """
    if epsilon < _SMALL:
        return _HALF_PI * epsilon**2
    if epsilon > _LARGE:
        return 8 * epsilon
    with localcontext(_CONTEXT):
        decayed = (-_decimal(epsilon)).exp()
        below = decayed / (1 + decayed)
        x = _quantile(below, start=_decimal(epsilon)) * _STEP_UP
        if _probability_below(x) * (1 + _MARGIN) > below * (1 - _MARGIN):
            raise ArithmeticError("the quantile of the normal law failed its check")
    return 4 * Fraction(x) ** 2


def _quantile(below: Decimal, *, start: Decimal) -> Decimal:
    """An estimate of the x with Φ(−x) = ``below``. ln Φ(−x) is concave, so Newton's
    method from a larger x converges from above.
    """
    x = min((2 * start).sqrt(), start)
    for _ in range(_MAX_STEPS):
        ratio = _probability_below(x) / _density(x)
        step = ((ratio * _density(x)).ln() - below.ln()) * ratio
        x += step
        if abs(step) < x * Decimal("1e-40"):
            break
    return x


def _density(x: Decimal) -> Decimal:
    return (-x * x / 2).exp() / _ROOT_OF_TWO_PI


def _probability_below(x: Decimal) -> Decimal:
    """Φ(−x), x ≥ 0, with a relative error below 10⁻⁷⁰."""
    if x < _NEAR:
        return Decimal("0.5") - _density(x) * _series(x)
    # There the difference above would lose digits, because it is close to 0.
    return _density(x) / _continued(x)


def _series(x: Decimal) -> Decimal:
    """x + x³/3 + x⁵/(3·5) + … to the last digit: (Φ(x) − ½)/φ(x)."""
    term = total = x
    odd = 1
    while total + term != total:
        odd += 2
        term = term * x * x / odd
        total += term
    return total


def _continued(x: Decimal) -> Decimal:
    """x + 1/(x + 2/(x + 3/(x + …))) = φ(x)/Φ(−x)."""
    value = x
    for numerator in range(_LEVELS, 0, -1):
        value = x + numerator / value
    return value


def _decimal(value: Fraction) -> Decimal:
    return Decimal(value.numerator) / Decimal(value.denominator)
