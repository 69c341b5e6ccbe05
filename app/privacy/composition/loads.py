"""How much the charges of an account put on each joint cell, and on the fullest one inside a box.

Exact: charges on one partition are added cell by cell; cells that no other charge tells apart are taken together;
partitions that no charge restricts together are independent, and their maxima add; what remains is solved by variable
elimination. Where that would take more than a public limit of work, the boxes of such a group are widened, each to the
one partition that restricts it most. A wider box covers more, so the answer is then an upper bound, and says so.

Integers only, no I/O, and a function of public numbers: whatever it costs, it tells nothing about rows.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from app.core import limits
from app.privacy.composition.elimination import Block, Eliminated, Order, Table, plan
from app.privacy.composition.partitions import Cell, Partitions, Scope

JointCell: TypeAlias = Mapping[str, Cell]
"""One cell of each partition. An epoch partition is left out as long as no upload is known."""

_Positions: TypeAlias = NDArray[np.intp]

_LONGEST_KEPT = 256
"""Cells of a list whose positions are kept between questions."""


class BoxAmount(NamedTuple):
    """An amount on every joint cell of a box: charged, reserved, or whatever is to be summed."""

    scope: Scope
    amount: int


@dataclass(frozen=True)
class Tightest:
    """The joint cell with the largest load; of equal ones the first in canonical order.

    Attributes:
        load: the sum of the amounts that cover it; where not ``is_exact``, a bound that no joint cell passes.
        cell: its coordinates, by partition name.
        is_exact: whether the work limit left the maximum exact.
    """

    load: int
    cell: JointCell
    is_exact: bool


def covers(scope: Scope, cell: JointCell) -> bool:
    """Whether a joint cell lies in a box."""
    return all(cell.get(name) in cells for name, cells in scope.items())


class Loads:
    """The joint cells inside a box, under some amounts."""

    def __init__(self, partitions: Partitions, boxes: Sequence[BoxAmount], *, inside: Scope | None = None) -> None:
        """Sorts the amounts by how many partitions they restrict.

        Args:
            partitions: declared; epochs are known by the boxes and ``inside`` that name them.
            boxes: amounts ≥ 0 on scopes in normal form.
            inside: the box that is asked about; the whole dataset if left out.
        """
        inside = inside or {}
        named = {partition.name: partition for partition in partitions.declared}
        self._domains: dict[str, tuple[Cell, ...]] = {}
        self._sizes: dict[str, int] = {}
        for name in sorted(named):
            known = inside.get(name, named[name].known_cells)
            domain = known if known is not None else _mentioned(name, boxes)
            if domain:
                self._domains[name] = domain
                self._sizes[name] = limits.MAX_HASH_CELLS if known is None else len(domain)
        total = sum(box.amount for box in boxes)
        self._dtype = np.dtype(np.int64 if total < 2**62 else object)
        self._everywhere = 0
        self._alone = {name: np.zeros(len(cells), self._dtype) for name, cells in self._domains.items()}
        self._coupled: dict[tuple[tuple[str, tuple[Cell, ...]], ...], int] = defaultdict(int)
        for box in boxes:
            self._add(box)
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
            found = group.largest()
            load += found.load
            is_exact &= found.is_exact
            cell |= {name: self._domains[name][at] for name, at in found.positions.items()}
        return Tightest(load, dict(sorted(cell.items())), is_exact)

    def by_cell(self, name: str) -> list[Tightest]:
        """For every cell of a partition inside the box, the tightest joint cell that lies in it.

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
        rest = whole.load - group.largest().load
        others_are_exact = all(other.largest().is_exact for other in self._groups if other is not group)
        result = []
        for found in group.by_cell(name):
            joint = {**whole.cell, **{other: self._domains[other][at] for other, at in found.positions.items()}}
            result.append(Tightest(rest + found.load, joint, found.is_exact and others_are_exact))
        return result

    def at(self, cell: JointCell) -> int:
        """What one joint cell inside the box carries: the sum of the amounts that cover it."""
        load = self._everywhere
        for name, domain in self._domains.items():
            load += int(self._alone[name][_places(domain)[cell[name]]])
        return load + sum(
            amount for box, amount in self._coupled.items() if all(cell[name] in cells for name, cells in box)
        )

    def _add(self, box: BoxAmount) -> None:
        restricted = []
        for name, cells in sorted(box.scope.items()):
            domain = self._domains[name]
            covered = _positions(domain, cells)
            if not len(covered):
                return
            if len(covered) < len(domain):
                restricted.append((name, cells))
        if not restricted:
            self._everywhere += box.amount
        elif len(restricted) == 1:
            ((name, cells),) = restricted
            self._alone[name][_positions(self._domains[name], cells)] += box.amount
        else:
            self._coupled[tuple(restricted)] += box.amount

    def _connected(self) -> list[tuple[str, ...]]:
        """The partitions that some boxes restrict together, in connected groups."""
        groups: list[set[str]] = []
        for box in self._coupled:
            names = {name for name, _ in box}
            joined = [group for group in groups if group & names]
            groups = [group for group in groups if not group & names]
            groups.append(names.union(*joined))
        return sorted(tuple(sorted(group)) for group in groups)

    def _group(self, names: tuple[str, ...]) -> "_Group":
        boxes = [
            _Coupled({name: _positions(self._domains[name], cells) for name, cells in box}, amount)
            for box, amount in self._coupled.items()
            if box[0][0] in names
        ]
        alone = {name: self._alone[name] for name in names}
        return _Group(names, alone, boxes, sizes={name: self._sizes[name] for name in names})


