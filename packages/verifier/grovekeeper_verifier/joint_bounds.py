"""Bounds the largest load of joint cells where the search for it takes too much work.

The bound repeats the guard of the service (docs/proofs/lemmas.md, Theorem L), so what
the service admits is within the bound here, too. Partitions that no box restricts
together are independent, and their maxima add. A group of partitions that boxes
restrict together is solved exactly, by eliminating one partition after the other, if
that takes at most :data:`MAX_ELIMINATION_WORK`. Otherwise every box of the group is
widened: it keeps its cells in the partition of which it covers the smallest share. A
wider box covers more cells, so the result is an upper bound.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations, product
from math import prod

from grovekeeper_verifier.dataset_export import Cell

MAX_ELIMINATION_WORK = 2**23
"""The limit of the service: table entries, once for each table that is added to them,
and amounts.
"""

Sides = Mapping[str, frozenset[Cell]]
"""The cells of a box in each partition that it restricts."""


@dataclass(frozen=True)
class Domain:
    """The cells of a partition that are looked at, and the number of cells of which a
    box covers a share.
    """

    cells: Sequence[Cell]
    n_cells: int


@dataclass(frozen=True)
class Bound:
    """A load that no joint cell exceeds, and the joint cell where it is reached if
    ``is_exact``.
    """

    load: int
    cell: dict[str, Cell]
    is_exact: bool


@dataclass(frozen=True)
class _Table:
    """Amounts by one class of cells of each partition in ``axes``; that partition is
    eliminated first that is last.
    """

    axes: tuple[str, ...]
    values: list[int]


_Boxes = Mapping[tuple[frozenset[Cell], ...], int]
"""Loads of boxes that restrict the same partitions, by their sides in the order of the
partitions.
"""


@dataclass(frozen=True)
class _Classes:
    """Classes of cells of a partition that the same boxes cover.

    Attributes:
        fullest: the cell of each class that has the largest load of boxes which
            restrict this partition alone.
        within: the classes in the side of a box, by the side.
    """

    fullest: list[Cell]
    within: dict[frozenset[Cell], list[int]]


@dataclass
class _Loads:
    """Loads of boxes by the partitions that the boxes restrict: none, one or several."""

    everywhere: int
    single: dict[str, dict[Cell, int]]
    coupled: dict[tuple[str, ...], dict[tuple[frozenset[Cell], ...], int]]


def largest(domains: Mapping[str, Domain], boxes: Sequence[tuple[Sides, int]]) -> Bound:
    """The largest load of the joint cells of the domains, or an upper bound.

    Args:
        domains: of every partition that has a cell, in canonical order.
        boxes: the loads on boxes that have a joint cell in the domains, with their
            sides inside the domains.
    """
    loads = _sorted_loads(domains, boxes)
    total, is_exact = loads.everywhere, True
    cell: dict[str, Cell] = {}
    for names in _groups(domains, loads):
        bound = _of_group(names, domains, loads)
        total, is_exact = total + bound.load, is_exact and bound.is_exact
        cell |= bound.cell
    return Bound(total, dict(sorted(cell.items())), is_exact)


def narrowest(sides: Sides, n_cells: Mapping[str, int]) -> str | None:
    """The partition of which a box covers the smallest share, of equal shares the
    first; None without a restriction.
    """
    return min(
        sorted(sides),
        key=lambda name: Fraction(len(sides[name]), n_cells[name]),
        default=None,
    )


def distinguishable(domain: Sequence[Cell], named: Set[Cell]) -> list[Cell]:
    """Some cells of a domain and the first of the others, in canonical order.

    Every box contains all or none of the other cells.
    """
    other = next((cell for cell in domain if cell not in named), None)
    return sorted(named if other is None else {*named, other})


def _sorted_loads(
    domains: Mapping[str, Domain], boxes: Sequence[tuple[Sides, int]]
) -> _Loads:
    loads = _Loads(
        0, defaultdict(lambda: defaultdict(int)), defaultdict(lambda: defaultdict(int))
    )
    for sides, load in boxes:
        restricted = {
            name: side
            for name, side in sorted(sides.items())
            if len(side) < len(domains[name].cells)
        }
        if len(restricted) > 1:
            loads.coupled[tuple(restricted)][tuple(restricted.values())] += load
        elif restricted:
            [(name, side)] = restricted.items()
            _add(loads.single[name], side, load)
        else:
            loads.everywhere += load
    return loads


def _add(by_cell: dict[Cell, int], side: Set[Cell], load: int) -> None:
    for cell in side:
        by_cell[cell] += load


def _groups(domains: Mapping[str, Domain], loads: _Loads) -> list[list[str]]:
    """The partitions, those together that boxes restrict together, through others or
    directly.
    """
    groups = [{name} for name in domains]
    for names in loads.coupled:
        joined = [group for group in groups if group.intersection(names)]
        groups = [group for group in groups if group not in joined]
        groups.append(set[str]().union(*joined))
    return list(map(sorted, groups))


def _of_group(
    names: Sequence[str], domains: Mapping[str, Domain], loads: _Loads
) -> Bound:
    coupled = {axes: boxes for axes, boxes in loads.coupled.items() if axes[0] in names}
    if not coupled:
        return _widened(names, domains, coupled, loads.single)
    classes = {
        name: _classes(name, domains[name].cells, coupled, loads.single[name])
        for name in names
    }
    volumes = {}
    for axes, boxes in coupled.items():
        places_of_boxes = (_places(axes, sides, classes) for sides in boxes)
        volumes[axes] = sum(prod(map(len, places)) for places in places_of_boxes)
    work, order = cheapest_order(
        {name: len(classes[name].fullest) for name in names}, volumes
    )
    if work > MAX_ELIMINATION_WORK:
        return _widened(names, domains, coupled, loads.single)
    tables = [_table(axes, boxes, order, classes) for axes, boxes in coupled.items()]
    unary = {
        name: [loads.single[name].get(cell, 0) for cell in classes[name].fullest]
        for name in names
    }
    load, places = _eliminated(unary, tables, order)
    cell = {name: classes[name].fullest[place] for name, place in places.items()}
    return Bound(load, cell, is_exact=True)


def _places(
    axes: Sequence[str],
    sides: Sequence[frozenset[Cell]],
    classes: Mapping[str, _Classes],
) -> list[list[int]]:
    """The classes in each side of a box."""
    return [classes[name].within[side] for name, side in zip(axes, sides, strict=True)]


def _widened(
    names: Sequence[str],
    domains: Mapping[str, Domain],
    coupled: Mapping[tuple[str, ...], _Boxes],
    single: Mapping[str, Mapping[Cell, int]],
) -> Bound:
    n_cells = {name: domains[name].n_cells for name in names}
    by_cell = {name: defaultdict(int, single[name]) for name in names}
    for axes, boxes in coupled.items():
        for box, load in boxes.items():
            sides = dict(zip(axes, box, strict=True))
            # The choice depends on this box alone, so the bound never falls when a box is
            # added (docs/proofs/lemmas.md, Theorem L).
            name = narrowest(sides, n_cells)
            assert name is not None, "a box of a group restricts several partitions"
            _add(by_cell[name], sides[name], load)
    cell = {
        name: _fullest(domains[name].cells, loads) for name, loads in by_cell.items()
    }
    load = sum(by_cell[name][fullest] for name, fullest in cell.items())
    return Bound(load, cell, is_exact=not coupled)


def _fullest(domain: Sequence[Cell], loads: Mapping[Cell, int]) -> Cell:
    return max(
        distinguishable(domain, loads.keys()), key=lambda cell: loads.get(cell, 0)
    )


def _classes(
    name: str,
    domain: Sequence[Cell],
    coupled: Mapping[tuple[str, ...], _Boxes],
    single: Mapping[Cell, int],
) -> _Classes:
    sides = set[frozenset[Cell]]()
    for axes, boxes in coupled.items():
        if name in axes:
            sides.update(box[axes.index(name)] for box in boxes)
    containing: dict[Cell, list[int]] = {
        cell: [] for cell in distinguishable(domain, set(single).union(*sides))
    }
    for number, side in enumerate(sides):
        for cell in side:
            containing[cell].append(number)
    # Cells of the same sides differ only in loads on this partition alone, so the fullest
    # of them stands for all.
    fullest: dict[tuple[int, ...], Cell] = {}
    for cell, numbers in containing.items():
        known = fullest.setdefault(tuple(numbers), cell)
        if single.get(cell, 0) > single.get(known, 0):
            fullest[tuple(numbers)] = cell
    places: list[list[int]] = [[] for _ in sides]
    for place, signature in enumerate(fullest):
        for number in signature:
            places[number].append(place)
    return _Classes(list(fullest.values()), dict(zip(sides, places, strict=True)))


def cheapest_order(
    sizes: Mapping[str, int], volumes: Mapping[tuple[str, ...], int]
) -> tuple[int, tuple[str, ...]]:
    """The least work of an elimination, and its order, over all orders.

    Args:
        sizes: number of classes of each partition.
        volumes: for each set of partitions that boxes restrict together, the number of
            amounts to add.
    """
    names = sorted(sizes)
    best: dict[frozenset[str], tuple[int, tuple[str, ...]]] = {frozenset(): (0, ())}
    for n_done in range(len(names)):
        for done in map(frozenset, combinations(names, n_done)):
            for name in sorted(set(names) - done):
                work = best[done][0] + _work(name, done, sizes, volumes)
                step = work, (*best[done][1], name)
                best[done | {name}] = min(best.get(done | {name}, step), step)
    return best[frozenset(names)]


def _work(
    name: str,
    done: frozenset[str],
    sizes: Mapping[str, int],
    volumes: Mapping[tuple[str, ...], int],
) -> int:
    """The work to eliminate a partition after others: entries of its table, and the
    amounts that are added to it.
    """
    met, reached = set[str](), {name}
    while reached - met:
        met |= reached
        # An eliminated partition left a table over all its neighbours, so paths lead
        # through it.
        inner = {name} | (met & done)
        reached = set[str]().union(
            *(axes for axes in volumes if inner.intersection(axes))
        )
    entries = prod(sizes[axis] for axis in met - done)
    added = [
        volume
        for axes, volume in volumes.items()
        if name in axes and not done.intersection(axes)
    ]
    return entries * max(len(added), 1) + sum(added)


def _table(
    axes: tuple[str, ...],
    boxes: _Boxes,
    order: Sequence[str],
    classes: Mapping[str, _Classes],
) -> _Table:
    # The partition that is eliminated first comes last, so that its values lie side by
    # side (see ``_sums``).
    table_axes = tuple(name for name in reversed(order) if name in axes)
    sizes = [len(classes[name].fullest) for name in table_axes]
    values = [0] * prod(sizes)
    for box, load in boxes.items():
        sides = dict(zip(axes, box, strict=True))
        ordered_sides = [sides[name] for name in table_axes]
        for places in product(*_places(table_axes, ordered_sides, classes)):
            values[_index(places, sizes)] += load
    return _Table(table_axes, values)


def _index(places: Sequence[int], sizes: Sequence[int]) -> int:
    index = 0
    for place, size in zip(places, sizes, strict=True):
        index = index * size + place
    return index


def _eliminated(
    unary: Mapping[str, list[int]], tables: Sequence[_Table], order: Sequence[str]
) -> tuple[int, dict[str, int]]:
    """The largest sum of one value of each partition and the tables' values there, and
    the places of those values.
    """
    waiting, steps = list(tables), []
    for name in order:
        arrived = [table for table in waiting if name in table.axes]
        waiting = [table for table in waiting if name not in table.axes]
        axes = tuple(
            axis
            for axis in reversed(order)
            if axis != name and any(axis in table.axes for table in arrived)
        )
        values = [
            max(_sums(name, arrived, dict(zip(axes, places, strict=True)), unary))
            for places in product(*(range(len(unary[axis])) for axis in axes))
        ]
        waiting.append(_Table(axes, values))
        steps.append((name, arrived))
    # Backwards: the places of all partitions that a step's tables still have are known.
    places_of_maximum: dict[str, int] = {}
    for name, arrived in reversed(steps):
        sums = list(_sums(name, arrived, places_of_maximum, unary))
        places_of_maximum[name] = sums.index(max(sums))
    return sum(table.values[0] for table in waiting), places_of_maximum


def _sums(
    name: str,
    arrived: Sequence[_Table],
    places: Mapping[str, int],
    unary: Mapping[str, list[int]],
) -> Iterator[int]:
    """The sums over the tables for every value of a partition, which is the last axis
    of each, at places of the others.
    """
    size, rows = len(unary[name]), [unary[name]]
    for table in arrived:
        others = table.axes[:-1]
        sizes = [len(unary[axis]) for axis in others]
        start = size * _index([places[axis] for axis in others], sizes)
        rows.append(table.values[start : start + size])
    return map(sum, zip(*rows, strict=True))
