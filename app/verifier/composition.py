"""What every possible row has cost so far, under parallel composition.

A row lies in exactly one cell of each partition, so in exactly one *joint* cell. A charge touches the joint cells of
its box. The loss of the dataset is the largest sum over the joint cells (Theorem L (a), docs/proofs/lemmas.md); with
several partitions this is not the largest over the partitions taken one by one. All joint cells are counted here, one
by one, which is exact and needs no argument; past :data:`MAX_JOINT_CELLS` the export is refused instead of guessed at.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

from app.verifier.export import HashPartition, Scope

MAX_JOINT_CELLS = 2**17


class TooManyCells(ValueError):
    """The partitions have more joint cells than are counted one by one."""


@dataclass(frozen=True)
class Balance:
    """Steps of the account's unit in one joint cell. ``cell`` maps the name of each partition to its cell."""

    charged: int
    reserved: int
    cell: dict[str, int]

    @property
    def load(self) -> int:
        return self.charged + self.reserved


class JointCells:
    """What is charged, and load (charged and reserved together), of every joint cell.

    Amounts over the whole dataset are held once, beside the cells, because most jobs are of that kind.
    """

    def __init__(self, partitions: Sequence[HashPartition]) -> None:
        self._partitions = tuple(sorted(partitions, key=lambda partition: partition.name))
        n_cells = math.prod(partition.cells for partition in self._partitions)
        if n_cells > MAX_JOINT_CELLS:
            raise TooManyCells(f"the partitions have more than {MAX_JOINT_CELLS} joint cells")
        self._load = [0] * n_cells
        self._charged = [0] * n_cells
        self._load_everywhere = 0
        self._charged_everywhere = 0

    def reserve(self, scope: Scope, amount: int) -> None:
        """Adds a reservation to every joint cell of the scope; a negative amount takes one back."""
        if not scope:
            self._load_everywhere += amount
        for cell in self._box(scope):
            self._load[cell] += amount

    def charge(self, scope: Scope, amount: int) -> None:
        """Turns a reservation into a charge. Nothing ever takes a charge back."""
        if not scope:
            self._charged_everywhere += amount
        for cell in self._box(scope):
            self._charged[cell] += amount

    def tightest(self, scope: Scope) -> Balance:
        """The joint cell of the scope with the largest load; of equal ones the first in canonical order."""
        if scope:
            cell = max(self._box(scope), key=lambda index: (self._load[index], -index))
        else:
            cell = self._load.index(max(self._load))
        load = self._load[cell] + self._load_everywhere
        charged = self._charged[cell] + self._charged_everywhere
        return Balance(charged=charged, reserved=load - charged, cell=self._named(cell))

    def _box(self, scope: Scope) -> list[int]:
        """Indices of the joint cells of a box; none for the whole dataset, which is counted beside them."""
        if not scope:
            return []
        restricted = dict(scope)
        sides = [restricted.get(partition.name, range(partition.cells)) for partition in self._partitions]
        return [self._index(coordinates) for coordinates in product(*sides)]

    def _index(self, coordinates: Sequence[int]) -> int:
        index = 0
        for partition, coordinate in zip(self._partitions, coordinates, strict=True):
            index = index * partition.cells + coordinate
        return index

    def _named(self, index: int) -> dict[str, int]:
        cell = {}
        for partition in reversed(self._partitions):
            index, cell[partition.name] = divmod(index, partition.cells)
        return dict(sorted(cell.items()))
