"""Follows the largest load of an account entry by entry.

A reservation changes only the joint cells of its scope, so only a load above the
current largest is searched for there. A reservation that is given back lowers the
largest load only if its scope contains the joint cell with that load. Where a search
takes too much work, the load is a bound: the larger of the bound before and a bound in
the scope.
"""

from collections.abc import Mapping

from grovekeeper_verifier.dataset_export import Cell, Entry, Scope
from grovekeeper_verifier.joint_bounds import Bound
from grovekeeper_verifier.joint_cells import JointCells


class Largest:
    """The largest load over the joint cells of an account.

    Attributes:
        load: in steps; an upper bound unless ``is_exact``.
        is_exact: False after a search exceeded the limit of work, until a load is
            larger than the bound.
    """

    def __init__(self, cells: JointCells) -> None:
        self._cells = cells
        self._cell: Mapping[str, Cell] = {}
        self.load = 0
        self.is_exact = True

    def follow(self, entry: Entry) -> None:
        """Applies the newest entry, after it was applied to the joint cells."""
        if entry.kind in ("reserve", "load"):
            self._raise(self._cells.largest(entry.scope, above=self.load))
        elif (
            moves_load(entry.kind)
            and self.is_exact
            and _covers(entry.scope, self._cell)
        ):
            # The old maximum has lost the amount, so only a load above that matters. The
            # search may end in a bound; the load before is a bound, too.
            before = self.load
            self.load -= entry.amount
            self._raise(self._cells.largest((), above=self.load))
            self.load = min(self.load, before)

    def refine(self) -> None:
        """Lowers a bound, which no later entry has lowered."""
        if not self.is_exact:
            whole = self._cells.largest((), above=-1)
            if whole is not None and (whole.is_exact or whole.load < self.load):
                self._raise(whole)

    def _raise(self, maximum: Bound | None) -> None:
        if maximum is not None:
            self.load = maximum.load
            self._cell = maximum.cell
            self.is_exact = maximum.is_exact


def moves_load(kind: str) -> bool:
    """Whether entries of a kind reserve an amount or give it back. Charging a
    reservation changes no load.
    """
    return kind in ("reserve", "void", "expire")


def _covers(scope: Scope, cell: Mapping[str, Cell]) -> bool:
    """Whether a joint cell is in a scope.

    A cell that was found before any entry named an upload has no upload, and lies in no
    scope that names uploads: such a scope would have raised the largest load, at a cell
    with an upload.
    """
    return all(cell.get(name) in cells for name, cells in scope)
