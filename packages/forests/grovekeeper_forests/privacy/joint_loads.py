"""Computes loads of an account's joint cells, and finds the tightest joint cell inside
a box.

The maximum is computed exactly, in four steps. Amounts on boxes that restrict one
partition are added cell by cell. Cells that belong to the same boxes are merged.
Partitions that no box restricts together are independent, so their maxima add up. The
remaining groups of partitions are solved by max-sum variable elimination: the variables
are partitions; the values of a variable are groups of cells that every box covers
wholly or not at all.

Finding the largest sum over boxes is MAX-2-CSP, hence NP-hard in general. Elimination
is exact; its cost is exponential only in how densely boxes connect the partitions (the
treewidth). :func:`cheapest_order` computes the cost in advance. If elimination would exceed a
public limit of work, each box of the group is widened: it keeps the restriction on the
partition of which it covers the smallest share, and drops the others. A wider box
covers more cells, so the result is an upper bound and is marked as inexact.

All numbers are integers and public, so neither results nor running time reveal anything
about rows.
"""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from grovekeeper_forests import limits
from grovekeeper_forests.array_types import BoolArray
from grovekeeper_forests.kept import kept_property
from grovekeeper_forests.privacy.numbering import Boxes, Coupled, Lists, Numbers, Table
from grovekeeper_forests.privacy.partitions import (
    ColumnPartition,
    Partition,
    Partitions,
)
from grovekeeper_forests.privacy.scope import WHOLE, Cell, JointCell, Scope

_NO_RANK = 2**62
"""Above every rank and every sum of amounts that fit into 64 bits with a sign."""
# measured: additions of 64-bit integers in the time of one of Python's
_SLOWNESS_OF_OBJECTS = 512


class Factor(NamedTuple):
    """Variables in order, and an amount at every combination of their values, with one
    axis per variable.

    ``ranks`` are those of the values of eliminated variables that the amounts are the
    largest for; the smallest is the first in canonical order. ``None``: no variable was
    eliminated.
    """

    variables: tuple[int, ...]
    amounts: Table
    ranks: Table | None = None


@dataclass(frozen=True)
class EliminationOrder:
    """An order of elimination and its work: the number of table entries and of added
    amounts.
    """

    variables: tuple[int, ...]
    work: int


def cheapest_order(
    sizes: Sequence[int],
    volumes: Mapping[tuple[int, ...], int],
    *,
    last: int | None = None,
) -> EliminationOrder:
    """Finds the cheapest order by dynamic programming over sets of eliminated
    variables.

    The result is the optimum, because the work of the optimum never falls when amounts
    on boxes are added. The work of a greedy order could fall.

    Args:
        sizes: number of values of each variable; few variables (the cost is 2ⁿ).
        volumes: for each set of coupled variables, the number of amounts to add.
        last: the variable to eliminate last, if any.
    """
    best: dict[int, EliminationOrder] = {0: EliminationOrder((), 0)}
    # A set, as bits, is a larger number than its subsets: when the loop comes to it,
    # its cheapest order is final.
    for done in range(2 ** len(sizes) - 1):
        if done not in best:
            # No order comes here: the set contains ``last`` and not all others.
            continue
        so_far = best[done]
        for variable in range(len(sizes)):
            is_too_early = variable == last and len(so_far.variables) < len(sizes) - 1
            if done >> variable & 1 or is_too_early:
                continue
            work = so_far.work + _work(variable, done, sizes=sizes, volumes=volumes)
            reached = done | 1 << variable
            if reached not in best or work < best[reached].work:
                best[reached] = EliminationOrder((*so_far.variables, variable), work)
    return best[2 ** len(sizes) - 1]


def _work(
    variable: int,
    done: int,
    *,
    sizes: Sequence[int],
    volumes: Mapping[tuple[int, ...], int],
) -> int:
    """The work to eliminate a variable after ``done``: the entries of its table, once
    per table that is added to it, and the amounts that those tables sum.
    """
    axes = {variable, *_reached(variable, done, volumes)}
    entries = math.prod(sizes[axis] for axis in axes)
    # A table with a variable of ``done`` was added up when that variable was eliminated.
    coupled = [
        volume
        for variables, volume in volumes.items()
        if variable in variables and not any(done >> other & 1 for other in variables)
    ]
    return entries * max(len(coupled), 1) + sum(coupled)


