"""Prepares the entries of an account as the rows of a table."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from app.services.ledger.history import EntryPage, ListedEntry
from app.wire.ledger import ChargedJob, DetailedEntryOut, EntryOut
from grovekeeper_common import scope_words
from grovekeeper_common.json_types import JsonMapping


@dataclass(frozen=True)
class Member:
    """The member that an entry of a population is about.

    Attributes:
        dataset: its id.
        sequence: of the entry in the member's ledger that changed its load, if any.
    """

    dataset: str
    name: str
    sequence: int | None


@dataclass(frozen=True)
class EntryRow:
    """An entry with what the table says beside it.

    Attributes:
        entry: as it was hashed.
        job: the facts of its job, if the reader may know them.
        after: what was charged and reserved after it, or the load of all members.
        cells: the cells that it covers, in words.
        member: the member that it is about, in the ledger of a population.
        purpose: of its job.
        label: that its job reads, where the dataset has several.
        reason: of a change of the cap.
        continued: the erased dataset whose account goes on with it.
    """

    entry: EntryOut
    job: ChargedJob | None
    after: Sequence[str | None]
    cells: str
    member: Member | None
    purpose: str
    label: str
    reason: str
    continued: str


@dataclass(frozen=True)
class EntryTable:
    """A page of entries, newest first.

    Attributes:
        about_balances: how to read the amounts after an entry, or where they are shown.
    """

    columns: Sequence[str]
    rows: Sequence[EntryRow]
    about_balances: str


NUMBERS = ["No.", "Amount", "Charged after", "Reserved after", "All members after"]
"""The columns of numbers in a table of entries."""

_OF_DATASET = (
    "The balance after an entry is that of {cell}; "
    "entries of other cells leave it as it was."
)
_OF_POPULATION = (
    "The amount of an entry of the kinds join and load is what the tightest cell of "
    "that member has spent and reserved by then; beside it is the sum over all members. "
    "A charge changes no load, so it has no entry here."
)
_HIDDEN = "The running balance is shown where no entry is left out: {how}."


def entry_table(
    page: EntryPage, kind: str, members: Mapping[str, str]
) -> EntryTable | None:
    """The table of a page of entries; ``None`` without an entry.

    Args:
        kind: of the account.
        members: the names of a population's members, by id.
    """
    if not page.entries:
        return None
    is_population = kind == "population"
    # The service gives all entries of a page a balance, or none of them: with entries
    # left out, a running balance would seem to jump.
    first = page.entries[0]
    after: list[str] = []
    about_balances = _HIDDEN.format(
        how="without a search" if is_population else "search by cell or not at all"
    )
    if first.charged is not None:
        after = ["Charged after", "Reserved after"]
        about_balances = _OF_DATASET.format(cell=_tightest(page))
    elif first.load is not None:
        after = ["All members after"]
        about_balances = _OF_POPULATION
    place = "Member" if is_population else "Cells"
    columns = ["No.", "Kind", "Amount", *after, place, "For", "Key", "Time (UTC)"]
    rows = [_row(listed, is_population, members) for listed in page.entries]
    return EntryTable(columns, rows, about_balances)


def _tightest(page: EntryPage) -> str:
    cell = scope_words.cell(page.tightest_cell)
    return f"{cell}, the tightest cell now" if page.tightest_cell else cell


def _row(
    listed: ListedEntry, is_population: bool, members: Mapping[str, str]
) -> EntryRow:
    entry = listed.entry
    details = details_of(entry)
    after: list[str | None] = []
    if listed.charged is not None:
        after = [listed.charged, listed.reserved]
    elif listed.load is not None:
        after = [listed.load]
    return EntryRow(
        entry=entry,
        job=listed.job,
        after=after,
        cells="" if is_population else scope_words.covered(entry.scope),
        member=_member(details, members) if is_population else None,
        purpose=details.get("purpose") or "",
        label=details.get("label") or "",
        reason=details.get("reason") or "",
        continued=details.get("continues", {}).get("dataset", ""),
    )


def details_of(entry: EntryOut) -> JsonMapping:
    """The details of an entry; empty if it has none."""
    return entry.details if isinstance(entry, DetailedEntryOut) else {}


def _member(details: JsonMapping, members: Mapping[str, str]) -> Member | None:
    if "member" not in details:
        return None
    member = details["member"]
    dataset = member["dataset"]
    return Member(dataset, members.get(dataset, dataset), member.get("sequence"))
