"""The published form of a population's export: one account over all datasets about the same people.

Its entries say nothing of jobs but what each did to the sum: ``join`` and ``load`` carry the largest charged and
reserved of one member after an entry of that member's own ledger, which they name by its number and hash.
"""

from dataclasses import dataclass

from app.verifier import amounts, json_fields
from app.verifier.canonical_json import Json
from app.verifier.chain import Link
from app.verifier.json_fields import Malformed

_HEADER_FIELDS = {"kind", "format", "population", "accountant", "cap", "delta"}
_ENTRY_FIELDS = {
    "sequence", "kind", "amount", "scope", "event", "job_id", "actor", "at", "previous_hash", "hash",
}  # fmt: skip
_KINDS = ("open", "join", "load", "cap")
_NAMED_FIELDS = {"dataset", "sequence", "hash"}
_JOINED_FIELDS = _NAMED_FIELDS | {"adjacency", "unit_column", "highest_cap"}

BOUND_FIELDS = ("population", "accountant", "delta")
"""Facts of the header that the first entry repeats, so that the chain holds them."""


@dataclass(frozen=True)
class PopulationHeader:
    """The population that an export is of.

    Attributes:
        population: its opaque id.
        accountant: ``pure``, ``zcdp`` or ``gdp``: the unit of every amount.
        cap: that the export says is in force at its end, in steps of the unit.
        delta: the δ at which it and all of its members are read; ``None`` on a pure one.
    """

    population: str
    accountant: str
    cap: int
    delta: str | None

    @property
    def places(self) -> int:
        """Decimal places of one step of the unit."""
        return amounts.PLACES[self.accountant]

    def text(self, steps: int) -> str:
        """An amount as exact decimal text."""
        return amounts.from_steps(steps, self.places)


@dataclass(frozen=True)
class Named:
    """An entry of a member's own ledger, that a population's entry was made for."""

    dataset: str
    sequence: int
    hash: str


@dataclass(frozen=True)
class Joined(Named):
    """The newest entry of a member when it joined, and what it counts: whose loss, and up to what."""

    adjacency: str
    unit_column: str | None
    highest_cap: int


@dataclass(frozen=True)
class PopulationEntry(Link):
    """One line of a population's ledger; ``member`` is that of ``join`` and ``load``."""

    member: Named | None


def is_population(value: Json) -> bool:
    """Whether a first line says of itself that it heads the export of a population."""
    return isinstance(value, dict) and "population" in value


def read_header(value: Json) -> PopulationHeader:
    """Reads the first line.

    Raises:
        Malformed: not the header of a population's export in format 1.
    """
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
    """Reads a later line; whether it fits the lines before it is for the replay to say.

    Raises:
        Malformed: a field too many or too few, or one that is not of its form.
    """
    fields = json_fields.entry_fields(value, _ENTRY_FIELDS)
    kind = fields["kind"]
    if kind not in _KINDS:
        raise Malformed("the entry's kind is none of a population's")
    if fields["scope"] != {} or fields["event"] is not None:
        raise Malformed("an entry of a population carries a scope or an event")
    if (fields["job_id"] is not None) is not (kind == "load"):
        raise Malformed("a job is named by entries of kind load, and by no other")
    details = fields.get("details")
    if kind == "open":
        json_fields.fields(details, set(BOUND_FIELDS), "the details of the opening")
    return PopulationEntry(
        sequence=json_fields.positive(fields["sequence"], "sequence"),
        kind=str(kind),
        amount=json_fields.amount(fields["amount"], "amount", places),
        job_id=json_fields.text_or_none(fields["job_id"], "job_id"),
        at=json_fields.time(fields["at"]),
        previous_hash=json_fields.digest(fields["previous_hash"], "previous_hash"),
        hash=json_fields.digest(fields["hash"], "hash"),
        details=details,
        member=_member(details, places=places, is_join=kind == "join") if kind in ("join", "load") else None,
    )


def _member(details: Json, *, places: int, is_join: bool) -> Named:
    member = json_fields.fields(details, {"member"}, "the details of a join or a load")["member"]
    fields = json_fields.fields(member, _JOINED_FIELDS if is_join else _NAMED_FIELDS, "the member")
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
        unit_column=json_fields.text_or_none(fields["unit_column"], "the member's unit_column"),
        highest_cap=json_fields.amount(fields["highest_cap"], "the member's highest_cap", places),
    )