def _reached(
    variable: int, done: int, cliques: Collection[tuple[int, ...]]
) -> set[int]:
    """The other variables of the table in which ``variable`` is eliminated after
    ``done``.
    """
    met, to_visit = {variable}, [variable]
    while to_visit:
        inner = to_visit.pop()
        for clique in cliques:
            if inner not in clique:
                continue
            neighbours = set(clique) - met
            met |= neighbours
            # The table that was left by an eliminated variable couples all its
            # neighbours, so paths lead through eliminated variables and end elsewhere.
            to_visit += [other for other in neighbours if done >> other & 1]
    return {other for other in met if other != variable and not done >> other & 1}


class Elimination:
    """Maximizes over all variables of an order but the last, and finds the values that
    attain a maximum.

    Among equal maxima, it finds the combination of the smallest rank. Ranks stand
    beside the amounts: an amount that contains its rank needs Python's integers, which
    take five hundred times as long.

    Attributes:
        last: the maximum for each value of the last variable.
        first: the value of the last variable that attains the largest of them.
    """

    def __init__(
        self,
        unary: Sequence[Table],
        ranks: Sequence[Table],
        coupled: Sequence[Factor],
        order: Sequence[int],
    ) -> None:
        """Runs the elimination.

        Args:
            unary: for each variable, the amount that depends on this variable alone, by
                value; fixes the dtype of all tables.
            ranks: for each variable, what its value adds to the rank of a combination;
                rising.
            coupled: amounts at combinations of values.
            order: every variable once.
        """
        self._unary, self._ranks = unary, ranks
        self._order = tuple(order)
        self._choices: list[tuple[tuple[int, ...], Numbers]] = []
        waiting = list(coupled)
        for variable in order[:-1]:
            arrived = [factor for factor in waiting if variable in factor.variables]
            waiting = [factor for factor in waiting if variable not in factor.variables]
            joined = self._joined(variable, arrived)
            choices = _first_of_largest(joined)
            self._choices.append((joined.variables[1:], choices))
            waiting.append(self._maximized(joined, choices))
        joined = self._joined(order[-1], waiting)
        self.last, self.first = joined.amounts, int(_first_of_largest(joined))

    def assignment(self, value: int) -> dict[int, int]:
        """The values of all variables that attain the maximum with the last variable at
        ``value``.
        """
        values = {self._order[-1]: value}
        for variable, (others, choices) in zip(
            self._order[-2::-1], reversed(self._choices), strict=True
        ):
            values[variable] = int(choices[tuple(values[other] for other in others)])
        return values

    def _joined(self, variable: int, factors: Sequence[Factor]) -> Factor:
        """Adds all tables that involve a variable: the axis of the variable comes
        first, then the other axes.
        """
        others = {other for factor in factors for other in factor.variables}
        axes = (variable, *sorted(others - {variable}))
        tables: list[tuple[tuple[int, ...], Table]]
        tables = [((variable,), self._unary[variable])]
        tables += [(factor.variables, factor.amounts) for factor in factors]
        amounts = self._sum(axes, tables)
        ranked = [
            (factor.variables, factor.ranks)
            for factor in factors
            if factor.ranks is not None
        ]
        if not ranked:
            return Factor(axes, amounts)
        # Ranks add up over variables like amounts. So of equal maxima of a part, the one
        # of the smallest rank belongs to the smallest rank of the whole.
        ranks = self._sum(axes, [((variable,), self._ranks[variable]), *ranked])
        return Factor(axes, amounts, ranks)

    def _sum(
        self, axes: Sequence[int], tables: Sequence[tuple[Sequence[int], Table]]
    ) -> Table:
        total = np.zeros(
            [len(self._unary[axis]) for axis in axes], dtype=self._unary[0].dtype
        )
        for variables, table in tables:
            total += _spread(table, variables, axes)
        return total

    def _maximized(self, joined: Factor, choices: Numbers) -> Factor:
        """The largest amounts over the first variable, with the ranks of their choices."""
        if joined.ranks is None:
            ranks = self._ranks[joined.variables[0]][choices]
        else:
            ranks = _chosen(joined.ranks, choices)
        return Factor(joined.variables[1:], _chosen(joined.amounts, choices), ranks)


