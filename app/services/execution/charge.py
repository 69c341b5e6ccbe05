"""Charges a claimed job in one transaction, if its reservations pay for every release of its task."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from fractions import Fraction
from pathlib import Path
from types import MappingProxyType

from sqlalchemy.orm import Session

from app.access import grants
from app.access.grants import TRAIN
from app.core.dask_cluster import DaskCluster
from app.core.errors import Frozen, GrovekeeperError, LeaseLost, NotFound, RoleMissing, Unauthenticated
from app.datasets import catalog, row_files
from app.datasets.catalog import DatasetRow
from app.db.locks import lock_rows
from app.forests import catalogue, released_forest
from app.forests.contract.plan import PlanInvalid
from app.jobs import queue
from app.jobs.queue import Claim
from app.jobs.states import EndReason
from app.jobs.tables import JobPart, JobRow
from app.ledger import reservations, rules, statements, tables
from app.ledger.tables import ReservationRow
from app.privacy import accountants, events
from app.services.installation import Installation
from app.services.jobs import kinds, notices
from app.services.jobs.kinds import JobKind
from app.services.jobs.task import JobTask, PartRows
from app.services.spending.evaluations import EvaluationKind
from app.services.spending.profiles import ProfileKind
from app.services.spending.training import TrainKind

KINDS: Mapping[str, JobKind] = MappingProxyType(
    {"train": TrainKind(), "profile": ProfileKind(), "evaluation": EvaluationKind()}
)
"""Every kind of job by the name that the job's row stores."""

WORKER = "worker"
"""The actor of entries that no key caused."""


class TaskNotPaid(GrovekeeperError):
    """The task of a job differs from what its reservations pay for."""

    sentence = "the reservations of a job do not pay for its task"


@dataclass(eq=False)
class SubmitterRevoked(GrovekeeperError):
    """The submitter's key or grant was revoked, or the key expired, before the job was charged.

    Attributes:
        reason: ``REVOKED`` or ``KEY_EXPIRED``, with which the job ends.
    """

    reason: EndReason = EndReason.REVOKED

    sentence = "the submitter of a job may not train any more"


def charge_claimed(installation: Installation, claim: Claim) -> JobTask:
    """Transaction 1: the reservation becomes a charge. When this returns, the charge is committed.

    Raises:
        LeaseLost: another worker has the job, or the job ended; nothing was charged.
        SubmitterRevoked: the submitter may not train on a dataset of the job any more; nothing was charged.
        Frozen: a dataset of the job was frozen since the claim; nothing was charged.
    """
    with installation.database.write() as session:
        row = queue.job(session, claim.job_id)
        _hold_submitter(installation, session, row)
        lock_rows(session, (DatasetRow.id, {part.dataset for part in row.parts}))  # no deletion until the commit
        row = queue.leased(session, claim)
        if row.charged_at is not None:
            raise LeaseLost  # a charged job is never run twice
        require_paid(session, row)
        reservations.charge_job(session, row.id, actor=WORKER)
        row.charged_at = at = installation.database.now(session)
        _require_open(session, row, at=at)
        notices.job_changed(session, row, notices.JOB_STARTED, at=at)
        return _task(installation, session, row)


def charged_task(installation: Installation, claim: Claim) -> JobTask | None:
    """The task of a job that this claim has charged, although the answer was lost; ``None`` if it has not charged it.

    For the worker of the claim alone, which has read no row yet. The lock waits for a commit that is still under way.

    Raises:
        LeaseLost: another worker has the job, or the job ended.
    """
    with installation.database.write() as session:
        row = queue.leased(session, claim)
        return None if row.charged_at is None else _task(installation, session, row)


def _hold_submitter(installation: Installation, session: Session, row: JobRow) -> None:
    """Locks the submitter's key, before the job is locked, and checks its roles on every dataset of the job."""
    try:
        grants.lock(session, row.submitted_by)
        submitter = grants.read(session, row.submitted_by, now=installation.database.now)
        for dataset_id in {row.dataset_id, *(part.dataset for part in row.parts)}:
            grants.require(session, submitter, dataset_id, TRAIN, kind="dataset")
    except Unauthenticated:
        expired = grants.has_expired(session, row.submitted_by, now=installation.database.now)
        raise SubmitterRevoked(EndReason.KEY_EXPIRED if expired else EndReason.REVOKED) from None
    except (NotFound, RoleMissing):
        raise SubmitterRevoked from None


