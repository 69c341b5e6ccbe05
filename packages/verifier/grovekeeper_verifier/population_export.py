"""Reads the header and the entries of a population's export and checks the form of
every field.

A population is one account over several datasets about the same people. Its entries
``join`` and ``load`` state the load of a member (the largest charged plus reserved
amount of a joint cell) after an entry of the member's ledger, which they name by its
sequence and hash.
"""

from dataclasses import dataclass

from grovekeeper_verifier import amounts, json_fields
from grovekeeper_verifier.canonical_json import Json
from grovekeeper_verifier.chain import Link
from grovekeeper_verifier.json_fields import Malformed

_HEADER_FIELDS = {"kind", "format", "population", "accountant", "cap", "delta"}
_KINDS = ("open", "join", "load", "cap", "state")
_NAMED_FIELDS = {"dataset", "sequence", "hash"}
_JOINED_FIELDS = _NAMED_FIELDS | {"adjacency", "unit_column", "highest_cap"}

BOUND_FIELDS = ("population", "accountant", "delta")
"""Fields of the header that the first entry repeats, so that the chain covers them."""


@dataclass(frozen=True)
class PopulationHeader(amounts.InUnit):
    """The first line of a population's export.

    Attributes:
        population: opaque id of the population.
        accountant: ``pure``, ``zcdp`` or ``gdp``: the unit of every amount.
        cap: in force at the end of the export, in steps of the unit.
        delta: of the population and of all members; ``None`` on a pure account.
    """

    population: str
    accountant: str
    cap: int
    delta: str | None


@dataclass(frozen=True)
class Named:
    """The entry of a member's ledger that a population's entry names."""

    dataset: str
    sequence: int
    hash: str


@dataclass(frozen=True)
class Joined(Named):
    """The newest entry of a member when it joined, with the facts about the member's
    account.

    ``continues`` names the erased member whose account it continues, if there is one.
    """

    adjacency: str
    unit_column: str | None
    highest_cap: int
    continues: str | None


@dataclass(frozen=True)
class PopulationEntry(Link):
    """One line of a population's ledger; ``member`` is None except on ``join`` and
    ``load``.
    """

    member: Named | None


def is_population(value: Json) -> bool:
    """Whether a first line is the header of a population's export."""
    return isinstance(value, dict) and "population" in value


def read_header(value: Json) -> PopulationHeader:
    """Reads the first line."""
    fields = json_fields.fields(value, _HEADER_FIELDS, "the header")
    json_fields.check_export(fields)
    accountant = json_fields.accountant(fields["accountant"])
    return PopulationHeader(
        population=json_fields.text(fields["population"], "population"),
        accountant=accountant,
        cap=json_fields.amount(fields["cap"], "cap", amounts.PLACES[accountant]),
        delta=json_fields.delta(fields["delta"], accountant),
    )


def read_entry(value: Json, *, places: int) -> PopulationEntry:
    """Reads an entry, without the lines before it.

    Raises:
        Malformed: a field is missing, unknown or invalid.
    """
    fields = json_fields.entry_fields(value)
    kind = fields["kind"]
    if kind not in _KINDS:
        raise Malformed("the entry's kind is not one of a population's entries")
    if fields["scope"] != {} or fields["event"] is not None:
        raise Malformed("an entry of a population carries a scope or an event")
    if (fields["job_id"] is not None) is not (kind == "load"):
        raise Malformed("entries of kind load name a job, and no other entries do")
    details = fields.get("details")
    if kind == "open":
        json_fields.fields(details, set(BOUND_FIELDS), "the details of the opening")
    return PopulationEntry(
        **json_fields.place(fields),
        kind=str(kind),
        amount=json_fields.amount(fields["amount"], "amount", places),
        job_id=json_fields.text_or_none(fields["job_id"], "job_id"),
        details=details,
        member=_member(details, places=places, is_join=kind == "join")
        if kind in ("join", "load")
        else None,
    )


def _member(details: Json, *, places: int, is_join: bool) -> Named:
    member = json_fields.fields(details, {"member"}, "the details of a join or a load")[
        "member"
    ]
    optional = (
        {"continues"}
        if is_join and isinstance(member, dict) and "continues" in member
        else set()
    )
    fields = json_fields.fields(
        member, (_JOINED_FIELDS if is_join else _NAMED_FIELDS) | optional, "the member"
    )
    dataset = json_fields.text(fields["dataset"], "the member's dataset")
    sequence = json_fields.positive(fields["sequence"], "the member's sequence")
    digest = json_fields.digest(fields["hash"], "the member's hash")
    if not is_join:
        return Named(dataset, sequence, digest)
    return Joined(
        dataset,
        sequence,
        digest,
        adjacency=json_fields.adjacency(fields["adjacency"]),
        unit_column=json_fields.text_or_none(
            fields["unit_column"], "the member's unit_column"
        ),
        highest_cap=json_fields.amount(
            fields["highest_cap"], "the member's highest_cap", places
        ),
        continues=json_fields.text(fields["continues"], "the erased member")
        if optional
        else None,
    )
