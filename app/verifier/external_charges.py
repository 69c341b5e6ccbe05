"""Charges for mechanisms that ran elsewhere: what their entries add, and what they cost at least.

Nobody can recompute what ran on another machine. The entry says who attests it, and either describes its draws by an
event, which is priced like any other, or declares one of ε, ρ and μ, or ε with a δ. What is recomputed here is the
price of that word. Proofs of the conversions: docs/proofs/accounting.md, A1 and A4; docs/proofs/external.md.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction

from app.verifier import amounts, conversions
from app.verifier.canonical_json import Json

_MEMBERS = {"attested_by", "description", "per", "declared", "delta"}
_MAX_PLACES = 120
_MEASURES = ("epsilon", "rho", "mu")


class NotAttested(ValueError):
    """The details of an entry are of no known form. ``str()`` says why."""


@dataclass(frozen=True)
class Attested:
    """What the details of a reservation say.

    Attributes:
        by: the key whose holder attests it.
        per_unit: the loss is stated for a whole privacy unit, not for one of its rows.
        declared: a measure and its value, and the adjacency it is stated under; None where there is an event.
        delta: declared beside ε; None where there is none.
        delta_charged: out of what the account sets aside, in steps of 10⁻¹⁸.
    """

    by: str
    per_unit: bool
    declared: tuple[str, Fraction, str] | None
    delta: Fraction | None
    delta_charged: int


def read(details: Json, *, has_event: bool) -> Attested | None:
    """Reads the details of a reservation; None where it has none, because the service ran the mechanism itself.

    Raises:
        NotAttested: a member is unknown, missing or out of form; an event and a declared loss stand beside one another.
    """
    if details is None:
        if not has_event:
            raise NotAttested("there is neither an event nor a declared loss")
        return None
    if not isinstance(details, dict) or not set(details) <= _MEMBERS:
        raise NotAttested("details says something that this verifier does not know")
    by, per = details.get("attested_by"), details.get("per", "row")
    if not isinstance(by, str) or not by:
        raise NotAttested("details does not say who attests it")
    if not isinstance(details.get("description", ""), str):
        raise NotAttested("description is not a text")
    if per not in ("row", "unit"):
        raise NotAttested("per is neither row nor unit")
    if has_event is ("declared" in details):
        raise NotAttested("there is not exactly one of an event and a declared loss")
    declared, delta = _declared(details["declared"]) if "declared" in details else (None, None)
    charged = _steps(details["delta"], "the charged delta", amounts.DELTA_PLACES) if "delta" in details else 0
    if delta is None and "delta" in details:
        raise NotAttested("a delta is charged and none is declared")
    return Attested(by, per == "unit", declared, delta, charged)


def loss(measure: str, value: Fraction, *, accountant: str) -> Fraction:
    """What a declared ε, ρ or μ costs in an account's unit, exactly or from above.

    Raises:
        NotAttested: there is no bound in this unit.
    """
    if accountant == "pure" and measure == "epsilon":
        return value
    if accountant == "zcdp":
        return {"epsilon": conversions.rho_of_pure(value), "rho": value, "mu": value**2 / 2}[measure]
    if accountant == "gdp" and measure != "rho":
        return conversions.mu_squared_of_pure(value) if measure == "epsilon" else value**2
    raise NotAttested(f"a declared {measure} has no bound on this account")


def _declared(value: Json) -> tuple[tuple[str, Fraction, str], Fraction | None]:
    if not isinstance(value, Mapping) or not isinstance(value.get("adjacency"), str):
        raise NotAttested("the declared loss does not say under which adjacency")
    named = [name for name in value if name not in ("adjacency", "delta")]
    if len(named) != 1 or named[0] not in _MEASURES:
        raise NotAttested("the declared loss is not exactly one of epsilon, rho and mu")
    if "delta" in value and named[0] != "epsilon":
        raise NotAttested("a delta is declared beside something else than epsilon")
    measure = named[0], _number(value[named[0]], f"the declared {named[0]}"), str(value["adjacency"])
    return measure, _number(value["delta"], "the declared delta") if "delta" in value else None


def _number(value: Json, what: str) -> Fraction:
    return Fraction(_steps(value, what, _MAX_PLACES), 10**_MAX_PLACES)


def _steps(value: Json, what: str, places: int) -> int:
    try:
        return amounts.to_steps(value, places)
    except amounts.NotAnAmount as error:
        raise NotAttested(f"{what} {error}") from error
