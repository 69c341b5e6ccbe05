"""Stores the rules of datasets, and reads what they leave to a key, on the caller's transaction.

A change is made under the locks of the dataset and of its account. Admissions and charges read rules under the lock of
the account, so when a change is answered, nothing is admitted and nothing is charged under the rules before it.
"""

from collections.abc import Collection, Iterable
from datetime import datetime

from sqlalchemy import or_, select, update
from sqlalchemy.orm import Session

from app.core import clock
from app.ledger import repository
from app.ledger.rules import UNLIMITED, Allowance, Quota, Rules, Usage
from app.ledger.tables import ReservationRow, RulesRow


def row_of(session: Session, account_id: str) -> RulesRow | None:
    """The row of an account's rules; ``None`` where no rule was ever set."""
    return session.get(RulesRow, account_id, populate_existing=True)


def rules_of(row: RulesRow | None) -> Rules:
    """The rules of a row."""
    if row is None:
        return Rules()
    return Rules(
        largest_job=row.largest_job,
        approval_above=row.approval_above,
        quotas=tuple(Quota(frozenset(quota["keys"]), int(quota["cap"])) for quota in row.quotas),
        is_frozen=row.is_frozen,
        erase_rows_at=row.erase_rows_at,
    )


def put(session: Session, account_id: str, rules: Rules, *, actor: str, at: datetime) -> None:
    """Puts rules in force and drops a proposal. The caller holds the locks of the dataset and of its account."""
    values = {
        "largest_job": rules.largest_job,
        "approval_above": rules.approval_above,
        "quotas": [{"keys": sorted(quota.keys), "cap": str(quota.cap)} for quota in rules.quotas],
        "is_frozen": rules.is_frozen,
        "erase_rows_at": rules.erase_rows_at,
        "proposal": None,
        "changed_by": actor,
        "changed_at": at,
    }
    session.merge(RulesRow(account_id=account_id, **values))
    session.flush()


def allowances(session: Session, account_ids: Collection[str], key: str) -> dict[str, Allowance]:
    """What the rules of several accounts leave to a key, by account; accounts without rules are missing."""
    rows = session.execute(
        select(RulesRow).where(RulesRow.account_id.in_(account_ids)).execution_options(populate_existing=True)
    ).scalars()
    found = {}
    for row in rows:
        rules = rules_of(row)
        found[row.account_id] = rules.allowance(
            key, usage(session, row.account_id, rules.keys_beside(key), key=key), at=clock.now()
        )
    return found


def usage(session: Session, account_id: str, keys: Iterable[str], *, key: str) -> Usage:
    """What some keys have reserved or charged on an account."""
    sums = repository.sum_in_halves(ReservationRow.amount)
    query = (
        select(ReservationRow.reserved_by, ReservationRow.is_approved, *sums)
        .where(
            ReservationRow.account_id == account_id,
            ReservationRow.reserved_by.in_(sorted(keys)),
            ReservationRow.state.in_(("reserved", "charged")),
        )
        .group_by(ReservationRow.reserved_by, ReservationRow.is_approved)
    )
    by_key: dict[str, int] = {}
    since_approval = 0
    for reserved_by, is_approved, high, low in session.execute(query):
        total = repository.sum_of_halves(high, low)
        by_key[reserved_by] = by_key.get(reserved_by, 0) + total
        if reserved_by == key and not is_approved:
            since_approval = total
    return Usage(by_key, since_approval)


def allowance(session: Session, account_id: str, key: str) -> Allowance:
    """What the rules of one account leave to a key."""
    return allowances(session, [account_id], key).get(account_id, UNLIMITED)


def above_approval(session: Session, account_ids: Collection[str], key: str) -> dict[str, int]:
    """The accounts on which a key has spent more than it may without an approval, with the excess in steps.

    The caller has made the reservations of a request and holds the locks of the accounts.
    """
    rows = session.execute(
        select(RulesRow).where(RulesRow.account_id.in_(account_ids), RulesRow.approval_above.is_not(None))
    ).scalars()
    excess = {
        row.account_id: usage(session, row.account_id, [key], key=key).since_approval - (row.approval_above or 0)
        for row in rows
    }
    return {account_id: amount for account_id, amount in sorted(excess.items()) if amount > 0}


def approve(session: Session, account_id: str, key: str, *, waiting: Collection[str]) -> None:
    """Covers what a key has reserved or charged on an account by an approval, so that it does not count any more.

    Args:
        session: of the transaction that holds the account's lock.
        account_id: the account.
        key: the submitter of the approved job.
        waiting: the key's other jobs that wait for a decision; their reservations are not covered.
    """
    session.execute(
        update(ReservationRow)
        .where(
            ReservationRow.account_id == account_id,
            ReservationRow.reserved_by == key,
            ReservationRow.is_approved.is_(False),
            or_(ReservationRow.job_id.is_(None), ReservationRow.job_id.not_in(waiting)),
        )
        .values(is_approved=True)
        .execution_options(synchronize_session=False)
    )


def frozen_accounts(session: Session) -> list[str]:
    """The accounts whose rules admit nothing until they are loosened, in order of id."""
    return list(
        session.execute(select(RulesRow.account_id).where(RulesRow.is_frozen).order_by(RulesRow.account_id)).scalars()
    )


def due_accounts(session: Session, *, at: datetime) -> list[str]:
    """Ids of the accounts whose date of erasure has come, in order; deleted datasets among them."""
    due = select(RulesRow.account_id).where(RulesRow.erase_rows_at <= at)
    return list(session.execute(due.order_by(RulesRow.account_id)).scalars())


def closed_accounts(session: Session, *, at: datetime) -> frozenset[str]:
    """Ids of the accounts whose jobs are not started: frozen, or with rows that are to be erased by now."""
    is_closed = or_(RulesRow.is_frozen, RulesRow.erase_rows_at <= at)
    return frozenset(session.execute(select(RulesRow.account_id).where(is_closed)).scalars())
