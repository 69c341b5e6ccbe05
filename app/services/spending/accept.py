"""Accepts or refuses a job of any kind in the caller's transaction: reservations, queue row and answer."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from sqlalchemy.orm import Session

from app.access import grants
from app.access.idempotency import Answer
from app.access.roles import TRAIN, Principal
from app.core import ids, limits
from app.core.errors import NoRowsYet, TooManyRequests
from app.datasets import catalog
from app.db import name_locks
from app.jobs import approvals, queue
from app.jobs.states import JobState
from app.jobs.tables import JobPart, JobRow
from app.ledger import service as ledger
from app.ledger import stored_rules
from app.services.jobs import notices
from app.services.jobs.part_fields import part_fields
from app.services.spending import scopes
from app.services.spending.price import PricedPart, UnpricedPart
from app.wire.training import TrainOut


@dataclass(frozen=True)
class Job:
    """A planned and priced job.

    Attributes:
        kind: ``train``, ``profile`` or ``evaluation``.
        dataset: the dataset whose grants govern the job and its output.
        parts: the rows that are read, with their prices, in the order in which ``work`` names the parts; parts on
            public datasets pay nothing.
        work: the child's instructions besides rows and schemas, in JSON form.
        name: the client's name for the output.
        algorithm: the algorithm of a training job.
        n_trees: number of trees, the unit of progress; 0 where no tree grows.
    """

    kind: str
    dataset: catalog.Dataset
    parts: Sequence[PricedPart | UnpricedPart]
    work: dict[str, Any]
    name: str | None = None
    algorithm: str | None = None
    n_trees: int = 0


def accept(session: Session, principal: Principal, job: Job, *, at: datetime) -> Answer:
    """Reserves the price of every part and queues the job: all or nothing, since the caller rolls back.

    Where the submitter has spent more since its last approval than the rules of a dataset allow, the job waits for the
    approval of another owner before it is queued.

    Args:
        session: a write transaction of :func:`app.services.authorization.acting`.
        principal: the submitter with its present roles.
        job: the job.
        at: the present time.

    Raises:
        NotFound: a dataset of the job is not visible to the submitter any more.
        RoleMissing: the submitter may not train on a dataset of the job any more.
        DatasetDeleted: a dataset of the job was erased.
        NoRowsYet: a dataset of the job has no upload.
        TooManyRequests: the submitter has ``limits.MAX_UNFINISHED_JOBS_PER_KEY`` unfinished jobs, or
            ``limits.MAX_WAITING_JOBS_PER_KEY`` that wait for an approval.
        Frozen: a dataset of the job is frozen.
        QuotaExceeded: the rules of a dataset refuse.
        BudgetExceeded: an account refuses; the error names it.
    """
    job_id = ids.new(ids.JOB)
    _lock_datasets(session, principal, [job.dataset.id, *(part.dataset.id for part in job.parts)])
    if queue.n_unfinished_by(session, principal.key_id) >= limits.MAX_UNFINISHED_JOBS_PER_KEY:
        raise TooManyRequests("unfinished jobs of this key", retry_after_s=limits.FULL_QUEUE_RETRY_S)
    priced = [replace(part, scope=scopes.resolved(session, part.dataset, part.scope)) for part in job.parts]
    paying = [part for part in priced if isinstance(part, PricedPart) and not part.dataset.is_public]
    reservations = [_reservation(part, job_id=job_id) for part in paying]
    reservation_ids = iter(ledger.reserve(session, reservations, actor=principal.key_id))
    parts = [_part(session, part, next(reservation_ids) if part in paying else None) for part in priced]
    row = JobRow(
        id=job_id,
        dataset_id=job.dataset.id,
        dataset_name=job.dataset.name,
        kind=job.kind,
        algorithm=job.algorithm,
        name=job.name,
        task={"work": job.work, "parts": [part.to_json() for part in parts]},
        submitted_by=principal.key_id,
        n_trees=job.n_trees,
    )
    asked = stored_rules.above_approval(session, {part.dataset.id for part in paying}, principal.key_id)
    if asked:
        _require_few_waiting(session, principal.key_id)
    state = JobState.WAITING if asked else JobState.QUEUED
    queue.enqueue(session, row, state=state, at=at)
    approvals.ask(session, job_id, asked)
    if state is JobState.QUEUED:
        notices.job_changed(session, row, notices.JOB_QUEUED, at=at)
    for dataset_id in sorted({part.dataset.id for part in paying}):
        notices.budget_changed(session, dataset_id, at=at)
    accepted = TrainOut.model_validate({"job_id": job_id, "state": state.value, **part_fields(parts)})
    return Answer.of(202, accepted, location=f"/jobs/{job_id}")


def _require_few_waiting(session: Session, key_id: str) -> None:
    """Counts the waiting jobs of a key, one submission at a time. The last lock of the transaction."""
    name = f"waiting jobs of {key_id}"
    name_locks.lock(session, shared=name, exclusive=name)
    if len(approvals.waiting_of(session, key_id)) >= limits.MAX_WAITING_JOBS_PER_KEY:
        raise TooManyRequests("jobs of this key that wait for an approval", retry_after_s=limits.FULL_QUEUE_RETRY_S)


def _lock_datasets(session: Session, principal: Principal, dataset_ids: Sequence[str]) -> None:
    """Locks datasets in order of their ids, so that jobs on several datasets never deadlock."""
    for dataset_id in sorted(set(dataset_ids)):
        grants.require(session, principal, dataset_id, TRAIN, kind="dataset")
        dataset = catalog.locked(session, dataset_id).living()
        if not catalog.epochs(session, dataset.id):
            raise NoRowsYet


def _reservation(part: PricedPart, *, job_id: str) -> ledger.NewReservation:
    return ledger.NewReservation(
        account_id=part.dataset.id,
        amount=part.amount,
        scope=part.scope,
        event=part.event.to_json(),
        job_id=job_id,
        delta=part.delta,
    )


def _part(session: Session, part: PricedPart | UnpricedPart, reservation_id: str | None) -> JobPart:
    """The part as the job's row stores it: the worker reads exactly the uploads and cells that exist now."""
    return JobPart(
        dataset=part.dataset.id,
        dataset_name=part.dataset.name,
        scope={name: list(cells) for name, cells in part.scope.items()},
        epochs=scopes.epochs_of(session, part.dataset, part.scope),
        price=None if part.price is None else part.price.model_dump(),
        reservation_id=reservation_id,
    )
