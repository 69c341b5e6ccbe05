"""The largest load over joint cells by variable elimination, for boxes that a search would have to try one by one.

A partition is a variable; its values are classes of cells that no box tells apart which restricts several partitions.
One variable after the other is maximised away, in the order that takes the least work. The result is exact. The work
is exponential only in how entangled the boxes are; :func:`largest` declines more than it is allowed, and the service
that wrote the ledger does so sooner (docs/adr/0013-balances-per-box.md).
"""

import math
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence, Set
from dataclasses import dataclass
from itertools import product
from typing import TypeAlias

from app.verifier.export import Cell

Variables: TypeAlias = tuple[int, ...]

Sides: TypeAlias = tuple[tuple[str, frozenset[Cell]], ...]
"""A box that restricts several partitions, in canonical order of these."""


@dataclass(frozen=True)
class Amount:
    """An amount on a box, clipped to the box that is asked about: its cells in the partitions that it restricts."""

    load: int
    sides: Mapping[str, frozenset[Cell]]


@dataclass(frozen=True)
class _Factor:
    """An amount at every combination of values of some variables, the last one's values next to each other."""

    variables: Variables
    table: Sequence[int]


@dataclass(frozen=True)
class _Block:
    """An amount on a product of lists of values, one for each of some variables."""

    variables: Variables
    values: Sequence[Sequence[int]]
    load: int


