"""Stores which datasets make a job wait for a decision of an owner, and the decisions, on the caller's transaction."""

from collections.abc import Collection, Iterable, Sequence
from datetime import datetime

from sqlalchemy import select, tuple_
from sqlalchemy.orm import Session

from app.core.errors import NotFound
from app.jobs.states import JobState
from app.jobs.tables import ApprovalRow, JobRow


def ask(session: Session, job_id: str, dataset_ids: Iterable[str]) -> None:
    """Makes a job wait for one decision for each of several datasets."""
    session.add_all(ApprovalRow(job_id=job_id, dataset_id=dataset_id) for dataset_id in dataset_ids)
    session.flush()


def of_job(session: Session, job_id: str) -> list[ApprovalRow]:
    """The decisions about a job, open ones included, in order of the datasets' ids. The caller has locked the job."""
    query = select(ApprovalRow).where(ApprovalRow.job_id == job_id).order_by(ApprovalRow.dataset_id)
    return list(session.execute(query.execution_options(populate_existing=True)).scalars())


def open_of_each(session: Session, job_ids: Collection[str]) -> dict[str, list[str]]:
    """Ids of the datasets for which a decision about a job is open, by job."""
    query = select(ApprovalRow).where(ApprovalRow.job_id.in_(job_ids), ApprovalRow.decision.is_(None))
    datasets: dict[str, list[str]] = {job_id: [] for job_id in job_ids}
    for row in session.execute(query.order_by(ApprovalRow.dataset_id)).scalars():
        datasets[row.job_id].append(row.dataset_id)
    return datasets


def decide(rows: Sequence[ApprovalRow], decision: str, *, by: str, at: datetime) -> None:
    """Records a decision."""
    for row in rows:
        row.decision, row.decided_by, row.decided_at = decision, by, at


def waiting_of(session: Session, submitter: str) -> list[str]:
    """Ids of the jobs of a key that wait for a decision."""
    waiting = select(JobRow.id).where(JobRow.state == JobState.WAITING.value, JobRow.submitted_by == submitter)
    return list(session.execute(waiting).scalars())


def page(session: Session, *, dataset_ids: Sequence[str] | None, after: str | None, limit: int) -> list[JobRow]:
    """Reads a page of jobs that wait for a decision for one of several datasets (``None`` = any), oldest first.

    Raises:
        NotFound: ``after`` is not in the list.
    """
    is_open = select(ApprovalRow.job_id).where(ApprovalRow.decision.is_(None))
    if dataset_ids is not None:
        is_open = is_open.where(ApprovalRow.dataset_id.in_(dataset_ids))
    query = select(JobRow).where(JobRow.state == JobState.WAITING.value, JobRow.id.in_(is_open))
    if after is not None:
        last = session.execute(query.where(JobRow.id == after)).scalar_one_or_none()
        if last is None:
            raise NotFound("job")
        query = query.where(tuple_(JobRow.submitted_at, JobRow.id) > (last.submitted_at, last.id))
    return list(session.execute(query.order_by(JobRow.submitted_at, JobRow.id).limit(limit)).scalars())