def _first_of_largest(joined: Factor) -> Numbers:
    """The value of the first variable that attains the largest amount: of equal amounts
    the one of the least rank.
    """
    if joined.ranks is None:
        # The ranks of a variable rise with its values, and argmax takes the first.
        return np.asarray(np.argmax(joined.amounts, axis=0))
    is_largest = joined.amounts == np.max(joined.amounts, axis=0)
    return np.asarray(np.argmin(np.where(is_largest, joined.ranks, _NO_RANK), axis=0))


def _chosen(table: Table, choices: Numbers) -> Table:
    """The entries of a table at one value of its first axis for each combination of the
    others.
    """
    chosen: Table = np.take_along_axis(table, choices[np.newaxis], axis=0)[0]
    return chosen


def _spread(table: Table, variables: Sequence[int], axes: Sequence[int]) -> Table:
    """Reshapes a table over ``variables`` so that it broadcasts over ``axes``."""
    order = [variables.index(axis) for axis in axes if axis in variables]
    ordered = np.transpose(table, order)
    missing = [place for place, axis in enumerate(axes) if axis not in variables]
    return np.expand_dims(ordered, missing)


@dataclass(frozen=True)
class Tightest:
    """The joint cell with the largest load.

    Among equal loads, declared categories come before OTHER and MISSING, then canonical
    order decides.

    Attributes:
        load: the sum of the amounts that cover the cell; an upper bound for every joint
            cell unless ``is_exact``.
        cell: the cell of each partition, by partition name.
        is_exact: whether the maximum was computed within the limit of work.
    """

    load: int
    cell: JointCell
    is_exact: bool


