"""Defines privacy events: immutable descriptions of mechanism calls, known before any
private row is read.

An event is a tree. A leaf names a mechanism with its sensitivity and its noise; the
loss of ``sequential/1`` is the sum over its parts, the loss of ``parallel/1`` the
largest of its parts, which read disjoint rows. From the event alone, an auditor can
recompute the charge with another program. The meaning of a slug never changes: a new
behaviour gets a new slug.

JSON form (all numbers that may be large or fractional are strings ``"p"`` or ``"p/q"``
in lowest terms)::

    {"type": "sequential/1", "parts": [{"times": 8, "event": {…}}, …]}
    {"type": "parallel/1", "over": "trees", "parts": [{"times": 8, "event": {…}}, …]}
    {"type": "permute-and-flip/1", "adjacency": "add_remove", "range_sensitivity":
    "512",
     "inverse_scale": "35791/4294967296", "max_candidates": 310}
    {"type": "discrete-laplace/1", "adjacency": "add_remove", "l1_sensitivity": "1",
     "inverse_scale": "536870912/4294967296 in lowest terms", "coordinates": 4096}
    {"type": "exponential-mechanism/1", "adjacency": "add_remove", "range_sensitivity":
    "512",
     "inverse_scale": "35791/4294967296", "max_candidates": 310}
    {"type": "rounded-gaussian/1", "adjacency": "add_remove", "l2_sensitivity_squared":
    "1",
     "sigma_squared": "400", "coordinates": 4096}

``times`` in a ``parallel/1`` part counts disjoint parts of the same kind and does not
multiply the loss.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from enum import StrEnum
from fractions import Fraction
from typing import ClassVar, Self

from grovekeeper_forests import limits
from grovekeeper_forests.json_types import JsonObject


class Adjacency(StrEnum):
    """The neighbouring relation under which a guarantee is stated. Always passed, never
    defaulted.

    ``ADD_REMOVE_ONE``: one unit is added or removed (unbounded); the adjacency of every
    ordinary account. ``REPLACE_ONE``: one unit is replaced by another (bounded);
    guarantees also state its loss, on ``pure`` accounts twice the loss under
    add/remove.
    ``LABEL``: one label changes; features and membership are public. The adjacency of
    accounts that protect labels alone.
    """

    ADD_REMOVE_ONE = "add_remove"
    REPLACE_ONE = "replace_one"
    LABEL = "label"


QUANTUM = Fraction(1, 2**32)
"""Parameters of draws are multiples of this number, rounded down, so that kernels work
in 64-bit integers.
"""

_FRACTION = re.compile(r"[0-9]{1,400}(/[0-9]{1,400})?", re.ASCII)
"""Form of a number, checked before conversion, because a short text with an exponent
can denote a huge number.
"""

_WORD = re.compile(r"[a-z][a-z0-9 _-]{0,63}", re.ASCII)


class EventCostsMore(ValueError):
    """An event has a larger loss than the amount that pays for it. A bug of the code
    that priced the event.
    """


class UnknownPrivacyEvent(ValueError):
    """An event without a proved bound. It is refused."""


@dataclass(eq=False)
class NoBoundInUnit(UnknownPrivacyEvent):
    """A known event without a proved bound in the unit of one accountant; another
    accountant may have a bound.
    """

    accountant: str

    def __str__(self) -> str:
        return (
            f"this event has no proven bound in the unit of {self.accountant} accounts"
        )


def quantised(value: Fraction) -> Fraction:
    """The largest multiple of :data:`QUANTUM` that is at most ``value``."""
    return (value / QUANTUM).__floor__() * QUANTUM


@dataclass(frozen=True)
class Part:
    """An event that happens ``times`` times: adaptively one after another, or on
    disjoint rows.
    """

    times: int
    event: "Event"

    def __post_init__(self) -> None:
        if self.times < 1:
            raise ValueError("times must be at least 1")

    def to_json(self) -> JsonObject:
        return {"times": self.times, "event": self.event.to_json()}

    @classmethod
    def from_json(cls, value: object) -> Self:
        match value:
            case {"times": int(times), "event": event, **rest} if (
                not rest and not isinstance(times, bool)
            ):
                return cls(times, from_json(event))
        raise UnknownPrivacyEvent("a part of an event is not of the known form")


@dataclass(frozen=True)
class Sequential:
    """Adaptive sequential composition: losses add, each part ``times`` times."""

    parts: tuple[Part, ...]

    def to_json(self) -> JsonObject:
        return {
            "type": "sequential/1",
            "parts": [part.to_json() for part in self.parts],
        }


@dataclass(frozen=True)
class Parallel:
    """Parts on disjoint rows, assigned by a function of each row alone: the loss is the
    largest loss of a part.

    ``over`` names the disjoint parts (``trees``, ``nodes``, ``shards``) for the
    receipt.
    """

    over: str
    parts: tuple[Part, ...]

    def to_json(self) -> JsonObject:
        return {
            "type": "parallel/1",
            "over": self.over,
            "parts": [part.to_json() for part in self.parts],
        }


class _Leaf:
    """A mechanism call. Its JSON form is its type and its fields, in the order
    adjacency, sensitivity, scale, size.
    """

    TYPE: ClassVar[str]

    def to_json(self) -> JsonObject:
        texts = {
            name: value if isinstance(value, int) else str(value)
            for name, value in vars(self).items()
        }
        return {"type": self.TYPE, **texts}


@dataclass(frozen=True)
class PermuteAndFlip(_Leaf):
    """One selection among at most ``max_candidates`` public candidates by
    permute-and-flip.

    Candidate r is accepted with probability exp(−inverse_scale · (u* − u_r)). ε-DP with
    ε = ``range_sensitivity · inverse_scale`` (lemma L2 in docs/proofs/lemmas.md; Ding
    et al. 2021), where ``range_sensitivity`` is the largest spread of utility changes
    between neighbours, in the utility's own integer units.
    """

    TYPE: ClassVar[str] = "permute-and-flip/1"

    adjacency: Adjacency
    range_sensitivity: Fraction
    inverse_scale: Fraction
    max_candidates: int


@dataclass(frozen=True)
class DiscreteLaplace(_Leaf):
    """An integer vector plus independent noise with Pr[z] ∝ exp(−inverse_scale · |z|)
    on every coordinate.

    ε-DP with ε = ``l1_sensitivity · inverse_scale`` (lemma L3 in
    docs/proofs/lemmas.md).
    """

    TYPE: ClassVar[str] = "discrete-laplace/1"

    adjacency: Adjacency
    l1_sensitivity: Fraction
    inverse_scale: Fraction
    coordinates: int


@dataclass(frozen=True)
class ExponentialMechanism(_Leaf):
    """One selection among at most ``max_candidates`` public candidates, Pr[r] ∝
    exp(inverse_scale · u_r), exactly.

    ε-bounded range, and so ε-DP, with ε = ``range_sensitivity · inverse_scale`` (lemma
    L1 in docs/proofs/lemmas.md; Dong, Durfee and Rogers 2020). Because of its bounded
    range it costs less than permute-and-flip in ρ and μ.
    """

    TYPE: ClassVar[str] = "exponential-mechanism/1"

    adjacency: Adjacency
    range_sensitivity: Fraction
    inverse_scale: Fraction
    max_candidates: int


@dataclass(frozen=True)
class RoundedGaussian(_Leaf):
    """An integer vector plus, on every coordinate, an independent exact normal draw of
    variance ``sigma_squared`` that is rounded to the nearest integer.

    An integer plus a rounded normal is the normal mechanism's output, rounded:
    post-processing (lemma L7). So it is √(``l2_sensitivity_squared /
    sigma_squared``)-GDP, exactly, and half that square in zCDP. It has no ε with δ = 0.
    This is not the *discrete* Gaussian, whose δ is larger (docs/proofs/accounting.md,
    A5).
    """

    TYPE: ClassVar[str] = "rounded-gaussian/1"

    adjacency: Adjacency
    l2_sensitivity_squared: Fraction
    sigma_squared: Fraction
    coordinates: int

    def __post_init__(self) -> None:
        if self.sigma_squared <= 0:
            raise ValueError("a variance is positive")


Event = (
    Sequential
    | Parallel
    | PermuteAndFlip
    | DiscreteLaplace
    | ExponentialMechanism
    | RoundedGaussian
)


def from_json(value: object) -> Event:
    """Reads an event's JSON form, and refuses unknown slugs and additional fields.

    Raises:
        UnknownPrivacyEvent: anything but a form described above.
    """
    try:
        match value:
            case {"type": "sequential/1", "parts": [*parts], **rest} if not rest:
                return Sequential(tuple(map(Part.from_json, parts)))
            case {
                "type": "parallel/1",
                "over": str(over),
                "parts": [*parts],
                **rest,
            } if not rest:
                return Parallel(over, tuple(map(Part.from_json, parts)))
            case {"type": str(slug), **members} if slug in _LEAVES:
                return _read_leaf(_LEAVES[slug], members)
    except (ValueError, ZeroDivisionError, TypeError, KeyError) as error:
        raise UnknownPrivacyEvent("not a privacy event of a known form") from error
    raise UnknownPrivacyEvent("not a privacy event of a known form")


def foreign(value: object) -> Event:
    """Reads an event from a request: as :func:`from_json`, and within public limits.

    Raises:
        UnknownPrivacyEvent: the event has an unknown form, or exceeds a limit.
    """
    event = from_json(value)
    if _size(event) > limits.MAX_EVENT_PARTS:
        raise UnknownPrivacyEvent("an event of too many parts")
    return event


def _size(event: Event) -> int:
    """Checks the counts, scales and texts of a tree against limits, and returns its
    number of nodes.

    Raises:
        UnknownPrivacyEvent: a count, a scale or a text exceeds its limit.
    """
    match event:
        case Sequential(parts) | Parallel(_, parts):
            if isinstance(event, Parallel) and not _WORD.fullmatch(event.over):
                raise UnknownPrivacyEvent(
                    "what parts are disjoint over is a plain word"
                )
            if any(part.times > limits.MAX_EVENT_COUNT for part in parts):
                raise UnknownPrivacyEvent("a count of an event is too large")
            return 1 + sum(_size(part.event) for part in parts)
    for value in vars(event).values():
        if isinstance(value, int) and value > limits.MAX_EVENT_COUNT:
            raise UnknownPrivacyEvent("a count of an event is too large")
        if (
            isinstance(value, Fraction)
            and max(value.numerator, value.denominator) > limits.MAX_EVENT_SCALE
        ):
            raise UnknownPrivacyEvent("a scale of an event has too many digits")
    return 1


_LeafType = (
    type[PermuteAndFlip]
    | type[DiscreteLaplace]
    | type[ExponentialMechanism]
    | type[RoundedGaussian]
)
_LEAVES: dict[str, _LeafType] = {
    leaf.TYPE: leaf
    for leaf in (PermuteAndFlip, DiscreteLaplace, ExponentialMechanism, RoundedGaussian)
}


def _read_leaf(leaf: _LeafType, members: Mapping[object, object]) -> Event:
    names = [field.name for field in fields(leaf)]
    if set(members) != set(names):
        raise UnknownPrivacyEvent("a leaf of an event has other fields than its type")
    adjacency, sensitivity, scale, size = (members[name] for name in names)
    if isinstance(size, bool) or not isinstance(size, int) or size < 1:
        raise ValueError("a count is a positive integer")
    return leaf(
        Adjacency(str(adjacency)),
        _fraction(sensitivity),
        _fraction(scale),
        size,
    )


def _fraction(value: object) -> Fraction:
    if not isinstance(value, str) or not _FRACTION.fullmatch(value):
        raise TypeError("a fraction is text")
    fraction = Fraction(value)
    if fraction < 0 or str(fraction) != value:
        raise ValueError("a fraction is non-negative and in lowest terms")
    return fraction
