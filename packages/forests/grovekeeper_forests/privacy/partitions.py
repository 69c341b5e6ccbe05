"""Defines declared partitions, and reads the scopes of jobs over them.

A partition is a rule that assigns every row to exactly one cell and depends on no other
row: a keyed hash of the row's id, a column with a declared domain, or the upload that
contained the row. A position, a size or a list of the values present is not a
partition, because they change when another row is added.

A dataset's loss is the maximum over *joint cells* of the sum of the charges that cover
the cell (parallel composition; Theorem L, docs/proofs/lemmas.md). Because the rule of a
partition depends on one row alone, the charges of disjoint cells never add up for one
row. With several partitions a row lies in one cell of each, and the maximum is over all
combinations of cells; it can differ from the maximum over each partition separately.
The modules of the package compute it, with numpy.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, cast

from grovekeeper_forests import limits
from grovekeeper_forests.json_types import JsonMapping, JsonObject
from grovekeeper_forests.kept import kept_property
from grovekeeper_forests.privacy.scope import Cell, Scope

OTHER_CELL = "OTHER"
"""The cell of values outside the declared categories."""
MISSING_CELL = "MISSING"
"""The cell of empty values."""


class UnknownPartition(ValueError):
    """A scope names a partition that was not declared. The name is not repeated."""


@dataclass(eq=False)
class CellProblem(ValueError):
    """A scope has an empty or invalid list of cells for a declared partition."""

    partition: str
    problem: Literal["not-a-list", "no-cell", "unknown-cell"]


@dataclass(frozen=True)
class HashPartition:
    """A declared hash partition: cells 0 … ``cells`` − 1 of a keyed hash of the row's
    stable id.
    """

    name: str
    cells: int
    kind: Literal["hash"] = "hash"

    def __post_init__(self) -> None:
        if not 1 <= self.cells <= limits.MAX_HASH_CELLS:
            raise ValueError(f"a hash partition has 1 to {limits.MAX_HASH_CELLS} cells")

    @property
    def known_cells(self) -> tuple[Cell, ...]:
        """Every cell, in canonical order."""
        return tuple(range(self.cells))

    def is_cell(self, value: object) -> bool:
        """Whether a value of a request is one of the cells."""
        return (
            isinstance(value, int)
            and not isinstance(value, bool)
            and 0 <= value < self.cells
        )

    def to_json(self) -> JsonObject:
        return {"name": self.name, "kind": self.kind, "cells": self.cells}


@dataclass(frozen=True)
class ColumnPartition:
    """A declared column partition: the row's value in one column with a declared
    domain.

    Attributes:
        name: of the partition.
        column: the column whose value decides the cell.
        is_feature: the column is a feature of the schema; otherwise it is an additional
            column, stored with the row.
        categories: the declared domain, in declared order.
        has_missing: an empty value is legal and has a separate cell.
        sizes: the declared number of rows of each listed cell; ``None``: all cells
            count alike.
    """

    name: str
    column: str
    is_feature: bool
    categories: tuple[str, ...]
    has_missing: bool
    sizes: tuple[int, ...] | None = None
    kind: Literal["column"] = "column"

    def __post_init__(self) -> None:
        if not self.categories or len(set(self.listed_cells)) != len(self.listed_cells):
            raise ValueError(
                "the cells of a column partition are distinct, and OTHER and MISSING are not categories"
            )
        if self.sizes is not None and (
            len(self.sizes) != len(self.listed_cells) or sum(self.sizes) == 0
        ):
            raise ValueError("every cell has a size, and some cell has rows")

    @property
    def listed_cells(self) -> tuple[str, ...]:
        """Every cell in declared order, which is the order of the stored codes:
        categories, OTHER, MISSING.
        """
        missing = (MISSING_CELL,) if self.has_missing else ()
        return (*self.categories, OTHER_CELL, *missing)

    @property
    def known_cells(self) -> tuple[Cell, ...]:
        """Every cell in canonical order, which is the order of code points."""
        return tuple(sorted(self.listed_cells))

    def is_cell(self, value: object) -> bool:
        """Whether a value of a request is one of the cells."""
        return isinstance(value, str) and value in self.listed_cells

    def to_json(self) -> JsonObject:
        return {
            "name": self.name,
            "kind": self.kind,
            "column": self.column,
            "feature": self.is_feature,
            "cells": list(self.listed_cells),
            "sizes": None if self.sizes is None else list(self.sizes),
        }


@dataclass(frozen=True)
class EpochPartition:
    """A declared epoch partition: the upload that contained the row. A new upload is a
    new cell without charges.

    Attributes:
        name: of the partition.
        how: the owner's text on how uploads are divided: by the calendar or by batch,
            never by a number of rows.
    """

    name: str
    how: str
    kind: Literal["epoch"] = "epoch"

    @property
    def known_cells(self) -> None:
        """``None``: the catalog knows the uploads, and a resolved scope lists them."""
        return None

    def is_cell(self, value: object) -> bool:
        """Whether a value of a request has the form of an upload's id."""
        return isinstance(value, str) and 1 <= len(value) <= limits.MAX_NAME_CHARS

    def to_json(self) -> JsonObject:
        return {"name": self.name, "kind": self.kind, "how": self.how}


