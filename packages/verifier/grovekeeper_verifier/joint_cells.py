"""Computes charged and reserved amounts of joint cells, under parallel composition.

A row lies in exactly one cell of each partition, so in exactly one *joint* cell. A
charge touches the joint cells of its box. The loss of the dataset is the largest sum
over the joint cells (Theorem L (a), docs/proofs/lemmas.md); with several partitions the
largest sum of any one partition is less than that.

Amounts on equal boxes are added first. A search then finds the largest sum, partition
by partition. Cells that the same boxes cover are tried once; a branch ends when its
upper bound does not exceed the threshold; the results of subproblems are stored in a
table. The upper bound counts each box in one of the partitions that it restricts and
adds the largest cells, which is exact if no box restricts two partitions.

The result of a search is exact. Where a search would take more than :data:`MAX_WORK`
steps, the guard of the service decides (:mod:`.joint_bounds`): a bound within the cap
proves that the load is. The service admits by these bounds and by no others, so the
verifier can check whatever the service admits (docs/proofs/lemmas.md, Theorem L).
docs/adr/0013-balances-per-box.md compares the algorithms.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from grovekeeper_verifier import joint_bounds
from grovekeeper_verifier.dataset_export import MAX_HASH_CELLS, Cell, Partition, Scope
from grovekeeper_verifier.joint_bounds import Bound, Domain, distinguishable

MAX_WORK = 2**25
"""Boxes and cells that one search may visit: about ten seconds."""
MAX_WORK_TOGETHER = 2**27
"""The work of all searches in an account; beyond it, each may take a thousandth of
:data:`MAX_WORK`.
"""


class TooComplex(ValueError):
    """A search for the largest load exceeds the limit of work, and no bound takes its
    place.
    """

    def __str__(self) -> str:
        return (
            "the scopes overlap in too many ways: the largest load of their joint cells takes too much work to "
            "compute, and no bound shows that the load is within its limit"
        )


@dataclass(frozen=True)
class Balance:
    """The amounts of one joint cell. ``cell`` maps the name of each partition to its
    cell.

    A partition by upload is absent as long as no entry names an upload. Where not
    ``is_exact``, charged plus reserved is an upper bound for every joint cell, and its
    excess over the amounts of the cell counts as charged.
    """

    charged: int
    reserved: int
    cell: dict[str, Cell]
    is_exact: bool = True

    @property
    def load(self) -> int:
        return self.charged + self.reserved

    def at_most(self, load: int) -> "Balance":
        """The balance under another upper bound of the load: the smaller of two bounds
        is a bound.
        """
        if self.is_exact:
            return self
        return replace(self, charged=min(self.load, load) - self.reserved)

    def require_exact(self) -> None:
        """Raises TooComplex before a load that is above a limit is called too large."""
        if not self.is_exact:
            raise TooComplex


@dataclass(eq=False)
class _Box:
    """The amounts on one box.

    Attributes:
        sides: the cells in each restricted partition.
        home: the partition of which the box covers the smallest share; None for the
            whole dataset.
        load: charged plus reserved.
        charged: the charged part of the load.
        bound: an upper bound on the load of its joint cells; None before the first call
            of :meth:`exceeds`.
        meets: the boxes that share a joint cell with this box, including itself.
    """

    sides: Mapping[str, frozenset[Cell]]
    home: str | None
    load: int = 0
    charged: int = 0
    bound: int | None = None
    meets: "list[_Box]" = field(default_factory=list)


class JointCells:
    """Charged and reserved amounts of every joint cell."""

    def __init__(self, partitions: Sequence[Partition]) -> None:
        self._partitions = tuple(
            sorted(partitions, key=lambda partition: partition.name)
        )
        self._boxes: dict[Scope, _Box] = {}
        self._named: dict[str, set[Cell]] = defaultdict(set)
        self._everywhere = 0
        self._by_home: dict[str, dict[Cell, int]] = {
            item.name: defaultdict(int) for item in self._partitions
        }
        self._peaks = {item.name: 0 for item in self._partitions}
        # A partition by upload has no fixed number of cells, and counts as the finest.
        self._n_cells = {
            item.name: MAX_HASH_CELLS if item.cells is None else len(item.cells)
            for item in partitions
        }
        self._work = 0

    def reserve(self, scope: Scope, amount: int) -> None:
        """Adds an amount to every joint cell of the scope; a negative amount gives a
        reservation back.
        """
        box = self._box(scope)
        box.load += amount
        if amount > 0:
            # A bound may stay when an amount is given back: it is still a bound.
            for other in box.meets:
                if other.bound is not None:
                    other.bound += amount
        if box.home is None:
            self._everywhere += amount
            return
        loads = self._by_home[box.home]
        for cell in box.sides[box.home]:
            loads[cell] += amount
            # A negative amount does not lower the peak, which stays an upper bound
            # until the next recomputation.
            self._peaks[box.home] = max(self._peaks[box.home], loads[cell])

    def charge(self, scope: Scope, amount: int) -> None:
        """Turns a reservation into a charge, which is final."""
        self._box(scope).charged += amount

    def exceeds(self, scope: Scope, limit: int) -> bool:
        """Whether the load of a joint cell of the scope may be above a limit: no bound
        shows that none is.
        """
        if self._everywhere + sum(self._peaks.values()) <= limit:
            return False
        box = self._box(scope)
        if box.bound is None or box.bound > limit:
            box.bound = self._bound_inside(dict(scope))
        if box.bound > limit:
            # A threshold below the limit gives a bound that also answers later calls.
            threshold = limit - limit // 16
            maximum = self.largest(scope, above=threshold)
            box.bound = threshold if maximum is None else maximum.load
        return box.bound > limit

    def tightest(self, scope: Scope) -> Balance:
        """The joint cell of the scope with the largest load; of equal loads the first
        cell in canonical order.

        Where the search takes too much work, an upper bound may stand in place of the
        load.
        """
        maximum = self.largest(scope, above=-1)
        assert maximum is not None, "loads are not negative"
        loaded = [box for box in self._boxes.values() if box.load]
        reserved = sum(
            box.load - box.charged for box in loaded if _covers(box, maximum.cell)
        )
        return Balance(
            maximum.load - reserved,
            reserved,
            dict(sorted(maximum.cell.items())),
            maximum.is_exact,
        )

    def largest(self, scope: Scope, *, above: int) -> Bound | None:
        """The largest load in a scope and the first joint cell with it, or an upper
        bound where the search takes too much work; None if it is not above a threshold.
        """
        max_work = min(MAX_WORK, max(MAX_WORK_TOGETHER - self._work, MAX_WORK >> 10))
        search = _Search(self, dict(scope), self._box(scope).meets, max_work=max_work)
        try:
            maximum = search.largest(above=above)
        except TooComplex:
            bound = self._guard(dict(scope), self._box(scope).meets)
            return bound if bound.load > above else None
        finally:
            self._work += search.work
        return None if maximum is None else Bound(*maximum, is_exact=True)

    @property
    def has_several(self) -> bool:
        """Whether the boxes with a load restrict several partitions; the service may
        state a bound there.
        """
        names = set[str]()
        for box in self._boxes.values():
            if box.load:
                names.update(box.sides)
        return len(names) > 1

    def domain(self, partition: Partition) -> Sequence[Cell]:
        """The cells of a partition in canonical order; of a partition by upload, the
        uploads that entries name.
        """
        if partition.cells is not None:
            return partition.cells
        return sorted(self._named[partition.name])

    @property
    def partitions(self) -> tuple[Partition, ...]:
        """The partitions in canonical order."""
        return self._partitions

    def _box(self, scope: Scope) -> _Box:
        box = self._boxes.get(scope)
        if box is None:
            sides = {name: frozenset(cells) for name, cells in scope}
            home = joint_bounds.narrowest(sides, self._n_cells)
            box = self._boxes[scope] = _Box(sides, home)
            for name, cells in sides.items():
                self._named[name].update(cells)
            for other in self._boxes.values():
                # A partition that the other box does not restrict never keeps them apart.
                is_met = all(
                    not cells.isdisjoint(other.sides.get(name, cells))
                    for name, cells in sides.items()
                )
                if is_met:
                    box.meets.append(other)
                    if other is not box:
                        other.meets.append(box)
        return box

    def _guard(
        self, sides: Mapping[str, tuple[Cell, ...]], meets: "Sequence[_Box]"
    ) -> Bound:
        """The largest load in a box as the service computes it, or states a bound of
        it.
        """
        domains = {}
        for partition in self._partitions:
            cells = sides.get(partition.name) or partition.cells
            n_cells = self._n_cells[partition.name]
            if cells is None:
                # The load of an upload that no box names is at most that of any upload
                # that some box names.
                loaded = (
                    box.sides.get(partition.name, ())
                    for box in self._boxes.values()
                    if box.load
                )
                cells = sorted(set[Cell]().union(*loaded))
            elif partition.name in sides:
                n_cells = len(cells)
            if cells:
                domains[partition.name] = Domain(cells, n_cells)
        inside = {name: frozenset(cells) for name, cells in sides.items()}
        boxes = []
        for box in meets:
            if box.load:
                clipped = {
                    name: side & inside.get(name, side)
                    for name, side in box.sides.items()
                }
                boxes.append((clipped, box.load))
        return joint_bounds.largest(domains, boxes)

    def _bound_inside(self, sides: Mapping[str, tuple[Cell, ...]]) -> int:
        """An upper bound on the load of a box's joint cells: counts each box in its
        home and adds the largest cells.
        """
        bound = self._everywhere
        for name, loads in self._by_home.items():
            if name in sides:
                bound += max((loads.get(cell, 0) for cell in sides[name]), default=0)
            else:
                self._peaks[name] = max(loads.values(), default=0)
                bound += self._peaks[name]
        return bound


class _Search:
    """A search for the largest load inside a scope: branch and bound with a table of
    subproblems.

    A branch fixes the cell of one partition after the other. The largest sum over the
    later partitions depends only on the remaining boxes that restrict one of them, so
    the table stores this sum by the set of these boxes.
    """

    def __init__(
        self,
        cells: JointCells,
        sides: Mapping[str, tuple[Cell, ...]],
        boxes: Sequence[_Box],
        *,
        max_work: int,
    ) -> None:
        self._domains = [
            (partition.name, domain)
            for partition in cells.partitions
            if (domain := sides.get(partition.name) or cells.domain(partition))
        ]
        loaded = [box for box in boxes if box.load]
        inside = {name: frozenset(cells) for name, cells in sides.items()}
        self._loads = [box.load for box in loaded]
        self._sides: list[dict[int, frozenset[Cell]]] = []
        for box in loaded:
            by_depth = {}
            for depth, (name, _) in enumerate(self._domains):
                if name in box.sides:
                    side = box.sides[name]
                    by_depth[depth] = side & inside.get(name, side)
            self._sides.append(by_depth)
        self._last = [max(sides, default=-1) for sides in self._sides]
        self._solved: dict[
            tuple[int, tuple[int, ...]], tuple[int, dict[str, Cell] | None]
        ] = {}
        self.work, self._max_work = 0, max_work

    def largest(self, *, above: int) -> tuple[int, dict[str, Cell]] | None:
        """The largest load above a threshold and the first joint cell with it; None if
        no load is above it.

        Raises:
            TooComplex: the search takes more work than it may.
        """
        return self._largest(0, range(len(self._loads)), above)

    def _largest(
        self, depth: int, boxes: Sequence[int], above: int
    ) -> tuple[int, dict[str, Cell]] | None:
        """The largest sum of boxes over the cells of the partitions from ``depth`` on."""
        self._count(len(boxes) + 1)
        settled = sum(self._loads[box] for box in boxes if self._last[box] < depth)
        if depth == len(self._domains):
            return (settled, {}) if settled > above else None
        left = tuple(box for box in boxes if self._last[box] >= depth)
        solved = self._solved.get((depth, left))
        # A result with a cell is the maximum, whatever the threshold was. One without a
        # cell says that nothing is above its threshold, which answers no lower one.
        if solved is None or (solved[1] is None and solved[0] > above - settled):
            maximum = self._branch(depth, left, above - settled)
            solved = self._solved[depth, left] = maximum or (above - settled, None)
        load, cell = solved
        if cell is None or load + settled <= above:
            return None
        return load + settled, cell

    def _branch(
        self, depth: int, boxes: tuple[int, ...], above: int
    ) -> tuple[int, dict[str, Cell]] | None:
        """Tries the cells of one partition, one cell for each distinct set of boxes."""
        if self._bound(depth, boxes) <= above:
            return None
        name, domain = self._domains[depth]
        # They cover every cell of this partition.
        free = [box for box in boxes if depth not in self._sides[box]]
        covering: dict[Cell, list[int]] = defaultdict(list)
        for box in boxes:
            for cell in self._sides[box].get(depth, ()):
                covering[cell].append(box)
        tried, best = set(), None
        for cell in distinguishable(domain, covering.keys()):
            covered = tuple(covering.get(cell, ()))
            if covered in tried:
                continue
            tried.add(covered)
            maximum = self._largest(depth + 1, [*free, *covered], above)
            if maximum is not None:
                above = maximum[0]
                best = (above, {name: cell, **maximum[1]})
        return best

    def _bound(self, depth: int, boxes: Sequence[int]) -> int:
        """An upper bound: counts each box in the first remaining partition that it
        restricts.
        """
        loads: dict[int, dict[Cell, int]] = defaultdict(lambda: defaultdict(int))
        for box in boxes:
            home = min(place for place in self._sides[box] if place >= depth)
            for cell in self._sides[box][home]:
                loads[home][cell] += self._loads[box]
            self._count(len(self._sides[box][home]))
        return sum(max(by_cell.values()) for by_cell in loads.values())

    def _count(self, steps: int) -> None:
        self.work += steps
        if self.work > self._max_work:
            raise TooComplex


def _covers(box: _Box, cell: Mapping[str, Cell]) -> bool:
    """Whether a joint cell is in a box with a load. A cell without an upload implies
    that no such box names uploads.
    """
    return all(cell[name] in cells for name, cells in box.sides.items())
