"""Recomputes the loss of a reservation from its entry and compares it with the amount.

The details of a job are at most its purpose and the name of the label that it read,
which bear no price: a row is in one class of a label, as of another. A mechanism on
another machine cannot be recomputed. Its entry names an attester and holds either an
event, which is priced like any other, or a declared loss: one of ε, ρ and μ, or ε with
a δ. The loss follows from the attester's statement; the truth of the statement is not
checked. Proofs of the conversions: docs/proofs/accounting.md, A1 and A4;
docs/proofs/external.md.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction

from grovekeeper_verifier import amounts, conversions, events
from grovekeeper_verifier.canonical_json import Json
from grovekeeper_verifier.dataset_export import Entry, Header

_MEMBERS = {"attested_by", "description", "per", "declared", "delta"}
_OF_A_JOB = {"purpose", "label"}
_MAX_PLACES = 120
_MEASURES = ("epsilon", "rho", "mu")


class NoPrice(ValueError):
    """The price cannot be recomputed, or is above the amount; ``str()`` gives the
    reason.
    """


class NotAttested(ValueError):
    """The details of an entry have no known form; ``str()`` gives the reason."""


@dataclass(frozen=True)
class Attested:
    """The details of a charge for an external mechanism.

    Attributes:
        by: key of the attester.
        per_unit: the loss is stated for a whole privacy unit, not for one row.
        declared: measure, value and adjacency of the declared loss; None if the entry
            has an event.
        delta: declared with ε, or None.
        delta_charged: charged to the δ that the account sets aside, in steps of 10⁻¹⁸.
    """

    by: str
    per_unit: bool
    declared: tuple[str, Fraction, str] | None
    delta: Fraction | None
    delta_charged: int


def check(entry: Entry, header: Header) -> Attested | None:
    """Checks that the amount of a reservation covers the loss of one privacy unit.

    Returns:
        The attester's statement for an external mechanism, otherwise None.

    Raises:
        NoPrice: the loss is above the amount, or the event or the details have no known
            form.
    """
    try:
        witness = read_attested(entry.details, has_event=entry.event is not None)
        loss = _loss(entry, header, witness)
    except (events.NotAnEvent, NotAttested) as error:
        raise NoPrice(f"the price cannot be recomputed: {error}") from error
    if loss > Fraction(entry.amount, 10**header.places):
        what = "declared loss" if entry.event is None else "event"
        raise NoPrice(f"the {what}, recomputed, costs more than the amount")
    if witness is not None and witness.per_unit:
        _check_unit(entry, header)
    if witness is not None and witness.delta is not None:
        _check_delta(witness, header)
    return witness


def _loss(entry: Entry, header: Header, witness: Attested | None) -> Fraction:
    """The loss of one privacy unit: k rows cost k times the ε of one row, k² times its
    ρ or μ².
    """
    if witness is not None and witness.declared is not None:
        measure, value, adjacency = witness.declared
        one = declared_loss(measure, value, accountant=header.accountant)
        steps = events.steps(stated=adjacency, on=header.adjacency)
        # Group privacy: two steps cost twice the ε, and four times the ρ or μ².
        one *= steps if header.accountant == "pure" else steps**2
    else:
        one = events.total(
            entry.event, adjacency=header.adjacency, accountant=header.accountant
        )
    rows = 1 if witness is not None and witness.per_unit else header.max_rows
    return one * (rows if header.accountant == "pure" else rows**2)


def _check_unit(entry: Entry, header: Header) -> None:
    """A loss of a whole unit is charged once, so no two rows of a unit may be in
    different cells of the scope.
    """
    kinds = {partition.name: partition.kind for partition in header.partitions}
    if header.unit_column is None:
        raise NoPrice("a loss is stated per unit on an account whose unit is a row")
    if any(kinds[name] != "hash" for name, _ in entry.scope):
        raise NoPrice(
            "a loss that is stated per unit is charged to cells of which one unit can have several"
        )


def _check_delta(witness: Attested, header: Header) -> None:
    """An (ε, δ) must be stated under the account's adjacency and for a whole unit,
    because δ does not scale with steps.
    """
    assert witness.delta is not None, "the caller has seen one"
    assert witness.declared is not None, "a delta is declared beside an epsilon"
    if header.accountant != "zcdp":
        raise NoPrice("a delta is charged on an account that sets no delta aside")
    if witness.declared[2] != header.adjacency or (
        header.max_rows > 1 and not witness.per_unit
    ):
        raise NoPrice("a delta is declared for less than one unit of the account")
    if witness.delta_charged < witness.delta * 10**amounts.DELTA_PLACES:
        raise NoPrice("the declared delta is more than the charged one")


def read_attested(details: Json, *, has_event: bool) -> Attested | None:
    """Reads the details of a reservation; None for a job, whose details are absent or
    have its purpose and the label that it read.

    Raises:
        NotAttested: a field is unknown, missing or invalid, or there are both an event
            and a declared loss.
    """
    if not isinstance(details, dict | None):
        raise NotAttested("details is no object")
    if details is None or _OF_A_JOB & details.keys():
        if not has_event:
            raise NotAttested("there is neither an event nor a declared loss")
        stated = details or {}
        are_texts = all(isinstance(text, str) for text in stated.values())
        if not are_texts or not _OF_A_JOB.issuperset(stated):
            raise NotAttested(
                "beside the purpose of a job and its label details has another field, or one of them is not a text"
            )
        return None
    if not set(details) <= _MEMBERS:
        raise NotAttested("details has an unknown field")
    by, per = details.get("attested_by"), details.get("per", "row")
    if not isinstance(by, str) or not by:
        raise NotAttested("details names no attester")
    if not isinstance(details.get("description", ""), str):
        raise NotAttested("description is not a text")
    if per not in ("row", "unit"):
        raise NotAttested("per is neither row nor unit")
    if has_event is ("declared" in details):
        raise NotAttested("there is neither or both of an event and a declared loss")
    declared, delta = (None, None) if has_event else _declared(details["declared"])
    charged = 0
    if "delta" in details:
        charged = _steps(details["delta"], "the charged delta", amounts.DELTA_PLACES)
    if delta is None and "delta" in details:
        raise NotAttested("a delta is charged and none is declared")
    return Attested(by, per == "unit", declared, delta, charged)


def declared_loss(measure: str, value: Fraction, *, accountant: str) -> Fraction:
    """The loss of a declared ε, ρ or μ in an account's unit: exact, or an upper bound.

    Raises:
        NotAttested: the measure has no bound in this unit.
    """
    if accountant == "pure" and measure == "epsilon":
        return value
    if accountant == "zcdp":
        return {
            "epsilon": conversions.rho_of_pure(value),
            "rho": value,
            "mu": value**2 / 2,
        }[measure]
    if accountant == "gdp" and measure != "rho":
        return (
            conversions.mu_squared_of_pure(value) if measure == "epsilon" else value**2
        )
    raise NotAttested(f"a declared {measure} has no bound on this account")


def _declared(value: Json) -> tuple[tuple[str, Fraction, str], Fraction | None]:
    if not isinstance(value, Mapping) or not isinstance(value.get("adjacency"), str):
        raise NotAttested("the declared loss has no adjacency")
    named = [name for name in value if name not in ("adjacency", "delta")]
    if len(named) != 1 or named[0] not in _MEASURES:
        raise NotAttested("the declared loss is not exactly one of epsilon, rho and mu")
    if "delta" in value and named[0] != "epsilon":
        raise NotAttested("a delta is declared with a measure other than epsilon")
    [name] = named
    loss = _number(value[name], f"the declared {name}")
    delta = None
    if "delta" in value:
        delta = _number(value["delta"], "the declared delta")
    return (name, loss, str(value["adjacency"])), delta


def _number(value: Json, what: str) -> Fraction:
    return Fraction(_steps(value, what, _MAX_PLACES), 10**_MAX_PLACES)


def _steps(value: Json, what: str, places: int) -> int:
    try:
        return amounts.to_steps(value, places)
    except amounts.NotAnAmount as error:
        raise NotAttested(f"{what} {error}") from error
