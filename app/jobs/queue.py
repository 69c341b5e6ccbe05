"""Enqueues, claims, renews and finishes jobs on the caller's transaction, fenced by the
lease token.

Submitters take turns, so that jobs of a submitter delay a job of another by one claim.
At most one worker may finish a job. A worker that finds its token gone raises
:class:`LeaseLost` and writes nothing. ``SKIP LOCKED`` lets several workers claim jobs
at once on PostgreSQL; SQLite has one write transaction at a time.
A transaction that locks several rows locks keys first, then datasets, jobs and
accounts, each in order of ids.

Before it is queued, a job may wait for decisions of owners, which are stored here, too.
The worker processes that live are noted for metrics alone: no decision rests on them,
because jobs are fenced by leases.
"""

import secrets
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from sqlalchemy import (
    ColumnElement,
    FromClause,
    Select,
    Text,
    cast,
    delete,
    func,
    literal_column,
    or_,
    select,
    tuple_,
    union_all,
    update,
)
from sqlalchemy.orm import Session

from app.core import limits
from app.core.errors import LeaseLost, NotFound
from app.db.base import find_row, locked_rows
from app.db.database import insert, insert_rows
from app.db.locks import lock_rows, sent_together
from app.jobs.states import UNFINISHED, EndReason, JobState, PutBack
from app.jobs.tables import ApprovalRow, JobDatasetRow, JobRow, WorkerRow

_ADD_JOB = insert_rows(JobRow)
_ADD_READS = insert_rows(JobDatasetRow)

_CLAIMS_AT_ONCE = 16
"""Number of jobs per submitter among which a claim looks for a job that no other
transaction is claiming.
"""

_IS_QUEUED = JobRow.state == literal_column(f"'{JobState.QUEUED.value}'")
"""Without a parameter: SQLite uses the index of queued jobs for its own words alone."""

_WORKERS_KEPT_FOR: Final = timedelta(days=1)


@dataclass(frozen=True)
class Claim:
    """A worker's time-limited hold on one job."""

    job_id: str
    token: str


def enqueue(session: Session, row: JobRow, *, at: datetime) -> None:
    """Adds a queued or waiting job: its row with the facts of the submission, and a row
    for each dataset it reads.
    """
    row.submitted_at = row.waits_since = at
    row.trees_done = 0
    dataset_ids = sorted({part.dataset for part in row.parts})
    columns = JobRow.__table__.columns.keys()
    with sent_together(session):
        session.execute(_ADD_JOB, {name: getattr(row, name) for name in columns})
        if dataset_ids:
            reads = [{"job_id": row.id, "dataset_id": id_} for id_ in dataset_ids]
            session.execute(_ADD_READS, reads)


def has_queued(
    session: Session,
    *,
    closed: Collection[str] = (),
    known: Collection[str] | None = None,
) -> bool:
    """Whether any job can be claimed; an idle worker reads this without the write lock.
    Arguments: :func:`claim`.
    """
    query = select(JobRow.id).where(_is_free(closed, known)).limit(1)
    return session.execute(query).first() is not None


def reads_upload(session: Session, dataset_id: str, upload: str) -> bool:
    """Whether a job that was charged, or that may still be, names an upload among those
    that it reads.
    """
    is_charged = or_(
        JobRow.charged_at.is_not(None),
        JobRow.state.in_(state.value for state in UNFINISHED),
    )
    # The task is text in the database. Ids of uploads are random, so no other text of a
    # task contains one.
    names_it = cast(JobRow.task, Text).contains(upload, autoescape=True)
    query = select(JobRow.id).join(JobDatasetRow, JobDatasetRow.job_id == JobRow.id)
    query = query.where(JobDatasetRow.dataset_id == dataset_id, is_charged, names_it)
    return session.execute(query.limit(1)).first() is not None


