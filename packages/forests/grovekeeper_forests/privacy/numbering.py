"""Represents scopes as arrays, and numbers the lists of cells that they consist of.

A scope is called a box here, because it is a list of cells in each partition. Accounts
have many boxes and few lists of cells. So values that depend on cells are computed once
per list, and values that depend on amounts are sums over arrays. The boxes of an
account rarely change, but every job evaluates them inside another box. So every list of
cells and every cell gets a number when it is first read, and later evaluations look up
numbers by the keys of scopes.
"""

from collections.abc import Collection, Hashable, Iterable, Iterator, Sequence, Set
from dataclasses import dataclass
from threading import Lock
from typing import Any, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from grovekeeper_forests.kept import kept_property
from grovekeeper_forests.privacy.scope import Cell, Scope

Table: TypeAlias = NDArray[Any]
"""Integers: int64 if every sum fits, otherwise Python integers (dtype object)."""

Numbers: TypeAlias = NDArray[np.intp]

# most elements of a temporary array; larger arrays are processed in parts
_CHUNK = 2**20


def table(amounts: Collection[int]) -> Table:
    """Amounts as an array: int64 where their sum is far below its limit, else Python
    integers.
    """
    return np.array(list(amounts), np.int64 if sum(amounts) < 2**62 else object)


@dataclass(frozen=True)
class Lists:
    """The lists of cells that boxes have in one partition, clipped to a domain.

    Attributes:
        covers: ``(n_lists, n_cells)``: whether a list contains a cell. Rows are
            distinct; the first row is the list of all cells, for boxes that do not
            restrict the partition.
        of_box: the row of every box's list.
    """

    covers: NDArray[np.bool_]
    of_box: Numbers

    @kept_property
    def lengths(self) -> Numbers:
        """The number of cells of the domain in each list."""
        lengths: Numbers = np.count_nonzero(self.covers, axis=1)
        return lengths

    def sums(self, amounts: Table, lists: Numbers) -> Table:
        """Adds amounts cell by cell; each amount counts in every cell of its list."""
        of_list = np.zeros(len(self.covers), amounts.dtype)
        np.add.at(of_list, lists, amounts)
        result = np.zeros(self.covers.shape[1], amounts.dtype)
        for part in _parts(np.unique(lists), self.covers.shape[1]):
            result += of_list[part] @ self.covers[part].astype(amounts.dtype)
        return result


def distinct(covers: NDArray[np.bool_], of_box: Numbers) -> Lists:
    """Merges equal lists. The first list is that of boxes that do not restrict the
    partition.
    """
    first: dict[bytes, int] = {}
    number = np.array(
        [
            first.setdefault(row.tobytes(), len(first))
            for row in np.packbits(covers, axis=1)
        ],
        np.intp,
    )
    positions = np.zeros(len(first), np.intp)
    positions[number[::-1]] = np.arange(len(covers))[::-1]
    return Lists(covers[positions], number[of_box])