class Loads:
    """The loads of the joint cells inside a box, from amounts on boxes."""

    def __init__(
        self, partitions: Partitions, boxes: Boxes, *, inside: Scope | None = None
    ) -> None:
        """Groups the amounts by the partitions that their boxes restrict.

        Args:
            partitions: declared; the known epochs are those that the boxes or
                ``inside`` name.
            boxes: amounts on scopes.
            inside: the box whose joint cells are examined; by default the whole
                dataset.
        """
        inside = inside or WHOLE
        named = {partition.name: partition for partition in partitions.declared}
        self._amounts = boxes.amounts
        self._domains: dict[str, tuple[Cell, ...]] = {}
        self._sizes: dict[str, int] = {}
        self._lists: dict[str, Lists] = {}
        self._late: dict[str, BoolArray] = {}
        for name in sorted(named):
            domain = inside.get(name, named[name].known_cells)
            size = limits.MAX_HASH_CELLS if domain is None else len(domain)
            if domain is None:
                # The load of an upload that no box names is at most the load of any
                # named upload.
                domain = boxes.sides[name].cells
            if domain:
                self._domains[name] = domain
                self._sizes[name] = size
                self._lists[name] = boxes.sides[name].clipped(domain)
                self._late[name] = _are_late(named[name], domain)
        self._unrestricted = 0
        self._single = {
            name: np.zeros(len(cells), self._amounts.dtype)
            for name, cells in self._domains.items()
        }
        self._coupled: list[Coupled] = []
        self._group_boxes()
        self._groups = [self._group(names) for names in self._connected()]

    def largest(self) -> Tightest:
        """The tightest joint cell inside the box."""
        cell: dict[str, Cell] = {}
        load, is_exact = self._unrestricted, True
        coupled = {name for group in self._groups for name in group.names}
        for name in self._domains.keys() - coupled:
            place = _fullest_cell(self._single[name], self._late[name])
            load += int(self._single[name][place])
            cell[name] = self._domains[name][place]
        # No box restricts partitions of two groups, so each maximum can be taken by
        # itself.
        for group in self._groups:
            maximum = group.largest
            load += maximum.load
            is_exact &= maximum.is_exact
            cell |= self._cells_at(maximum.positions)
        return Tightest(load, dict(sorted(cell.items())), is_exact)

    def by_cell(self, name: str) -> list[Tightest]:
        """For every cell of a partition inside the box, its tightest joint cell.

        Empty for an epoch partition before the first upload.
        """
        if name not in self._domains:
            return []
        whole = self.largest()
        result = []
        group = next((group for group in self._groups if name in group.names), None)
        if group is None:
            single = self._single[name]
            rest = whole.load - int(np.max(single))
            for cell, load in zip(self._domains[name], single, strict=True):
                joint_cell = {**whole.cell, name: cell}
                result.append(Tightest(rest + int(load), joint_cell, whole.is_exact))
            return result
        rest = whole.load - group.largest.load
        others_are_exact = all(
            other.largest.is_exact for other in self._groups if other is not group
        )
        for maximum in group.by_cell(name):
            joint_cell = {**whole.cell, **self._cells_at(maximum.positions)}
            is_exact = maximum.is_exact and others_are_exact
            result.append(Tightest(rest + maximum.load, joint_cell, is_exact))
        return result

    def _cells_at(self, positions: Mapping[str, int]) -> dict[str, Cell]:
        """Cells by partition, from their positions in the domains."""
        return {name: self._domains[name][place] for name, place in positions.items()}

    def covering(self, cell: JointCell) -> BoolArray:
        """Whether each box covers a joint cell, as a mask."""
        is_covering = np.ones(len(self._amounts), np.bool_)
        for name, domain in self._domains.items():
            lists = self._lists[name]
            is_covering &= lists.covers[lists.of_box, domain.index(cell[name])]
        return is_covering

    def _group_boxes(self) -> None:
        """Groups the amounts by the partitions that their boxes restrict inside this
        box.
        """
        is_inside = np.ones(len(self._amounts), np.bool_)
        restricts = np.zeros(len(self._amounts), np.intp)
        for bit, (name, lists) in enumerate(self._lists.items()):
            # Lists are clipped to the domain: an empty one covers no cell in here, and a
            # full one restricts nothing in here.
            lengths = lists.lengths[lists.of_box]
            is_inside &= lengths > 0
            restricts |= (lengths < len(self._domains[name])).astype(np.intp) << bit
        for pattern in np.unique(restricts[is_inside]):
            boxes = np.flatnonzero(is_inside & (restricts == pattern))
            names = tuple(
                name for bit, name in enumerate(self._lists) if pattern >> bit & 1
            )
            self._put(names, boxes)

    def _put(self, names: tuple[str, ...], boxes: Numbers) -> None:
        amounts = self._amounts[boxes]
        if not names:
            self._unrestricted += int(amounts.sum())
        elif len(names) == 1:
            lists = self._lists[names[0]]
            self._single[names[0]] += lists.sums(amounts, lists.of_box[boxes])
        else:
            columns = [self._lists[name].of_box[boxes] for name in names]
            self._coupled.append(
                Coupled.merged(names, np.stack(columns, axis=1), amounts)
            )

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
            single={name: self._single[name] for name in names},
            sizes={name: self._sizes[name] for name in names},
            late={name: self._late[name] for name in names},
        )


@dataclass(frozen=True)
class _Maximum:
    load: int
    positions: Mapping[str, int]
    is_exact: bool


