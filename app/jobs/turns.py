"""Decides which queued job is next: submitters take turns, so that jobs of one delay a job of another by one claim.

The first jobs of all submitters come before the second ones, and among these the submitter comes first whose last job
left the queue longest ago. A claim reads a few index entries per submitter, whatever the length of the queue. While
datasets are closed, it reads a few index entries per line: a submitter's queued jobs that read the same datasets.
"""

from collections import Counter
from collections.abc import Collection
from datetime import datetime, timedelta
from typing import TypeAlias

from sqlalchemy import CTE, ColumnElement, FromClause, Select, func, select, union_all
from sqlalchemy.orm import Session, aliased

from app.core import limits
from app.jobs.states import JobState
from app.jobs.tables import JobDatasetRow, JobRow

_DEPTHS = (1, 8, 64)
"""Numbers of jobs per submitter among which a claim looks for one that no other transaction is claiming."""

_Queued: TypeAlias = tuple[datetime, str, str]
"""The submission time, the id and the submitter of a queued job."""


def lock_next(session: Session, *, closed: Collection[str]) -> JobRow | None:
    """Locks and reads the next job that no other transaction has locked.

    Args:
        session: of the caller's write transaction.
        closed: datasets whose jobs stay in the queue.

    Returns:
        ``None`` if no job may leave the queue, or if other transactions have locked the first 64 jobs of every
        submitter.
    """
    for depth in _DEPTHS:
        first = [
            (job.submitted_at, job.job_id, job.submitter) for job in session.execute(_first_jobs(closed, depth=depth))
        ]
        for job_id in _in_order(session, first):
            job = select(JobRow).where(JobRow.id == job_id).with_for_update(skip_locked=True)
            row = session.execute(job.execution_options(populate_existing=True)).scalar_one_or_none()
            if row is not None and row.state == JobState.QUEUED:  # else another transaction has or had it
                return row
    return None


def has_queued(session: Session, *, closed: Collection[str]) -> bool:
    """Whether a queued job reads none of the datasets ``closed``."""
    queued = select(JobRow.id).where(JobRow.state == JobState.QUEUED.value)
    return session.execute((_first_jobs(closed, depth=1) if closed else queued).limit(1)).first() is not None


def waiting_since_before(at: datetime, *, closed: Collection[str]) -> Select[str, datetime]:
    """Ids and times of the queued jobs that read no closed dataset and whose wait began before ``at``."""
    jobs = select(JobRow.id, JobRow.submitted_at).where(JobRow.submitted_at < at, JobRow.waits_since < at)
    if not closed:
        return jobs.where(JobRow.state == JobState.QUEUED.value)
    first = _first_jobs(closed, depth=1).subquery()
    return jobs.join(first, _queued_in(first))


def _in_order(session: Session, queued: Collection[_Queued]) -> list[str]:
    """Ids of the first jobs of all submitters in the order of their claims."""
    if not queued:
        return []
    left_at = _last_turns(session, oldest=min(submitted_at for submitted_at, _, _ in queued))
    turns, places = Counter[str](), []
    for submitted_at, job_id, submitter in sorted(queued):
        turns[submitter] += 1
        left = left_at.get(submitter)
        places.append((turns[submitter], left is not None, left or submitted_at, submitted_at, job_id))
    return [job_id for *_, job_id in sorted(places)]


def _submitters() -> CTE:
    """Every submitter of a queued job, and ``NULL``: each step finds the next larger one in the index."""
    first = select(func.min(JobRow.submitted_by).label("submitter")).where(JobRow.state == JobState.QUEUED.value)
    submitters, job = first.cte("submitters", recursive=True), aliased(JobRow)
    following = select(func.min(job.submitted_by)).where(job.state == JobState.QUEUED.value)
    following = following.where(job.submitted_by > submitters.c.submitter).correlate(submitters)
    return submitters.union_all(select(following.scalar_subquery()).where(submitters.c.submitter.is_not(None)))


def _lines(submitters: CTE) -> CTE:
    """Every line of every submitter, and ``NULL`` at its end: each step finds the next larger one in the index."""
    job = aliased(JobRow)
    reads = select(func.min(job.reads)).where(job.state == JobState.QUEUED.value)
    first = reads.where(job.submitted_by == submitters.c.submitter).correlate(submitters).scalar_subquery()
    lines = select(submitters.c.submitter, first.label("reads")).where(submitters.c.submitter.is_not(None))
    cte = lines.cte("lines", recursive=True)
    following = reads.where(job.submitted_by == cte.c.submitter, job.reads > cte.c.reads).correlate(cte)
    return cte.union_all(select(cte.c.submitter, following.scalar_subquery()).where(cte.c.reads.is_not(None)))


def _queued_in(line: FromClause) -> ColumnElement[bool]:
    """Whether a job is a queued job of a submitter, or of one of its lines."""
    condition = (JobRow.state == JobState.QUEUED.value) & (JobRow.submitted_by == line.c.submitter)
    return condition & (JobRow.reads == line.c.reads) if "reads" in line.c else condition


def _first_jobs(closed: Collection[str], *, depth: int) -> Select[datetime, str, str]:
    """The first ``depth`` jobs of every submitter; with closed datasets, of every line that reads none of them."""
    submitters = _submitters()
    lines = _lines(submitters) if closed else submitters
    jobs = select(JobRow.id).where(_queued_in(lines)).correlate(lines)
    jobs = jobs.order_by(JobRow.submitted_at, JobRow.id).limit(1)
    times = jobs.with_only_columns(JobRow.submitted_at)
    first = union_all(
        *(
            select(
                times.offset(turn).scalar_subquery().label("submitted_at"),
                jobs.offset(turn).scalar_subquery().label("job_id"),
                *lines.c,
            )
            for turn in range(depth)
        )
    ).subquery()
    exist = select(first).where(first.c.job_id.is_not(None))
    if not closed:
        return exist
    reads = select(JobDatasetRow.dataset_id).where(JobDatasetRow.job_id == first.c.job_id).correlate(first)
    reads = reads.where(JobDatasetRow.dataset_id.in_(sorted(closed))).limit(1)
    # Not NOT EXISTS: PostgreSQL would join it with all jobs of the closed datasets.
    return exist.where(reads.scalar_subquery().is_(None))


def _last_turns(session: Session, *, oldest: datetime) -> dict[str, datetime]:
    """The time at which the last job of a submitter left the queue: its charge, or its lease's or its own end.

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
    submitters = _submitters()
    theirs = recent & (JobRow.submitted_by == submitters.c.submitter)
    of_one = [query.where(theirs).limit(1).correlate(submitters).scalar_subquery() for query in latest]
    uncharged = recent & charged.is_(None) & (JobRow.state == JobState.RUNNING.value)
    times = union_all(
        *(select(submitters.c.submitter, time.label("left_at")) for time in of_one),
        select(JobRow.submitted_by, lease).where(uncharged),  # at most one of each worker
    ).subquery()
    last = select(times.c.submitter, func.max(times.c.left_at)).where(times.c.left_at.is_not(None))
    return dict(iter(session.execute(last.group_by(times.c.submitter))))
