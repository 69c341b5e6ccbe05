"""Estimates when what is left of budgets ends, from the charges of the last days."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

from sqlalchemy import case, func, select
from sqlalchemy.orm import Session

from app.core import limits, stamps
from app.db.database import transaction_time
from app.ledger import kept_states, tables
from app.ledger.statements import Balance
from app.ledger.tables import AccountRow, EntryKind, EntryRow
from app.wire.datasets import PaceOut

_DAY = timedelta(days=1)


def paces(session: Session, balances: Mapping[str, Balance]) -> dict[str, PaceOut]:
    """What the tightest cell of each of several accounts was charged in the last days,
    and when what is left ends at this pace.

    The days are those since the first charge, at most ``limits.PACE_DAYS``. One
    statement reads the newest ``limits.MAX_PACE_ENTRIES`` entries of each account, and
    of an account with more the days begin with these. An account has no pace if its days
    are fewer than ``limits.MIN_PACE_DAYS``, if none of them has a charge, or if nothing
    is left. Nor has a member that its population limits: what is left ends with the
    charges of others, too.
    """
    at = transaction_time(session)
    earliest = at - limits.PACE_DAYS * _DAY
    recent = case((EntryRow.at >= stamps.to_text(earliest), EntryRow.amount), else_=0)
    newest = AccountRow.last_sequence - limits.MAX_PACE_ENTRIES
    sums = (
        select(
            EntryRow.account_id,
            EntryRow.scope,
            func.min(EntryRow.at),
            *tables.sum_in_halves(recent),
        )
        .join(AccountRow, AccountRow.id == EntryRow.account_id)
        .where(
            EntryRow.account_id.in_(sorted(balances)),
            EntryRow.sequence > newest,
            EntryRow.kind == EntryKind.CHARGE.value,
        )
        .group_by(EntryRow.account_id, EntryRow.scope)
    )
    first, charged = dict[str, datetime](), dict.fromkeys(balances, 0)
    # read once, not once an account or a scope
    rows = {row.id: row for row in tables.accounts(session, balances)}
    uploads = dict[str, Sequence[str]]()
    for account_id, scope, first_at, high, low in session.execute(sums).all():
        begins = max(stamps.from_text(first_at), earliest)
        first[account_id] = min(begins, first.get(account_id, begins))
        if account_id not in uploads:
            state = kept_states.state_of(session, rows[account_id])
            uploads[account_id] = state.uploads
        cells = tables.listed(scope, uploads[account_id])
        if cells.covers(balances[account_id].tightest_cell):
            charged[account_id] += tables.sum_of_halves(high, low)
    return {
        account_id: _pace(balances[account_id], charged[account_id], begins, at)
        for account_id, begins in first.items()
        if charged[account_id]
        and balances[account_id].remaining
        and balances[account_id].limited_by != "population"
        and at - begins >= limits.MIN_PACE_DAYS * _DAY
    }


def _pace(balance: Balance, charged: int, begins: datetime, at: datetime) -> PaceOut:
    days = (at - begins) / _DAY * balance.remaining / charged
    ends_on = None
    if days < limits.MAX_PACE_DAYS:
        ends_on = (at + days * _DAY).date().isoformat()
    return PaceOut(
        days=(at - begins) // _DAY, charged=balance.text(charged), ends_on=ends_on
    )
