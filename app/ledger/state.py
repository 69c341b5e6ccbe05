"""What lies on the boxes of an account: one row per distinct box, moved in the transaction of the entry that moves it.

The rows are sums over entries and nothing else, so they can be recomputed from the entries at any time. What a joint
cell carries follows from them (:mod:`app.privacy.composition`); the cost of an answer grows with the number of distinct
boxes, not with the number of entries.
"""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import rfc8785
from sqlalchemy import Text, select, type_coerce
from sqlalchemy.orm import Session

from app.ledger.tables import AccountRow, BoxRow
from app.privacy.composition import BoxAmount, JointCell, Loads, Partitions, Scope, Tightest, covers

_LONGEST_KEPT = 4_096
"""Characters of a scope that is kept parsed: one that lists thousands of uploads has a hundred thousand."""


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
    written = {name: list(cells) for name, cells in scope.items()}
    box = hashlib.sha256(rfc8785.dumps(written)).hexdigest()
    row = session.get(BoxRow, (account_id, box), populate_existing=True)
    if row is None:
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
    return _tightest(account, _rows(session, [account.id])[account.id], scope)


def tightest_of_each(session: Session, accounts: Sequence[AccountRow]) -> dict[str, CellBalance]:
    """The same of several whole accounts, by id: asked for once."""
    rows = _rows(session, [account.id for account in accounts])
    return {account.id: _tightest(account, rows[account.id], {}) for account in accounts}


def tightest_delta(session: Session, account: AccountRow, scope: Scope) -> CellDelta:
    """The joint cell of a box with the largest charged δ."""
    query = select(BoxRow.scope, BoxRow.delta_charged).where(BoxRow.account_id == account.id, BoxRow.delta_charged > 0)
    charged = [
        BoxAmount({name: tuple(cells) for name, cells in listed.items()}, steps)
        for listed, steps in session.execute(query)
    ]
    found = Loads(partitions_of(account), charged, inside=scope).largest()
    return CellDelta(found.cell, found.load, found.is_exact)


def by_cell(session: Session, account: AccountRow, scope: Scope) -> dict[str, list[CellBalance]]:
    """For every partition and every cell of it inside a box, the tightest joint cell that lies in the cell."""
    rows, partitions = _rows(session, [account.id])[account.id], partitions_of(account)
    load = Loads(partitions, [row.load for row in rows], inside=scope)
    spent = Loads(partitions, [BoxAmount(row.scope, row.charged) for row in rows], inside=scope)
    return {
        partition.name: [
            _split(found, load.at(found.cell), spent.at(found.cell), cap=account.highest_cap)
            for found in load.by_cell(partition.name)
        ]
        for partition in partitions.declared
    }


def partitions_of(account: AccountRow) -> Partitions:
    """How the account is cut."""
    return Partitions.from_json(account.partitions)


class _Row(NamedTuple):
    scope: Scope
    charged: int
    reserved: int

    @property
    def load(self) -> BoxAmount:
        return BoxAmount(self.scope, self.charged + self.reserved)


def _rows(session: Session, account_ids: Sequence[str]) -> dict[str, list[_Row]]:
    written = type_coerce(BoxRow.scope, Text)
    query = select(BoxRow.account_id, written, BoxRow.charged, BoxRow.reserved)
    found: dict[str, list[_Row]] = {account_id: [] for account_id in account_ids}
    for account_id, scope, charged, reserved in session.execute(query.where(BoxRow.account_id.in_(account_ids))):
        found[account_id].append(_Row(_read(scope), charged, reserved))
    return found


def _tightest(account: AccountRow, rows: Sequence[_Row], scope: Scope) -> CellBalance:
    load = Loads(partitions_of(account), [row.load for row in rows], inside=scope)
    found = load.largest()
    charged = sum(row.charged for row in rows if covers(row.scope, found.cell))
    return _split(found, load.at(found.cell), charged, cap=account.highest_cap)


def _read(written: str) -> Scope:
    """A stored scope. The same boxes are read for every admission: what they say is kept, unless it is long."""
    return (_parsed if len(written) <= _LONGEST_KEPT else _parsed.__wrapped__)(written)


@lru_cache(maxsize=8192)
def _parsed(written: str) -> Scope:
    return {name: tuple(cells) for name, cells in json.loads(written).items()}


def _split(found: Tightest, carried: int, charged: int, *, cap: int) -> CellBalance:
    """Says of a load how much of it is charged.

    A bound over what the named cell truly carries counts as charged, but not beyond the highest cap: every admission
    was below it, so no joint cell carries more.
    """
    over = min(found.load, max(cap, carried)) - carried
    return CellBalance(found.cell, charged + over, carried - charged, found.is_exact)
