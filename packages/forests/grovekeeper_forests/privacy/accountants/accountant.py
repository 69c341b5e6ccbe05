"""Defines the protocol of accountants, composes the parts of an event for all of them,
and computes certified bounds.

Conversions between ρ, μ and (ε, δ) need logarithms, exponentials and the normal law,
whose values computers cannot represent exactly. ``flint.arb`` computes with balls (a
midpoint and a radius) and widens every result by its rounding error, so a ball always
contains the exact value. A charge is rounded up from the upper end of a ball, a grant
down from the lower end. A comparison of balls is true only if it holds for all values
in them (docs/proofs/accounting.md A1).
"""

from collections.abc import Callable
from fractions import Fraction
from functools import cache, partial
from math import ceil, floor
from typing import TYPE_CHECKING, Protocol

from grovekeeper_forests.privacy.events import (
    Adjacency,
    DiscreteLaplace,
    Event,
    ExponentialMechanism,
    NoBoundInUnit,
    Parallel,
    PermuteAndFlip,
    RoundedGaussian,
    Sequential,
    UnknownPrivacyEvent,
)

if TYPE_CHECKING:  # imported at the first computation
    from flint import arb, fmpq

Leaf = PermuteAndFlip | DiscreteLaplace | ExponentialMechanism | RoundedGaussian

COARSE_BELOW, COARSE_ABOVE = Fraction(1, 10**14), Fraction(10**6)
"""Outside these ε, a simple bound on ρ and μ² is the price: the verifier's decimals
compute no better one.
"""

VERIFIABLE = 1 + Fraction(1, 10**30)
"""Enlarges a computed ρ or μ² beyond the rounding of the verifier, which computes with
fewer digits. Without it, an attester could choose an event with a loss just below a
whole step, and the ledger could not be verified any more.
"""

EPSILON_PLACES = 9
"""A computed ε (of a guarantee, or the largest that fits) is a multiple of 10⁻⁹."""


class Accountant(Protocol):
    """One unit of account. The modules ``pure``, ``zcdp`` and ``gdp`` are its
    implementations.

    Amounts are integers in steps of 10^−``PLACES``. The same function converts an
    owner's (ε, δ) to a cap and a job's (ε, δ) to a price, so a job with the (ε, δ) of a
    fresh account fits exactly.
    """

    @property
    def NAME(self) -> str:  # noqa: N802 - a constant of the module
        """Name in requests and exports."""

    @property
    def UNIT(self) -> str:  # noqa: N802
        """The unit: ``epsilon``, ``rho`` or ``mu_squared``."""

    @property
    def PLACES(self) -> int:  # noqa: N802
        """Decimal places of an amount."""

    @property
    def TAKES_DELTA(self) -> bool:  # noqa: N802
        """Whether budgets and jobs have a δ between 0 and 1."""

    def cap(self, epsilon: Fraction, delta: Fraction | None) -> int:
        """The cap that an owner's (ε, δ) opens: the largest amount that implies it,
        rounded down.
        """

    def price(self, epsilon: Fraction, delta: Fraction | None) -> int:
        """The price of a job with (ε, δ); at most ``cap(epsilon, delta)`` where that is
        a whole amount.
        """

    def loss(self, event: Event, *, adjacency: Adjacency) -> Fraction:
        """The loss of an event in this unit on an account of ``adjacency``: exact, or
        rounded up.

        Raises:
            NoBoundInUnit: the event has a bound elsewhere, but not in this unit.
            UnknownPrivacyEvent: the event has no bound under this adjacency.
        """

    def epsilon_of(self, amount: int, delta: Fraction | None) -> Fraction:
        """The ε that an amount implies at δ, rounded up."""

    def group(self, rows: int) -> int:
        """The factor from the loss of one row to that of ``rows`` rows: k for ε, k² for
        ρ and μ².
        """

    def replace_one(self, amount: int) -> int:
        """The amount that bounds replacing one unit by another, where ``amount`` bounds
        adding or removing one.
        """


def composed(
    event: Event,
    *,
    adjacency: Adjacency,
    leaf: Callable[[Leaf], Fraction],
    label_factor: int,
) -> Fraction:
    """The loss of a tree from the losses of its leaves: sequential parts add, parallel
    parts count at their largest.

    Holds for ε, ρ and μ² (Theorem L, lemmas L4 and L5, docs/proofs/accounting.md A2).
    On a ``label`` account a leaf that is stated under add/remove costs ``label_factor``
    times as much, because a changed label is one row removed and one row added. No
    other pair of different adjacencies has a bound.

    Args:
        leaf: the loss of one leaf under the adjacency of the leaf.
        label_factor: the loss of two add/remove steps in this unit, divided by the loss
            of one step.

    Raises:
        UnknownPrivacyEvent: a leaf whose guarantee is stated under an adjacency without
            a bound here.
    """
    loss_of = partial(
        composed, adjacency=adjacency, leaf=leaf, label_factor=label_factor
    )
    match event:
        case Sequential(parts):
            losses = (part.times * loss_of(part.event) for part in parts)
            return sum(losses, Fraction(0))
        case Parallel(_, parts):
            # However many there are: a row is in one of them (docs/proofs/lemmas.md, L5).
            return max((loss_of(part.event) for part in parts), default=Fraction(0))
        case (
            PermuteAndFlip()
            | DiscreteLaplace()
            | ExponentialMechanism()
            | RoundedGaussian()
        ):
            if event.adjacency is adjacency:
                return leaf(event)
            if (event.adjacency, adjacency) == (
                Adjacency.ADD_REMOVE_ONE,
                Adjacency.LABEL,
            ):
                return label_factor * leaf(event)
            raise UnknownPrivacyEvent(
                "the guarantee of a leaf is stated under another adjacency"
            )
    raise UnknownPrivacyEvent("no bound for this event")


def pure_loss(leaf: Leaf, *, accountant: str) -> Fraction:
    """The exact ε of a leaf, at δ = 0.

    Raises:
        NoBoundInUnit: the leaf has no ε at δ = 0.
    """
    match leaf:
        case PermuteAndFlip() | ExponentialMechanism():
            return leaf.range_sensitivity * leaf.inverse_scale
        case DiscreteLaplace():
            return leaf.l1_sensitivity * leaf.inverse_scale
    raise NoBoundInUnit(accountant)


def checked_delta(delta: Fraction | None) -> Fraction:
    """Returns the δ of an account that takes a δ.

    Raises:
        ValueError: δ is missing, or not strictly between 0 and 1.
    """
    if delta is None or not 0 < delta < 1:
        raise ValueError("a δ strictly between 0 and 1 is needed")
    return delta


def steps_down(value: Fraction, places: int) -> int:
    """Whole steps of 10^−places in a value, rounded down and never below zero."""
    whole: int = floor(value * 10**places)
    return max(whole, 0)


def steps_up(value: Fraction, places: int) -> int:
    """Whole steps of 10^−places that cover a value, never below zero."""
    whole: int = ceil(value * 10**places)
    return max(whole, 0)


_PRECISION_BITS = 256
"""Bits of a midpoint, for the whole process. With fewer bits, balls are wider but still
contain the exact value.
"""

_MAX_DOUBLINGS = 256


@cache
def _types() -> "tuple[type[arb], type[fmpq]]":
    """The types of balls and exact ratios. A process at rest needs neither: they take
    0.04 s to import, and 10 MB.
    """
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
    """The largest n ≥ 0 that meets a condition, by doubling and halving; −1 if 0 does
    not meet it.

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
