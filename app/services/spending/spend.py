"""Accepts or refuses a planned request that spends budget, in one write transaction.

The use case plans and prices the request from public facts before the transaction: a
plan can take a second, in which no other request writes on SQLite. Then every such
request takes the same steps, and each step returns the object that has the next one.
:func:`spending` opens the transaction and keeps the caller's authority as it is;
:meth:`Opened.authorize` checks the caller's roles; :meth:`Authorized.lock` locks the
datasets and their accounts, and finds the answer to an earlier request with the
idempotency key; :meth:`Locked.confirmed` compares the facts that were planned from;
:meth:`Locked.accept` judges, stores the answer, reserves and enqueues, or
:meth:`Locked.store` stores the answer to a charge. The commit precedes the answer. A
refusal rolls everything back: the idempotency key stays unused.

A part of a job is asked and priced (:mod:`app.services.spending.asked`), reserved
(:class:`app.ledger.reservations.NewReservation`) and stored
(:class:`app.jobs.tables.JobPart`).
"""

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import cache
from typing import Any

from sqlalchemy import BindParameter, Select, and_, bindparam, func, select
from sqlalchemy.orm import Session

from app.access import grants, idempotency
from app.access.grants import TRAIN, Principal, Role
from app.access.idempotency import Answer, IdempotentRequest
from app.access.tables import AnswerRow
from app.core import limits, stamps
from app.core.errors import (
    DatasetDeleted,
    NoRowsYet,
    NotFound,
    TooManyRequests,
    Unavailable,
)
from app.datasets.catalog import Dataset, DatasetRow, uploads_as_text, uploads_of_text
from app.db.database import DialectName, time_column, transaction_time
from app.db.locks import lock_names, lock_rows
from app.jobs import outbox, queue
from app.jobs.states import UNFINISHED, JobState
from app.jobs.tables import JobPart, JobRow, part_fields
from app.ledger import reservations
from app.ledger.tables import AccountRow
from app.services.installation import Installation
from app.services.jobs import notices
from app.services.spending.asked import AskedDataset, PricedPart, read_asked
from app.wire.jobs import TrainOut
from grovekeeper_common.json_types import JsonMapping, JsonObject
from grovekeeper_forests.errors import GrovekeeperError

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Job:
    """A planned and priced job.

    Attributes:
        kind: a name in ``KINDS`` of :mod:`app.services.releases.kinds`.
        dataset: the dataset whose grants govern the job and its output.
        parts: the rows that are read, with their prices, in the order in which ``work``
            names the parts.
        work: the child's instructions besides rows and schemas, in JSON form.
        name: the client's name for the output.
        stated: the ``purpose`` of the submitter, if there is one, as the entries and
            the row of the job store it.
        algorithm: the algorithm of a training job.
        n_trees: number of trees, the unit of progress; 0 where no tree grows.
    """

    kind: str
    dataset: Dataset
    parts: Sequence[PricedPart]
    work: JsonObject
    name: str | None = None
    stated: JsonMapping = field(default_factory=dict)
    algorithm: str | None = None
    n_trees: int = 0


@dataclass
class _Outcome:
    """What became of a request, for the counts and the log after its transaction.

    Attributes:
        is_first: whether the request is the first with its idempotency key that is
            answered.
        location: of the answer.
    """

    is_first: bool = False
    location: str | None = None


@contextmanager
def spending(
    installation: Installation, caller: Principal, request: IdempotentRequest
) -> Iterator["Opened"]:
    """The write transaction of a request that spends budget. Counts the outcome and
    tells webhooks of a refusal.

    Nothing that a transaction of another request could change counts before
    :meth:`Authorized.lock`.

    Raises:
        Unavailable: the database cannot be reached or is too busy. Nothing was
            committed, unless the connection broke during the commit; a repetition with
            the idempotency key shows which.
    """
    outcome = _Outcome()
    try:
        with installation.database.write() as session:
            grants.lock(session, caller.key_id)
            yield Opened(installation, session, caller, request, outcome)
    except GrovekeeperError as error:
        installation.admissions.add(type(error))
        notices.refused(installation, error, by=caller.key_id)
        raise
    installation.admissions.add(outcome.is_first)
    _log.info(
        "a request that spends budget was admitted",
        extra={"location": outcome.location},
    )


@dataclass(frozen=True)
class Opened:
    """A request that spends budget, in the transaction of :func:`spending`."""

    installation: Installation
    session: Session
    caller: Principal
    request: IdempotentRequest
    outcome: _Outcome

    def answered_before(self, gone: NotFound) -> Answer:
        """The answer to an earlier request with the idempotency key, if any, for a
        request that names what is gone.

        It stays valid although a model was deleted, for a caller who may train on every
        dataset of the job.

        Raises:
            NotFound: ``gone``, if there is no earlier answer, or the caller may not see
                it any more.
        """
        principal = grants.confirm(self.session, self.caller)
        answer = idempotency.stored(self.session, self.request)
        if answer is None or answer.location is None:
            raise gone
        job = queue.job(self.session, answer.location.removeprefix("/jobs/"))
        for dataset_id in {job.dataset_id, *(part.dataset for part in job.parts)}:
            try:
                grants.require(self.session, principal, dataset_id, TRAIN, kind="job")
            except NotFound:
                raise gone from None
        self.outcome.location = answer.location
        return answer

    def authorize(
        self, references: Sequence[str], roles: frozenset[Role] = TRAIN
    ) -> "Authorized":
        """Finds the datasets of the request and checks the caller's present roles;
        raises as :func:`read_asked`.
        """
        principal, sources = read_asked(self.session, self.caller, references, roles)
        return Authorized(self, principal, sources)