class _Group:
    """Partitions that boxes restrict together, their cells merged to classes of cells
    in the same boxes.
    """

    def __init__(
        self,
        lists: Mapping[str, Lists],
        coupled: Sequence[Coupled],
        *,
        single: Mapping[str, Table],
        sizes: Mapping[str, int],
        late: Mapping[str, BoolArray],
    ) -> None:
        self.names = tuple(lists)
        self._lists = lists
        self._coupled = coupled
        self._single = single
        self._sizes = sizes
        self._late = late
        self._class_of, self._best, self._covers = {}, {}, {}
        for name in self.names:
            numbers = [
                boxes.lists[:, boxes.names.index(name)]
                for boxes in coupled
                if name in boxes.names
            ]
            covers = lists[name].covers
            # Lists of coupled boxes alone split cells into classes. Amounts on this
            # partition alone are in ``single``, and a class is taken at its fullest
            # cell (docs/proofs/lemmas.md, Theorem L).
            covers_by_coupled = covers[np.unique(np.concatenate(numbers))]
            self._class_of[name], self._best[name] = _classes(
                single[name], covers_by_coupled, late[name]
            )
            self._covers[name] = covers[:, self._best[name]]

    @kept_property
    def largest(self) -> _Maximum:
        """The largest load, exact or bounded."""
        order = self._affordable(last=None)
        if order is None:
            return self._bound()
        elimination = self._elimination(order)
        return self._maximum(elimination, elimination.first)

    def by_cell(self, name: str) -> list[_Maximum]:
        """The largest load in every cell of one of the partitions, exact or bounded."""
        order = self._affordable(last=self.names.index(name))
        if order is None:
            return self._bound_by_cell(name)
        elimination = self._elimination(order)
        single, best = self._single[name], self._best[name]
        by_class = [self._maximum(elimination, value) for value in range(len(best))]
        result = []
        for place, value in enumerate(self._class_of[name]):
            maximum = by_class[value]
            # The same coupled boxes cover all cells of a class, so only the amounts on
            # this partition alone differ.
            load = maximum.load - int(single[best[value]]) + int(single[place])
            positions = {**maximum.positions, name: place}
            result.append(_Maximum(load, positions, is_exact=True))
        return result

    def _bound_by_cell(self, name: str) -> list[_Maximum]:
        whole = self._bound()
        loads = self._widened[name]
        rest = whole.load - int(loads[whole.positions[name]])
        result = []
        for place, load in enumerate(loads):
            positions = {**whole.positions, name: place}
            result.append(_Maximum(rest + int(load), positions, is_exact=False))
        return result

    @kept_property
    def _widened(self) -> dict[str, Table]:
        """Loads by partition, where each box restricts only the partition of which it
        covers the smallest share.

        The choice of the partition does not depend on other boxes, so the bound never
        falls when a box is added.
        """
        widened = {name: loads.copy() for name, loads in self._single.items()}
        for coupled in self._coupled:
            narrowest = self._narrowest(coupled)
            for axis, name in enumerate(coupled.names):
                is_narrowest = narrowest == axis
                widened[name] += self._lists[name].sums(
                    coupled.amounts[is_narrowest], coupled.lists[is_narrowest, axis]
                )
        return widened

    def _narrowest(self, coupled: Coupled) -> Numbers:
        """For each box, the axis of the partition of which it covers the smallest
        share, of equal shares the first.
        """
        n_boxes = len(coupled.amounts)
        narrowest = np.zeros(n_boxes, np.intp)
        # A share of 1, which none of these boxes has: each restricts all the partitions.
        length, size = np.full(n_boxes, 1), np.full(n_boxes, 1)
        for axis, name in enumerate(coupled.names):
            lengths = self._lists[name].lengths[coupled.lists[:, axis]]
            # lengths / sizes < length / size without division, which would round
            is_narrower = lengths * size < length * self._sizes[name]
            narrowest[is_narrower] = axis
            length = np.where(is_narrower, lengths, length)
            size = np.where(is_narrower, self._sizes[name], size)
        return narrowest

    def _affordable(self, *, last: int | None) -> EliminationOrder | None:
        """The cheapest order, or ``None`` above the limit of work. The work never falls
        when a box is added, and neither do sums and ranks, which make Python's integers
        necessary.
        """
        volumes = {
            self._variables(coupled): coupled.volume(self._covers_of(coupled))
            for coupled in self._coupled
        }
        sizes = [len(self._best[name]) for name in self.names]
        order = cheapest_order(sizes, volumes, last=last)
        slowness = 1 if self._dtype == np.int64 else _SLOWNESS_OF_OBJECTS
        return order if order.work * slowness <= limits.MAX_COMPOSITION_WORK else None

    @kept_property
    def _dtype(self) -> np.dtype[Any]:
        """Of the tables: int64 if every sum of amounts and every rank fits, otherwise
        Python's integers.
        """
        total = sum(int(coupled.amounts.sum()) for coupled in self._coupled)
        total += sum(int(np.max(self._single[name])) for name in self.names)
        # Each variable adds a bit for cells that are no declared category to its rank.
        n_ranks = math.prod(2 * len(self._best[name]) for name in self.names)
        return np.dtype(np.int64 if max(total, n_ranks) < _NO_RANK else object)

    def _ranks(self) -> list[Table]:
        """By partition, what a class adds to the rank of a combination, which decides
        among equal loads.

        The sum over the partitions orders combinations by whether their cells are
        declared categories, the first partition first; then by canonical order.
        """
        n_combinations = math.prod(len(self._best[name]) for name in self.names)
        weight, ranks = n_combinations, []
        for index, name in enumerate(self.names):
            best = self._best[name]
            # A number in mixed radix: places are the low digits, and the bits above all
            # of them tell which cells are no declared category.
            weight //= len(best)
            weight_if_late = n_combinations << len(self.names) - 1 - index
            # The inverse of a sorting permutation: the place of each class by its cell.
            places = np.argsort(np.argsort(best)).astype(self._dtype)
            is_late = self._late[name][best].astype(self._dtype)
            ranks.append(places * weight + is_late * weight_if_late)
        return ranks

    def _variables(self, coupled: Coupled) -> tuple[int, ...]:
        return tuple(map(self.names.index, coupled.names))

    def _covers_of(self, coupled: Coupled) -> list[BoolArray]:
        """Whether each list covers each class; a list covers a class wholly or not at
        all.
        """
        return [self._covers[name] for name in coupled.names]

    def _elimination(self, order: EliminationOrder) -> Elimination:
        unary = [
            self._single[name][self._best[name]].astype(self._dtype)
            for name in self.names
        ]
        factors = []
        for coupled in self._coupled:
            table = coupled.table(self._covers_of(coupled)).astype(self._dtype)
            factors.append(Factor(self._variables(coupled), table))
        return Elimination(unary, self._ranks(), factors, order.variables)

    def _maximum(self, elimination: Elimination, last_value: int) -> _Maximum:
        values = elimination.assignment(last_value)
        positions = {
            name: int(self._best[name][values[index]])
            for index, name in enumerate(self.names)
        }
        return _Maximum(int(elimination.last[last_value]), positions, is_exact=True)

    def _bound(self) -> _Maximum:
        positions = {
            name: _fullest_cell(self._widened[name], self._late[name])
            for name in self.names
        }
        load = sum(int(self._widened[name][place]) for name, place in positions.items())
        return _Maximum(load, positions, is_exact=False)


