"""Notes which worker processes live. No decision rests on it: jobs are fenced by leases."""

from datetime import datetime, timedelta
from typing import Final

from sqlalchemy import delete, func, select
from sqlalchemy.orm import Session

from app.core import limits
from app.db.database import insert
from app.jobs.tables import WorkerRow

_KEPT: Final = timedelta(days=1)


def see(session: Session, worker_id: str, *, at: datetime) -> None:
    """Notes that a worker lives, and forgets workers that were killed a day ago."""
    seen = insert(session, WorkerRow).values(id=worker_id, seen_at=at)
    session.execute(seen.on_conflict_do_update(index_elements=["id"], set_={"seen_at": at}))
    session.execute(delete(WorkerRow).where(WorkerRow.seen_at < at - _KEPT))


def leave(session: Session, worker_id: str) -> None:
    """Notes that a worker ends."""
    session.execute(delete(WorkerRow).where(WorkerRow.id == worker_id))


def n_alive(session: Session, *, at: datetime) -> int:
    """The number of workers that were seen lately."""
    since = at - timedelta(seconds=limits.WORKER_SEEN_S)
    return session.execute(select(func.count()).where(WorkerRow.seen_at >= since)).scalar_one()
