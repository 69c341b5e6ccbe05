"""Defines the scope of a job: the cells of declared partitions whose rows it reads and
whose budget it spends.
"""

import hashlib
import json
import sys
from collections.abc import Iterable, Iterator, Mapping
from fractions import Fraction
from typing import Any

from grovekeeper_forests.kept import kept_property

Cell = int | str
"""A cell of one partition: a number for ``hash``, a declared text for ``column``, an
upload's id for ``epoch``.
"""

JointCell = Mapping[str, Cell]
"""One cell of each partition. A partition by upload is absent before the first upload."""


class Scope(Mapping[str, tuple[Cell, ...]]):
    """A box: the cells that it covers, for each partition that it restricts. The empty
    scope is the whole dataset.

    A scope is a mapping from the names of partitions to cells, both sorted, and never
    changes.
    """

    def __init__(self, cells: Mapping[str, Iterable[Cell]]) -> None:
        self._cells = {name: tuple(sorted(cells[name])) for name in sorted(cells)}

    def __getitem__(self, name: str) -> tuple[Cell, ...]:
        return self._cells[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._cells)

    def __len__(self) -> int:
        return len(self._cells)

    def __hash__(self) -> int:
        return hash(self.digest)

    def __repr__(self) -> str:
        return f"Scope({self._cells})"

    def to_json(self) -> dict[str, Any]:
        """Lists of cells by partition; :class:`Scope` reads them again."""
        return {name: list(cells) for name, cells in self._cells.items()}

    @kept_property
    def digest(self) -> str:
        """SHA-256, in lower-case hexadecimal, of the scope as JSON without white space:
        names and cells sorted, texts unescaped. The verifier computes it, too. This
        encoder is five times faster than that of RFC 8785.

        Equal digests are one object, because sets of thousands of them are compared at
        every admission.
        """
        text = json.dumps(self._cells, separators=(",", ":"), ensure_ascii=False)
        return sys.intern(hashlib.sha256(text.encode("utf-8")).hexdigest())

    @property
    def n_cells(self) -> int:
        """The number of cells that the scope lists."""
        return sum(map(len, self._cells.values()))

    def restricted_to(self, names: Iterable[str]) -> "Scope":
        """The scope without its restrictions of other partitions: it covers at least
        the cells of this one.
        """
        kept = self._cells.keys() & set(names)
        return Scope({name: self._cells[name] for name in kept})

    def also_within(self, name: str, cells: Iterable[Cell]) -> "Scope":
        """The scope with a restriction of one more partition."""
        assert name not in self._cells, "a restriction is not replaced"
        return Scope({**self._cells, name: cells})

    def covers(self, cell: JointCell) -> bool:
        """Whether the scope has rows in common with a cell, which names a cell of some
        or of all partitions.
        """
        return all(
            name not in cell or cell[name] in cells
            for name, cells in self._cells.items()
        )

    def overlaps(self, other: "Scope") -> bool:
        """Whether a row can lie in both scopes: in no partition their lists of cells
        are disjoint.
        """
        shared = self._cells.keys() & other._cells.keys()
        return not any(
            set(self._cells[name]).isdisjoint(other._cells[name]) for name in shared
        )

    def narrowest(self, n_cells: Mapping[str, int]) -> str:
        """The partition of which the scope covers the smallest share, of equal shares
        the first; or an empty text.

        Args:
            n_cells: of every partition.
        """
        shares = {
            name: Fraction(len(cells), n_cells[name])
            for name, cells in self._cells.items()
        }
        return min(shares, key=lambda name: shares[name], default="")


WHOLE = Scope({})
"""The scope of a whole dataset."""