@dataclass(frozen=True)
class Coupled:
    """Amounts on boxes that restrict the same two or more partitions.

    Attributes:
        names: the partitions, in canonical order.
        lists: ``(n_boxes, n_names)``: the list of each box in each partition; distinct
            rows.
        amounts: of each box.
    """

    names: tuple[str, ...]
    lists: Numbers
    amounts: Table

    @classmethod
    def merged(
        cls, names: tuple[str, ...], lists: Numbers, amounts: Table
    ) -> "Coupled":
        """Merges equal boxes and adds their amounts."""
        numbers = lists[:, 0]
        for column in lists.T[1:]:
            pairs = numbers * (int(column.max()) + 1) + column
            numbers = np.unique(pairs, return_inverse=True)[1]
        _, first, numbers = np.unique(numbers, return_index=True, return_inverse=True)
        sums = np.zeros(len(first), amounts.dtype)
        np.add.at(sums, numbers, amounts)
        return cls(names, lists[first], sums)

    def volume(self, covers: Sequence[NDArray[np.bool_]]) -> int:
        """The number of combinations of values that each box covers, summed over the
        boxes.

        Args:
            covers: for each of the names, bool ``(n_lists, n_values)``: whether a list
                covers a value.
        """
        return int(self._volumes(covers).sum())

    def table(self, covers: Sequence[NDArray[np.bool_]]) -> Table:
        """The sum of the amounts at every combination of values, with one axis per
        name.
        """
        shape = [covering.shape[1] for covering in covers]
        flat = np.zeros(int(np.prod(shape)), self.amounts.dtype)
        starts, values = zip(*(_listed(covering) for covering in covers), strict=True)
        ends = np.cumsum(self._volumes(covers))
        cuts = np.flatnonzero(np.diff(ends // _CHUNK)) + 1
        for rows in np.split(np.arange(len(self.amounts)), cuts):
            box, place = rows, np.zeros(len(rows), np.intp)
            for axis, size in enumerate(shape):
                lists = self.lists[box, axis]
                first, count = (
                    starts[axis][lists],
                    starts[axis][lists + 1] - starts[axis][lists],
                )
                again = np.repeat(np.arange(len(box)), count)
                nth = np.arange(len(again)) - np.repeat(np.cumsum(count) - count, count)
                place = place[again] * size + values[axis][first[again] + nth]
                box = box[again]
            np.add.at(flat, place, self.amounts[box])
        return flat.reshape(shape)

    def _volumes(self, covers: Sequence[NDArray[np.bool_]]) -> NDArray[np.float64]:
        """The number of combinations of values per box; exact up to 2⁵³, which exceeds
        every limit of work.
        """
        volumes = np.ones(len(self.amounts))
        for axis, covering in enumerate(covers):
            volumes *= covering.sum(axis=1)[self.lists[:, axis]]
        return volumes


def _listed(covers: NDArray[np.bool_]) -> tuple[Numbers, Numbers]:
    """The values of all rows in one array, and the position at which each row starts."""
    starts = np.concatenate(
        [np.zeros(1, np.intp), np.cumsum(covers.sum(axis=1, dtype=np.intp))]
    )
    return starts, covers.nonzero()[1]


def _parts(rows: Numbers, width: int) -> Iterator[Numbers]:
    step = max(_CHUNK // max(width, 1), 1)
    for start in range(0, len(rows), step):
        yield rows[start : start + step]


Key = TypeVar("Key", bound=Hashable)


class Numbering:
    """Caches the scopes over a set of partitions, by key. Entries are never removed, so
    threads may share the cache.

    ``size`` measures the memory of the cache: the number of scopes plus the number of
    cells in distinct lists. Scopes without an amount stay, so whoever adds scopes
    begins a new cache when few of them are still used.
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
        """Adds a scope. A key never denotes another scope. ``size`` grows by one and
        the cells of the scope at most.
        """
        with self._growing:
            self._of_key[key] = tuple(
                column.number(scope.get(name)) for name, column in self._columns.items()
            )
            self.size = len(self._of_key) + sum(
                column.n_cells for column in self._columns.values()
            )

    def with_scope(self, key: Hashable, scope: Scope) -> "Numbering":
        """A copy with one more scope, for a reservation that may never be committed:
        quotes cost nothing.
        """
        with self._growing:
            copied = Numbering(())
            copied._of_key = dict(self._of_key)
            copied._columns = {
                name: column.copied() for name, column in self._columns.items()
            }
        copied.add(key, scope)
        return copied

    def boxes(self, keys: Collection[Hashable], amounts: Collection[int]) -> "Boxes":
        """Pairs amounts with the scopes of their keys; every key must have been added."""
        of_box = np.array([self._of_key[key] for key in keys], np.intp).reshape(
            len(keys), len(self._columns)
        )
        columns = dict(zip(self._columns, of_box.T, strict=True))
        return Boxes(
            {
                name: Restricted(self._columns[name], numbers)
                for name, numbers in columns.items()
            },
            table(amounts),
        )


@dataclass(frozen=True)
class Boxes:
    """Boxes with an amount ≥ 0 each: int64 if the sum is below 2⁶², otherwise Python
    integers.

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
        used, of_box = np.unique(
            np.concatenate([np.zeros(1, np.intp), self._of_box]), return_inverse=True
        )
        return distinct(self._column.covers(used, domain), of_box[1:])


class _Column:
    """The lists of cells in one partition, numbered from 1; 0 stands for no
    restriction.
    """

    def __init__(self) -> None:
        self.n_cells = 0
        self._numbers: dict[tuple[Cell, ...] | None, int] = {None: 0}
        self._lists: list[Numbers] = [np.zeros(0, np.intp)]
        self._cells: dict[Cell, int] = {}

    def copied(self) -> "_Column":
        """A column that grows apart from this one."""
        column = _Column()
        column.n_cells = self.n_cells
        column._numbers, column._lists, column._cells = (
            dict(self._numbers),
            list(self._lists),
            dict(self._cells),
        )
        return column

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
        cells = np.unique(
            np.concatenate(
                [np.zeros(0, np.intp), *(self._lists[number] for number in lists)]
            )
        )
        return tuple(sorted(names[place] for place in cells))

    def covers(self, lists: Numbers, domain: Sequence[Cell]) -> NDArray[np.bool_]:
        """Whether each list contains each cell of a domain, ``(n_lists, n_cells)``;
        list 0 contains every cell.
        """
        # another thread may add cells, but these lists do not contain them
        n_known = len(self._cells)
        at = np.full(n_known, -1)
        for place, cell in enumerate(domain):
            if (number := self._cells.get(cell, n_known)) < n_known:
                at[number] = place
        listed = [self._lists[index] for index in lists]
        rows = np.repeat(
            np.arange(len(lists)), np.fromiter(map(len, listed), np.intp, len(listed))
        )
        places = at[np.concatenate(listed)]
        covers = np.zeros((len(lists), len(domain)), np.bool_)
        covers[rows[places >= 0], places[places >= 0]] = True
        covers[lists == 0] = True
        return covers
