"""Computes loads of an account's joint cells, and finds the tightest joint cell inside a box.

Exact: charges on one partition are added cell by cell; cells that no other charge tells apart are taken together;
partitions that no charge restricts together are independent, and their maxima add; what remains is solved by variable
elimination. Where that would take more than a public limit of work, the boxes of such a group are widened, each to the
one partition that restricts it most. A wider box covers more, so the answer is then an upper bound, and says so.

Integers only, no I/O, and a function of public numbers: whatever it costs, it tells nothing about rows.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from app.core import limits
from app.privacy.composition.cover import Coupled, Lists, Numbers, Table
from app.privacy.composition.elimination import Eliminated, Order, plan
from app.privacy.composition.numbering import Boxes
from app.privacy.composition.partitions import Cell, Partitions, Scope

JointCell: TypeAlias = Mapping[str, Cell]
"""One cell of each partition. A partition by upload is absent as long as no upload is known."""


@dataclass(frozen=True)
class Tightest:
    """The joint cell with the largest load; of equal ones the first in canonical order.

    Attributes:
        load: the sum of the amounts that cover it; an upper bound on every joint cell unless ``is_exact``.
        cell: its coordinates, by partition name.
        is_exact: whether the maximum was computed within the limit of work.
    """

    load: int
    cell: JointCell
    is_exact: bool


class Loads:
    """The joint cells inside a box, under some amounts."""

    def __init__(self, partitions: Partitions, boxes: Boxes, *, inside: Scope | None = None) -> None:
        """Sorts the amounts by how many partitions they restrict.

        Args:
            partitions: declared; epochs are known by the boxes and ``inside`` that name them.
            boxes: amounts on scopes in normal form.
            inside: the box that is asked about; the whole dataset if left out.
        """
        inside = inside or {}
        named = {partition.name: partition for partition in partitions.declared}
        self._amounts = boxes.amounts
        self._domains: dict[str, tuple[Cell, ...]] = {}
        self._sizes: dict[str, int] = {}
        self._lists: dict[str, Lists] = {}
        for name in sorted(named):
            known = inside.get(name, named[name].known_cells)
            # An upload that no box names carries no more than any that one does.
            domain = known if known is not None else boxes.sides[name].cells
            if domain:
                self._domains[name] = domain
                self._sizes[name] = limits.MAX_HASH_CELLS if known is None else len(domain)
                self._lists[name] = boxes.sides[name].clipped(domain)
        self._everywhere = 0
        self._alone = {name: np.zeros(len(cells), self._amounts.dtype) for name, cells in self._domains.items()}
        self._coupled: list[Coupled] = []
        self._sort()
        self._groups = [self._group(names) for names in self._connected()]

    def largest(self) -> Tightest:
        """The tightest joint cell inside the box."""
        cell: dict[str, Cell] = {}
        load, is_exact = self._everywhere, True
        coupled = {name for group in self._groups for name in group.names}
        for name in self._domains.keys() - coupled:
            at = int(np.argmax(self._alone[name]))
            load += int(self._alone[name][at])
            cell[name] = self._domains[name][at]
        for group in self._groups:
            found = group.largest
            load += found.load
            is_exact &= found.is_exact
            cell |= {name: self._domains[name][at] for name, at in found.positions.items()}
        return Tightest(load, dict(sorted(cell.items())), is_exact)

    def by_cell(self, name: str) -> list[Tightest]:
        """For every cell of a partition inside the box, its tightest joint cell.

        None for an epoch partition as long as no upload is known.
        """
        if name not in self._domains:
            return []
        whole = self.largest()
        group = next((group for group in self._groups if name in group.names), None)
        if group is None:
            alone = self._alone[name]
            rest = whole.load - int(np.max(alone))
            return [
                Tightest(rest + int(load), {**whole.cell, name: cell}, whole.is_exact)
                for cell, load in zip(self._domains[name], alone, strict=True)
            ]
        rest = whole.load - group.largest.load
        others_are_exact = all(other.largest.is_exact for other in self._groups if other is not group)
        result = []
        for found in group.by_cell(name):
            joint = {**whole.cell, **{other: self._domains[other][at] for other, at in found.positions.items()}}
            result.append(Tightest(rest + found.load, joint, found.is_exact and others_are_exact))
        return result

    def at(self, cell: JointCell) -> int:
        """The load of one joint cell inside the box: the sum of the amounts that cover it."""
        return int(self._amounts[self.covering(cell)].sum())

    def covering(self, cell: JointCell) -> NDArray[np.bool_]:
        """Which of the boxes cover a joint cell inside the box."""
        found = np.ones(len(self._amounts), np.bool_)
        for name, domain in self._domains.items():
            lists = self._lists[name]
            found &= lists.covers[lists.of_box, domain.index(cell[name])]
        return found

    def _sort(self) -> None:
        """Groups the amounts by the partitions that their boxes restrict inside this box."""
        is_inside = np.ones(len(self._amounts), np.bool_)
        restricts = np.zeros(len(self._amounts), np.intp)
        for bit, (name, lists) in enumerate(self._lists.items()):
            lengths = lists.lengths[lists.of_box]
            is_inside &= lengths > 0
            restricts |= (lengths < len(self._domains[name])).astype(np.intp) << bit
        for pattern in np.unique(restricts[is_inside]):
            mine = np.flatnonzero(is_inside & (restricts == pattern))
            names = tuple(name for bit, name in enumerate(self._lists) if pattern >> bit & 1)
            self._put(names, mine)

    def _put(self, names: tuple[str, ...], boxes: Numbers) -> None:
        amounts = self._amounts[boxes]
        if not names:
            self._everywhere += int(amounts.sum())
        elif len(names) == 1:
            lists = self._lists[names[0]]
            self._alone[names[0]] += lists.sums(amounts, lists.of_box[boxes])
        else:
            columns = [self._lists[name].of_box[boxes] for name in names]
            self._coupled.append(Coupled.merged(names, np.stack(columns, axis=1), amounts))

    def _connected(self) -> list[tuple[str, ...]]:
        """The partitions that some boxes restrict together, in connected groups."""
        groups: list[set[str]] = []
        for coupled in self._coupled:
            joined = [group for group in groups if group.intersection(coupled.names)]
            groups = [group for group in groups if group not in joined]
            groups.append(set(coupled.names).union(*joined))
        return sorted(tuple(sorted(group)) for group in groups)

    def _group(self, names: tuple[str, ...]) -> "_Group":
        return _Group(
            {name: self._lists[name] for name in names},
            [coupled for coupled in self._coupled if coupled.names[0] in names],
            alone={name: self._alone[name] for name in names},
            sizes={name: self._sizes[name] for name in names},
        )


@dataclass(frozen=True)
class _Found:
    load: int
    positions: Mapping[str, int]
    is_exact: bool


class _Group:
    """Partitions that boxes restrict together, each collapsed to classes of cells that no such box tells apart."""

    def __init__(
        self,
        lists: Mapping[str, Lists],
        coupled: Sequence[Coupled],
        *,
        alone: Mapping[str, Table],
        sizes: Mapping[str, int],
    ) -> None:
        self.names = tuple(lists)
        self._lists = lists
        self._coupled = coupled
        self._alone = alone
        self._sizes = sizes
        self._class_of, self._best, self._covers = {}, {}, {}
        for name in self.names:
            used = [each.lists[:, each.names.index(name)] for each in coupled if name in each.names]
            covers = lists[name].covers
            self._class_of[name], self._best[name] = _classes(alone[name], covers[np.unique(np.concatenate(used))])
            self._covers[name] = covers[:, self._best[name]]

    @cached_property
    def largest(self) -> _Found:
        """The largest load, exact or bounded."""
        order = self._affordable(last=None)
        if order is None:
            return self._bound()
        eliminated, scale = self._eliminated(order)
        at = int(np.argmax(eliminated.last))
        return self._found(eliminated, at, scale)

    def by_cell(self, name: str) -> list[_Found]:
        """For every cell of one of the partitions the largest load in it, exact or bounded."""
        order = self._affordable(last=self.names.index(name))
        if order is None:
            whole = self._bound()
            rest = whole.load - int(self._wide[name][whole.positions[name]])
            return [
                _Found(rest + int(load), {**whole.positions, name: at}, is_exact=False)
                for at, load in enumerate(self._wide[name])
            ]
        eliminated, scale = self._eliminated(order)
        by_class = [self._found(eliminated, at, scale) for at in range(len(self._best[name]))]
        alone, best = self._alone[name], self._best[name]
        result = []
        for at, group in enumerate(self._class_of[name]):
            found = by_class[group]
            load = found.load - int(alone[best[group]]) + int(alone[at])
            result.append(_Found(load, {**found.positions, name: at}, is_exact=True))
        return result

    @cached_property
    def _wide(self) -> dict[str, Table]:
        """Every box on the one partition of which it covers the smallest share: more cells than it has, never fewer.

        Which one does not depend on the other boxes, so that the bound never falls when one is added.
        """
        wide = {name: loads.copy() for name, loads in self._alone.items()}
        for coupled in self._coupled:
            lengths = [self._lists[name].lengths[coupled.lists[:, at]] for at, name in enumerate(coupled.names)]
            narrowest = np.zeros(len(coupled.amounts), np.intp)
            length, size = lengths[0], np.full(len(coupled.amounts), self._sizes[coupled.names[0]])
            for at, name in enumerate(coupled.names[1:], start=1):
                is_narrower = lengths[at] * size < length * self._sizes[name]  # shares, without a division
                narrowest[is_narrower] = at
                length = np.where(is_narrower, lengths[at], length)
                size = np.where(is_narrower, self._sizes[name], size)
            for at, name in enumerate(coupled.names):
                mine = narrowest == at
                wide[name] += self._lists[name].sums(coupled.amounts[mine], coupled.lists[mine, at])
        return wide

    def _affordable(self, *, last: int | None) -> Order | None:
        """The cheapest order, unless even that one is over the limit of work. Never cheaper with more boxes."""
        volumes = {self._variables(each): each.volume(self._covers_of(each)) for each in self._coupled}
        order = plan([len(self._best[name]) for name in self.names], volumes, last=last)
        return order if order.work <= limits.MAX_COMPOSITION_WORK else None

    def _variables(self, coupled: Coupled) -> tuple[int, ...]:
        return tuple(map(self.names.index, coupled.names))

    def _covers_of(self, coupled: Coupled) -> list[NDArray[np.bool_]]:
        """Over classes: a box covers a class wholly or not at all."""
        return [self._covers[name] for name in coupled.names]

    def _eliminated(self, order: Order) -> tuple[Eliminated, int]:
        """Runs it on scaled amounts: whole steps of ``scale``, less a rank below it that puts equal loads in order.

        The rank of a combination is its place in canonical order, so the maximum is unique, and is the first.
        """
        sizes = [len(self._best[name]) for name in self.names]
        scale = int(np.prod(sizes, dtype=object))
        total = sum(int(each.amounts.sum()) for each in self._coupled)
        total += sum(int(np.max(self._alone[name])) for name in self.names)
        dtype = np.dtype(np.int64 if (total + 1) * scale < 2**62 else object)
        weight, unary = scale, []
        for name, size in zip(self.names, sizes, strict=True):
            weight //= size
            places = np.arange(size).astype(dtype)
            unary.append(self._alone[name][self._best[name]].astype(dtype) * scale - places * weight)
        coupled = [
            (self._variables(each), each.table(self._covers_of(each)).astype(dtype) * scale) for each in self._coupled
        ]
        return Eliminated(unary, coupled, order.variables), scale

    def _found(self, eliminated: Eliminated, at: int, scale: int) -> _Found:
        chosen = eliminated.assignment(at)
        positions = {name: int(self._best[name][chosen[index]]) for index, name in enumerate(self.names)}
        return _Found(-(-int(eliminated.last[at]) // scale), positions, is_exact=True)

    def _bound(self) -> _Found:
        positions = {name: int(np.argmax(self._wide[name])) for name in self.names}
        return _Found(sum(int(self._wide[name][at]) for name, at in positions.items()), positions, is_exact=False)


def _classes(alone: Table, covers_cell: NDArray[np.bool_]) -> tuple[Numbers, Numbers]:
    """Groups the cells of a partition that exactly the same boxes cover, which is: the same of their lists.

    Returns:
        The class of every cell, and for every class its fullest cell (the first of equals), classes in the order of
        these cells.
    """
    signatures = [column.tobytes() for column in np.ascontiguousarray(np.packbits(covers_cell, axis=0).T)]
    fullest: dict[bytes, int] = {}
    for at, signature in enumerate(signatures):
        if signature not in fullest or alone[at] > alone[fullest[signature]]:
            fullest[signature] = at
    best = sorted(fullest.values())
    place = {signatures[at]: group for group, at in enumerate(best)}
    return np.array([place[signature] for signature in signatures], np.intp), np.array(best, np.intp)
