"""Ends jobs that an owner or a deletion cancels."""

from collections.abc import Sequence
from datetime import datetime

from sqlalchemy.orm import Session

from app.jobs.states import UNFINISHED, EndReason, JobState
from app.jobs.tables import JobRow
from app.ledger import service as ledger
from app.services.jobs import notices


def cancel_locked(session: Session, rows: Sequence[JobRow], *, actor: str, at: datetime) -> None:
    """Ends jobs that the caller has locked. Their workers lose the lease and kill the child."""
    unfinished = [row for row in rows if row.state in UNFINISHED]
    ledger.void_jobs(session, [row.id for row in unfinished if row.charged_at is None], actor=actor)
    for row in unfinished:
        notices.end_job(session, row, state=JobState.CANCELLED, reason=EndReason.CANCELLED, at=at)
