"""Accounts for Gaussian differential privacy: charges in steps of 10⁻¹² μ², composed by
addition of μ².

The proof is Theorem L (c) in docs/proofs/accounting.md A3.

A mechanism is μ-GDP if distinguishing its laws on two neighbours is at least as hard as
distinguishing N(0, 1) from N(μ, 1) (Dong, Roth and Su 2022). That is equivalent to (ε,
δ)-DP for every ε at

    δ(ε, μ) = Φ(−a) − e^ε Φ(−b),      a = ε/μ − μ/2,      b = ε/μ + μ/2      (their Corollary 2.13),

which falls in ε and rises in μ. A granted amount is the largest step, and a printed ε
the smallest, for which the enclosure of δ(ε, μ) is certainly at most the owner's δ.
"""

from fractions import Fraction
from functools import lru_cache
from typing import TYPE_CHECKING

from grovekeeper_forests.privacy.accountants.accountant import (
    COARSE_ABOVE,
    COARSE_BELOW,
    EPSILON_PLACES,
    VERIFIABLE,
    Leaf,
    checked_delta,
    composed,
    enclosure,
    largest_holding,
    normal_lower_tail,
    pi,
    pure_loss,
    upper_end,
)
from grovekeeper_forests.privacy.events import (
    Adjacency,
    Event,
    ExponentialMechanism,
    RoundedGaussian,
)

if TYPE_CHECKING:  # imported at the first computation
    from flint import arb

NAME = "gdp"
UNIT = "mu_squared"
PLACES = 12
TAKES_DELTA = True


def loss(event: Event, *, adjacency: Adjacency) -> Fraction:
    """The μ² of an event on an account of ``adjacency``, rounded up.

    Gaussian noise costs Δ²/σ², the exponential mechanism :func:`of_bounded_range`, and
    any other ε-DP mechanism :func:`of_pure` (docs/proofs/accounting.md A4).
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
    """μ² that every ε-DP mechanism satisfies, rounded up: μ = 2x with Φ(−x) = 1/(1 +
    e^ε); at most πε²/2 and 8ε.
    """
    if epsilon > COARSE_ABOVE:
        return 8 * epsilon
    if epsilon < COARSE_BELOW:
        return upper_end(pi() / 2) * epsilon**2 * VERIFIABLE
    inverse = (2 / (1 + enclosure(epsilon).exp())).erfcinv()
    return upper_end(8 * inverse**2) * VERIFIABLE


def delta_of(epsilon: Fraction, mu_squared: Fraction) -> "arb":
    """δ(ε, μ), for ε ≥ 0 and μ > 0."""
    mu, exact = enclosure(mu_squared).sqrt(), enclosure(epsilon)
    near, far = exact / mu - mu / 2, exact / mu + mu / 2
    return normal_lower_tail(near) - exact.exp() * normal_lower_tail(far)


def _implies(epsilon: Fraction, delta: Fraction, mu_squared: Fraction) -> bool:
    return mu_squared == 0 or bool(delta_of(epsilon, mu_squared) <= enclosure(delta))


@lru_cache(maxsize=1024)
def cap(epsilon: Fraction, delta: Fraction | None) -> int:
    """The largest μ² that implies (ε, δ), in steps of 10⁻¹², rounded down.

    Raises:
        ValueError: δ is missing, or not strictly between 0 and 1.
    """
    limit = checked_delta(delta)
    return largest_holding(
        lambda amount: _implies(epsilon, limit, Fraction(amount, 10**PLACES))
    )


price = cap
"""The price of a job with (ε, δ): the cap of an account with the same (ε, δ)."""


@lru_cache(maxsize=1024)
def epsilon_of(amount: int, delta: Fraction | None) -> Fraction:
    """The ε that an amount of μ² implies at δ, rounded up to a multiple of 10⁻⁹.

    Raises:
        ValueError: δ is missing, or not strictly between 0 and 1.
    """
    limit, mu_squared = checked_delta(delta), Fraction(amount, 10**PLACES)
    # −1 where ε = 0 is large enough. The next step is the smallest for which the limit
    # certainly holds, because δ falls in ε.
    too_small = largest_holding(
        lambda steps: (
            not _implies(Fraction(steps, 10**EPSILON_PLACES), limit, mu_squared)
        )
    )
    return Fraction(too_small + 1, 10**EPSILON_PLACES)


def group(rows: int) -> int:
    """k rows cost k times the μ, so k² times the μ², of one row
    (docs/proofs/accounting.md A7).
    """
    return rows**2


def replace_one(amount: int) -> int:
    """Two steps of add/remove: twice the μ, so four times the μ² (group privacy of
    GDP).
    """
    return 4 * amount
