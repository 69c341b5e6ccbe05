"""What every possible row has cost so far, under parallel composition.

A row lies in exactly one cell of each partition, so in exactly one *joint* cell. A charge touches the joint cells of
its box. The loss of the dataset is the largest sum over the joint cells (Theorem L (a), docs/proofs/lemmas.md); with
several partitions this is not the largest over the partitions taken one by one.

Charges on the same box are added up first. The largest sum is then searched for, partition by partition: cells that the
same boxes cover count as one, and a branch is left as soon as it cannot hold more than what is asked about. A branch is
bounded by counting each of its boxes in one of the partitions that it still restricts, and adding the largest cells of
those up: never too little, and exact where no box restricts two. On boxes that are entangled a search can take very
long, so past :data:`MAX_SEARCH` steps for one question variables are eliminated (:mod:`app.verifier.elimination`). Both
are exact. What neither says within its limit is refused and not guessed at; the service that wrote the ledger gives a
bound instead of a maximum at half of :data:`MAX_WORK`.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from app.verifier import elimination
from app.verifier.elimination import Amount
from app.verifier.export import Cell, Partition, Scope

MAX_SEARCH = 2**18
"""Steps of a search; elimination takes over from there."""
MAX_WORK = 2**24
"""Table entries and additions of an elimination."""


class TooComplex(ValueError):
    """The boxes are too entangled to say within the limit what their joint cells carry."""

    def __str__(self) -> str:
        return "the boxes are too entangled: this verifier does not guess what their joint cells carry"


class _TooLong(Exception):
    """A search has taken as many steps as one may."""


@dataclass(frozen=True)
class Balance:
    """Steps of the account's unit in one joint cell. ``cell`` maps the name of each partition to its cell.

    A partition whose cells are uploads is left out as long as no entry names one.
    """

    charged: int
    reserved: int
    cell: dict[str, Cell]

    @property
    def load(self) -> int:
        return self.charged + self.reserved


@dataclass(eq=False)
class _Box:
    """Everything that lies on one box.

    Attributes:
        sides: its cells, by the partitions that it restricts.
        home: the partition that it restricts most; None for the whole dataset.
        load: charged and reserved together.
        charged: of it.
        bound: what none of its joint cells passes, if that was ever asked.
        meets: the boxes that share a joint cell with it, itself included.
    """

    sides: Mapping[str, frozenset[Cell]]
    home: str | None
    load: int = 0
    charged: int = 0
    bound: int | None = None
    meets: "list[_Box]" = field(default_factory=list)


class JointCells:
    """What is charged, and load, of every joint cell."""

    def __init__(self, partitions: Sequence[Partition]) -> None:
        self._partitions = tuple(sorted(partitions, key=lambda partition: partition.name))
        self._boxes: dict[Scope, _Box] = {}
        self._named: dict[str, set[Cell]] = defaultdict(set)
        self._everywhere = 0
        self._by_home: dict[str, dict[Cell, int]] = {item.name: defaultdict(int) for item in self._partitions}
        self._peaks = {item.name: 0 for item in self._partitions}

    def reserve(self, scope: Scope, amount: int) -> None:
        """Adds a reservation to every joint cell of the scope; a negative amount takes one back."""
        box = self._box(scope)
        box.load += amount
        for other in box.meets if amount > 0 else ():
            if other.bound is not None:
                other.bound += amount
        if box.home is None:
            self._everywhere += amount
            return
        loads = self._by_home[box.home]
        for cell in box.sides[box.home]:
            loads[cell] += amount
            # What is taken back is not taken from the peak: it stays a bound, and is looked up when it matters.
            self._peaks[box.home] = max(self._peaks[box.home], loads[cell])

    def charge(self, scope: Scope, amount: int) -> None:
        """Turns a reservation into a charge. Nothing ever takes a charge back."""
        self._box(scope).charged += amount

    def exceeds(self, scope: Scope, limit: int) -> bool:
        """Whether some joint cell of the scope carries more than a limit."""
        if self._everywhere + sum(self._peaks.values()) <= limit:
            return False
        box = self._box(scope)
        if box.bound is None or box.bound > limit:
            box.bound = self._bound_inside(dict(scope))
        if box.bound > limit:
            # Looked for a little below the limit, so that the answer serves the next questions too.
            nearly = limit - limit // 16
            found = _Search(self, dict(scope), box.meets).largest(above=nearly)
            box.bound = nearly if found is None else found[0]
        return box.bound > limit

    def tightest(self, scope: Scope) -> Balance:
        """The joint cell of the scope with the largest load; of equal ones the first in canonical order."""
        found = _Search(self, dict(scope), self._box(scope).meets).largest(above=-1)
        assert found is not None, "loads are not negative"
        load, cell = found
        charged = sum(box.charged for box in self._boxes.values() if _covers(box, cell))
        return Balance(charged=charged, reserved=load - charged, cell=dict(sorted(cell.items())))

    def largest(self, scope: Scope, *, above: int) -> tuple[int, dict[str, Cell]] | None:
        """The largest load in a scope, and the first joint cell that carries it; None if it is not over a threshold."""
        return _Search(self, dict(scope), self._box(scope).meets).largest(above=above)

    @property
    def has_several(self) -> bool:
        """Whether what lies on the boxes restricts several partitions, one box or another: then sums are searched for,
        and whoever has no time to search states a bound."""
        return len({name for box in self._boxes.values() if box.load for name in box.sides}) > 1

    def domain(self, partition: Partition) -> Sequence[Cell]:
        """The cells of a partition that can be told apart so far, in canonical order."""
        return partition.cells if partition.cells is not None else sorted(self._named[partition.name])

    @property
    def partitions(self) -> tuple[Partition, ...]:
        """In canonical order."""
        return self._partitions

    def _box(self, scope: Scope) -> _Box:
        box = self._boxes.get(scope)
        if box is None:
            sides = {name: frozenset(cells) for name, cells in scope}
            home = min(sides, key=lambda name: len(sides[name]), default=None)
            box = self._boxes[scope] = _Box(sides, home)
            for name, cells in sides.items():
                self._named[name].update(cells)
            for other in self._boxes.values():
                if all(not cells.isdisjoint(other.sides.get(name, cells)) for name, cells in sides.items()):
                    box.meets.append(other)
                    if other is not box:
                        other.meets.append(box)
        return box

    def _bound_inside(self, sides: Mapping[str, tuple[Cell, ...]]) -> int:
        """What no joint cell of a box passes: each box counted once, in its home, and the largest cells added up."""
        bound = self._everywhere
        for name, loads in self._by_home.items():
            if name in sides:
                bound += max((loads.get(cell, 0) for cell in sides[name]), default=0)
            else:
                self._peaks[name] = max(loads.values(), default=0)
                bound += self._peaks[name]
        return bound


class _Search:
    """One question about the joint cells inside a box."""

    def __init__(self, cells: JointCells, sides: Mapping[str, tuple[Cell, ...]], boxes: Sequence[_Box]) -> None:
        wanted = {name: frozenset(listed) for name, listed in sides.items()}
        self._boxes = [
            Amount(box.load, {name: held & wanted.get(name, held) for name, held in box.sides.items()})
            for box in boxes
            if box.load
        ]
        self._domains: list[tuple[str, Sequence[Cell]]] = []
        for partition in cells.partitions:
            domain = sides.get(partition.name) or cells.domain(partition)
            if domain:
                self._domains.append((partition.name, domain))
        self._work = 0

    def largest(self, *, above: int) -> tuple[int, dict[str, Cell]] | None:
        """The largest load over a threshold and the first joint cell that carries it; None if none does."""
        try:
            return self._largest(0, self._boxes, above)
        except _TooLong:
            found = elimination.largest(self._domains, self._boxes, max_work=MAX_WORK)
        if found is None:
            raise TooComplex
        return found if found[0] > above else None

    def _largest(self, depth: int, boxes: Sequence[Amount], above: int) -> tuple[int, dict[str, Cell]] | None:
        bound = self._bound(depth, boxes)
        if bound <= above:
            return None
        if depth == len(self._domains):
            return bound, {}
        name, domain = self._domains[depth]
        free = [box for box in boxes if name not in box.sides]
        covering: dict[Cell, list[int]] = defaultdict(list)
        for index, box in enumerate(boxes):
            for cell in box.sides.get(name, ()):
                covering[cell].append(index)
        seen, best = set(), None
        for cell in elimination.told_apart(domain, covering.keys()):
            signature = tuple(covering.get(cell, ()))
            if signature in seen:
                continue
            seen.add(signature)
            found = self._largest(depth + 1, [*free, *(boxes[index] for index in signature)], above)
            if found is not None:
                above = found[0]
                best = (found[0], {name: cell, **found[1]})
        return best

    def _bound(self, depth: int, boxes: Sequence[Amount]) -> int:
        """Of the boxes that are left: each counted in the first partition to come that it restricts."""
        bound = 0
        loads: dict[str, dict[Cell, int]] = defaultdict(lambda: defaultdict(int))
        for box in boxes:
            home = next((name for name, _ in self._domains[depth:] if name in box.sides), None)
            if home is None:
                bound += box.load
                continue
            for cell in box.sides[home]:
                loads[home][cell] += box.load
            self._work += len(box.sides[home])
        self._work += len(boxes) + 1
        if self._work > MAX_SEARCH:
            raise _TooLong
        return bound + sum(max(by_cell.values()) for by_cell in loads.values())


def _covers(box: _Box, cell: Mapping[str, Cell]) -> bool:
    """Whether a joint cell lies in a box. Where no upload was named, no box restricts uploads."""
    return all(cell[name] in cells for name, cells in box.sides.items())
