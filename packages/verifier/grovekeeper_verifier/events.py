"""Recomputes the loss of an event from its description alone.

An event is a tree. ``sequential/1`` adds the losses of its parts, each times its count.
``parallel/1`` takes the largest loss of parts that read disjoint rows. A leaf is one
call of a mechanism; its loss in each unit stands in docs/proofs/accounting.md, A4. An
unknown type, a missing or unknown field, a fraction that is not in lowest terms, or a
leaf without a bound in the account's unit is an error, never a guess.
"""

import re
from dataclasses import dataclass
from fractions import Fraction

from grovekeeper_verifier import conversions
from grovekeeper_verifier.canonical_json import Json

MAX_DEPTH = 32
_LOWEST_TERMS = re.compile(r"(?:0|[1-9][0-9]{0,99})(?:/[1-9][0-9]{0,99})?", re.ASCII)

_LEAVES = {
    "permute-and-flip/1": ("range_sensitivity", "inverse_scale", "max_candidates"),
    "discrete-laplace/1": ("l1_sensitivity", "inverse_scale", "coordinates"),
    "exponential-mechanism/1": ("range_sensitivity", "inverse_scale", "max_candidates"),
    "rounded-gaussian/1": ("l2_sensitivity_squared", "sigma_squared", "coordinates"),
}
"""Leaf type → the names of its sensitivity, scale and size fields."""

_STEPS = {
    ("add_remove", "add_remove"): 1,
    ("label", "label"): 1,
    ("label", "add_remove"): 2,
}
"""(account's adjacency, leaf's adjacency) → number of steps of the leaf's adjacency in
one of the account's.

Changing one label is removing one row and adding one. k steps cost kε, k²ρ and k²μ². No
other pair has a bound.
"""


class NotAnEvent(ValueError):
    """The event has no known form or no proved bound; ``str()`` gives the reason."""


@dataclass(frozen=True)
class _Account:
    """The account that is charged."""

    adjacency: str
    accountant: str


def total(event: Json, *, adjacency: str, accountant: str) -> Fraction:
    """The loss of an event for one row: exact in ε, an upper bound in ρ and μ².

    Raises:
        NotAnEvent: the event has no known form or no proved bound.
    """
    try:
        return _total(event, _Account(adjacency, accountant), depth=0)
    except ArithmeticError as error:
        raise NotAnEvent(
            "a number in the event is too large or too small to compute with"
        ) from error


def steps(*, stated: Json, on: str) -> int:
    """The number of steps of the stated adjacency in one step of the account's.

    Raises:
        NotAnEvent: the pair of adjacencies has no bound.
    """
    n_steps = _STEPS.get((on, stated)) if isinstance(stated, str) else None
    if n_steps is None:
        raise NotAnEvent("its adjacency has no bound on this account")
    return n_steps


def _total(event: Json, account: _Account, *, depth: int) -> Fraction:
    if depth > MAX_DEPTH:
        raise NotAnEvent("the event is nested too deeply")
    fields = _fields(event)
    kind = fields.pop("type", None)
    if kind == "sequential/1":
        parts = _parts(fields, {"parts"}, account, depth=depth)
        return sum((times * loss for times, loss in parts), Fraction(0))
    if kind == "parallel/1":
        if not isinstance(fields.get("over"), str):
            raise NotAnEvent("a parallel event has no text in over")
        parts = _parts(fields, {"over", "parts"}, account, depth=depth)
        return max((loss for _, loss in parts), default=Fraction(0))
    if isinstance(kind, str) and kind in _LEAVES:
        return _leaf(kind, fields, account)
    raise NotAnEvent("the event's type is unknown")


def _parts(
    fields: dict[str, Json], expected: set[str], account: _Account, *, depth: int
) -> list[tuple[int, Fraction]]:
    parts = fields.get("parts")
    if set(fields) != expected or not isinstance(parts, list):
        raise NotAnEvent("a composed event has other fields than its type")
    result = []
    for item in parts:
        part = _fields(item)
        if set(part) != {"times", "event"}:
            raise NotAnEvent("a part of an event has other fields than times and event")
        result.append(
            (_count(part["times"]), _total(part["event"], account, depth=depth + 1))
        )
    return result


def _leaf(kind: str, fields: dict[str, Json], account: _Account) -> Fraction:
    sensitivity, scale, size = _LEAVES[kind]
    if set(fields) != {"adjacency", sensitivity, scale, size}:
        raise NotAnEvent(f"a {kind} event has other fields than its type")
    _count(fields[size])
    taken = steps(stated=fields["adjacency"], on=account.adjacency)
    if kind == "rounded-gaussian/1":
        loss = _gaussian(
            _fraction(fields[sensitivity]), _fraction(fields[scale]), account.accountant
        )
    else:
        epsilon = _fraction(fields[sensitivity]) * _fraction(fields[scale])
        loss = _selection_or_noise(
            epsilon, account.accountant, bounded_range=kind == "exponential-mechanism/1"
        )
    return loss * (taken if account.accountant == "pure" else taken**2)


def _gaussian(
    sensitivity_squared: Fraction, variance: Fraction, accountant: str
) -> Fraction:
    if accountant == "pure":
        raise NotAnEvent("normal noise has no ε with δ = 0")
    if variance == 0:
        raise NotAnEvent("a variance in the event is not positive")
    ratio = sensitivity_squared / variance
    return ratio / 2 if accountant == "zcdp" else ratio


def _selection_or_noise(
    epsilon: Fraction, accountant: str, *, bounded_range: bool
) -> Fraction:
    if accountant == "pure":
        return epsilon
    if accountant == "zcdp":
        rho = conversions.rho_of_pure(epsilon)
        return min(epsilon**2 / 8, rho) if bounded_range else rho
    return conversions.mu_squared_of_pure(epsilon / 2 if bounded_range else epsilon)


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
