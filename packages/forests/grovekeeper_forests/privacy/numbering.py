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
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from grovekeeper_forests.array_types import BoolArray, Float64Array
from grovekeeper_forests.kept import kept_property
from grovekeeper_forests.privacy.scope import Cell, Scope

Table = NDArray[Any]
"""Integers: int64 if every sum fits, otherwise Python integers (dtype object)."""

Numbers = NDArray[np.intp]

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

    covers: BoolArray
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


def distinct(covers: BoolArray, of_box: Numbers) -> Lists:
    """Merges equal lists. The first list is that of boxes that do not restrict the
    partition.
    """
    number_of: dict[bytes, int] = {}
    numbers = np.zeros(len(covers), np.intp)
    first_rows = list[int]()
    for row, bits in enumerate(np.packbits(covers, axis=1)):
        numbers[row] = number_of.setdefault(bits.tobytes(), len(number_of))
        if numbers[row] == len(first_rows):
            first_rows.append(row)
    return Lists(covers[first_rows], numbers[of_box])


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
            # One number for each row so far. Renumbering after every column keeps the
            # product below (number of boxes) × (number of lists), far from overflow.
            pairs = numbers * (int(column.max()) + 1) + column
            numbers = np.unique(pairs, return_inverse=True)[1]
        _, first, numbers = np.unique(numbers, return_index=True, return_inverse=True)
        sums = np.zeros(len(first), amounts.dtype)
        np.add.at(sums, numbers, amounts)
        return cls(names, lists[first], sums)

    def volume(self, covers: Sequence[BoolArray]) -> int:
        """The number of combinations of values that each box covers, summed over the
        boxes.

        Args:
            covers: for each of the names, bool ``(n_lists, n_values)``: whether a list
                covers a value.
        """
        return int(self._volumes(covers).sum())

    def table(self, covers: Sequence[BoolArray]) -> Table:
        """The sum of the amounts at every combination of values, with one axis per
        name.
        """
        shape = [covering.shape[1] for covering in covers]
        flat = np.zeros(int(np.prod(shape)), self.amounts.dtype)
        starts, values = zip(
            *(_values_of_rows(covering) for covering in covers), strict=True
        )
        # Boxes are cut where their combinations pass another multiple of the chunk.
        ends = np.cumsum(self._volumes(covers))
        cuts = np.flatnonzero(np.diff(ends // _CHUNK)) + 1
        for rows in np.split(np.arange(len(self.amounts)), cuts):
            # For each combination so far, its box and its place in the flat table. Every
            # axis repeats a combination once for each value that its box covers there.
            box, place = rows, np.zeros(len(rows), np.intp)
            for axis, size in enumerate(shape):
                lists = self.lists[box, axis]
                first = starts[axis][lists]
                count = starts[axis][lists + 1] - first
                again = np.repeat(np.arange(len(box)), count)
                n_before = np.cumsum(count) - count
                nth = np.arange(len(again)) - np.repeat(n_before, count)
                place = place[again] * size + values[axis][first[again] + nth]
                box = box[again]
            # ``flat[place] += …`` would add only one of the boxes that share a place.
            np.add.at(flat, place, self.amounts[box])
        return flat.reshape(shape)

    def _volumes(self, covers: Sequence[BoolArray]) -> Float64Array:
        """The number of combinations of values per box; exact up to 2⁵³, which exceeds
        every limit of work.
        """
        # Floats do not wrap: a volume beyond 64 bits stays above every limit.
        volumes = np.ones(len(self.amounts))
        for axis, covering in enumerate(covers):
            volumes *= covering.sum(axis=1)[self.lists[:, axis]]
        return volumes


def _values_of_rows(covers: BoolArray) -> tuple[Numbers, Numbers]:
    """The values of all rows in one array, and the position at which each row starts."""
    lengths = covers.sum(axis=1, dtype=np.intp)
    starts = np.concatenate([np.zeros(1, np.intp), np.cumsum(lengths)])
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
            # Readers take no lock. The key comes last, so its lists are complete when a
            # reader finds it.
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
        numbers = np.array([self._of_key[key] for key in keys], np.intp)
        # Without the shape, no keys would make an array without columns.
        of_box = numbers.reshape(len(keys), len(self._columns))
        sides = {
            name: Restricted(column, of_box[:, index])
            for index, (name, column) in enumerate(self._columns.items())
        }
        return Boxes(sides, table(amounts))


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
        # List 0, which covers every cell, comes along even if no box has it, because
        # ``Lists`` promises it as the first.
        with_whole = np.concatenate([np.zeros(1, np.intp), self._of_box])
        used, of_box = np.unique(with_whole, return_inverse=True)
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
        column._numbers = dict(self._numbers)
        column._lists = list(self._lists)
        column._cells = dict(self._cells)
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
        known_cells = list(self._cells)
        # An empty array comes first, because no array at all cannot be joined.
        places = [np.zeros(0, np.intp), *(self._lists[number] for number in lists)]
        used = np.unique(np.concatenate(places))
        return tuple(sorted(known_cells[place] for place in used))

    def covers(self, lists: Numbers, domain: Sequence[Cell]) -> BoolArray:
        """Whether each list contains each cell of a domain, ``(n_lists, n_cells)``;
        list 0 contains every cell.
        """
        # another thread may add cells, but these lists do not contain them
        n_known = len(self._cells)
        place_of = np.full(n_known, -1)  # stays -1 for cells outside the domain
        for place, cell in enumerate(domain):
            if (number := self._cells.get(cell, n_known)) < n_known:
                place_of[number] = place
        cells = [self._lists[number] for number in lists]
        lengths = np.fromiter(map(len, cells), np.intp, len(cells))
        rows = np.repeat(np.arange(len(lists)), lengths)
        places = place_of[np.concatenate(cells)]
        is_inside = places >= 0
        covers = np.zeros((len(lists), len(domain)), np.bool_)
        covers[rows[is_inside], places[is_inside]] = True
        covers[lists == 0] = True
        return covers
