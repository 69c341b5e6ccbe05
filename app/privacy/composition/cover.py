"""Represents boxes as arrays: the distinct lists of cells of each partition, and the lists of every box.

Accounts have many boxes and few lists of cells, so everything that depends on cells is worked out once per list, and
everything that depends on amounts is a sum over arrays.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Table: TypeAlias = NDArray[Any]
"""Integers: int64 if every sum fits, otherwise Python integers (dtype object)."""

Numbers: TypeAlias = NDArray[np.intp]

_CHUNK = 2**20
"""Elements of a temporary array; larger work is done in parts."""


@dataclass(frozen=True)
class Lists:
    """The lists of cells that boxes have in one partition, clipped to a domain.

    Attributes:
        covers: ``(n_lists, n_cells)``, distinct rows; the first is that of boxes that do not restrict the partition.
        of_box: the row of every box.
    """

    covers: NDArray[np.bool_]
    of_box: Numbers

    @cached_property
    def lengths(self) -> Numbers:
        """The number of cells of the domain in each list."""
        lengths: Numbers = np.count_nonzero(self.covers, axis=1)
        return lengths

    def sums(self, amounts: Table, lists: Numbers) -> Table:
        """For every cell the sum of the amounts, each of which is on one list."""
        of_list = np.zeros(len(self.covers), amounts.dtype)
        np.add.at(of_list, lists, amounts)
        found = np.zeros(self.covers.shape[1], amounts.dtype)
        for part in _parts(np.unique(lists), self.covers.shape[1]):
            found += of_list[part] @ self.covers[part].astype(amounts.dtype)
        return found


def distinct(covers: NDArray[np.bool_], of_box: Numbers) -> Lists:
    """Lists of which some may be equal, the first one that of boxes that do not restrict the partition."""
    first: dict[bytes, int] = {}
    number = np.array([first.setdefault(each.tobytes(), len(first)) for each in np.packbits(covers, axis=1)], np.intp)
    kept = np.zeros(len(first), np.intp)
    kept[number[::-1]] = np.arange(len(covers))[::-1]
    return Lists(covers[kept], number[of_box])


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
        number = lists[:, 0]
        for column in lists.T[1:]:
            pairs = number * (int(column.max()) + 1) + column
            number = np.unique(pairs, return_inverse=True)[1]
        _, first, number = np.unique(number, return_index=True, return_inverse=True)
        sums = np.zeros(len(first), amounts.dtype)
        np.add.at(sums, number, amounts)
        return cls(names, lists[first], sums)

    def volume(self, covers: Sequence[NDArray[np.bool_]]) -> int:
        """How many combinations of values the boxes cover, each counted by itself.

        Args:
            covers: for each of the names which list covers which value.
        """
        return int(self._volumes(covers).sum())

    def table(self, covers: Sequence[NDArray[np.bool_]]) -> Table:
        """The sum of the amounts at every combination of values; one axis for each of the names."""
        shape = [each.shape[1] for each in covers]
        flat = np.zeros(int(np.prod(shape)), self.amounts.dtype)
        starts, values = zip(*(_listed(each) for each in covers), strict=True)
        ends = np.cumsum(self._volumes(covers))
        cuts = np.flatnonzero(np.diff(ends // _CHUNK)) + 1
        for rows in np.split(np.arange(len(self.amounts)), cuts):
            box, place = rows, np.zeros(len(rows), np.intp)
            for axis, size in enumerate(shape):
                mine = self.lists[box, axis]
                first, count = starts[axis][mine], starts[axis][mine + 1] - starts[axis][mine]
                again = np.repeat(np.arange(len(box)), count)
                nth = np.arange(len(again)) - np.repeat(np.cumsum(count) - count, count)
                place = place[again] * size + values[axis][first[again] + nth]
                box = box[again]
            np.add.at(flat, place, self.amounts[box])
        return flat.reshape(shape)

    def _volumes(self, covers: Sequence[NDArray[np.bool_]]) -> NDArray[np.float64]:
        """Exact up to 2⁵³, and what is more is more than anybody may spend."""
        volumes = np.ones(len(self.amounts))
        for axis, each in enumerate(covers):
            volumes *= each.sum(axis=1)[self.lists[:, axis]]
        return volumes


def _listed(covers: NDArray[np.bool_]) -> tuple[Numbers, Numbers]:
    """Where each row's values start in a list of all of them, and that list."""
    starts = np.concatenate([np.zeros(1, np.intp), np.cumsum(covers.sum(axis=1, dtype=np.intp))])
    return starts, covers.nonzero()[1]


def _parts(rows: Numbers, width: int) -> Iterator[Numbers]:
    step = max(_CHUNK // max(width, 1), 1)
    for start in range(0, len(rows), step):
        yield rows[start : start + step]