@dataclass(frozen=True)
class Authorized:
    """A request whose caller may spend on its datasets.

    Attributes:
        principal: the caller with its present roles.
        sources: the datasets of the request, in its order.
    """

    opened: Opened
    principal: Principal
    sources: Sequence[AskedDataset]

    def lock(self, *, route: str | None = None) -> "Locked | Answer":
        """Locks the datasets, then their accounts, each in order of their ids, and
        reads what they protect.

        Requests with one idempotency key and one body name the same datasets. So a
        request waits here for its twin, and then finds the twin's answer.

        Args:
            route: under which the idempotency key is stored, if not the request's path,
                with a place for the id of the dataset where the path may have its name:
                a repetition that names it otherwise finds its answer.

        Returns:
            The answer to an earlier request with the idempotency key, if there is one.

        Raises:
            DatasetDeleted: a dataset was erased.
        """
        opened, session = self.opened, self.opened.session
        dataset_ids = {source.dataset.id for source in self.sources}
        request = opened.request
        if route is not None:
            request = replace(
                request, route=route.format(dataset=self.sources[0].dataset.id)
            )
        lock_rows(session, (DatasetRow.id, dataset_ids), (AccountRow.id, dataset_ids))
        parameters = {
            "dataset_ids": dataset_ids,
            "principal": request.principal,
            "route": request.route,
            "key": request.key,
        }
        query = _select_protected(opened.installation.database.dialect)
        rows = session.execute(query, parameters).all()
        first = rows[0]
        earlier = idempotency.answer_of(first.AnswerRow, request)
        if earlier is not None:
            opened.outcome.location = earlier.location
            return earlier
        now = transaction_time(session, read=first.now)
        if any(row.deleted_at is not None for row in rows):
            raise DatasetDeleted
        uploads = {row.id: uploads_of_text(row.uploads) for row in rows}
        sources = [
            replace(source, uploads=uploads[source.dataset.id])
            for source in self.sources
        ]
        with_uploads = replace(self, sources=sources)
        return Locked(
            session,
            with_uploads,
            request,
            now,
            n_unfinished=first.n_unfinished,
            has_webhooks=first.has_webhooks,
        )