def counts(
    session: Session,
    states: Collection[JobState],
    *,
    dataset_ids: Collection[str] | None = None,
) -> dict[JobState, int]:
    """The number of jobs in each of several states, of the given datasets (``None`` =
    all).
    """
    query = select(JobRow.state, func.count()).where(
        JobRow.state.in_(state.value for state in states)
    )
    if dataset_ids is not None:
        query = query.where(JobRow.dataset_id.in_(dataset_ids))
    numbers = dict(iter(session.execute(query.group_by(JobRow.state))))
    return {state: numbers.get(state.value, 0) for state in states}


def oldest_wait(session: Session) -> datetime | None:
    """When the job that has been queued for longest began to wait."""
    queued = JobRow.state == JobState.QUEUED.value
    return session.execute(
        select(func.min(JobRow.waits_since)).where(queued)
    ).scalar_one()


def failed(session: Session) -> dict[EndReason, int]:
    """The number of failed jobs by reason."""
    query = select(JobRow.reason, func.count()).where(
        JobRow.state == JobState.FAILED.value
    )
    numbers = session.execute(query.group_by(JobRow.reason))
    # else a newer one
    return {
        EndReason(reason): number
        for reason, number in numbers
        if reason in list(EndReason)
    }


def claim(
    session: Session,
    *,
    at: datetime,
    ttl_s: float,
    closed: Collection[str] = (),
    known: Collection[str] | None = None,
) -> Claim | None:
    """Takes the oldest job of the submitter who waits longest for a turn; ``None`` if
    no job can be claimed.

    The first jobs of all submitters come before the second ones, and among these the
    submitter comes first whose last job left the queue longest ago. A job that another
    transaction is claiming counts as its submitter's turn: the next claim passes to the
    next submitter.

    Args:
        session: of the caller's write transaction.
        at: the present time.
        ttl_s: seconds until the lease ends.
        closed: datasets whose jobs stay in the queue.
        known: names of the kinds and algorithms whose jobs the caller can run;
            ``None``: all.
    """
    # The order is read without locks, which PostgreSQL does not allow with window
    # functions. So each job is locked and looked at again.
    for job_id in session.scalars(_in_order(closed, known)).all():
        query = select(JobRow).where(JobRow.id == job_id)
        query = query.with_for_update(skip_locked=True)
        row = session.execute(
            query.execution_options(populate_existing=True)
        ).scalar_one_or_none()
        # else another transaction has or had it
        if row is not None and row.state == JobState.QUEUED:
            token = secrets.token_hex(16)
            row.state = JobState.RUNNING.value
            row.reason = None
            row.lease_token = token
            row.lease_until = at + timedelta(seconds=ttl_s)
            session.flush()
            return Claim(row.id, token)
    return None


def first_in_order(
    session: Session, *, most: int, closed: Collection[str] = ()
) -> list[str]:
    """Ids of at most ``most`` jobs in the order in which workers take them, if no
    further job comes.
    """
    in_order = _in_order(closed, None, n_turns=most)
    return list(session.scalars(in_order.limit(most)))


def _in_order(
    closed: Collection[str],
    known: Collection[str] | None,
    *,
    n_turns: int = _CLAIMS_AT_ONCE,
) -> Select[str]:
    """Ids of the first jobs of all submitters in the order of their claims."""
    turn = func.row_number().over(
        partition_by=JobRow.submitted_by, order_by=(JobRow.submitted_at, JobRow.id)
    )
    columns = (JobRow.id, JobRow.submitted_by, JobRow.submitted_at, turn.label("turn"))
    queued = select(*columns).where(_is_free(closed, known)).subquery("queued")
    order = (
        queued.c.turn,
        _left_at(queued).nulls_first(),
        queued.c.submitted_at,
        queued.c.id,
    )
    return select(queued.c.id).where(queued.c.turn <= n_turns).order_by(*order)


