"""Serves ``DELETE /datasets/{id}``: erases the rows of a dataset; spend, ledger and models stay."""

from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime

from sqlalchemy.orm import Session

from app.access.grants import MANAGE_DATASET, Principal
from app.core import limits
from app.core.errors import BalanceMismatch, Unavailable
from app.datasets import catalog, row_files
from app.datasets.erasure_log import dataset_record
from app.jobs import queue
from app.ledger import control
from app.ledger.entries import EntryKind
from app.services.authorization import authorized_dataset, write_as
from app.services.installation import Installation
from app.services.jobs.notices import cancel_locked
from app.services.ledger.erasure_records import open_log
from app.webhooks import outbox


def delete_dataset(installation: Installation, principal: Principal, reference: str) -> None:
    """Marks a dataset as deleted, destroys its data key and erases its rows. Deleting a deleted dataset succeeds.

    Running jobs are cancelled with the mark and stay charged; from then on no job of the dataset is charged. The mark
    is committed first. Then the rows are erased and queued jobs end, a few in each transaction, which gives their
    reservations back. The sweeper does what is left: because the process died, or because many jobs were queued.

    Raises:
        NotFound: no such dataset, or it is not visible to this key.
        RoleMissing: only the owner erases.
    """
    with write_as(installation, principal) as (session, principal):
        dataset = authorized_dataset(session, principal, reference, MANAGE_DATASET)
        has_jobs = mark_deleted(session, dataset.id, actor=principal.key_id, at=installation.database.now(session))
    erase_remains(installation, dataset.id)
    if has_jobs:
        end_jobs(installation, dataset.id, actor=principal.key_id)


def mark_deleted(session: Session, dataset_id: str, *, actor: str, at: datetime) -> bool:
    """Turns a dataset into a tombstone without a data key, cancels its charged jobs, and records the act. The files are
    erased afterwards.

    Returns:
        Whether jobs that were not charged are left, which end afterwards (:func:`end_jobs`).
    """
    # Locked before its jobs, so that no job is added or charged meanwhile.
    row = catalog.locked(session, dataset_id).row
    if row.deleted_at is not None:
        return row.jobs_ended_at is None
    charged = queue.locked_several(session, queue.charged_of(session, dataset_id))
    cancel_locked(session, charged, actor=actor, at=at)
    catalog.mark_deleted(row, at=at)
    outbox.remove(session, [webhook.id for webhook in outbox.of_dataset(session, dataset_id)])
    control.record(session, EntryKind.DATASET_DELETED, actor=actor, dataset=dataset_id)
    session.flush()
    row.jobs_ended_at = None if queue.unfinished_of(session, dataset_id) else at
    return row.jobs_ended_at is None


def erase_remains(installation: Installation, dataset_id: str) -> None:
    """Erases the files of a deleted dataset, and what the database still has of its key. The sweeper repeats both.

    The deletion is recorded first, so that no restore of an older backup brings the rows back.
    """
    open_log(installation).write(dataset_record(dataset_id))
    row_files.erase_dataset(installation.files, dataset_id)
    with suppress(Unavailable):
        installation.database.forget_deleted()


def end_jobs(installation: Installation, dataset_id: str, *, actor: str) -> None:
    """Cancels jobs of a deleted dataset and gives their reservations back: ``limits.MAX_JOBS_ENDED_BY_A_SWEEP`` jobs.

    A transaction ends a few jobs, so that others wait a moment at most for the accounts, or for SQLite's one writer. A
    job whose reservation cannot be given back, because a balance differs from its entries, is left to a later call.
    """
    database, n_ended = installation.database, 0
    with database.read() as session:
        unfinished = queue.unfinished_of(session, dataset_id)
    for start in range(0, len(unfinished), limits.JOBS_ENDED_TOGETHER):
        if n_ended >= limits.MAX_JOBS_ENDED_BY_A_SWEEP:
            return
        n_ended += _n_ended(installation, unfinished[start : start + limits.JOBS_ENDED_TOGETHER], actor=actor)
    with database.write() as session:
        row = catalog.locked(session, dataset_id).row
        if not queue.unfinished_of(session, dataset_id):
            row.jobs_ended_at = row.jobs_ended_at or database.now(session)


def _n_ended(installation: Installation, job_ids: Sequence[str], *, actor: str) -> int:
    """Ends jobs in one transaction or, if one of them cannot end, each in its own; returns how many ended."""
    database = installation.database
    try:
        with database.write() as session:
            cancel_locked(session, queue.locked_several(session, job_ids), actor=actor, at=database.now(session))
    except BalanceMismatch:
        return 0 if len(job_ids) == 1 else sum(_n_ended(installation, [job_id], actor=actor) for job_id in job_ids)
    return len(job_ids)
