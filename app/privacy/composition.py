"""Parallel composition over declared partitions: scopes, joint cells, and the loss of a dataset.

A dataset's loss is the maximum over *joint cells* of the sum of the charges that cover the cell (Theorem L,
docs/proofs/lemmas.md). A partition puts every row into exactly one cell by a rule that looks at nothing but that row,
so the sums of disjoint cells never add up for one record. With one partition the joint cells are its cells; without
any there is a single one.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from app.core import limits

Scope: TypeAlias = Mapping[str, tuple[int, ...]]
"""A box: for each restricted partition the sorted cells it covers. Empty = the whole dataset."""


class UnknownPartition(ValueError):
    """A scope names a partition that was not declared. The name is not repeated."""


@dataclass(eq=False)
class CellProblem(ValueError):
    """A scope lists no cell, or something that is no cell, of a declared partition."""

    partition: str
    problem: Literal["not-a-list", "no-cell", "unknown-cell"]


@dataclass(frozen=True)
class HashPartition:
    """A declared hash partition: cells 0 … ``cells`` − 1 of a keyed hash of the row's stable id."""

    name: str
    cells: int
    kind: Literal["hash"] = "hash"

    def __post_init__(self) -> None:
        if not 1 <= self.cells <= limits.MAX_HASH_CELLS:
            raise ValueError(f"a hash partition has 1 to {limits.MAX_HASH_CELLS} cells")

    def to_json(self) -> dict[str, object]:
        return {"name": self.name, "kind": self.kind, "cells": self.cells}


@dataclass(frozen=True)
class Partitions:
    """All partitions of one dataset; at most one in this version."""

    declared: tuple[HashPartition, ...]

    def __post_init__(self) -> None:
        if len(self.declared) > 1:
            raise ValueError("several partitions need joint cells, which this version does not compose")

    @classmethod
    def from_json(cls, value: Sequence[Mapping[str, object]]) -> "Partitions":
        """Inverse of :meth:`to_json`."""
        return cls(tuple(HashPartition(str(item["name"]), int(str(item["cells"]))) for item in value))

    def to_json(self) -> list[dict[str, object]]:
        return [partition.to_json() for partition in self.declared]

    @property
    def n_joint_cells(self) -> int:
        """Number of joint cells: the dimension of the account's balance."""
        return self.declared[0].cells if self.declared else 1

    def read_scope(self, value: Mapping[str, object]) -> Scope:
        """The normal form of a scope of a request: known partitions, sorted distinct known cells.

        Raises:
            UnknownPartition: a name that was not declared.
            CellProblem: an empty list, or an entry that is no cell.
        """
        known = {partition.name: partition for partition in self.declared}
        if not set(value) <= set(known):
            raise UnknownPartition
        return {name: _cells(known[name], listed) for name, listed in sorted(value.items())}

    def joint_cells(self, scope: Scope) -> tuple[int, ...] | None:
        """The joint cells inside a box, or ``None`` for all of them."""
        for partition in self.declared:
            if partition.name in scope:
                return scope[partition.name]
        return None

    def describe(self, joint_cell: int) -> dict[str, object]:
        """A joint cell in words: ``{"shard": 3}``; ``{}`` where nothing was declared."""
        return {partition.name: joint_cell for partition in self.declared}

    def share(self, scope: Scope) -> tuple[int, int]:
        """The public share of rows that a box is expected to hold, as (cells in it, all cells)."""
        cells = self.joint_cells(scope)
        return (self.n_joint_cells if cells is None else len(cells)), self.n_joint_cells


def _cells(partition: HashPartition, listed: object) -> tuple[int, ...]:
    if not isinstance(listed, list | tuple):
        raise CellProblem(partition.name, "not-a-list")
    if not listed:
        raise CellProblem(partition.name, "no-cell")
    found: set[int] = set()
    for cell in listed:
        if isinstance(cell, bool) or not isinstance(cell, int) or not 0 <= cell < partition.cells:
            raise CellProblem(partition.name, "unknown-cell")
        found.add(cell)
    return tuple(sorted(found))
