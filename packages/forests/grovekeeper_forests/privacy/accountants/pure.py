"""Accounts for pure ε-DP: charges in nano-ε, composed by addition (Theorem L (a),
docs/proofs/lemmas.md).
"""

from fractions import Fraction

from grovekeeper_forests.privacy.accountants.accountant import (
    EPSILON_PLACES,
    composed,
    pure_loss,
    steps_down,
    steps_up,
)
from grovekeeper_forests.privacy.events import Adjacency, Event

NAME = "pure"
UNIT = "epsilon"
PLACES = EPSILON_PLACES
TAKES_DELTA = False


def loss(event: Event, *, adjacency: Adjacency) -> Fraction:
    """The exact ε of an event on an account of ``adjacency``; a leaf costs sensitivity
    times inverse scale.
    """
    return composed(
        event,
        adjacency=adjacency,
        leaf=lambda leaf: pure_loss(leaf, accountant=NAME),
        label_factor=2,
    )


def price(epsilon: Fraction, delta: Fraction | None = None) -> int:
    """The price of a job with ``epsilon``: nano-ε, rounded up."""
    _no(delta)
    return steps_up(epsilon, PLACES)


def cap(epsilon: Fraction, delta: Fraction | None = None) -> int:
    """The cap that an owner's ``epsilon`` opens: nano-ε, rounded down."""
    _no(delta)
    return steps_down(epsilon, PLACES)


def epsilon_of(amount: int, delta: Fraction | None = None) -> Fraction:
    """The ε of an amount, exactly. Valid for a realised sum at any time, not only for a
    cap.
    """
    _no(delta)
    return Fraction(amount, 10**PLACES)


def group(rows: int) -> int:
    """k rows cost k times the ε of one row (lemma L7)."""
    return rows


def replace_one(amount: int) -> int:
    """Replacing one unit by another is a removal and an addition: twice the ε."""
    return 2 * amount


def _no(delta: Fraction | None) -> None:
    if delta is not None:
        raise ValueError("a pure account has no δ")
