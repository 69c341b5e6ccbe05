"""Gaussian differential privacy: charges in steps of 10⁻¹² μ², composed by addition of μ² (Theorem L (c),
docs/proofs/accounting.md A3).

A mechanism is μ-GDP if telling its laws on two neighbours apart is at least as hard as telling N(0, 1) from N(μ, 1)
(Dong, Roth and Su 2022). That is the same as (ε, δ)-DP for every ε at

    δ(ε, μ) = Φ(−a) − e^ε Φ(−b),      a = ε/μ − μ/2,      b = ε/μ + μ/2      (their Corollary 2.13),

which falls in ε and rises in μ. Since e^ε φ(b) = φ(a), the second term is φ(a)·M(b) with Mills' ratio M: no large
exponential has to be computed. Solutions are searched for carelessly and then held to the intervals' word.
"""

from decimal import Decimal
from fractions import Fraction
from functools import lru_cache, partial

from app.privacy.accountants import normal, zcdp
from app.privacy.accountants.accountant import (
    EPSILON_PLACES,
    Leaf,
    checked_delta,
    composed,
    largest_epsilon,
    pure_loss,
    steps_down,
    steps_up,
)
from app.privacy.accountants.intervals import ONE, ZERO, Interval, root
from app.privacy.adjacency import Adjacency
from app.privacy.events import Event, ExponentialMechanism, RoundedGaussian

NAME = "gdp"
UNIT = "mu_squared"
SYMBOL = "μ²"
PLACES = 12
TAKES_DELTA = True

_STEP = Fraction(1, 10**PLACES)
_FOUR = Interval.of(4)
_HALF = ONE / Interval.of(2)
_DIGITS = 24
_SMALL, _LARGE = Fraction(1, 10**12), Fraction(10**6)
_MAX_CORRECTIONS = 16
_MAX_NEWTON_STEPS = 100


def loss(event: Event, *, adjacency: Adjacency) -> Fraction:
    """The μ² of an event on an account of ``adjacency``, rounded up.

    Gaussian noise costs Δ²/σ², the exponential mechanism what :func:`of_bounded_range` says, anything else that is
    ε-DP what :func:`of_pure` says (docs/proofs/accounting.md A4).

    Raises:
        UnknownPrivacyEvent: a leaf whose guarantee is stated under another adjacency.
    """
    return composed(event, adjacency=adjacency, leaf=_leaf, label_factor=4)


def _leaf(leaf: Leaf) -> Fraction:
    match leaf:
        case ExponentialMechanism():
            return of_bounded_range(pure_loss(leaf, accountant=NAME))
        case RoundedGaussian():
            return leaf.l2_sensitivity_squared / leaf.sigma_squared
    return of_pure(pure_loss(leaf, accountant=NAME))


def of_bounded_range(epsilon: Fraction) -> Fraction:
    """μ² of an ε-bounded-range selection, rounded up: μ = 2Φ⁻¹(1/(1 + e^(−ε/2)))."""
    return of_pure(epsilon / 2)


@lru_cache(maxsize=1024)
def of_pure(epsilon: Fraction) -> Fraction:
    """μ² that every ε-DP mechanism satisfies, rounded up: μ = 2x with Φ(−x) = 1/(1 + e^ε).

    Below 10⁻¹² the tangent x ≤ ε·√(π/8) is used, above 10⁶ the tail bound x² ≤ 2ε; both hold for every ε.
    """
    exact = Interval.of(epsilon)
    tangent = exact / (_FOUR * normal.density(ZERO))
    if epsilon < _SMALL:
        return (_FOUR * tangent * tangent).ceiling
    if epsilon > _LARGE:
        return 8 * epsilon
    fallen = (-exact).exp()
    tail = fallen / (ONE + fallen)
    x = Interval.of(_above(_quantile(tail, above=min(tangent.high, (exact + exact).sqrt().high))))
    if normal.lower_tail(x).high > tail.low:
        raise ArithmeticError("the quantile is not on the safe side")
    return (_FOUR * x * x).ceiling


def _quantile(tail: Interval, *, above: Decimal) -> Decimal:
    """About the x ≥ 0 with Φ(−x) = ``tail``, by Newton's steps on ln Φ(−x), which is concave: they start above the
    solution and never pass it."""
    log_tail, x = tail.ln(), above
    for _ in range(_MAX_NEWTON_STEPS):
        point = Interval(x, x)
        step = ((normal.lower_tail(point).ln() - log_tail) * normal.mills_ratio(point)).high
        x = Interval.of(Fraction(x) + Fraction(step)).high
        if abs(step) <= x.scaleb(-_DIGITS):
            break
    return x


