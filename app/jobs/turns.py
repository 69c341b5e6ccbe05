"""Decides which queued job is next: submitters take turns, so that jobs of one delay a job of another by one claim.

The first jobs of all submitters come before the second ones, and among these the submitter comes first whose last job
left the queue longest ago. A claim reads a few index entries per submitter, whatever the length of the queue.
"""

from datetime import datetime, timedelta

from sqlalchemy import CTE, ColumnElement, Select, Subquery, func, literal, select, union_all
from sqlalchemy.orm import Session, aliased

from app.core import limits
from app.jobs.states import JobState
from app.jobs.tables import JobRow

_DEPTHS = (1, 8, 64)
"""Numbers of jobs per submitter among which a claim looks for one that no other transaction is claiming."""


def lock_next(session: Session, claimable: ColumnElement[bool]) -> JobRow | None:
    """Locks and reads the next job that no other transaction has locked.

    Args:
        session: of the caller's write transaction.
        claimable: condition on :class:`JobRow`: which queued jobs may leave the queue.

    Returns:
        ``None`` if no job may leave the queue, or if other transactions have locked the first 64 jobs of every
        submitter.
    """
    queued = select(JobRow.submitted_at).where(claimable)
    oldest = session.execute(queued.order_by(JobRow.submitted_at).limit(1)).scalar()
    if oldest is None:
        return None
    for depth in _DEPTHS:
        for job_id in session.execute(_in_order(claimable, oldest=oldest, depth=depth)).scalars().all():
            job = select(JobRow).where(JobRow.id == job_id).with_for_update(skip_locked=True)
            row = session.execute(job.execution_options(populate_existing=True)).scalar_one_or_none()
            if row is not None and row.state == JobState.QUEUED:  # else another transaction has or had it
                return row
    return None


def _in_order(claimable: ColumnElement[bool], *, oldest: datetime, depth: int) -> Select[str]:
    """Ids of the first jobs of every submitter, ``depth`` of each, in the order of their claims."""
    submitters = _submitters()
    first, last = _first_jobs(submitters, claimable, depth=depth), _last_turns(submitters, oldest=oldest)
    return (
        select(first.c.job_id)
        .join(last, last.c.submitter == first.c.submitter)
        .where(first.c.job_id.is_not(None))
        .order_by(first.c.turn, last.c.left_at.nulls_first(), first.c.submitted_at, first.c.job_id)
    )


def _submitters() -> CTE:
    """Every submitter of a queued job, and ``NULL``: each step finds the next larger one in the index."""
    first = select(func.min(JobRow.submitted_by).label("id")).where(JobRow.state == JobState.QUEUED.value)
    submitters, job = first.cte("submitters", recursive=True), aliased(JobRow)
    following = select(func.min(job.submitted_by)).where(job.state == JobState.QUEUED.value)
    following = following.where(job.submitted_by > submitters.c.id).correlate(submitters)
    return submitters.union_all(select(following.scalar_subquery()).where(submitters.c.id.is_not(None)))


def _first_jobs(submitters: CTE, claimable: ColumnElement[bool], *, depth: int) -> Subquery:
    """The first jobs of every submitter; rows of submitters with fewer jobs have no id."""
    jobs = select(JobRow.id).where(claimable, JobRow.submitted_by == submitters.c.id).correlate(submitters)
    jobs = jobs.order_by(JobRow.submitted_at, JobRow.id).limit(1)
    times = jobs.with_only_columns(JobRow.submitted_at)
    return union_all(
        *(
            select(
                submitters.c.id.label("submitter"),
                literal(turn).label("turn"),
                jobs.offset(turn).scalar_subquery().label("job_id"),
                times.offset(turn).scalar_subquery().label("submitted_at"),
            )
            for turn in range(depth)
        )
    ).subquery()


def _last_turns(submitters: CTE, *, oldest: datetime) -> Subquery:
    """The time at which the last job of every submitter left the queue: its charge, or its lease's or its own end.

    A job that waited neither for an approval nor for the end of a freeze waits at most ``limits.MAX_QUEUE_S``, so if it
    left the queue after ``oldest``, the time of the oldest queued job, it was submitted at most that long before.
    Longer waits are left out, which gives their submitters an earlier turn.
    """
    since = oldest - timedelta(seconds=limits.MAX_QUEUE_S)
    charged, ended, lease = JobRow.charged_at, JobRow.finished_at, JobRow.lease_until
    recent = JobRow.submitted_at >= since
    latest = (
        select(charged).where(charged >= since).order_by(charged.desc()),
        select(ended).where(charged.is_(None), ended >= since).order_by(charged.desc(), ended.desc()),
    )
    theirs = recent & (JobRow.submitted_by == submitters.c.id)
    of_one = [query.where(theirs).limit(1).correlate(submitters).scalar_subquery() for query in latest]
    uncharged = recent & charged.is_(None) & (JobRow.state == JobState.RUNNING.value)
    times = union_all(
        *(select(submitters.c.id.label("submitter"), time.label("left_at")) for time in of_one),
        select(JobRow.submitted_by, lease).where(uncharged),  # at most one of each worker
    ).subquery()
    last = select(times.c.submitter, func.max(times.c.left_at).label("left_at"))
    return last.group_by(times.c.submitter).subquery()
