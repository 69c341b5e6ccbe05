"""Keeps the last verification of an account by each auditor, who states the result, and
by the service's own verifier.

A verification is no entry: an entry about it would be one that it does not cover, so
each verification would put itself out of date. It reserves and charges nothing.

A failure stands before every other result until the same key states another one: no
result of somebody else hides it.
"""

from collections.abc import Collection

from sqlalchemy import Select, case, func, or_, select
from sqlalchemy.orm import Session

from app.core import limits, stamps
from app.db.database import insert
from app.ledger import control
from app.ledger.tables import AccountRow, VerificationRow
from grovekeeper_common.json_types import JsonMapping, JsonObject

SERVICE = ""
FAILED = "NOT VERIFIED"


def put(
    session: Session, account_id: str, *, stated_by: str, stated: JsonMapping
) -> None:
    """Keeps a verification, in place of the last one that the same key stated."""
    row = insert(session, VerificationRow).values(
        account_id=account_id, stated_by=stated_by, **stated
    )
    key = ["account_id", "stated_by"]
    session.execute(row.on_conflict_do_update(index_elements=key, set_=dict(stated)))


def last(session: Session, account_ids: Collection[str]) -> dict[str, list[JsonObject]]:
    """The last verifications of several accounts, by account: failures first, then the
    newest, each with the number of entries that the account has got since.
    """
    query = (
        select(VerificationRow, AccountRow.last_sequence)
        .join(AccountRow, AccountRow.id == VerificationRow.account_id)
        .where(VerificationRow.account_id.in_(account_ids))
        .order_by(VerificationRow.verdict != FAILED, VerificationRow.stated_at.desc())
    )
    shown: dict[str, list[JsonObject]] = {name: [] for name in account_ids}
    for row, size in session.execute(query):
        if len(shown[row.account_id]) == limits.MAX_VERIFICATIONS:
            continue
        verification = {
            "verdict": row.verdict,
            "entries": row.entries,
            "entries_since": None if row.entries is None else size - row.entries,
            "checkpoint": row.checkpoint,
            "by": row.stated_by or None,
            "by_name": row.name or None,
            "at": stamps.to_text(row.stated_at),
        }
        shown[row.account_id].append(verification)
    return shown


def unverified(
    session: Session, account_ids: Collection[str] | None, *, limit: int
) -> tuple[list[tuple[AccountRow, int]], int, int]:
    """The accounts of which a verification failed, then those with the most entries
    that no auditor's verification covers, each with the number of these; how many
    such accounts there are, and how many in all.

    What the service says of itself covers nothing: an auditor asks whether it is true.

    Args:
        account_ids: which accounts; ``None``: all.
    """
    failed = case((VerificationRow.verdict == FAILED, 1), else_=0)
    of_auditor = case((VerificationRow.stated_by != SERVICE, VerificationRow.entries))
    stated = (
        select(
            VerificationRow.account_id,
            func.max(of_auditor).label("covered"),
            func.max(failed).label("failed"),
        )
        .group_by(VerificationRow.account_id)
        .subquery()
    )
    has_failed = func.coalesce(stated.c.failed, 0)
    since = AccountRow.last_sequence - func.coalesce(stated.c.covered, 0)
    every = (
        select(AccountRow, since)
        .outerjoin(stated, stated.c.account_id == AccountRow.id)
        .where(AccountRow.id != control.CHAIN)
    )
    if account_ids is not None:
        every = every.where(AccountRow.id.in_(account_ids))
    query = every.where(or_(has_failed == 1, since > 0))
    first = query.order_by(has_failed.desc(), since.desc(), AccountRow.id).limit(limit)
    rows = [(row, n_entries) for row, n_entries in session.execute(first)]
    return rows, _count(session, query), _count(session, every)


def _count(session: Session, accounts: Select[AccountRow, int]) -> int:
    ids = accounts.with_only_columns(AccountRow.id).subquery()
    return session.scalar(select(func.count()).select_from(ids)) or 0
