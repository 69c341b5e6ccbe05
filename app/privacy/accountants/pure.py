"""Pure ε: charges in nano-ε, composed by addition (Theorem L (a), docs/proofs/lemmas.md)."""

from fractions import Fraction

from app.core import amounts
from app.privacy.adjacency import Adjacency
from app.privacy.events import DiscreteLaplace, Event, Parallel, PermuteAndFlip, Sequential, UnknownPrivacyEvent

NAME = "pure"
UNIT = "epsilon"


def loss(event: Event, *, adjacency: Adjacency) -> Fraction:
    """The exact ε of an event under ``adjacency``.

    Sequential parts add, parallel parts count at their largest, a leaf costs sensitivity times inverse scale.

    Raises:
        UnknownPrivacyEvent: a leaf whose guarantee is stated under another adjacency, or an event without a bound.
    """
    match event:
        case Sequential(parts):
            return sum((part.times * loss(part.event, adjacency=adjacency) for part in parts), Fraction(0))
        case Parallel(_, parts):
            return max((loss(part.event, adjacency=adjacency) for part in parts), default=Fraction(0))
        case PermuteAndFlip():
            _require(event.adjacency, adjacency)
            return event.range_sensitivity * event.inverse_scale
        case DiscreteLaplace():
            _require(event.adjacency, adjacency)
            return event.l1_sensitivity * event.inverse_scale
    raise UnknownPrivacyEvent("no pure bound for this event")


def _require(stated: Adjacency, asked: Adjacency) -> None:
    if stated is not asked:
        raise UnknownPrivacyEvent("the guarantee of a leaf is stated under another adjacency")


def price(epsilon: Fraction) -> int:
    """What a job that asks for ``epsilon`` costs: nano-ε, rounded up."""
    return amounts.nano_up(epsilon)


def cap(epsilon: Fraction) -> int:
    """The cap an owner's ``epsilon`` opens: nano-ε, rounded down."""
    return amounts.nano_down(epsilon)


def replace_one(total: Fraction) -> Fraction:
    """The loss of replacing one unit by another: a removal and an addition."""
    return 2 * total