Partition = HashPartition | ColumnPartition | EpochPartition


@dataclass(frozen=True)
class Partitions:
    """All partitions of one dataset, in declared order, with distinct names."""

    declared: tuple[Partition, ...]

    def __post_init__(self) -> None:
        if len({partition.name for partition in self.declared}) != len(self.declared):
            raise ValueError("two partitions have the same name")
        if len(self.declared) > limits.MAX_PARTITIONS:
            raise ValueError(
                f"a dataset has at most {limits.MAX_PARTITIONS} partitions"
            )
        if sum(partition.kind == "epoch" for partition in self.declared) > 1:
            raise ValueError("a row comes with one upload: one epoch partition at most")

    @classmethod
    def from_json(cls, value: Sequence[JsonMapping]) -> "Partitions":
        """Inverse of :meth:`to_json`."""
        return cls(tuple(map(_partition, value)))

    def to_json(self) -> list[JsonObject]:
        return [partition.to_json() for partition in self.declared]

    @property
    def epoch_partition(self) -> EpochPartition | None:
        """The partition whose cells are the uploads, if one was declared."""
        for partition in self.declared:
            if isinstance(partition, EpochPartition):
                return partition
        return None

    @kept_property
    def n_cells(self) -> dict[str, int]:
        """The number of cells of every partition. One by upload, which has no fixed
        number, counts as the finest.
        """
        n_cells = {}
        for partition in self.declared:
            known = partition.known_cells
            n_cells[partition.name] = (
                limits.MAX_HASH_CELLS if known is None else len(known)
            )
        return n_cells

    def read_scope(self, value: JsonMapping) -> Scope:
        """Reads a request's scope: declared partitions, each with distinct, declared
        cells.

        Raises:
            UnknownPartition: a name that was not declared.
            CellProblem: an empty list, or an entry that is not a cell.
        """
        known = {partition.name: partition for partition in self.declared}
        if not set(value) <= set(known):
            raise UnknownPartition
        return Scope(
            {name: _cells(known[name], cells) for name, cells in sorted(value.items())}
        )

    def cells_of(self, name: str) -> tuple[Cell, ...]:
        """Every cell of a declared partition, in canonical order; none if uploads are
        its cells.
        """
        [partition] = (part for part in self.declared if part.name == name)
        return partition.known_cells or ()

    def share(self, scope: Scope, *, n_epochs: int) -> tuple[int, int]:
        """The public share of rows that a box is expected to contain, as a fraction.

        Cells of a partition have equal shares, unless their sizes were declared. No
        share is 0: a box of cells whose declared sizes are 0 counts as one row.

        Args:
            scope: of declared cells.
            n_epochs: the public number of uploads so far.
        """
        inside = all_cells = 1
        for partition in self.declared:
            if partition.name in scope:
                covered, everything = _share(
                    partition, scope[partition.name], n_epochs=n_epochs
                )
                inside *= covered
                all_cells *= everything
        return inside, all_cells


def _partition(item: JsonMapping) -> Partition:
    name = str(item["name"])
    match item["kind"]:
        case "hash":
            return HashPartition(name, int(str(item["cells"])))
        case "column":
            cells = cast(Sequence[str], item["cells"])
            categories = tuple(
                cell for cell in cells if cell not in (OTHER_CELL, MISSING_CELL)
            )
            sizes = cast(Sequence[int] | None, item["sizes"])
            return ColumnPartition(
                name,
                str(item["column"]),
                bool(item["feature"]),
                categories,
                has_missing=MISSING_CELL in cells,
                sizes=None if sizes is None else tuple(sizes),
            )
        case "epoch":
            return EpochPartition(name, str(item["how"]))
    raise ValueError("a partition of an unknown kind")


def _share(
    partition: Partition, cells: tuple[Cell, ...], *, n_epochs: int
) -> tuple[int, int]:
    if isinstance(partition, EpochPartition):
        # A share is at most 1, also of a scope that lists more uploads than are counted.
        return len(cells), max(n_epochs, len(cells))
    if isinstance(partition, ColumnPartition) and partition.sizes is not None:
        sizes = dict(zip(partition.listed_cells, partition.sizes, strict=True))
        return max(sum(sizes[str(cell)] for cell in cells), 1), sum(partition.sizes)
    return len(cells), len(partition.known_cells)


def _cells(partition: Partition, value: object) -> set[Cell]:
    if not isinstance(value, list | tuple):
        raise CellProblem(partition.name, "not-a-list")
    if not value:
        raise CellProblem(partition.name, "no-cell")
    if not all(map(partition.is_cell, value)):
        raise CellProblem(partition.name, "unknown-cell")
    return set(value)
