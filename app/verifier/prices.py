"""What a reservation costs at least, recomputed from what its entry says."""

from fractions import Fraction

from app.verifier import amounts, events, external_charges
from app.verifier.dataset_export import Entry, Header
from app.verifier.external_charges import Attested


class NoPrice(ValueError):
    """The price cannot be recomputed, or passes the amount. ``str()`` says why."""


def check(entry: Entry, header: Header) -> Attested | None:
    """Checks that the amount of a reservation covers the loss of one privacy unit.

    Returns:
        Who attests it, where the mechanism ran elsewhere.

    Raises:
        NoPrice: it does not, or its event or its details are of no known form.
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
    """Of one unit: k rows cost kε, k²ρ and k²μ² of what one costs."""
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
    """A loss of a whole unit is paid once, so its box may only tell units apart, never the rows of one unit."""
    kinds = {partition.name: partition.kind for partition in header.partitions}
    if header.unit_column is None:
        raise NoPrice("a loss is stated for a unit on an account whose unit is a row")
    if any(kinds[name] != "hash" for name, _ in entry.scope):
        raise NoPrice("a loss that is stated for a whole unit is charged to cells that one unit can have several of")


def _check_delta(witness: Attested, header: Header) -> None:
    """(ε, δ) is charged under the account's own adjacency and for a whole unit: several steps cost no multiple of δ."""
    assert witness.delta is not None, "the caller has seen one"
    assert witness.declared is not None, "a delta is declared beside an epsilon"
    if header.accountant != "zcdp":
        raise NoPrice("a delta is charged on an account that sets none aside")
    if witness.declared[2] != header.adjacency or (header.max_rows > 1 and not witness.per_unit):
        raise NoPrice("a delta is declared for less than one unit of the account")
    if witness.delta_charged < witness.delta * 10**amounts.DELTA_PLACES:
        raise NoPrice("the declared delta is more than the charged one")
