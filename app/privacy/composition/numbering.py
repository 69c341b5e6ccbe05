"""Numbers the lists of cells that scopes consist of, and keeps the numbers by the key of each scope.

The boxes of an account rarely change, but every job evaluates them inside another box. So every list of cells and every
cell gets a number when it is first read, and later evaluations look up numbers by the keys of scopes.
"""

from collections.abc import Collection, Hashable, Iterable, Sequence, Set
from dataclasses import dataclass
from threading import Lock
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from app.privacy.composition.cover import Lists, Numbers, Table, distinct, table
from app.privacy.composition.partitions import Cell, Scope

Key = TypeVar("Key", bound=Hashable)


class Numbering:
    """Caches the scopes over a set of partitions, by key. Entries are never removed, so threads may share the cache.

    ``size`` measures the memory of the cache: the number of scopes plus the number of cells in distinct lists.
    """

    def __init__(self, names: Iterable[str]) -> None:
        """Creates an empty cache.

        Args:
            names: names of the partitions.
        """
        self.size = 0
        self._columns = {name: _Column() for name in names}
        self._of_key: dict[Hashable, tuple[int, ...]] = {}
        self._growing = Lock()

    def __contains__(self, key: Hashable) -> bool:
        return key in self._of_key

    def missing(self, keys: Set[Key]) -> Set[Key]:
        """The keys that denote no scope yet."""
        return set() if keys <= self._of_key.keys() else keys - self._of_key.keys()

    def add(self, key: Hashable, scope: Scope) -> None:
        """Adds a scope. A key never denotes another scope."""
        with self._growing:
            self._of_key[key] = tuple(column.number(scope.get(name)) for name, column in self._columns.items())
            self.size = len(self._of_key) + sum(column.n_cells for column in self._columns.values())

    def boxes(self, keys: Sequence[Hashable], amounts: Collection[int]) -> "Boxes":
        """Pairs amounts with the scopes of their keys; every key must have been added."""
        of_box = np.array([self._of_key[key] for key in keys], np.intp).reshape(len(keys), len(self._columns))
        columns = dict(zip(self._columns, of_box.T, strict=True))
        return Boxes(
            {name: Restricted(self._columns[name], numbers) for name, numbers in columns.items()}, table(amounts)
        )


@dataclass(frozen=True)
class Boxes:
    """Boxes with an amount ≥ 0 each: int64 if the sum is below 2⁶², otherwise Python integers.

    Attributes:
        sides: the cells of every box, by partition.
        amounts: the amount on every box.
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
        """Every cell that a box lists, in canonical order."""
        return self._column.cells_of(np.unique(self._of_box))

    def clipped(self, domain: Sequence[Cell]) -> Lists:
        """The distinct lists of the boxes, restricted to a domain of cells."""
        used, of_box = np.unique(np.concatenate([np.zeros(1, np.intp), self._of_box]), return_inverse=True)
        return distinct(self._column.covers(used, domain), of_box[1:])


class _Column:
    """The lists of cells in one partition, numbered from 1; 0 stands for no restriction."""

    def __init__(self) -> None:
        self.n_cells = 0
        self._numbers: dict[tuple[Cell, ...] | None, int] = {None: 0}
        self._lists: list[Numbers] = [np.zeros(0, np.intp)]
        self._cells: dict[Cell, int] = {}

    def number(self, cells: tuple[Cell, ...] | None) -> int:
        """Returns the number of a list of cells, and adds the list if it is new."""
        number = self._numbers.get(cells)
        if number is None:
            assert cells is not None
            places = [self._cells.setdefault(cell, len(self._cells)) for cell in cells]
            self._lists.append(np.array(places, np.intp))
            self.n_cells += len(cells)
            number = self._numbers[cells] = len(self._lists) - 1
        return number

    def cells_of(self, lists: Numbers) -> tuple[Cell, ...]:
        """Every cell of the given lists, in canonical order."""
        names = list(self._cells)
        cells = np.unique(np.concatenate([np.zeros(0, np.intp), *(self._lists[number] for number in lists)]))
        return tuple(sorted(names[place] for place in cells))

    def covers(self, lists: Numbers, domain: Sequence[Cell]) -> NDArray[np.bool_]:
        """Whether each list contains each cell of a domain, ``(n_lists, n_cells)``; list 0 contains every cell."""
        n_known = len(self._cells)  # another thread may add cells, but these lists do not contain them
        at = np.full(n_known, -1)
        for place, cell in enumerate(domain):
            if (number := self._cells.get(cell, n_known)) < n_known:
                at[number] = place
        listed = [self._lists[index] for index in lists]
        rows = np.repeat(np.arange(len(lists)), np.fromiter(map(len, listed), np.intp, len(listed)))
        places = at[np.concatenate(listed)]
        covers = np.zeros((len(lists), len(domain)), np.bool_)
        covers[rows[places >= 0], places[places >= 0]] = True
        covers[lists == 0] = True
        return covers