def _left_at(queued: FromClause) -> ColumnElement[datetime | None]:
    """When a job of a submitter last left the queue: at its charge, or else at the end
    of its lease or its own end.
    """
    theirs = JobRow.submitted_by == queued.c.submitted_by
    uncharged = JobRow.charged_at.is_(None)
    ended = (
        select(JobRow.finished_at)
        .where(theirs, uncharged, JobRow.finished_at.is_not(None))
        .correlate(queued)
    )
    # as the index has them
    ended = ended.order_by(JobRow.charged_at.desc(), JobRow.finished_at.desc()).limit(1)
    # of jobs that run, or were put back
    leased = (
        select(JobRow.lease_until)
        .where(theirs, uncharged, JobRow.lease_until.is_not(None))
        .correlate(queued)
    )
    leased = leased.order_by(JobRow.lease_until.desc()).limit(1)
    times = union_all(
        select(func.max(JobRow.charged_at).label("left_at"))
        .where(theirs)
        .correlate(queued),
        select(ended.scalar_subquery()),
        select(leased.scalar_subquery()),
    ).subquery()
    return select(func.max(times.c.left_at)).scalar_subquery()


def _is_free(
    closed: Collection[str], known: Collection[str] | None = None
) -> ColumnElement[bool]:
    """Whether a job is queued, was not put back lately, reads none of the datasets
    ``closed`` and has a kind and an algorithm of ``known``.
    """
    queued = _IS_QUEUED & JobRow.lease_until.is_(None)
    if known is not None:
        names = sorted(known)
        queued &= JobRow.kind.in_(names) & or_(
            JobRow.algorithm.is_(None), JobRow.algorithm.in_(names)
        )
    if not closed:
        return queued
    reads = (
        select(JobDatasetRow.dataset_id)
        .where(JobDatasetRow.job_id == JobRow.id)
        .correlate(JobRow)
    )
    reads = reads.where(JobDatasetRow.dataset_id.in_(sorted(closed))).limit(1)
    # Not NOT EXISTS: PostgreSQL would join it with all jobs of the closed datasets.
    return queued & reads.scalar_subquery().is_(None)


def _reading(dataset_ids: Collection[str]) -> Select[str]:
    """Ids of the jobs that read one of several datasets."""
    return select(JobDatasetRow.job_id).where(
        JobDatasetRow.dataset_id.in_(sorted(dataset_ids))
    )


def leased(session: Session, claim: Claim) -> JobRow:
    """Locks and reads a job, if the claim's lease still holds.

    Raises:
        LeaseLost: another worker has the job, or it was cancelled or ended.
    """
    row = locked(session, claim.job_id)
    if row.lease_token != claim.token:
        raise LeaseLost
    return row


def locked(session: Session, job_id: str) -> JobRow:
    """Locks and reads a job.

    Raises:
        NotFound: no such job.
    """
    return find_row(session, JobRow, job_id, kind="job", lock=True)


def locked_several(session: Session, job_ids: Sequence[str]) -> Sequence[JobRow]:
    """Locks and reads the jobs that exist, in order of their ids, in one statement."""
    return locked_rows(session, JobRow, job_ids, by=JobRow.id)


def heartbeat(
    session: Session, claim: Claim, *, at: datetime, ttl_s: float, trees_done: int
) -> None:
    """Extends the lease and stores the number of finished trees, which is public.

    Raises:
        LeaseLost: the claim no longer holds; nothing was written.
    """
    # Without a lock before: the token in the condition is the fence, and a job whose
    # charge is under way is waited for by the update.
    changed = session.execute(
        update(JobRow)
        .where(JobRow.id == claim.job_id, JobRow.lease_token == claim.token)
        .values(lease_until=at + timedelta(seconds=ttl_s), trees_done=trees_done)
        .execution_options(synchronize_session=False)
    )
    if changed.rowcount != 1:  # type: ignore[attr-defined]  # a DML result has one
        raise LeaseLost


def finish(
    row: JobRow, *, state: JobState, reason: EndReason | None, at: datetime
) -> None:
    """Ends a job that the caller has locked, and its lease."""
    row.state = state.value
    row.reason = None if reason is None else reason.value
    row.finished_at = at
    row.lease_token = None
    row.lease_until = None
    if state is JobState.SUCCEEDED:
        row.trees_done = row.n_trees


