"""Charges a claimed job in one transaction, if its reservations pay for every release
of its task.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

from sqlalchemy.orm import Session

from app.access import grants
from app.core.dask_cluster import DaskCluster
from app.core.errors import (
    Frozen,
    LeaseLost,
    Unavailable,
)
from app.datasets import catalog, row_files
from app.datasets.catalog import Dataset, DatasetRow
from app.db.database import transaction_time
from app.db.locks import lock_rows
from app.jobs import queue
from app.jobs.queue import Claim
from app.jobs.tables import JobPart, JobRow
from app.ledger import kept_states, reservations, rules, tables
from app.ledger.tables import ReservationRow
from app.registry import releases
from app.services.authorization import require_submitter
from app.services.installation import Installation
from app.services.jobs import notices
from app.services.jobs.task import JobTask, PartRows
from app.services.releases import kinds
from app.services.releases.contract import StoredPlan, events_of
from grovekeeper_common.json_types import JsonMapping
from grovekeeper_forests.contract.plan import PlanInvalid
from grovekeeper_forests.errors import GrovekeeperError
from grovekeeper_forests.privacy import accountants, events
from grovekeeper_forests.privacy.calibration import Terms
from grovekeeper_forests.privacy.scope import Scope
from grovekeeper_forests.releases.names import MODEL

WORKER = "worker"
"""The actor of charges, and of what a worker gives back."""


class TaskNotPaid(GrovekeeperError):
    """The task of a job differs from what its reservations pay for."""

    sentence = "the reservations of a job do not pay for its task"


def charge_claimed(installation: Installation, claim: Claim) -> JobTask:
    """Turns the reservations of a job into charges. When this returns, the charges are
    committed, and rows may be read.

    Raises:
        LeaseLost: another worker has the job, or the job ended; nothing was charged.
        SubmitterRevoked: the submitter may not train on a dataset of the job any more;
            nothing was charged.
        Frozen: a dataset of the job was frozen since the claim; nothing was charged.
    """
    planned = _planned_before(installation, claim)
    with installation.database.write() as session:
        # Keys, datasets, job, accounts: the order of locks of every transaction. The row
        # is read without its lock first, because it names the keys and datasets.
        row = queue.job(session, claim.job_id)
        grants.lock(session, row.submitted_by)
        require_submitter(session, row)
        # no deletion until the commit
        lock_rows(session, (DatasetRow.id, {part.dataset for part in row.parts}))
        row = queue.leased(session, claim)
        if row.charged_at is not None:
            raise LeaseLost  # a charged job is never run twice
        require_paid(session, row, planned)
        reservations.charge_job(session, row.id, actor=WORKER)
        row.charged_at = transaction_time(session)
        # after the charge, which has locked the accounts, as a change of their rules
        # does; a refusal rolls the charge back
        closed = rules.closed_accounts(session)
        for part in row.parts:
            if part.dataset in closed:
                raise Frozen(part.dataset, part.dataset_name)
        notices.job_changed(session, row, notices.JOB_STARTED)
        return _task(installation, session, row)


def charged_task(installation: Installation, claim: Claim) -> JobTask | None:
    """The task of a job that this claim has charged, although the answer was lost;
    ``None`` if it has not charged it.

    For the worker of the claim alone, which has read no row yet. The lock waits for a
    commit that is still under way.

    Raises:
        LeaseLost: another worker has the job, or the job ended.
    """
    with installation.database.write() as session:
        row = queue.leased(session, claim)
        if row.charged_at is None:
            return None
        return _task(installation, session, row)


def _planned_before(installation: Installation, claim: Claim) -> StoredPlan | None:
    """Plans a job again before the transaction that charges it, because planning may
    take seconds, which would hold locks.

    Returns:
        The stored plan, if planning makes the same of its parameters. ``None`` if not,
        or if anything cannot be read: the transaction then finds why.
    """
    try:
        with installation.database.read() as session:
            row = queue.job(session, claim.job_id)
            datasets = [catalog.find(session, part.dataset) for part in row.parts]
            stored = _stored_plan(row, datasets)
        if kinds.KINDS[stored.kind].is_planned(stored):
            return stored
        return None
    except (
        GrovekeeperError,
        ArithmeticError,
        IndexError,
        KeyError,
        TypeError,
        ValueError,
    ):
        return None


def _stored_plan(row: JobRow, datasets: Sequence[Dataset]) -> StoredPlan:
    terms = [
        _terms(dataset, part.price)
        for dataset, part in zip(datasets, row.parts, strict=True)
    ]
    return StoredPlan(
        row.kind,
        row.algorithm,
        row.task["work"],
        datasets[0].row.schema,
        terms,
        row.label,
    )


def require_paid(session: Session, row: JobRow, planned: StoredPlan | None) -> None:
    """Compares what decides which rows a job reads, how noise is scaled and what is
    shown with what was reserved.

    Runs in the transaction that charges the job, so a job with a changed queue row, a
    wrongly priced event, or a dataset that is not as its account states reads no
    private row. Every part is what its reservation, which the charge compares with its
    entry, pays for; the work is planned again. What the job draws is held to the event
    while it is drawn (:mod:`grovekeeper_forests.noise.randomness`). Words (names,
    warnings) and numbers of earlier releases are believed.

    Args:
        session: of the transaction that charges the job.
        row: the job.
        planned: what was planned again before the transaction; it is compared, and only
            if it differs planned here.

    Raises:
        TaskNotPaid: a part or the work differs, the event costs one privacy unit more
            than the reserved amount, or a reservation has no part.
        BalanceMismatch: a dataset differs from what the first entry of its account
            states.
    """
    by_id = {
        reservation.id: reservation
        for reservation in tables.reservations_of(session, [row.id])
    }
    named = [part.reservation_id for part in row.parts]
    # The lengths differ if two parts name one reservation, which pays for one alone.
    if not named or by_id.keys() != set(named) or len(by_id) != len(named):
        raise TaskNotPaid
    try:
        is_paid = _is_paid(session, row, by_id, planned)
    except Unavailable:
        # an outage of the database says nothing about the task, so the job waits
        raise
    except (GrovekeeperError, ArithmeticError, KeyError, TypeError, ValueError):
        # not of the form of a task
        is_paid = False
    if not is_paid:
        raise TaskNotPaid


def _is_paid(
    session: Session,
    row: JobRow,
    by_id: Mapping[str, ReservationRow],
    planned: StoredPlan | None,
) -> bool:
    datasets = [catalog.find(session, part.dataset) for part in row.parts]
    parts = zip(row.parts, datasets, events_of(row), strict=True)
    for position, (part, dataset, event) in enumerate(parts):
        reservation = by_id[part.reservation_id]
        in_queue = (position, row.submitted_by, row.purpose)
        in_ledger = (
            reservation.part,
            reservation.reserved_by,
            (reservation.details or {}).get("purpose"),
        )
        if in_queue != in_ledger:
            return False
        if not _is_part_paid(session, reservation, dataset, part, event=event):
            return False
    shown = (row.dataset_id, row.dataset_name, row.n_trees)
    n_trees = row.task["work"]["plan"].get("n_trees", 0)
    if shown != (datasets[0].id, datasets[0].name, n_trees):
        return False
    stored = _stored_plan(row, datasets)
    is_planned = stored == planned or kinds.KINDS[row.kind].is_planned(stored)
    return is_planned and _reads_named_models(session, row)


def _reads_named_models(session: Session, row: JobRow) -> bool:
    """Whether the files that a job reads beside rows are those of the models that it
    names.
    """
    named = kinds.KINDS[row.kind].inputs(row.task["work"])
    are_distinct = len({model_id for model_id, _ in named}) == len(named)
    return are_distinct and all(
        releases.find(session, MODEL, model_id).digest == digest
        for model_id, digest in named
    )


def _is_part_paid(
    session: Session,
    reservation: ReservationRow,
    dataset: Dataset,
    part: JobPart,
    *,
    event: object,
) -> bool:
    account = tables.account(session, dataset.id)
    kept_states.require_declared(session, account, dataset.facts)
    # The ledger states the accountant, and not the queue row: the row of a job has no
    # hash, so a changed name there would choose a cheaper arithmetic.
    accountant = accountants.by_name(account.accountant)
    terms = replace(_terms(dataset, part.price), accountant=accountant.NAME)
    paid = JobPart(
        dataset=reservation.account_id,
        dataset_name=dataset.name,
        scope=reservation.scope,
        epochs=_paid_uploads(
            session, dataset, Scope(reservation.scope), n_uploads=len(part.epochs)
        ),
        price=terms.stated(reservation.amount),
        reservation_id=reservation.id,
        label=(reservation.details or {}).get("label"),
    )
    if part != paid or reservation.event != event:
        return False
    if reservation.amount != terms.price():
        return False
    # A loss is that of one row; a privacy unit may have several.
    row_loss = accountant.loss(events.from_json(event), adjacency=dataset.adjacency)
    unit_loss = accountant.group(dataset.max_rows) * row_loss
    return unit_loss <= Fraction(reservation.amount, 10**accountant.PLACES)


def _paid_uploads(
    session: Session, dataset: Dataset, scope: Scope, *, n_uploads: int
) -> Sequence[str]:
    """The uploads that a scope covers, each once, in the order of their arrival.

    Without a partition by upload, the scope covers rows of all uploads, and those that
    came after the reservation, too; a part reads the first ones.
    """
    uploads = dataset.uploads_in(scope, catalog.upload_ids(session, dataset.id))
    if dataset.partitions.epoch_partition is None:
        return uploads[:n_uploads]
    return uploads


def _terms(dataset: Dataset, price: JsonMapping) -> Terms:
    """What a dataset's account pays for, as the plan of the job was made from it."""
    delta = None if price["delta"] is None else Fraction(price["delta"])
    return Terms(
        Fraction(price["epsilon"]),
        price["accountant"],
        delta,
        dataset.adjacency,
        dataset.max_rows,
    )


