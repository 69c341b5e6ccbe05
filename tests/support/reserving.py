"""Reserves the parts of a job by the ledger alone, without a submission."""

from collections.abc import Sequence

from sqlalchemy.orm import Session

from app.db.locks import lock_rows
from app.ledger.reservations import NewReservation, judge, write
from app.ledger.tables import AccountRow


def reserve(
    session: Session, parts: Sequence[NewReservation], *, actor: str
) -> list[str]:
    """Reserves every part of a job that needs no approval: all of them, or an error and
    none.

    The accounts are locked in order of their ids before the first is read, as a
    submission locks them.
    """
    lock_rows(session, (AccountRow.id, {part.account_id for part in parts}))
    judged = judge(session, parts, actor=actor)
    assert not judged.excess
    write(session, judged)
    return list(judged.reservation_ids)