def enqueue_approved(row: JobRow, *, at: datetime) -> None:
    """Queues a job that waited for an approval; the caller has locked it."""
    row.state = JobState.QUEUED.value
    row.waits_since = at


def requeue(row: JobRow, hold: PutBack | None = None) -> None:
    """Puts an uncharged job back into the queue, where it can be claimed at once; the
    caller has locked it.
    """
    row.state = JobState.QUEUED.value
    row.trees_done = 0
    row.lease_token = None
    row.lease_until = None
    if hold is not None:
        row.reason = hold.value


def put_back(row: JobRow, hold: PutBack) -> None:
    """Puts a claimed job that its worker could not run back into the queue; the caller
    has locked it.

    No worker tries again before the term of the lease is over, so that other jobs take
    their turns.
    """
    tried_until = row.lease_until
    requeue(row, hold)
    row.lease_until = tried_until


def restart_waits(session: Session, dataset_id: str, *, at: datetime) -> None:
    """Locks the unfinished jobs that read a dataset, and counts the time of the queued
    ones in the queue anew.
    """
    unfinished = unfinished_of(session, dataset_id)
    lock_rows(session, (JobRow.id, unfinished))
    session.execute(
        update(JobRow)
        .where(
            JobRow.id.in_(_reading([dataset_id])), JobRow.state == JobState.QUEUED.value
        )
        .values(waits_since=at)
        .execution_options(synchronize_session=False)
    )


def overdue(
    session: Session,
    *,
    at: datetime,
    ttl_s: float,
    closed: Collection[str] = (),
    limit: int = 100,
) -> list[str]:
    """Ids of jobs whose lease ran out or ends too late, that were put back a lease ago,
    or that waited in the queue or for an approval for too long.

    A lease ends too late if the clock was set back after it began: a lease that begins
    now would end earlier.

    Jobs that read one of the datasets ``closed`` cannot be claimed, so their time in
    the queue has no limit.
    """
    leased_until = at + timedelta(seconds=ttl_s)
    queued_since = at - timedelta(seconds=limits.MAX_QUEUE_S)
    asked_since = at - timedelta(seconds=limits.MAX_APPROVAL_S)
    is_over = or_(JobRow.lease_until < at, JobRow.lease_until > leased_until)
    lost = (JobRow.state == JobState.RUNNING.value) & is_over
    unanswered = (JobRow.state == JobState.WAITING.value) & (
        JobRow.submitted_at < asked_since
    )
    unclaimed = (
        _is_free(closed)
        & (JobRow.submitted_at < queued_since)
        & (JobRow.waits_since < queued_since)
    )
    # A query for each range of an index: in one query, the databases read all queued
    # jobs.
    put_back = [
        _IS_QUEUED & (JobRow.lease_until < at),
        _IS_QUEUED & (JobRow.lease_until > leased_until),
    ]
    reasons = (lost, unanswered, unclaimed, *put_back)
    queries = [select(JobRow.id).where(reason) for reason in reasons]
    overdue_jobs = union_all(*queries).subquery()
    # In any order: jobs that cannot end, because their account differs from its
    # entries, must not hide the others.
    query = select(overdue_jobs.c.id).order_by(func.random()).limit(limit)
    return list(session.scalars(query))


def job(session: Session, job_id: str) -> JobRow:
    """Reads one job, without a lock.

    Raises:
        NotFound: no such job.
    """
    return find_row(session, JobRow, job_id, kind="job")


@dataclass(frozen=True)
class JobFilter:
    """The jobs to list: those of a dataset (id or name), of a kind, of an algorithm, in
    a state, submitted at a time or later or by one of several keys, and put back by a
    worker.
    """

    dataset: str | None = None
    kind: str | None = None
    algorithm: str | None = None
    state: str | None = None
    since: datetime | None = None
    submitters: Collection[str] | None = None
    is_put_back: bool = False


