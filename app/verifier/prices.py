"""Recomputes the loss of a reservation from its entry and compares it with the amount."""

from fractions import Fraction

from app.verifier import amounts, events, external_charges
from app.verifier.dataset_export import Entry, Header
from app.verifier.external_charges import Attested


class NoPrice(ValueError):
    """The price cannot be recomputed, or is above the amount; ``str()`` gives the reason."""


def check(entry: Entry, header: Header) -> Attested | None:
    """Checks that the amount of a reservation covers the loss of one privacy unit.

    Returns:
        The attester's statement for an external mechanism, otherwise None.

    Raises:
        NoPrice: the loss is above the amount, or the event or the details have no known form.
    """
    try:
        witness = external_charges.read(entry.details, has_event=entry.event is not None)
        loss = _loss(entry, header, witness)
    except (events.NotAnEvent, external_charges.NotAttested) as error:
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
    """The loss of one privacy unit: k rows cost k times the ε of one row, k² times its ρ or μ²."""
    if witness is not None and witness.declared is not None:
        measure, value, adjacency = witness.declared
        one = external_charges.loss(measure, value, accountant=header.accountant)
        steps = events.steps(stated=adjacency, on=header.adjacency)
        one *= steps if header.accountant == "pure" else steps**2
    else:
        one = events.total(entry.event, adjacency=header.adjacency, accountant=header.accountant)
    rows = 1 if witness is not None and witness.per_unit else header.max_rows
    return one * (rows if header.accountant == "pure" else rows**2)


def _check_unit(entry: Entry, header: Header) -> None:
    """A loss of a whole unit is charged once, so no two rows of a unit may be in different cells of the scope."""
    kinds = {partition.name: partition.kind for partition in header.partitions}
    if header.unit_column is None:
        raise NoPrice("a loss is stated per unit on an account whose unit is a row")
    if any(kinds[name] != "hash" for name, _ in entry.scope):
        raise NoPrice("a loss that is stated per unit is charged to cells of which one unit can have several")


def _check_delta(witness: Attested, header: Header) -> None:
    """An (ε, δ) must be stated under the account's adjacency and for a whole unit, because δ does not scale with
    steps."""
    assert witness.delta is not None, "the caller has seen one"
    assert witness.declared is not None, "a delta is declared beside an epsilon"
    if header.accountant != "zcdp":
        raise NoPrice("a delta is charged on an account that sets no delta aside")
    if witness.declared[2] != header.adjacency or (header.max_rows > 1 and not witness.per_unit):
        raise NoPrice("a delta is declared for less than one unit of the account")
    if witness.delta_charged < witness.delta * 10**amounts.DELTA_PLACES:
        raise NoPrice("the declared delta is more than the charged one")