def largest(
    domains: Sequence[tuple[str, Sequence[Cell]]], amounts: Sequence[Amount], *, max_work: int
) -> tuple[int, dict[str, Cell]] | None:
    """The largest sum of amounts over joint cells, and the first of them in canonical order that carries it.

    Args:
        domains: the cells of every partition inside the box that is asked about, both in canonical order.
        amounts: ≥ 0, on boxes with a cell in every domain that they restrict.
        max_work: table entries and additions, in all.

    Returns:
        None where even the cheapest order takes more than that.
    """
    everywhere, alone, coupled = _sorted_out(dict(domains), amounts)
    classes = [_Classes(name, cells, alone[name], coupled) for name, cells in domains]
    sizes = [len(each.first) for each in classes]
    number = {each.name: at for at, each in enumerate(classes)}
    boxes = [
        _Block(
            tuple(number[name] for name, _ in box), [classes[number[name]].of_side[side] for name, side in box], load
        )
        for box, load in coupled.items()
    ]
    volumes: dict[Variables, int] = defaultdict(int)
    for box in boxes:
        volumes[box.variables] += math.prod(map(len, box.values))
    order, work = _cheapest(sizes, volumes)
    if work > max_work:
        return None
    scale = math.prod(sizes)
    tables = {variables: [0] * math.prod(sizes[at] for at in variables) for variables in volumes}
    for box in boxes:
        for places in product(*box.values):
            tables[box.variables][_place(places, box.variables, sizes)] += box.load * scale
    factors = [_Factor(variables, table) for variables, table in tables.items()]
    # Below one step of the amounts stands the place in canonical order, so the maximum is unique, and is the first.
    weight = scale
    for at, each in enumerate(classes):
        weight //= sizes[at]
        own = [alone[each.name].get(cell, 0) * scale - place * weight for place, cell in enumerate(each.first)]
        factors.append(_Factor((at,), own))
    load, values = _eliminated(sizes, factors, order)
    return everywhere + -(-load // scale), {each.name: each.first[values[at]] for at, each in enumerate(classes)}


def told_apart(domain: Sequence[Cell], named: Set[Cell]) -> list[Cell]:
    """Some cells of a domain, and the first of the others, in canonical order.

    The others are alike. A header names as many of them as it likes in a few digits, so nothing may look at each.
    """
    other = next((cell for cell in domain if cell not in named), None)
    return sorted(named if other is None else {*named, other})


def _sorted_out(
    domains: Mapping[str, Sequence[Cell]], amounts: Sequence[Amount]
) -> tuple[int, dict[str, dict[Cell, int]], dict[Sides, int]]:
    """What lies everywhere, on cells of one partition, and on boxes that restrict several."""
    everywhere = 0
    alone: dict[str, dict[Cell, int]] = {name: defaultdict(int) for name in domains}
    coupled: dict[Sides, int] = defaultdict(int)
    for amount in amounts:
        box = tuple((name, side) for name, side in sorted(amount.sides.items()) if len(side) < len(domains[name]))
        if len(box) > 1:
            coupled[box] += amount.load
        elif box:
            ((name, side),) = box
            for cell in side:
                alone[name][cell] += amount.load
        else:
            everywhere += amount.load
    return everywhere, alone, coupled


class _Classes:
    """The cells of a partition, those as one that lie in the same sides of coupled boxes.

    Attributes:
        name: of the partition.
        first: of every class the cell that carries most by itself, the first of equals; classes in order of these.
        of_side: for every side of a coupled box the classes in it.
    """

    def __init__(self, name: str, cells: Sequence[Cell], alone: Mapping[Cell, int], coupled: Collection[Sides]) -> None:
        self.name = name
        sides = {side for box in coupled for restricted, side in box if restricted == name}
        held: dict[Cell, list[int]] = defaultdict(list)
        for number, side in enumerate(sides):
            for cell in side:
                held[cell].append(number)
        fullest: dict[tuple[int, ...], tuple[int, int]] = {}
        candidates = told_apart(cells, held.keys() | alone.keys())
        for place, cell in enumerate(candidates):
            mine, found = (-alone.get(cell, 0), place), tuple(held.get(cell, ()))
            fullest[found] = min(fullest.get(found, mine), mine)
        self.first = [candidates[place] for place in sorted(place for _, place in fullest.values())]
        self.of_side = {side: [at for at, cell in enumerate(self.first) if cell in side] for side in sides}


def _cheapest(sizes: Sequence[int], volumes: Mapping[Variables, int]) -> tuple[Variables, int]:
    """The order of all in which eliminating takes the least work, and that work."""
    best: dict[frozenset[int], tuple[int, Variables]] = {frozenset(): (0, ())}
    everything = frozenset(range(len(sizes)))
    for _ in sizes:
        reached: dict[frozenset[int], tuple[int, Variables]] = {}
        for done, (work, order) in best.items():
            for variable in everything - done:
                more = work + _work(variable, done, sizes, volumes)
                now = done | {variable}
                if now not in reached or more < reached[now][0]:
                    reached[now] = (more, (*order, variable))
        best = reached
    work, order = best[everything]
    return order, work


def _work(variable: int, done: frozenset[int], sizes: Sequence[int], volumes: Mapping[Variables, int]) -> int:
    """Of eliminating a variable after others: the entries of its table for every set of variables that arrives there,
    and the amounts that are added up for it."""
    met, known = {variable}, 0
    while len(met) > known:
        known = len(met)
        inner = {variable, *(met & done)}
        met |= {other for variables in volumes if inner.intersection(variables) for other in variables}
    arriving = [volume for variables, volume in volumes.items() if variable in variables and done.isdisjoint(variables)]
    return math.prod(sizes[at] for at in met - done) * max(len(arriving), 1) + sum(arriving)


def _eliminated(sizes: Sequence[int], factors: list[_Factor], order: Variables) -> tuple[int, dict[int, int]]:
    """The largest sum over all combinations, and the values of the one that has it."""
    steps: list[tuple[int, list[_Factor]]] = []
    for variable in order:
        mine = [factor for factor in factors if variable in factor.variables]
        factors = [factor for factor in factors if variable not in factor.variables]
        factors.append(_maximised(variable, mine, sizes))
        steps.append((variable, mine))
    values: dict[int, int] = {}
    for variable, mine in reversed(steps):
        sums = []
        for value in range(sizes[variable]):
            values[variable] = value
            sums.append(sum(_at(factor, values, sizes) for factor in mine))
        values[variable] = sums.index(max(sums))
    return sum(factor.table[0] for factor in factors), values


def _maximised(variable: int, factors: Sequence[_Factor], sizes: Sequence[int]) -> _Factor:
    """The largest sum of some factors over the values of one variable, at every combination of their others."""
    others = tuple(sorted({at for factor in factors for at in factor.variables} - {variable}))
    starts = []
    for factor in factors:
        strides = _strides(factor.variables, sizes)
        place = [0]
        for at in others:
            steps = [value * strides.get(at, 0) for value in range(sizes[at])]
            place = [start + step for start in place for step in steps]
        starts.append((factor.table, strides[variable], place))
    best: list[int] | None = None
    for value in range(sizes[variable]):
        row = [0] * math.prod(sizes[at] for at in others)
        for table, stride, place in starts:
            offset = value * stride
            row = [so_far + table[start + offset] for so_far, start in zip(row, place, strict=True)]
        best = row if best is None else list(map(max, best, row))
    assert best is not None, "a partition has a cell"
    return _Factor(others, best)


def _strides(variables: Variables, sizes: Sequence[int]) -> dict[int, int]:
    found, stride = {}, 1
    for at in reversed(variables):
        found[at], stride = stride, stride * sizes[at]
    return found


def _place(places: Sequence[int], variables: Variables, sizes: Sequence[int]) -> int:
    found = 0
    for place, at in zip(places, variables, strict=True):
        found = found * sizes[at] + place
    return found


def _at(factor: _Factor, values: Mapping[int, int], sizes: Sequence[int]) -> int:
    return factor.table[_place([values[at] for at in factor.variables], factor.variables, sizes)]
