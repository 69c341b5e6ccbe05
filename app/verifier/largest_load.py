"""The largest charged and reserved of an account, kept as its entries come.

Asking anew after every entry would search all joint cells. But a reservation moves only the cells of its own box, where
only what passes the largest so far is of interest, and what is given back lowers the largest only if it covers the
joint cell that carries it.
"""

from collections.abc import Mapping

from app.verifier.dataset_export import Cell, Entry, Scope
from app.verifier.joint_cells import JointCells, TooComplex


class Largest:
    """The largest load over the joint cells of an account.

    Attributes:
        load: in steps; None once the boxes were too entangled to say.
    """

    def __init__(self, cells: JointCells) -> None:
        self._cells = cells
        self._cell: Mapping[str, Cell] = {}
        self.load: int | None = 0

    def follow(self, entry: Entry) -> None:
        """Takes the newest entry in, which the cells have taken in before."""
        if self.load is None or not moves_load(entry.kind):
            return
        scope: Scope = entry.scope
        if entry.kind != "reserve":
            if not _covers(entry.scope, self._cell):
                return
            self.load -= entry.amount
            scope = ()
        try:
            found = self._cells.largest(scope, above=self.load)
        except TooComplex:
            self.load = None
            return
        if found is not None:
            self.load, self._cell = found


def moves_load(kind: str) -> bool:
    """Whether entries of a kind hold an amount, or give one back. The charge of what is held changes no sum."""
    return kind in ("reserve", "void", "expire")


def _covers(scope: Scope, cell: Mapping[str, Cell]) -> bool:
    """Whether a joint cell lies in a scope. One that was found before any upload was named lies in no upload: a box
    that names some and covers it would have been found to carry more, with its upload."""
    return all(cell.get(name) in cells for name, cells in scope)
