"""What lies on the boxes of an account: one row per distinct box, moved in the transaction of the entry that moves it.

The rows are sums over entries and nothing else, so they can be recomputed from the entries at any time. What a joint
cell carries follows from them (:mod:`app.privacy.composition`); the cost of an answer grows with the number of distinct
boxes, not with the number of entries.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from sqlalchemy import select
from sqlalchemy.orm import Session

from app.ledger import scope_cache
from app.ledger.tables import AccountRow, BoxRow
from app.privacy.composition import Boxes, JointCell, Loads, Partitions, Scope, Table, Tightest


@dataclass(frozen=True)
class CellBalance:
    """One joint cell. Where not ``is_exact``, ``charged + reserved`` is a bound that none passes."""

    cell: JointCell
    charged: int
    reserved: int
    is_exact: bool

    @property
    def load(self) -> int:
        """What lies on it, reservations included."""
        return self.charged + self.reserved


@dataclass(frozen=True)
class CellDelta:
    """One joint cell, and the δ that was charged there, in steps of 10⁻¹⁸; or a bound that no joint cell passes."""

    cell: JointCell
    charged: int
    is_exact: bool


def move(
    session: Session, account_id: str, scope: Scope, *, charged: int = 0, reserved: int = 0, delta_charged: int = 0
) -> None:
    """Adds to what lies on a box; the caller holds the account's lock. A box that is left with nothing goes."""
    box = scope_cache.digest_of(scope)
    row = session.get(BoxRow, (account_id, box), populate_existing=True)
    if row is None:
        written = {name: list(cells) for name, cells in scope.items()}
        row = BoxRow(account_id=account_id, box=box, scope=written, charged=0, reserved=0, delta_charged=0)
        session.add(row)
    row.charged += charged
    row.reserved += reserved
    row.delta_charged += delta_charged
    if not (row.charged or row.reserved or row.delta_charged):
        session.delete(row)
    session.flush()


def tightest(session: Session, account: AccountRow, scope: Scope) -> CellBalance:
    """The joint cell of a box with the largest ``charged + reserved``; ties in canonical order."""
    return _tightest(account, _rows(session, [account])[account.id], scope)


def tightest_of_each(session: Session, accounts: Sequence[AccountRow]) -> dict[str, CellBalance]:
    """The same of several whole accounts, by id: asked for once."""
    rows = _rows(session, accounts)
    return {account.id: _tightest(account, rows[account.id], {}) for account in accounts}


def tightest_delta(session: Session, account: AccountRow, scope: Scope) -> CellDelta:
    """The joint cell of a box with the largest charged δ."""
    query = select(BoxRow.box, BoxRow.delta_charged).where(BoxRow.account_id == account.id, BoxRow.delta_charged > 0)
    steps = {box: int(amount) for box, amount in session.execute(query)}
    scopes = scope_cache.numbering(session, account.id, partitions_of(account), steps)
    boxes = scopes.boxes(list(steps), _table(steps.values()))
    found = Loads(partitions_of(account), boxes, inside=scope).largest()
    return CellDelta(found.cell, found.load, found.is_exact)


def by_cell(session: Session, account: AccountRow, scope: Scope) -> dict[str, list[CellBalance]]:
    """For every partition and every cell of it inside a box, the tightest joint cell that lies in the cell."""
    rows, partitions = _rows(session, [account])[account.id], partitions_of(account)
    loads = Loads(partitions, rows.boxes, inside=scope)
    return {
        partition.name: [_split(found, loads, rows, cap=account.highest_cap) for found in loads.by_cell(partition.name)]
        for partition in partitions.declared
    }


def partitions_of(account: AccountRow) -> Partitions:
    """How the account is cut."""
    return Partitions.from_json(account.partitions)


@dataclass(frozen=True)
class _Rows:
    """What lies on the boxes of an account: charged and reserved together, and the charged part of it."""

    boxes: Boxes
    charged: Table


def _rows(session: Session, accounts: Sequence[AccountRow]) -> dict[str, _Rows]:
    columns = BoxRow.__table__.c  # plain columns: there may be thousands of rows
    query = select(columns.account_id, columns.box, columns.charged, columns.reserved)
    listed: dict[str, dict[str, tuple[int, int]]] = {account.id: {} for account in accounts}
    for account_id, box, charged, reserved in session.execute(query.where(columns.account_id.in_(listed))).all():
        listed[account_id][box] = (charged, reserved)
    return {account.id: _numbered(session, account, listed[account.id]) for account in accounts}


def _numbered(session: Session, account: AccountRow, amounts: Mapping[str, tuple[int, int]]) -> _Rows:
    """A box whose scope is not found any more carries nothing: it was given back in between, by somebody else."""
    scopes = scope_cache.numbering(session, account.id, partitions_of(account), amounts)
    known = [box for box in amounts if box in scopes]
    boxes = scopes.boxes(known, _table([sum(amounts[box]) for box in known]))
    return _Rows(boxes, _table([amounts[box][0] for box in known]))


def _table(amounts: Collection[int]) -> Table:
    return np.array(list(amounts), np.int64 if sum(amounts) < 2**62 else object)


def _tightest(account: AccountRow, rows: _Rows, scope: Scope) -> CellBalance:
    loads = Loads(partitions_of(account), rows.boxes, inside=scope)
    return _split(loads.largest(), loads, rows, cap=account.highest_cap)


def _split(found: Tightest, loads: Loads, rows: _Rows, *, cap: int) -> CellBalance:
    """Says of a load how much of it is charged.

    A bound over what the named cell truly carries counts as charged, but not beyond the highest cap: every admission
    was below it, so no joint cell carries more.
    """
    covering = loads.covering(found.cell)
    carried, charged = int(rows.boxes.amounts[covering].sum()), int(rows.charged[covering].sum())
    over = min(found.load, max(cap, carried)) - carried
    return CellBalance(found.cell, charged + over, carried - charged, found.is_exact)
