"""Maintains the totals of each distinct scope of an account, one row per scope, in the transaction of an entry.

The rows are sums over entries, so they can be recomputed from the entries at any time. The loads of joint cells follow
from them (:mod:`app.ledger.admission`); the cost of an answer grows with the number of distinct scopes, not with the
number of entries.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache

from sqlalchemy import Executable, select
from sqlalchemy.orm import Session

from app.db.engine import DialectName
from app.db.upsert import dialect_of, insert_on
from app.ledger import scope_cache, stored_totals
from app.ledger.admission import AccountState, CellBalance
from app.ledger.scope_digest import digest_of
from app.ledger.tables import AccountRow, BoxRow
from app.privacy.composition import JointCell, Partitions, Scope


@dataclass(frozen=True)
class CellDelta:
    """One joint cell and the δ that was charged there, in steps of 10⁻¹⁸; where not ``is_exact``, an upper bound for
    every joint cell."""

    cell: JointCell
    charged: int
    is_exact: bool


def move(
    session: Session, account_id: str, scope: Scope, *, charged: int = 0, reserved: int = 0, delta_charged: int = 0
) -> None:
    """Adds to the totals of a scope; the caller holds the account's lock. A row of zeros is removed."""
    box = digest_of(scope)
    row = session.get(BoxRow, (account_id, box), populate_existing=True)
    if row is None:
        listed = {name: list(cells) for name, cells in scope.items()}
        row = BoxRow(account_id=account_id, box=box, scope=listed, charged=0, reserved=0, delta_charged=0)
        session.add(row)
    row.charged += charged
    row.reserved += reserved
    row.delta_charged += delta_charged
    if not (row.charged or row.reserved or row.delta_charged):
        session.delete(row)
    session.flush()


def add_reserved(session: Session, scopes: Mapping[str, Scope], reserved: Mapping[tuple[str, str], int]) -> None:
    """Adds to the reserved totals of scopes, by account and digest; the caller holds the locks of the accounts.

    Args:
        session: of the transaction that holds the locks.
        scopes: by digest.
        reserved: positive amounts, by account and digest.
    """
    rows = [
        {
            "account_id": account_id,
            "box": digest,
            "scope": {name: list(cells) for name, cells in scopes[digest].items()},
            "charged": 0,
            "reserved": amount,
            "delta_charged": 0,
        }
        for (account_id, digest), amount in sorted(reserved.items())
    ]
    session.execute(_addition(dialect_of(session)), rows)


@cache
def _addition(dialect: DialectName) -> Executable:
    statement = insert_on(dialect, BoxRow)
    summed = {"reserved": BoxRow.reserved + statement.excluded.reserved}
    return statement.on_conflict_do_update(index_elements=["account_id", "box"], set_=summed)


def read(session: Session, accounts: Sequence[AccountRow]) -> dict[str, AccountState]:
    """The states of several accounts, by id, in one query."""
    totals = stored_totals.by_digest(session, [account.id for account in accounts])
    return {account.id: of_totals(session, account, totals[account.id]) for account in accounts}


def of_totals(session: Session, account: AccountRow, by_digest: Mapping[str, tuple[int, int]]) -> AccountState:
    """The state of an account, from its totals."""
    partitions = partitions_of(account)
    scopes, missing = scope_cache.numbering(session, account.id, partitions, by_digest.keys())
    if missing:
        # A scope that the database no longer has carries nothing: another transaction gave its amount back meanwhile.
        by_digest = {digest: amounts for digest, amounts in by_digest.items() if digest not in missing}
    return AccountState(account.cap, account.highest_cap, partitions, scopes, by_digest)


def tightest(session: Session, account: AccountRow, scope: Scope) -> CellBalance:
    """The joint cell of a scope with the largest ``charged + reserved``; ties in canonical order."""
    return read(session, [account])[account.id].tightest(scope)


def is_used(session: Session, account_id: str) -> bool:
    """Whether a scope of an account carries an amount: a reservation, a charge or an opening load."""
    return session.execute(select(BoxRow.box).where(BoxRow.account_id == account_id).limit(1)).first() is not None


def charged_deltas(session: Session, account_id: str) -> dict[str, int]:
    """The charged δ of every scope of an account, by the scope's digest, in steps of 10⁻¹⁸."""
    query = select(BoxRow.box, BoxRow.delta_charged).where(BoxRow.account_id == account_id, BoxRow.delta_charged > 0)
    return {box: int(amount) for box, amount in session.execute(query)}


def tightest_delta(session: Session, account: AccountRow, scope: Scope) -> CellDelta:
    """The joint cell of a scope with the largest charged δ."""
    from app.privacy.composition.joint_loads import Loads  # numpy takes 0.06 s of CPU and 12 MB to import

    steps = charged_deltas(session, account.id)
    partitions = partitions_of(account)
    scopes, _ = scope_cache.numbering(session, account.id, partitions, steps.keys())
    largest = Loads(partitions, scopes.boxes(list(steps), steps.values()), inside=scope).largest()
    return CellDelta(largest.cell, largest.load, largest.is_exact)


def partitions_of(account: AccountRow) -> Partitions:
    """The partitions of the account."""
    return Partitions.from_json(account.partitions)