@dataclass(frozen=True)
class _Coupled:
    """An amount on a box that restricts several partitions: the positions of its cells in each."""

    covered: Mapping[str, _Positions]
    amount: int


@dataclass(frozen=True)
class _Found:
    load: int
    positions: Mapping[str, int]
    is_exact: bool


class _Group:
    """Partitions that boxes restrict together, each collapsed to classes of cells that no such box tells apart."""

    def __init__(
        self,
        names: tuple[str, ...],
        alone: Mapping[str, Table],
        boxes: Sequence[_Coupled],
        *,
        sizes: Mapping[str, int],
    ) -> None:
        self.names = names
        self._boxes = boxes
        self._alone = alone
        self._sizes = sizes
        self._class_of, self._best, covered = {}, {}, {}
        for name in names:
            covers_cell = _cover(name, len(alone[name]), boxes)
            self._class_of[name], self._best[name] = _classes(alone[name], covers_cell)
            covered[name] = covers_cell[:, self._best[name]]
        self._blocks = [self._block(row, box, covered) for row, box in enumerate(boxes)]

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
        return _widened(self._alone, self._boxes, self._sizes)

    def _affordable(self, *, last: int | None) -> Order | None:
        """The cheapest order, unless even that one is over the limit of work. Never cheaper with more boxes."""
        order = plan([len(self._best[name]) for name in self.names], self._blocks, last=last)
        return order if order.work <= limits.MAX_COMPOSITION_WORK else None

    def _eliminated(self, order: Order) -> tuple[Eliminated, int]:
        """Runs it on scaled amounts: whole steps of ``scale``, less a rank below it that puts equal loads in order.

        The rank of a combination is its place in canonical order, so the maximum is unique, and is the first.
        """
        sizes = [len(self._best[name]) for name in self.names]
        scale = int(np.prod(sizes, dtype=object))
        total = sum(block.amount for block in self._blocks)
        total += sum(int(np.max(self._alone[name])) for name in self.names)
        dtype = np.dtype(np.int64 if (total + 1) * scale < 2**62 else object)
        weight, unary = scale, []
        for name, size in zip(self.names, sizes, strict=True):
            weight //= size
            places = np.arange(size).astype(dtype)
            unary.append(self._alone[name][self._best[name]].astype(dtype) * scale - places * weight)
        blocks = [Block(block.variables, block.values, block.amount * scale) for block in self._blocks]
        return Eliminated(unary, blocks, order.variables), scale

    def _found(self, eliminated: Eliminated, at: int, scale: int) -> _Found:
        chosen = eliminated.assignment(at)
        positions = {name: int(self._best[name][chosen[index]]) for index, name in enumerate(self.names)}
        return _Found(-(-int(eliminated.last[at]) // scale), positions, is_exact=True)

    def _bound(self) -> _Found:
        positions = {name: int(np.argmax(self._wide[name])) for name in self.names}
        return _Found(sum(int(self._wide[name][at]) for name, at in positions.items()), positions, is_exact=False)

    def _block(self, row: int, box: _Coupled, covered: Mapping[str, NDArray[np.bool_]]) -> Block:
        """The box over classes: it covers a class wholly or not at all."""
        names = sorted(box.covered)
        values = tuple(covered[name][row].nonzero()[0] for name in names)
        return Block(tuple(map(self.names.index, names)), values, box.amount)


def _mentioned(name: str, boxes: Iterable[BoxAmount]) -> tuple[Cell, ...]:
    """The epochs that some box names. One that none names carries no more than any of these."""
    return tuple(sorted({cell for box in boxes for cell in box.scope.get(name, ())}))


def _cover(name: str, n_cells: int, boxes: Sequence[_Coupled]) -> NDArray[np.bool_]:
    """Which box covers which cell of a partition, ``(n_boxes, n_cells)``."""
    covers_cell = np.zeros((len(boxes), n_cells), dtype=np.bool_)
    for row, box in enumerate(boxes):
        covers_cell[row, box.covered.get(name, slice(None))] = True
    return covers_cell


def _classes(alone: Table, covers_cell: NDArray[np.bool_]) -> tuple[_Positions, _Positions]:
    """Groups the cells of a partition that exactly the same boxes cover.

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


def _widened(alone: Mapping[str, Table], boxes: Sequence[_Coupled], sizes: Mapping[str, int]) -> dict[str, Table]:
    """Every box on the one partition of which it covers the smallest share: more cells than it has, never fewer.

    Which one does not depend on the other boxes, so that the bound never falls when one is added.
    """
    wide = {name: loads.copy() for name, loads in alone.items()}
    for box in boxes:
        name = min(sorted(box.covered), key=lambda each: Fraction(len(box.covered[each]), sizes[each]))
        wide[name][box.covered[name]] += box.amount
    return wide


def _positions(domain: tuple[Cell, ...], cells: tuple[Cell, ...]) -> _Positions:
    """Where the cells that a box and a domain share stand in the domain. Kept for the next question, unless long."""
    return (_looked_up if len(cells) <= _LONGEST_KEPT else _looked_up.__wrapped__)(domain, cells)


@lru_cache(maxsize=8192)
def _looked_up(domain: tuple[Cell, ...], cells: tuple[Cell, ...]) -> _Positions:
    place = _places(domain)
    found = np.array([place[cell] for cell in cells if cell in place], dtype=np.intp)
    found.flags.writeable = False  # it is shared
    return found


@lru_cache(maxsize=256)
def _places(domain: tuple[Cell, ...]) -> dict[Cell, int]:
    return {cell: at for at, cell in enumerate(domain)}