def _are_late(partition: Partition, domain: Sequence[Cell]) -> BoolArray:
    """Whether each cell of a domain is none of the declared categories."""
    if not isinstance(partition, ColumnPartition):
        return np.zeros(len(domain), np.bool_)
    categories = frozenset(partition.categories)
    return np.array([cell not in categories for cell in domain])


def _fullest_cell(loads: Table, late: BoolArray) -> int:
    """The first cell of a partition with the largest load; a declared category, if
    there is one among equals.
    """
    largest = np.flatnonzero(loads == np.max(loads))
    return int(largest[np.argmin(late[largest])])


def _classes(
    single: Table, covers_cell: BoolArray, late: BoolArray
) -> tuple[Numbers, Numbers]:
    """Groups the cells of a partition that the same lists contain, and so the same
    boxes cover.

    Returns:
        The class of every cell, and the cell with the largest load of every class (the
        first of equals, a declared category before others). Classes are in the order of
        these cells, those of declared categories first.
    """
    columns = np.ascontiguousarray(np.packbits(covers_cell, axis=0).T)
    signatures = [column.tobytes() for column in columns]
    fullest: dict[bytes, int] = {}
    for place, signature in enumerate(signatures):
        known = fullest.setdefault(signature, place)
        # A larger load wins; of equal loads, a declared category wins over the others,
        # for which ``late`` is true.
        if (single[place], late[known]) > (single[known], late[place]):
            fullest[signature] = place
    best = sorted(fullest.values(), key=lambda place: (late[place], place))
    class_of = {signatures[place]: number for number, place in enumerate(best)}
    classes = [class_of[signature] for signature in signatures]
    return np.array(classes, np.intp), np.array(best, np.intp)
