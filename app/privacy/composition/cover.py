"""Represents scopes as arrays: the distinct lists of cells of each partition, and which of them every scope has.

A scope is called a box here, because it is a list of cells in each partition. Accounts have many boxes and few lists
of cells. So values that depend on cells are computed once per list, and values that depend on amounts are sums over
arrays.
"""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Table: TypeAlias = NDArray[Any]
"""Integers: int64 if every sum fits, otherwise Python integers (dtype object)."""

Numbers: TypeAlias = NDArray[np.intp]

_CHUNK = 2**20
"""Most elements of a temporary array; larger arrays are processed in parts."""


def table(amounts: Collection[int]) -> Table:
    """Amounts as an array: int64 where their sum is far below its limit, else Python integers."""
    return np.array(list(amounts), np.int64 if sum(amounts) < 2**62 else object)


@dataclass(frozen=True)
class Lists:
    """The lists of cells that boxes have in one partition, clipped to a domain.

    Attributes:
        covers: ``(n_lists, n_cells)``: whether a list contains a cell. Rows are distinct; the first row is the list of
            all cells, for boxes that do not restrict the partition.
        of_box: the row of every box's list.
    """

    covers: NDArray[np.bool_]
    of_box: Numbers

    @cached_property
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
    """Merges equal lists. The first list is that of boxes that do not restrict the partition."""
    first: dict[bytes, int] = {}
    number = np.array([first.setdefault(row.tobytes(), len(first)) for row in np.packbits(covers, axis=1)], np.intp)
    positions = np.zeros(len(first), np.intp)
    positions[number[::-1]] = np.arange(len(covers))[::-1]
    return Lists(covers[positions], number[of_box])


@dataclass(frozen=True)
class Coupled:
    """Amounts on boxes that restrict the same two or more partitions.

    Attributes:
        names: the partitions, in canonical order.
        lists: ``(n_boxes, n_names)``: the list of each box in each partition; distinct rows.
        amounts: of each box.
    """

    names: tuple[str, ...]
    lists: Numbers
    amounts: Table

    @classmethod
    def merged(cls, names: tuple[str, ...], lists: Numbers, amounts: Table) -> "Coupled":
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
        """The number of combinations of values that each box covers, summed over the boxes.

        Args:
            covers: for each of the names, bool ``(n_lists, n_values)``: whether a list covers a value.
        """
        return int(self._volumes(covers).sum())

    def table(self, covers: Sequence[NDArray[np.bool_]]) -> Table:
        """The sum of the amounts at every combination of values, with one axis per name."""
        shape = [covering.shape[1] for covering in covers]
        flat = np.zeros(int(np.prod(shape)), self.amounts.dtype)
        starts, values = zip(*(_listed(covering) for covering in covers), strict=True)
        ends = np.cumsum(self._volumes(covers))
        cuts = np.flatnonzero(np.diff(ends // _CHUNK)) + 1
        for rows in np.split(np.arange(len(self.amounts)), cuts):
            box, place = rows, np.zeros(len(rows), np.intp)
            for axis, size in enumerate(shape):
                lists = self.lists[box, axis]
                first, count = starts[axis][lists], starts[axis][lists + 1] - starts[axis][lists]
                again = np.repeat(np.arange(len(box)), count)
                nth = np.arange(len(again)) - np.repeat(np.cumsum(count) - count, count)
                place = place[again] * size + values[axis][first[again] + nth]
                box = box[again]
            np.add.at(flat, place, self.amounts[box])
        return flat.reshape(shape)

    def _volumes(self, covers: Sequence[NDArray[np.bool_]]) -> NDArray[np.float64]:
        """The number of combinations of values per box; exact up to 2⁵³, which exceeds every limit of work."""
        volumes = np.ones(len(self.amounts))
        for axis, covering in enumerate(covers):
            volumes *= covering.sum(axis=1)[self.lists[:, axis]]
        return volumes


def _listed(covers: NDArray[np.bool_]) -> tuple[Numbers, Numbers]:
    """The values of all rows in one array, and the position at which each row starts."""
    starts = np.concatenate([np.zeros(1, np.intp), np.cumsum(covers.sum(axis=1, dtype=np.intp))])
    return starts, covers.nonzero()[1]


def _parts(rows: Numbers, width: int) -> Iterator[Numbers]:
    step = max(_CHUNK // max(width, 1), 1)
    for start in range(0, len(rows), step):
        yield rows[start : start + step]