@dataclass(frozen=True)
class Locked:
    """A request that holds the locks of its datasets and accounts: nothing that it
    reads changes until its commit.

    Attributes:
        session: of the transaction.
        authorized: the caller, and the datasets with the uploads that exist.
        request: with the route under which its idempotency key is stored.
        now: the time of the transaction.
        n_unfinished: the submitter's unfinished jobs.
        has_webhooks: whether anybody listens.
    """

    session: Session
    authorized: Authorized
    request: IdempotentRequest
    now: datetime
    n_unfinished: int
    has_webhooks: bool

    def confirmed(self, planned: Sequence[PricedPart]) -> list[PricedPart]:
        """Parts that were planned before the locks, with the uploads that exist under
        them.

        An upload that came meanwhile is read and charged like the others; a forest is
        sized without it.

        Raises:
            Unavailable: a name means another dataset by now, or the facts differ in
                another way.
        """
        present = {source.dataset.id: source for source in self.authorized.sources}
        parts = []
        for part in planned:
            planned_from = part.asked.source
            present_source = present.get(planned_from.dataset.id)
            if present_source is None or not present_source.continues(planned_from):
                raise Unavailable(
                    "the dataset changed while the job was planned; nothing was charged"
                )
            parts.append(part.as_charged(present_source.uploads))
        return parts

    def accept(self, job: Job) -> Answer:
        """Reserves the price of every part, queues the job and stores the answer: all
        or, with an error, nothing.

        Where the submitter has spent more since its last approval than the rules of a
        dataset allow, the job waits for the approval of another owner before it is
        queued.

        Raises:
            NoRowsYet: a dataset of the job has no upload.
            TooManyRequests: the submitter has ``limits.MAX_UNFINISHED_JOBS_PER_KEY``
                unfinished jobs, or ``limits.MAX_WAITING_JOBS_PER_KEY`` that wait for an
                approval.
        """
        if not all(source.uploads for source in self.authorized.sources):
            raise NoRowsYet
        if self.n_unfinished >= limits.MAX_UNFINISHED_JOBS_PER_KEY:
            raise TooManyRequests(
                "unfinished jobs of this key", retry_after_s=limits.FULL_QUEUE_RETRY_S
            )
        job_id = stamps.new(stamps.JOB)
        key_id = self.authorized.principal.key_id
        new_reservations = [
            _reservation(job, part, job_id=job_id) for part in job.parts
        ]
        judged = reservations.judge(self.session, new_reservations, actor=key_id)
        if judged.excess:
            self._require_few_waiting()
        stored = [
            _stored(*pair)
            for pair in zip(job.parts, judged.reservation_ids, strict=True)
        ]
        row = _row(
            job,
            job_id,
            stored,
            JobState.WAITING if judged.excess else JobState.QUEUED,
            submitted_by=key_id,
        )
        accepted = TrainOut.model_validate(
            {"job_id": job_id, "state": row.state, **part_fields(stored)}
        )
        answer = self.store(Answer.of(202, accepted, location=f"/jobs/{job_id}"))
        if self.authorized.opened.outcome.is_first:
            reservations.write(self.session, judged)
            queue.enqueue(self.session, row, at=self.now)
            if judged.excess:
                queue.ask_approval(self.session, job_id, judged.excess)
            if self.has_webhooks:
                notices.accepted(self.session, row)
        return answer

    def store(self, answer: Answer) -> Answer:
        """Stores the answer to the request. If another transaction has answered it,
        everything is rolled back.

        Returns:
            The stored answer.
        """
        outcome = self.authorized.opened.outcome
        outcome.is_first = idempotency.put(self.session, self.request, answer)
        if not outcome.is_first:
            answer = idempotency.answer_again(self.session, self.request)
            self.session.rollback()
        outcome.location = answer.location
        return answer

    def _require_few_waiting(self) -> None:
        """Checks the number of the submitter's jobs that wait for an approval, under
        the last lock of the transaction.

        Raises:
            TooManyRequests: too many jobs wait.
        """
        key_id = self.authorized.principal.key_id
        lock_names(self.session, exclusive=[f"waiting jobs of {key_id}"])
        most = limits.MAX_WAITING_JOBS_PER_KEY
        if len(queue.waiting_of_key(self.session, key_id)) >= most:
            what = (
                f"jobs of this key that wait for an approval ({most} at most): cancel one, "
                "or wait until an owner decides"
            )
            raise TooManyRequests(what, retry_after_s=limits.APPROVAL_RETRY_S)


@cache
def _select_protected(dialect: DialectName) -> Select[Any]:
    """Selects what the locks of datasets protect, the submitter's unfinished jobs, the
    time, and a stored answer.
    """
    key_id: BindParameter[Any] = bindparam("principal")
    identity = (AnswerRow.principal == key_id, AnswerRow.route == bindparam("route"))
    n_unfinished = select(func.count()).where(
        JobRow.state.in_(UNFINISHED), JobRow.submitted_by == key_id
    )
    return (
        select(
            DatasetRow.id,
            DatasetRow.deleted_at,
            uploads_as_text().label("uploads"),
            outbox.is_used(),
            n_unfinished.scalar_subquery().label("n_unfinished"),
            time_column(dialect).label("now"),
            AnswerRow,
        )
        .outerjoin(
            AnswerRow, and_(*identity, AnswerRow.idempotency_key == bindparam("key"))
        )
        .where(DatasetRow.id.in_(bindparam("dataset_ids", expanding=True)))
        .execution_options(populate_existing=True)
    )


def _reservation(
    job: Job, part: PricedPart, *, job_id: str
) -> reservations.NewReservation:
    asked = part.asked
    details = dict(job.stated)
    # an auditor reads which label a job read, where there are several
    if asked.label is not None:
        details["label"] = asked.label
    return reservations.NewReservation(
        account_id=asked.dataset.id,
        amount=asked.amount,
        scope=asked.scope,
        event=part.event.to_json(),
        job_id=job_id,
        delta=asked.terms.delta,
        details=details,
    )


def _stored(part: PricedPart, reservation_id: str) -> JobPart:
    """The part as the job's row stores it: the worker reads exactly the uploads and
    cells that exist now.
    """
    asked = part.asked
    return JobPart(
        dataset=asked.dataset.id,
        dataset_name=asked.dataset.name,
        scope=asked.scope.to_json(),
        epochs=asked.dataset.uploads_in(asked.scope, asked.source.uploads),
        price=asked.terms.stated(asked.amount),
        reservation_id=reservation_id,
        label=asked.label,
    )


def _row(
    job: Job,
    job_id: str,
    parts: Sequence[JobPart],
    state: JobState,
    *,
    submitted_by: str,
) -> JobRow:
    return JobRow(
        id=job_id,
        dataset_id=job.dataset.id,
        dataset_name=job.dataset.name,
        kind=job.kind,
        algorithm=job.algorithm,
        name=job.name,
        task={
            "work": job.work,
            "parts": [part.to_json() for part in parts],
            **job.stated,
        },
        submitted_by=submitted_by,
        state=state.value,
        n_trees=job.n_trees,
    )