def require_paid(session: Session, row: JobRow) -> None:
    """Compares every part of a job with its reservation, and recomputes the event of a forest and the loss of events.

    Runs in the transaction that charges the job, so a job with a changed queue row or a wrongly priced event reads no
    private row. What the job draws is held to the event while it is drawn (:mod:`app.forests.noise.randomness`).

    Raises:
        TaskNotPaid: a part has no reservation, or another event, scope, price or account than its reservation, or an
            event that costs one privacy unit more than the reserved amount; the parameters of a forest cost another
            event; or a reservation has no part.
    """
    by_id = {reservation.id: reservation for reservation in tables.reservations_of(session, [row.id])}
    named = [part.reservation_id for part in row.parts]
    if by_id.keys() != set(named) or len(by_id) != len(named):
        raise TaskNotPaid
    for part, event in zip(row.parts, kinds.events_of(row), strict=True):
        _require_paid(session, by_id[part.reservation_id], part, event=event)
    if row.kind == "train":
        schema = catalog.find(session, row.dataset_id).schema
        try:
            catalogue.require_priced(catalogue.read_plan(row.task["work"]["plan"]), schema)
        except PlanInvalid:
            raise TaskNotPaid from None


def _require_paid(session: Session, reservation: ReservationRow, part: JobPart, *, event: object) -> None:
    dataset = catalog.find(session, part.dataset)
    limit = statements.highest_cap(session, part.dataset)
    is_same = (
        reservation.account_id == part.dataset
        and part.price["accountant"] == limit.accountant
        and reservation.amount == kinds.steps_of(part.price)
        and reservation.event == event
        and reservation.scope == part.scope
    )
    accountant = accountants.by_name(limit.accountant)
    try:
        loss = accountant.loss(events.from_json(event), adjacency=dataset.adjacency)
    except events.UnknownPrivacyEvent:
        raise TaskNotPaid from None
    of_unit = accountant.group(dataset.max_rows) * loss
    if not is_same or of_unit > Fraction(reservation.amount, 10**accountant.PLACES):
        raise TaskNotPaid


def _require_open(session: Session, row: JobRow, *, at: datetime) -> None:
    """Checks the rules under the locks of the job's accounts, which a change of rules takes, too."""
    closed = rules.closed_accounts(session, at=at)
    for part in row.parts:
        if part.dataset in closed:
            raise Frozen(part.dataset, part.dataset_name)


def _task(installation: Installation, session: Session, row: JobRow) -> JobTask:
    """The task of the child: public facts, and the files of exactly the uploads that were in scope at submission."""
    return JobTask(
        kind=row.kind,
        job_id=row.id,
        folder=installation.job_folder(row.id),
        work=row.task["work"],
        n_trees=row.n_trees,
        parts=tuple(_rows(installation, session, part) for part in row.parts),
        metadata=kind_of(row.kind).public_facts(session, row),
        cluster=cluster_of(installation, session, row),
    )


def kind_of(name: str) -> JobKind:
    """The kind of a job. Jobs of unknown kinds are not claimed."""
    return KINDS[name]


def known_work() -> frozenset[str]:
    """The names of the kinds and algorithms whose jobs this version can run; a newer version may queue others."""
    return frozenset((*KINDS, *catalogue.BY_SLUG))


def _rows(installation: Installation, session: Session, part: JobPart) -> PartRows:
    dataset = catalog.find(session, part.dataset)
    return PartRows(
        schema=dataset.row.schema,
        row_files=row_names(part),
        partitions=dataset.row.partitions,
        scope={name: tuple(cells) for name, cells in part.scope.items()},
        data_key=dataset.data_key(installation.storage_keys),
    )


def row_names(part: JobPart) -> tuple[Path, ...]:
    """The names in the store of the rows of one part."""
    return tuple(Path(row_files.rows_name(part.dataset, epoch)) for epoch in part.epochs)


def planned_bytes(session: Session, row: JobRow) -> int:
    """The public size of the file that a job stores: of a model. Other outputs are small and go to the database.

    Raises:
        TaskNotPaid: the stored plan is not a plan of this service.
    """
    if row.kind != "train":
        return 0
    schema = catalog.find(session, row.dataset_id).living().schema
    try:
        return released_forest.planned_bytes(catalogue.read_plan(row.task["work"]["plan"]), schema)
    except PlanInvalid:
        raise TaskNotPaid from None


def cluster_of(installation: Installation, session: Session, row: JobRow) -> DaskCluster | None:
    """The Dask cluster that reads the rows of a job: for forests that count codes, on datasets whose declared,
    public size is at least that of the setting.
    """
    if row.kind != "train" or row.algorithm is None:
        return None
    if catalogue.algorithm(row.algorithm).reads_values:
        return None
    size = catalog.find(session, row.dataset_id).row.public_size or 0
    return installation.settings.dask_cluster if size >= installation.settings.dask_rows else None