ALL_JOBS = JobFilter()


def page(
    session: Session,
    *,
    dataset_ids: Sequence[str] | None,
    before: str | None,
    limit: int,
    matching: JobFilter = ALL_JOBS,
) -> list[str]:
    """Ids of a page of jobs, newest first, of the given datasets (``None`` = all).

    Raises:
        NotFound: ``before`` is not in the list.
    """
    query = (
        select(JobRow.id)
        .order_by(JobRow.submitted_at.desc(), JobRow.id.desc())
        .limit(limit)
    )
    if dataset_ids is not None:
        query = query.where(JobRow.dataset_id.in_(dataset_ids))
    if before is not None:
        last = query.where(JobRow.id == before).with_only_columns(JobRow.submitted_at)
        if (submitted_at := session.execute(last).scalar_one_or_none()) is None:
            raise NotFound("job")
        query = query.where(
            tuple_(JobRow.submitted_at, JobRow.id) < (submitted_at, before)
        )
    for column, wanted in (
        (JobRow.kind, matching.kind),
        (JobRow.algorithm, matching.algorithm),
        (JobRow.state, matching.state),
    ):
        if wanted is not None:
            query = query.where(column == wanted)
    if matching.since is not None:
        query = query.where(JobRow.submitted_at >= matching.since)
    if matching.submitters is not None:
        query = query.where(JobRow.submitted_by.in_(matching.submitters))
    if matching.is_put_back:
        queued = JobRow.state == JobState.QUEUED.value
        query = query.where(queued, JobRow.reason.is_not(None))
    return list(session.scalars(query))


def unfinished_of(session: Session, dataset_id: str) -> list[str]:
    """Ids of the unfinished jobs that read a dataset, in the order in which they are to
    be locked.
    """
    unfinished = select(JobRow.id).where(
        JobRow.id.in_(_reading([dataset_id])), JobRow.state.in_(UNFINISHED)
    )
    return list(session.scalars(unfinished.order_by(JobRow.id)))


def charged_of(session: Session, dataset_id: str) -> list[str]:
    """Ids of the running jobs that read a dataset and are charged, in the order in
    which they are to be locked.
    """
    running = select(JobRow.id).where(
        JobRow.id.in_(_reading([dataset_id])), JobRow.state == JobState.RUNNING.value
    )
    return list(
        session.scalars(
            running.where(JobRow.charged_at.is_not(None)).order_by(JobRow.id)
        )
    )


def charged_algorithms(session: Session, dataset_id: str) -> set[str]:
    """The algorithms of the jobs that were charged for rows of a dataset, whatever
    became of their models.
    """
    charged = select(JobRow.algorithm).where(
        JobRow.id.in_(_reading([dataset_id])), JobRow.charged_at.is_not(None)
    )
    return {slug for slug in session.scalars(charged.distinct()) if slug is not None}


def is_unfinished(session: Session, job_id: str) -> bool:
    """Whether a job of this id exists and has not ended."""
    state = session.execute(
        select(JobRow.state).where(JobRow.id == job_id)
    ).scalar_one_or_none()
    return state in UNFINISHED


def submitters(session: Session, job_ids: Sequence[str]) -> dict[str, tuple[str, str]]:
    """The dataset and the submitter of each of several jobs, by id."""
    query = select(JobRow.id, JobRow.dataset_id, JobRow.submitted_by)
    rows = session.execute(query.where(JobRow.id.in_(job_ids)))
    return {job_id: (dataset_id, by) for job_id, dataset_id, by in rows}


def several(session: Session, job_ids: Sequence[str]) -> Iterator[JobRow]:
    """The jobs of these ids that exist, in their order. A few at a time are in memory:
    a task may name thousands of uploads.
    """
    for at in range(0, len(job_ids), 16):
        ids = job_ids[at : at + 16]
        rows = {
            row.id: row
            for row in session.scalars(select(JobRow).where(JobRow.id.in_(ids)))
        }
        yield from (rows.pop(job_id) for job_id in ids if job_id in rows)


