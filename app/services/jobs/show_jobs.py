"""Serves ``/jobs``: lists, shows and cancels jobs of every kind."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from sqlalchemy.orm import Session

from app.access import grants
from app.access.grants import MANAGE_DATASET, SEE_JOB, TRAIN, Principal
from app.core import limits
from app.core.errors import JobFinished, NotFound, RoleMissing, Unauthenticated
from app.datasets import catalog
from app.jobs import queue
from app.jobs.states import PREPARING, UNFINISHED, JobState
from app.jobs.tables import JobRow, part_fields
from app.ledger import rules
from app.ledger.rules import HeldBy
from app.services.authorization import write_as
from app.services.installation import Installation
from app.services.jobs.notices import end_locked
from app.services.pagination import PageRequest, page_of
from app.wire.jobs import JobList, JobOut, ListedJob
from app.wire.ledger import ChargedJob
from grovekeeper_common.json_types import JsonObject
from grovekeeper_forests.releases.names import EVALUATION, MODEL, PROFILE, STATISTICS

_RELEASE_IDS = {
    MODEL: "model_id",
    PROFILE: "profile_id",
    EVALUATION: "evaluation_id",
    STATISTICS: "statistics_id",
}

_OF_CHARGE = ("kind", "algorithm", "what", "name", "submitted_by")
"""The facts of a job that stand beside its entries."""

_FURTHER = (
    "id", "dataset_name", "purpose", "label", "state", "n_trees", "submitted_at",
)  # fmt: skip

Shown = TypeVar("Shown", JobOut, ListedJob)

Followed = tuple[Principal, str]
"""A follower, and the id of the job."""


def closed_datasets(session: Session) -> frozenset[str]:
    """Ids of the datasets whose jobs are not started: by their rules, or because they
    were deleted.
    """
    return rules.closed_accounts(session) | catalog.closing_ids(session)


def show_job(installation: Installation, principal: Principal, job_id: str) -> JobOut:
    """Shows one job."""
    with installation.database.read() as session:
        row = queue.job(session, job_id)
        grants.require(session, principal, row.dataset_id, SEE_JOB, kind="job")
        out = _job_out(row, _holds(session, [row]))
        return _placed(session, [out])[0]


def list_jobs(
    installation: Installation,
    principal: Principal,
    page: PageRequest,
    matching: queue.JobFilter = queue.ALL_JOBS,
    *,
    submitted_by: str | None = None,
) -> JobList:
    """Lists the jobs of all datasets on which the key may train or is an auditor,
    newest first.

    Args:
        submitted_by: a key, by its id, or by a name that the caller may know.

    Raises:
        NotFound: the filter names no dataset that the key sees.
    """
    with installation.database.read() as session:
        visible = grants.datasets_with(session, principal, SEE_JOB)
        if matching.dataset is not None:
            visible = [catalog.listed_id(session, matching.dataset, among=visible)]
        if submitted_by is not None:
            keys = grants.keys_meant(session, principal, submitted_by)
            matching = replace(matching, submitters=keys)
        holds = rules.holds(session)

        def fetch(limit: int) -> Iterator[ListedJob]:
            ids = queue.page(
                session,
                dataset_ids=visible,
                before=page.cursor,
                limit=limit,
                matching=matching,
            )
            return _listed(session, principal, ids, holds)

        shown, following = page_of(
            page, fetch, lambda job: job.id, lambda job: len(job.model_dump_json())
        )
        jobs = _placed(session, list(shown))
        return JobList(jobs=jobs, next=following)


def jobs_of(
    installation: Installation, principal: Principal, job_ids: Sequence[str]
) -> dict[str, ListedJob]:
    """Shows those of several jobs that the caller may see, by id."""
    with installation.database.read() as session:
        visible = grants.datasets_with(session, principal, SEE_JOB)
        listed = _listed(session, principal, job_ids, {})
        return {
            job.id: job for job in listed if visible is None or job.dataset in visible
        }


def _listed(
    session: Session,
    principal: Principal,
    job_ids: Sequence[str],
    holds: Mapping[str, HeldBy],
) -> Iterator[ListedJob]:
    submitted = queue.submitters(session, job_ids)
    names = grants.names_on_datasets(session, principal, submitted.values())
    return (
        ListedJob.model_validate(
            {**job_facts(row, holds), "submitted_by_name": names.get(submitted[row.id])}
        )
        for row in queue.several(session, job_ids)
    )


def count_jobs(
    installation: Installation, principal: Principal, dataset: str | None = None
) -> dict[JobState, int]:
    """How many jobs the caller may see in each state, of all datasets or of one (id or
    name).

    Raises:
        NotFound: no such dataset that the caller sees.
    """
    with installation.database.read() as session:
        visible = grants.datasets_with(session, principal, SEE_JOB)
        if dataset is not None:
            visible = [catalog.listed_id(session, dataset, among=visible)]
        return queue.counts(session, list(JobState), dataset_ids=visible)


def cancel_job(installation: Installation, principal: Principal, job_id: str) -> JobOut:
    """Cancels a job. Before its charge the reservation is voided; after it the charge
    stays and the child is killed.

    Raises:
        JobFinished: the job has already ended.
    """
    with write_as(installation, principal) as (session, principal):
        row = queue.locked(session, job_id)
        needed = MANAGE_DATASET
        if row.submitted_by == principal.key_id:
            needed = TRAIN
        grants.require(session, principal, row.dataset_id, needed, kind="job")
        if row.state not in UNFINISHED:
            raise JobFinished
        end_locked(session, [row], actor=principal.key_id)
        return _job_out(row, {})


def _holds(session: Session, rows: Collection[JobRow]) -> Mapping[str, HeldBy]:
    """Why jobs are not started, by dataset; read only where one of the jobs is queued."""
    if all(row.state != JobState.QUEUED for row in rows):
        return {}
    return rules.holds(session)


def _placed(session: Session, jobs: list[Shown]) -> list[Shown]:
    """Jobs with the number of jobs that workers take before each; counted only where
    one of the jobs may be taken.
    """
    if all(job.state != JobState.QUEUED or job.held_by for job in jobs):
        return jobs
    closed = closed_datasets(session)
    most = limits.MAX_JOBS_BEFORE + 1
    order = queue.first_in_order(session, most=most, closed=closed)
    placed = []
    for job in jobs:
        if job.state == JobState.QUEUED and job.held_by is None:
            # of a short list, it is absent if a worker has just taken it
            before = None if len(order) < most else most
            if job.id in order:
                before = order.index(job.id)
            job = job.model_copy(update={"jobs_before": before})
        placed.append(job)
    return placed


def _job_out(row: JobRow, holds: Mapping[str, HeldBy]) -> JobOut:
    """Formats a job with its cells; see :func:`job_facts`."""
    facts = job_facts(row, holds)
    return JobOut.model_validate({**facts, "scope": row.parts[0].scope})


def job_facts(row: JobRow, holds: Mapping[str, HeldBy]) -> JsonObject:
    """The facts of a job that analysts and auditors may see, in lists, too: states and
    public numbers, no durations.

    Args:
        row: the job.
        holds: why jobs are not started, by dataset, as a claim decides it.
    """
    # ``PREPARING`` is negative
    trees_done = max(row.trees_done, 0)
    progress = min(trees_done / max(row.n_trees, 1), 1.0)
    # a release without trees has no other progress
    if row.state == JobState.SUCCEEDED:
        progress = 1.0
    held_by = [holds[part.dataset] for part in row.parts if part.dataset in holds]
    is_queued = row.state == JobState.QUEUED
    # a freeze comes first: no worker tries the job before its end
    hold = held_by[0] if held_by else row.reason
    release_ids: dict[str, str | None] = dict.fromkeys(_RELEASE_IDS.values())
    if row.kind in _RELEASE_IDS:
        release_ids[_RELEASE_IDS[row.kind]] = row.release_id
    return {
        **row.fields(*_OF_CHARGE, *_FURTHER),
        "dataset": row.dataset_id,
        "reason": None if is_queued else row.reason,
        "held_by": hold if is_queued else None,
        "jobs_before": None,
        "charged": row.charged_at is not None,
        "preparing": row.state == JobState.RUNNING and row.trees_done == PREPARING,
        "progress": progress,
        "trees_done": trees_done,
        **release_ids,
        **part_fields(row.parts),
    }


def charged_jobs(
    session: Session, job_ids: Iterable[str | None]
) -> dict[str, ChargedJob]:
    """The facts of jobs that stand beside their entries, by id, in the given order; ids
    of other things have none.
    """
    ids = list(dict.fromkeys(job_id for job_id in job_ids if job_id is not None))
    jobs = {row.id: _charged_job(row) for row in queue.several(session, ids)}
    return {job_id: jobs[job_id] for job_id in ids if job_id in jobs}


def _charged_job(row: JobRow) -> ChargedJob:
    # the model that a training released, or those that an evaluation measured
    models = [model["id"] for model in row.task["work"].get("models", [])]
    if row.kind == MODEL and row.release_id is not None:
        models = [row.release_id]
    return ChargedJob(**row.fields(*_OF_CHARGE), models=models)


def look_at(
    installation: Installation, followed: Collection[Followed]
) -> dict[Followed, JobOut]:
    """Shows followed jobs that still exist to the followers who may still see them: key
    and grant are read again.
    """
    with installation.database.read() as session:
        job_ids = sorted({job_id for _, job_id in followed})
        rows = {row.id: row for row in queue.several(session, job_ids)}
        holds = _holds(session, rows.values())
        visible = {}
        for follower, job_id in followed:
            row = rows.get(job_id)
            if row is None:
                continue
            if _may_still_see(session, follower, row):
                visible[follower, job_id] = _job_out(row, holds)
        placed = _placed(session, list(visible.values()))
        return dict(zip(visible, placed, strict=True))


def _may_still_see(session: Session, follower: Principal, row: JobRow) -> bool:
    try:
        follower = grants.confirm(session, follower)
        grants.require(session, follower, row.dataset_id, SEE_JOB, kind="job")
    except (Unauthenticated, NotFound, RoleMissing):
        return False
    return True
