"""Reads the header and the entries of a dataset's export and checks the form of every
field.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import cast

from grovekeeper_verifier import amounts, json_fields
from grovekeeper_verifier.canonical_json import Json
from grovekeeper_verifier.chain import Link
from grovekeeper_verifier.json_fields import Malformed

Cell = int | str
"""A number (hash), a declared text (column) or the id of an upload (epoch)."""

Scope = tuple[tuple[str, tuple[Cell, ...]], ...]
"""Partition name and cells, in the order of the names; empty for the whole dataset."""

_HEADER_FIELDS = {
    "kind", "format", "dataset", "accountant", "cap", "delta", "adjacency", "privacy_unit", "partitions",
}  # fmt: skip
_KINDS = ("open", "load", "reserve", "charge", "void", "expire", "cap", "state")
_CONTINUED_FIELDS = {"dataset", "sequence", "hash", "highest_cap"}
SET_ASIDE = "delta_set_aside"
"""An optional field of the header: the part of δ that is set aside for external (ε,
δ)-mechanisms.
"""

UNIT_FORMS = ("text", "integer")
BOUND_FIELDS = (
    "dataset",
    "accountant",
    "delta",
    "adjacency",
    "privacy_unit",
    "partitions",
)
"""Fields of the header that the first entry's details repeat, so that its hash covers
them; :data:`SET_ASIDE`, too.
"""

MAX_HASH_CELLS = 1_024
MAX_PARTITIONS = 6
"""The limits of a declaration; they bound the work of a search over joint cells."""

_PARTITION_FIELDS = {
    "hash": {"cells"},
    "column": {"column", "feature", "cells", "sizes"},
    "epoch": {"how"},
}


@dataclass(frozen=True)
class Partition:
    """A public rule that assigns every row to exactly one cell, from that row alone.

    Attributes:
        name: of the partition.
        kind: ``hash``, ``column`` or ``epoch``.
        cells: every cell in canonical order; None for ``epoch``, whose cells are the
            uploads that entries name.
    """

    name: str
    kind: str
    cells: "Sequence[Cell] | None"

    def has(self, cell: Json) -> bool:
        """Whether a value in a scope is one of the cells."""
        if self.kind == "hash":
            return (
                isinstance(cell, int)
                and not isinstance(cell, bool)
                and self.cells is not None
                and cell in self.cells
            )
        return (
            isinstance(cell, str)
            and bool(cell)
            and (self.cells is None or cell in self.cells)
        )


@dataclass(frozen=True)
class Header(amounts.InUnit):
    """The first line of a dataset's export.

    Attributes:
        dataset: opaque id of the dataset.
        accountant: ``pure``, ``zcdp`` or ``gdp``: the unit of every amount.
        cap: in force at the end of the export, in steps of the unit.
        delta: of a ``zcdp`` or ``gdp`` account; ``None`` on a pure account.
        delta_set_aside: the part of δ for external (ε, δ)-mechanisms, in steps of
            10⁻¹⁸.
        adjacency: ``add_remove`` or ``label``.
        max_rows: the most rows of one privacy unit.
        unit_column: identifies privacy units; None where a row is the unit.
        unit_form: ``text`` or ``integer``; None where a row is the unit, and for
            accounts of an earlier version.
        partitions: the declared partitions of the dataset.
    """

    dataset: str
    accountant: str
    cap: int
    delta: str | None
    delta_set_aside: int
    adjacency: str
    max_rows: int
    unit_column: str | None
    unit_form: str | None
    partitions: tuple[Partition, ...]


@dataclass(frozen=True)
class Entry(Link):
    """One line of a dataset's ledger; ``event`` is unparsed.

    Attributes:
        scope: with every cell, also where the line states a number of uploads.
        uploads: those that the details of a reservation name for such numbers;
            ``details`` leaves them out, because no other step of the reservation
            repeats them.
    """

    scope: Scope
    event: Json
    uploads: tuple[str, ...] = ()


@dataclass(frozen=True)
class Continued:
    """The account of an erased dataset that an account continues, as its opening load
    states it.

    Attributes:
        dataset: id of the erased dataset.
        sequence: of the last entry of its account.
        hash: of that entry.
        highest_cap: of its account, in steps.
        delta: the largest δ that its joint cells had charged, in steps of 10⁻¹⁸; 0
            where no part is set aside.
    """

    dataset: str
    sequence: int
    hash: str
    highest_cap: int
    delta: int


def read_continued(entry: Entry, header: Header) -> Continued:
    """Reads the details of an opening load."""
    named = json_fields.fields(
        entry.details, {"continues"}, "the details of the opening load"
    )["continues"]
    sets_aside = {"delta"} if header.delta_set_aside else set()
    fields = json_fields.fields(
        named, _CONTINUED_FIELDS | sets_aside, "the account that is continued"
    )
    return Continued(
        dataset=json_fields.text(fields["dataset"], "the erased dataset"),
        sequence=json_fields.positive(
            fields["sequence"], "the sequence of the erased dataset's entry"
        ),
        hash=json_fields.digest(
            fields["hash"], "the hash of the erased dataset's entry"
        ),
        highest_cap=json_fields.amount(
            fields["highest_cap"], "the erased dataset's highest_cap", header.places
        ),
        delta=json_fields.amount(
            fields["delta"], "the erased dataset's delta", amounts.DELTA_PLACES
        )
        if sets_aside
        else 0,
    )


def read_header(value: Json) -> Header:
    """Reads the first line.

    Raises:
        Malformed: the line is not the header of an export in format 1, or a field is
            invalid.
    """
    sets_aside = isinstance(value, dict) and SET_ASIDE in value
    fields = json_fields.fields(
        value, _HEADER_FIELDS | ({SET_ASIDE} if sets_aside else set()), "the header"
    )
    json_fields.check_export(fields)
    accountant = json_fields.accountant(fields["accountant"])
    adjacency = json_fields.adjacency(fields["adjacency"])
    has_form = (
        isinstance(fields["privacy_unit"], dict) and "form" in fields["privacy_unit"]
    )
    names = {"column", "max_rows"} | ({"form"} if has_form else set())
    unit = json_fields.fields(fields["privacy_unit"], names, "the privacy unit")
    unit_column = json_fields.text_or_none(unit["column"], "the privacy unit's column")
    max_rows = json_fields.positive(unit["max_rows"], "max_rows")
    if unit_column is None and max_rows != 1:
        raise Malformed("without a unit column max_rows is 1")
    if has_form and (unit_column is None or unit["form"] not in UNIT_FORMS):
        raise Malformed("the form of a unit column is text or integer")
    return Header(
        dataset=json_fields.text(fields["dataset"], "dataset"),
        accountant=accountant,
        cap=json_fields.amount(fields["cap"], "cap", amounts.PLACES[accountant]),
        delta=json_fields.delta(fields["delta"], accountant),
        delta_set_aside=_set_aside(fields) if sets_aside else 0,
        adjacency=adjacency,
        max_rows=max_rows,
        unit_column=unit_column,
        unit_form=str(unit["form"]) if has_form else None,
        partitions=_partitions(fields["partitions"]),
    )


def _set_aside(fields: Mapping[str, Json]) -> int:
    set_aside = json_fields.fraction(fields[SET_ASIDE], SET_ASIDE)
    if fields["accountant"] != "zcdp" or not 0 < set_aside < json_fields.fraction(
        fields["delta"], "delta"
    ):
        raise Malformed(f"{SET_ASIDE} is not a part of the delta of a zcdp account")
    return int(set_aside * 10**amounts.DELTA_PLACES)


def read_entry(
    value: Json,
    partitions: Mapping[str, Partition],
    *,
    places: int,
    uploads: Sequence[str] = (),
) -> Entry:
    """Reads an entry.

    Args:
        value: the line.
        partitions: of the header, by name.
        places: decimal places of a step of the account's unit.
        uploads: those that entries before it named, in order.

    Raises:
        Malformed: a field is missing, unknown or invalid.
    """
    fields = json_fields.entry_fields(value)
    if fields["kind"] not in _KINDS:
        raise Malformed("the entry's kind is unknown")
    details = fields.get("details")
    named: tuple[str, ...] = ()
    if (
        fields["kind"] == "reserve"
        and isinstance(details, dict)
        and "uploads" in details
    ):
        named = _named_uploads(details["uploads"], uploads)
        details = {
            name: item for name, item in details.items() if name != "uploads"
        } or None
    entry = Entry(
        **json_fields.place(fields),
        kind=str(fields["kind"]),
        amount=json_fields.amount(fields["amount"], "amount", places),
        scope=_scope(fields["scope"], partitions, (*uploads, *named)),
        event=fields["event"],
        job_id=json_fields.text_or_none(fields["job_id"], "job_id"),
        details=details,
        uploads=named,
    )
    _check_by_kind(entry)
    return entry


def _check_by_kind(entry: Entry) -> None:
    if entry.kind == "open":
        _check_opening(entry.details)
    if entry.kind in ("open", "cap", "load", "state"):
        if entry.scope or entry.event is not None or entry.job_id is not None:
            raise Malformed(
                f"an entry of kind {entry.kind} carries a scope, an event or a job"
            )
        if entry.kind != "load":
            return
    elif entry.job_id is None:
        raise Malformed(f"an entry of kind {entry.kind} names no job")
    if entry.amount == 0:
        raise Malformed(f"an entry of kind {entry.kind} has no positive amount")


def _check_opening(details: Json) -> None:
    set_aside = (
        {SET_ASIDE} if isinstance(details, dict) and SET_ASIDE in details else set()
    )
    json_fields.fields(
        details, {*BOUND_FIELDS, *set_aside}, "the details of the opening"
    )


def _partitions(value: Json) -> tuple[Partition, ...]:
    if not isinstance(value, list):
        raise Malformed("partitions is not a list")
    if len(value) > MAX_PARTITIONS:
        raise Malformed(f"there are more than {MAX_PARTITIONS} partitions")
    result = tuple(map(_partition, value))
    if len({partition.name for partition in result}) != len(result):
        raise Malformed("two partitions have the same name")
    return result


def _partition(value: Json) -> Partition:
    kind = value.get("kind") if isinstance(value, dict) else None
    if not isinstance(kind, str) or kind not in _PARTITION_FIELDS:
        raise Malformed("a partition is none of hash, column and epoch")
    fields = json_fields.fields(
        value, {"name", "kind"} | _PARTITION_FIELDS[kind], f"a partition of kind {kind}"
    )
    name = json_fields.text(fields["name"], "a partition's name")
    if kind == "hash":
        n_cells = json_fields.positive(fields["cells"], "cells")
        if n_cells > MAX_HASH_CELLS:
            raise Malformed(f"a hash partition has more than {MAX_HASH_CELLS} cells")
        return Partition(name, kind, range(n_cells))
    if kind == "epoch":
        json_fields.text(fields["how"], "how")
        return Partition(name, kind, None)
    json_fields.text(fields["column"], "a partition's column")
    if not isinstance(fields["feature"], bool):
        raise Malformed("feature is neither true nor false")
    listed = fields["cells"]
    cells = (
        [cell for cell in listed if isinstance(cell, str)]
        if isinstance(listed, list)
        else []
    )
    if not isinstance(listed, list) or not cells or len(set(cells)) != len(listed):
        raise Malformed("the cells of a column partition are not distinct texts")
    if not _are_sizes(fields["sizes"], len(cells)):
        raise Malformed(
            "the sizes of a column partition are not whole numbers, one for each cell"
        )
    return Partition(name, kind, sorted(cells))


def _are_sizes(value: Json, n_cells: int) -> bool:
    """Whether a value is null or a list of the declared number of rows of each cell."""
    if not isinstance(value, list):
        return value is None
    return len(value) == n_cells and all(
        type(size) is int and size >= 0 for size in value
    )


def _named_uploads(value: Json, before: Sequence[str]) -> tuple[str, ...]:
    """The uploads that an entry names; none was named before."""
    named = (
        [item for item in value if isinstance(item, str) and item]
        if isinstance(value, list)
        else []
    )
    if not isinstance(value, list) or not named or len(named) != len(value):
        raise Malformed("the uploads of an entry are not a list of texts")
    if len({*before, *named}) != len(before) + len(named):
        raise Malformed("an upload was named before")
    return tuple(named)


def _scope(
    value: Json, partitions: Mapping[str, Partition], uploads: Sequence[str]
) -> Scope:
    if not isinstance(value, dict):
        raise Malformed("scope is not an object")
    result: list[tuple[str, tuple[Cell, ...]]] = []
    for name, listed in sorted(value.items()):
        partition = partitions.get(name)
        if partition is None:
            raise Malformed("scope names a partition that the header does not")
        if type(listed) is int and partition.kind == "epoch":
            if not 1 <= listed <= len(uploads):
                raise Malformed("scope states more uploads than entries have named")
            result.append((name, tuple(sorted(uploads[:listed]))))
            continue
        if not isinstance(listed, list):
            raise Malformed("scope does not map a partition to a list of cells")
        if not all(map(partition.has, listed)):
            raise Malformed("scope names a cell that its partition does not have")
        cells = cast("list[Cell]", listed)
        if not cells or cells != sorted(set(cells), key=_canonical):
            raise Malformed("scope is not a sorted list of distinct cells")
        result.append((name, tuple(cells)))
    return tuple(result)


def _canonical(cell: Cell) -> tuple[int, str]:
    """Sorts numbers by value and texts by code points; the cells of one partition have
    one type.
    """
    return (cell, "") if isinstance(cell, int) else (0, cell)