def ask_approval(session: Session, job_id: str, dataset_ids: Iterable[str]) -> None:
    """Makes a job wait for one decision for each of several datasets."""
    session.add_all(
        ApprovalRow(job_id=job_id, dataset_id=dataset_id) for dataset_id in dataset_ids
    )
    session.flush()


def approvals_of_job(session: Session, job_id: str) -> list[ApprovalRow]:
    """The decisions about a job, open ones included, in order of the datasets' ids. The
    caller has locked the job.
    """
    query = (
        select(ApprovalRow)
        .where(ApprovalRow.job_id == job_id)
        .order_by(ApprovalRow.dataset_id)
    )
    return list(session.scalars(query.execution_options(populate_existing=True)))


def open_approvals(session: Session, job_ids: Collection[str]) -> dict[str, list[str]]:
    """Ids of the datasets for which a decision about a job is open, by job."""
    query = select(ApprovalRow).where(
        ApprovalRow.job_id.in_(job_ids), ApprovalRow.decision.is_(None)
    )
    datasets: dict[str, list[str]] = {job_id: [] for job_id in job_ids}
    for row in session.scalars(query.order_by(ApprovalRow.dataset_id)):
        datasets[row.job_id].append(row.dataset_id)
    return datasets


def record_decisions(
    rows: Sequence[ApprovalRow], decision: str, *, by: str, at: datetime
) -> None:
    """Records a decision."""
    for row in rows:
        row.decision, row.decided_by, row.decided_at = decision, by, at


def waiting_of_key(session: Session, submitter: str) -> list[str]:
    """Ids of the jobs of a key that wait for a decision."""
    waiting = select(JobRow.id).where(
        JobRow.state == JobState.WAITING.value, JobRow.submitted_by == submitter
    )
    return list(session.scalars(waiting))


def page_of_waiting(
    session: Session,
    *,
    dataset_ids: Sequence[str] | None,
    after: str | None,
    limit: int,
) -> list[str]:
    """Ids of a page of jobs that wait for a decision for one of several datasets
    (``None`` = any), oldest first.

    Raises:
        NotFound: ``after`` is not in the list.
    """
    is_open = select(ApprovalRow.job_id).where(ApprovalRow.decision.is_(None))
    if dataset_ids is not None:
        is_open = is_open.where(ApprovalRow.dataset_id.in_(dataset_ids))
    query = select(JobRow.id).where(
        JobRow.state == JobState.WAITING.value, JobRow.id.in_(is_open)
    )
    if after is not None:
        last = query.where(JobRow.id == after).with_only_columns(JobRow.submitted_at)
        if (submitted_at := session.execute(last).scalar_one_or_none()) is None:
            raise NotFound("job")
        query = query.where(
            tuple_(JobRow.submitted_at, JobRow.id) > (submitted_at, after)
        )
    return list(
        session.scalars(query.order_by(JobRow.submitted_at, JobRow.id).limit(limit))
    )


def see_worker(session: Session, worker_id: str, *, at: datetime) -> None:
    """Notes that a worker lives, and forgets workers that were killed a day ago."""
    seen = insert(session, WorkerRow).values(id=worker_id, seen_at=at)
    session.execute(
        seen.on_conflict_do_update(index_elements=["id"], set_={"seen_at": at})
    )
    session.execute(delete(WorkerRow).where(WorkerRow.seen_at < at - _WORKERS_KEPT_FOR))


def forget_worker(session: Session, worker_id: str) -> None:
    """Notes that a worker ends."""
    session.execute(delete(WorkerRow).where(WorkerRow.id == worker_id))


def n_workers(session: Session, *, at: datetime) -> int:
    """The number of workers that were seen lately."""
    since = at - timedelta(seconds=limits.WORKER_SEEN_S)
    return session.execute(
        select(func.count()).where(WorkerRow.seen_at >= since)
    ).scalar_one()
