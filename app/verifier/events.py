"""Recomputes what an event costs, from its description alone.

An event is a tree. ``sequential/1`` adds its parts, each as often as it happens. ``parallel/1`` takes the largest of
parts that see disjoint rows. A leaf is one call of a mechanism and costs sensitivity times inverse scale: lemma L2
(permute-and-flip) and lemma L3 (discrete Laplace) of docs/proofs/lemmas.md. An unknown slug, a field too many or too
few, or a number that is not in lowest terms is refused: a verifier that guesses verifies nothing.
"""

import re
from fractions import Fraction

from app.verifier.canonical import Json

MAX_DEPTH = 32
_LOWEST_TERMS = re.compile(r"(?:0|[1-9][0-9]{0,99})(?:/[1-9][0-9]{0,99})?", re.ASCII)

_LEAVES = {
    "permute-and-flip/1": ("range_sensitivity", "max_candidates"),
    "discrete-laplace/1": ("l1_sensitivity", "coordinates"),
}
"""Leaf slug → the field that holds its sensitivity, the field that holds its public size."""

_FACTORS = {("add_remove", "add_remove"): 1, ("label", "label"): 1, ("label", "add_remove"): 2}
"""(account's adjacency, leaf's adjacency) → what the leaf's loss is multiplied by.

One label that changes is one row removed and one added, so a label account pays an add/remove mechanism twice. No other
pair has a finite bound."""


class NotAnEvent(ValueError):
    """The description is of no known form. ``str()`` says why."""


def total(event: Json, *, adjacency: str) -> Fraction:
    """The exact ε of an event on an account of this adjacency, for one row.

    Raises:
        NotAnEvent: an event this verifier has no proven bound for.
    """
    return _total(event, adjacency, depth=0)


def _total(event: Json, adjacency: str, *, depth: int) -> Fraction:
    if depth > MAX_DEPTH:
        raise NotAnEvent("the event is nested too deeply")
    fields = _fields(event)
    kind = fields.pop("type", None)
    if kind == "sequential/1":
        parts = _parts(fields, {"parts"}, adjacency, depth=depth)
        return sum((times * loss for times, loss in parts), Fraction(0))
    if kind == "parallel/1":
        if not isinstance(fields.get("over"), str):
            raise NotAnEvent("a parallel event does not say over what")
        parts = _parts(fields, {"over", "parts"}, adjacency, depth=depth)
        return max((loss for _, loss in parts), default=Fraction(0))
    if isinstance(kind, str) and kind in _LEAVES:
        return _leaf(kind, fields, adjacency)
    raise NotAnEvent("the event's type is unknown")


def _parts(fields: dict[str, Json], expected: set[str], adjacency: str, *, depth: int) -> list[tuple[int, Fraction]]:
    parts = fields.get("parts")
    if set(fields) != expected or not isinstance(parts, list):
        raise NotAnEvent("a composed event has other fields than its type")
    result = []
    for item in parts:
        part = _fields(item)
        if set(part) != {"times", "event"}:
            raise NotAnEvent("a part of an event has other fields than times and event")
        result.append((_count(part["times"]), _total(part["event"], adjacency, depth=depth + 1)))
    return result


def _leaf(kind: str, fields: dict[str, Json], adjacency: str) -> Fraction:
    sensitivity, size = _LEAVES[kind]
    if set(fields) != {"adjacency", "inverse_scale", sensitivity, size}:
        raise NotAnEvent(f"a {kind} event has other fields than its type")
    _count(fields[size])
    stated = fields["adjacency"]
    factor = _FACTORS.get((adjacency, stated)) if isinstance(stated, str) else None
    if factor is None:
        raise NotAnEvent(f"a {kind} event is stated under an adjacency without a bound on this account")
    return factor * _fraction(fields[sensitivity]) * _fraction(fields["inverse_scale"])


def _fields(value: Json) -> dict[str, Json]:
    if not isinstance(value, dict):
        raise NotAnEvent("an event, or a part of one, is not an object")
    return dict(value)


def _count(value: Json) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise NotAnEvent("a count in the event is not a positive integer")
    return value


def _fraction(value: Json) -> Fraction:
    if isinstance(value, str) and _LOWEST_TERMS.fullmatch(value):
        fraction = Fraction(value)
        if str(fraction) == value:
            return fraction
    raise NotAnEvent("a number in the event is not a fraction in lowest terms")