def _above(estimate: Decimal) -> Fraction:
    """An estimate of :data:`_DIGITS` digits, moved up by more than its error."""
    return Fraction(estimate) * (1 + Fraction(1, 10 ** (_DIGITS - 2)))


def delta_of(epsilon: Fraction, mu_squared: Fraction) -> Interval:
    """δ(ε, μ), for ε ≥ 0 and μ > 0."""
    mu, asked = Interval.of(mu_squared).sqrt(), Interval.of(epsilon)
    near, far = asked / mu - mu * _HALF, asked / mu + mu * _HALF
    return (normal.lower_tail(near) - normal.density(near) * normal.mills_ratio(far)).clamped()


def price(epsilon: Fraction, delta: Fraction | None) -> int:
    """What a job that asks for (ε, δ) costs: the cap that the same numbers would open."""
    return cap(epsilon, delta)


@lru_cache(maxsize=1024)
def cap(epsilon: Fraction, delta: Fraction | None) -> int:
    """The largest μ² that implies (ε, δ), in steps of 10⁻¹², rounded down.

    Raises:
        ValueError: δ is missing, or not strictly between 0 and 1.
    """
    limit = checked_delta(delta)
    if not delta_of(epsilon, _STEP).at_most(limit):
        return 0
    amount = steps_down(_mu_estimate(epsilon, limit) ** 2, PLACES) + 1
    for _ in range(_MAX_CORRECTIONS):
        if amount == 0 or delta_of(epsilon, Fraction(amount, 10**PLACES)).at_most(limit):
            return amount
        amount -= 1
    raise ArithmeticError("the search for μ² did not end beside the solution")


def _mu_estimate(epsilon: Fraction, delta: Fraction) -> Fraction:
    """About the μ with δ(ε, μ) = δ, where it is at least one step. What implies (ε, δ) as zCDP implies it as GDP, so
    √(2ρ) is a lower bound."""
    log_delta = Interval.of(delta).ln()

    def too_much(mu: Decimal) -> Decimal:
        return (delta_of(epsilon, Fraction(mu) ** 2).ln() - log_delta).high

    low = Interval.of(max(2 * zcdp.rho_of(epsilon, delta).floor, _STEP)).sqrt().low
    high = low
    while too_much(high) < 0:
        low, high = high, high + high / 4
    return Fraction(root(too_much, low=low, high=high, digits=_DIGITS))


@lru_cache(maxsize=1024)
def epsilon_of(amount: int, delta: Fraction | None) -> Fraction:
    """The ε that an amount of μ² implies at δ, rounded up to a multiple of 10⁻⁹.

    Raises:
        ValueError: δ is missing, or not strictly between 0 and 1.
    """
    limit, mu_squared = checked_delta(delta), Fraction(amount, 10**PLACES)
    if amount == 0 or delta_of(Fraction(0), mu_squared).at_most(limit):
        return Fraction(0)
    steps = max(steps_up(_epsilon_estimate(mu_squared, limit), EPSILON_PLACES) - 1, 0)
    for _ in range(_MAX_CORRECTIONS):
        epsilon = Fraction(steps, 10**EPSILON_PLACES)
        if delta_of(epsilon, mu_squared).at_most(limit):
            return epsilon
        steps += 1
    raise ArithmeticError("the search for ε did not end beside the solution")


def _epsilon_estimate(mu_squared: Fraction, delta: Fraction) -> Fraction:
    """About the ε with δ(ε, μ) = δ. μ-GDP is (μ²/2)-zCDP, which gives an upper bound."""
    log_delta = Interval.of(delta).ln()

    def too_little(epsilon: Decimal) -> Decimal:
        return (delta_of(Fraction(epsilon), mu_squared).ln() - log_delta).high

    above = zcdp.epsilon_of(steps_up(mu_squared / 2, zcdp.PLACES), delta)
    high = Interval.of(above + Fraction(1, 10**EPSILON_PLACES)).high
    return Fraction(root(too_little, low=Decimal(0), high=high, digits=_DIGITS))


def largest_that_fits(remaining: int, delta: Fraction | None) -> Fraction:
    """The largest multiple of 10⁻⁹ ε whose price at δ is at most ``remaining``; zero if there is none."""
    return largest_epsilon(remaining, epsilon_of=partial(epsilon_of, delta=delta), price=partial(price, delta=delta))


def group(rows: int) -> int:
    """k rows cost k times the μ of one, k² times its square (docs/proofs/accounting.md A7)."""
    return rows**2


def replace_one(amount: int) -> int:
    """Two steps of add/remove: twice the μ, four times its square (group privacy of GDP)."""
    return 4 * amount
