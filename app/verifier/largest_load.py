"""Tracks the largest load of an account, entry by entry.

A reservation changes only the joint cells of its scope, so only a load above the current largest is searched for there.
A reservation that is given back lowers the largest load only if its scope contains the joint cell with that load.
"""

from collections.abc import Mapping

from app.verifier.dataset_export import Cell, Entry, Scope
from app.verifier.joint_cells import JointCells, TooComplex


class Largest:
    """The largest load over the joint cells of an account.

    Attributes:
        load: in steps; None after a search exceeded the limit of work.
    """

    def __init__(self, cells: JointCells) -> None:
        self._cells = cells
        self._cell: Mapping[str, Cell] = {}
        self.load: int | None = 0

    def follow(self, entry: Entry) -> None:
        """Applies the newest entry, after it was applied to the joint cells."""
        if self.load is None or not (moves_load(entry.kind) or entry.kind == "load"):
            return
        scope: Scope = entry.scope
        if entry.kind in ("void", "expire"):
            if not _covers(entry.scope, self._cell):
                return
            self.load -= entry.amount
            scope = ()
        try:
            maximum = self._cells.largest(scope, above=self.load)
        except TooComplex:
            self.load = None
            return
        if maximum is not None:
            self.load, self._cell = maximum


def moves_load(kind: str) -> bool:
    """Whether entries of a kind reserve an amount or give it back. Charging a reservation changes no load."""
    return kind in ("reserve", "void", "expire")


def _covers(scope: Scope, cell: Mapping[str, Cell]) -> bool:
    """Whether a joint cell is in a scope.

    A cell that was found before any entry named an upload has no upload, and lies in no scope that names uploads: such
    a scope would have raised the largest load, at a cell with an upload.
    """
    return all(cell.get(name) in cells for name, cells in scope)