def _task(installation: Installation, session: Session, row: JobRow) -> JobTask:
    """The task of the child: public facts, and the files of exactly the uploads that
    were in scope at submission.
    """
    return JobTask(
        kind=row.kind,
        job_id=row.id,
        folder=installation.job_folder(row.id),
        work=row.task["work"],
        n_trees=row.n_trees,
        parts=tuple(_rows(installation, session, part) for part in row.parts),
        metadata=kinds.KINDS[row.kind].public_facts(session, row),
        cluster=cluster_of(installation, session, row),
    )


def _rows(installation: Installation, session: Session, part: JobPart) -> PartRows:
    dataset = catalog.find(session, part.dataset)
    return PartRows(
        schema=dataset.row.schema,
        row_files=tuple(map(Path, row_file_names(part))),
        partitions=dataset.row.partitions,
        scope=Scope(part.scope),
        data_key=dataset.data_key(installation.storage_keys),
        label=part.label,
    )


def row_file_names(part: JobPart) -> list[str]:
    """The names in the store of the files of rows of one part, by upload."""
    return [row_files.rows_name(part.dataset, epoch) for epoch in part.epochs]


def planned_bytes(session: Session, row: JobRow) -> int:
    """The public size of the file that a job stores.

    Raises:
        TaskNotPaid: the stored plan is not a plan of this service.
    """
    kind = kinds.KINDS[row.kind]
    if not kind.is_file:  # bodies are small and go to the database
        return 0
    declared = catalog.find(session, row.dataset_id).living().schema
    schema = declared.with_label(row.label)
    try:
        return kind.planned_bytes(row.task["work"], schema)
    except PlanInvalid:
        raise TaskNotPaid from None


def cluster_of(
    installation: Installation, session: Session, row: JobRow
) -> DaskCluster | None:
    """The Dask cluster that reads the rows of a job: for releases of sums over rows, on
    datasets whose declared, public size is at least that of the setting.
    """
    if not kinds.KINDS[row.kind].needs_sums_alone(row.algorithm):
        return None
    # The declared size and never the number of rows, which is private: who reads the
    # rows shows in times and in logs.
    size = catalog.find(session, row.dataset_id).row.public_size or 0
    settings = installation.settings
    return settings.dask_cluster if size >= settings.dask_rows else None
