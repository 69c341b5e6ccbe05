"""Caches scopes by key, and numbers every list of cells and every cell.

What is asked of an account's boxes changes with every job, and what the boxes are hardly ever does. So they are read
and numbered once and kept, and a question looks up numbers by keys.
"""

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from threading import Lock

import numpy as np
from numpy.typing import NDArray

from app.privacy.composition.cover import Lists, Numbers, Table, distinct
from app.privacy.composition.partitions import Cell, Scope


class Numbering:
    """Scopes over some partitions by key. Entries are only added, so threads may share the cache.

    ``size`` is what it takes in memory: the number of scopes, and of cells of distinct lists.
    """

    def __init__(self, names: Iterable[str]) -> None:
        """Starts with none.

        Args:
            names: of the partitions.
        """
        self.size = 0
        self._columns = {name: _Column() for name in names}
        self._of_key: dict[Hashable, tuple[int, ...]] = {}
        self._growing = Lock()

    def __contains__(self, key: Hashable) -> bool:
        return key in self._of_key

    def add(self, key: Hashable, scope: Scope) -> None:
        """Adds a scope. A key denotes the same scope for ever."""
        with self._growing:
            self._of_key[key] = tuple(column.number(scope.get(name)) for name, column in self._columns.items())
            self.size = len(self._of_key) + sum(column.n_cells for column in self._columns.values())

    def boxes(self, keys: Sequence[Hashable], amounts: Table) -> "Boxes":
        """Amounts on the scopes of keys that are known."""
        of_box = np.array([self._of_key[key] for key in keys], np.intp).reshape(len(keys), len(self._columns))
        columns = dict(zip(self._columns, of_box.T, strict=True))
        return Boxes({name: Restricted(self._columns[name], numbers) for name, numbers in columns.items()}, amounts)


@dataclass(frozen=True)
class Boxes:
    """Amounts ≥ 0 on boxes: int64 where their sum is below 2⁶², else Python integers.

    Attributes:
        sides: by partition, what every box has there.
        amounts: one for each box.
    """

    sides: "dict[str, Restricted]"
    amounts: Table


@dataclass(frozen=True)
class Restricted:
    """The cells of every box in one partition."""

    _column: "_Column"
    _of_box: Numbers

    @property
    def cells(self) -> tuple[Cell, ...]:
        """Every listed cell, in canonical order."""
        return self._column.cells_of(np.unique(self._of_box))

    def clipped(self, domain: Sequence[Cell]) -> Lists:
        """The lists, clipped to a domain."""
        used, of_box = np.unique(np.concatenate([np.zeros(1, np.intp), self._of_box]), return_inverse=True)
        return distinct(self._column.covers(used, domain), of_box[1:])


class _Column:
    """The lists of cells of one partition, numbered from 1; 0 is no list."""

    def __init__(self) -> None:
        self.n_cells = 0
        self._numbers: dict[tuple[Cell, ...] | None, int] = {None: 0}
        self._lists: list[Numbers] = [np.zeros(0, np.intp)]
        self._cells: dict[Cell, int] = {}

    def number(self, cells: tuple[Cell, ...] | None) -> int:
        """The number of a list, which is added if it is unknown."""
        found = self._numbers.get(cells)
        if found is None:
            assert cells is not None
            places = [self._cells.setdefault(cell, len(self._cells)) for cell in cells]
            self._lists.append(np.array(places, np.intp))
            self.n_cells += len(cells)
            found = self._numbers[cells] = len(self._lists) - 1
        return found

    def cells_of(self, lists: Numbers) -> tuple[Cell, ...]:
        """Every cell of some lists, in canonical order."""
        names = list(self._cells)
        found = np.unique(np.concatenate([np.zeros(0, np.intp), *(self._lists[each] for each in lists)]))
        return tuple(sorted(names[place] for place in found))

    def covers(self, lists: Numbers, domain: Sequence[Cell]) -> NDArray[np.bool_]:
        """``(n_lists, n_cells)``: which list covers which cell of a domain; no list covers all of them."""
        n_known = len(self._cells)  # another thread may add cells meanwhile, which none of these lists has
        at = np.full(n_known, -1)
        for place, cell in enumerate(domain):
            if (number := self._cells.get(cell, n_known)) < n_known:
                at[number] = place
        listed = [self._lists[each] for each in lists]
        rows = np.repeat(np.arange(len(lists)), np.fromiter(map(len, listed), np.intp, len(listed)))
        places = at[np.concatenate(listed)]
        covers = np.zeros((len(lists), len(domain)), np.bool_)
        covers[rows[places >= 0], places[places >= 0]] = True
        covers[lists == 0] = True
        return covers
