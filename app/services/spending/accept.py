"""Accepts or refuses jobs of any kind in one write transaction: reservations, queue rows and answers."""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Self

from sqlalchemy import bindparam, select
from sqlalchemy.orm import Session

from app.access import grants
from app.access.idempotency import Answer
from app.access.roles import TRAIN, Principal, Role
from app.core import ids, limits
from app.core.errors import DatasetDeleted, NoRowsYet, NotFound, TooManyRequests
from app.datasets import catalog
from app.datasets.tables import DatasetRow
from app.db import name_locks, row_locks
from app.jobs import approvals, queue
from app.jobs.states import JobState
from app.jobs.tables import JobPart, JobRow
from app.ledger.locked_accounts import LockedAccounts
from app.ledger.refusals import NewReservation
from app.ledger.tables import AccountRow
from app.services.authorization import Callers
from app.services.jobs import notices
from app.services.jobs.part_fields import part_fields
from app.services.spending import scopes
from app.services.spending.price import PricedPart, UnpricedPart
from app.webhooks import outbox
from app.wire.training import TrainOut


@dataclass(frozen=True)
class Need:
    """Something that a job uses besides rows: the dataset whose grants govern it, and the roles that may use it.

    Attributes:
        kind: ``profile`` or ``model``, for the text of ``NotFound``.
    """

    dataset_id: str
    roles: Collection[Role]
    kind: str


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
        purpose: the reason that the submitter states, which every entry of the job repeats.
        algorithm: the algorithm of a training job.
        n_trees: number of trees, the unit of progress; 0 where no tree grows.
        needs: what the job uses besides rows.
    """

    kind: str
    dataset: catalog.Dataset
    parts: Sequence[PricedPart | UnpricedPart]
    work: dict[str, Any]
    name: str | None = None
    purpose: str | None = None
    algorithm: str | None = None
    n_trees: int = 0
    needs: Sequence[Need] = ()

    @property
    def dataset_ids(self) -> set[str]:
        """The datasets on which the submitter has to be allowed to train."""
        return {self.dataset.id, *(part.dataset.id for part in self.parts)}

    @property
    def governing_ids(self) -> set[str]:
        """The datasets whose grants decide whether the submitter may submit the job."""
        return {*self.dataset_ids, *(need.dataset_id for need in self.needs)}


def lock(session: Session, jobs: Sequence[Job]) -> None:
    """Locks the datasets, then the accounts of jobs, each in order of their ids."""
    row_locks.lock(session, (DatasetRow.id, _read_datasets(jobs)), (AccountRow.id, _accounts(jobs)))


def _read_datasets(jobs: Sequence[Job]) -> set[str]:
    return set().union(*(job.dataset_ids for job in jobs))


def _accounts(jobs: Sequence[Job]) -> set[str]:
    return {part.dataset.id for job in jobs for part in job.parts}


_DATASETS = select(DatasetRow.id, DatasetRow.deleted_at, catalog.uploads_as_text(), outbox.is_used()).where(
    DatasetRow.id.in_(bindparam("ids", expanding=True))
)


@dataclass(frozen=True)
class _Datasets:
    """Locked datasets.

    Attributes:
        deleted: the ids of deleted datasets.
        uploads: ids of the uploads of each dataset that exists, in order.
        may_be_listened_to: whether any dataset has a webhook.
    """

    deleted: Collection[str]
    uploads: Mapping[str, Sequence[str]]
    may_be_listened_to: bool

    @classmethod
    def read(cls, session: Session, dataset_ids: Collection[str]) -> Self:
        """Reads datasets in one query."""
        rows = session.execute(_DATASETS, {"ids": dataset_ids}).all()
        uploads = {dataset_id: catalog.uploads_of_text(text) for dataset_id, _, text, _ in rows}
        deleted = {dataset_id for dataset_id, deleted_at, *_ in rows if deleted_at is not None}
        return cls(deleted, uploads, any(is_used for *_, is_used in rows))


@dataclass
class Acceptance:
    """Accepts jobs in memory, in order, under the locks of what they need, and then writes all of them at once."""

    _session: Session
    _callers: Callers
    _datasets: "_Datasets"
    _accounts: LockedAccounts
    _n_waiting: Counter[str]
    _rows: list[JobRow] = field(default_factory=list)
    _asked: dict[str, Collection[str]] = field(default_factory=dict)

    @classmethod
    def begin(cls, session: Session, callers: Callers, jobs: Sequence[Job]) -> Self:
        """Reads everything that jobs need, under the locks of :func:`lock`.

        Args:
            session: a write transaction of :func:`app.services.authorization.acting_together`.
            callers: the submitters.
            jobs: the jobs.
        """
        submitters = callers.authorities.keys
        datasets = _Datasets.read(session, _read_datasets(jobs))
        accounts = LockedAccounts.read(session, _accounts(jobs), submitters)
        n_waiting = Counter[str]()
        if accounts.may_need_approval:  # the last locks of the transaction
            name_locks.lock(session, exclusive=[f"waiting jobs of {key_id}" for key_id in submitters])
            n_waiting = approvals.n_waiting_of(session, submitters)
        return cls(session, callers, datasets, accounts, n_waiting)

    def accept(self, principal: Principal, job: Job) -> Answer:
        """Reserves the price of every part and queues the job, in memory: all or, with an error, nothing.

        Where the submitter has spent more since its last approval than the rules of a dataset allow, the job waits for
        the approval of another owner before it is queued.

        Args:
            principal: the submitter with its present roles.
            job: one of the jobs that the acceptance began with.

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
        self._require_usable(principal, job)
        key_id, job_id = principal.key_id, ids.new(ids.JOB)
        if self._callers.n_unfinished[key_id] >= limits.MAX_UNFINISHED_JOBS_PER_KEY:
            raise TooManyRequests("unfinished jobs of this key", retry_after_s=limits.FULL_QUEUE_RETRY_S)
        priced = [
            replace(part, scope=scopes.with_uploads(part.dataset, part.scope, self._datasets.uploads[part.dataset.id]))
            for part in job.parts
        ]
        paying = [part for part in priced if isinstance(part, PricedPart) and not part.dataset.is_public]
        judged = self._accounts.judged([_reservation(job, part, job_id=job_id) for part in paying], actor=key_id)
        state = JobState.WAITING if judged.excess else JobState.QUEUED
        if judged.excess:
            if self._n_waiting[key_id] >= limits.MAX_WAITING_JOBS_PER_KEY:
                what = "jobs of this key that wait for an approval"
                raise TooManyRequests(what, retry_after_s=limits.FULL_QUEUE_RETRY_S)
            self._n_waiting[key_id] += 1
            self._asked[job_id] = judged.excess.keys()
        self._callers.n_unfinished[key_id] += 1
        reservation_ids = iter(self._accounts.reserve(judged))
        parts = [self._part(part, next(reservation_ids) if part in paying else None) for part in priced]
        self._rows.append(_row(job, job_id, parts, state, submitted_by=key_id))
        accepted = TrainOut.model_validate({"job_id": job_id, "state": state.value, **part_fields(parts)})
        return Answer.of(202, accepted, location=f"/jobs/{job_id}")

    def write(self, *, at: datetime) -> None:
        """Writes everything that was accepted, and tells webhooks."""
        self._accounts.write()
        queue.enqueue(self._session, self._rows, at=at)
        approvals.ask(self._session, self._asked)
        if self._datasets.may_be_listened_to:
            notices.accepted(self._session, self._rows, at=at)

    def committed(self) -> None:
        """Takes note that the transaction was committed."""
        self._accounts.committed()

    def _require_usable(self, principal: Principal, job: Job) -> None:
        for need in job.needs:
            self._require_role(principal, need)
        for dataset_id in sorted(job.dataset_ids):
            self._require_role(principal, Need(dataset_id, TRAIN, "dataset"))
            if dataset_id not in self._datasets.uploads:
                raise NotFound("dataset")
            if dataset_id in self._datasets.deleted:
                raise DatasetDeleted
            if not self._datasets.uploads[dataset_id]:
                raise NoRowsYet

    def _require_role(self, principal: Principal, need: Need) -> None:
        granted = self._callers.authorities.granted.get((principal.key_id, need.dataset_id))
        grants.check(principal, granted, need.roles, kind=need.kind)

    def _part(self, part: PricedPart | UnpricedPart, reservation_id: str | None) -> JobPart:
        """The part as the job's row stores it: the worker reads exactly the uploads and cells that exist now."""
        return JobPart(
            dataset=part.dataset.id,
            dataset_name=part.dataset.name,
            scope={name: list(cells) for name, cells in part.scope.items()},
            epochs=scopes.uploads_in(part.dataset, part.scope, self._datasets.uploads[part.dataset.id]),
            price=None if part.price is None else part.price.model_dump(),
            reservation_id=reservation_id,
        )


def _reservation(job: Job, part: PricedPart, *, job_id: str) -> NewReservation:
    return NewReservation(
        account_id=part.dataset.id,
        amount=part.amount,
        scope=part.scope,
        event=part.event.to_json(),
        job_id=job_id,
        delta=part.delta,
        details=_stated(job),
    )


def _stated(job: Job) -> dict[str, Any]:
    """The purpose of a job, if it has one, as its entries and its row store it."""
    return {} if job.purpose is None else {"purpose": job.purpose}


def _row(job: Job, job_id: str, parts: Sequence[JobPart], state: JobState, *, submitted_by: str) -> JobRow:
    return JobRow(
        id=job_id,
        dataset_id=job.dataset.id,
        dataset_name=job.dataset.name,
        kind=job.kind,
        algorithm=job.algorithm,
        name=job.name,
        task={"work": job.work, "parts": [part.to_json() for part in parts], **_stated(job)},
        submitted_by=submitted_by,
        state=state.value,
        n_trees=job.n_trees,
    )
