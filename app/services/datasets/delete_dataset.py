"""Serves ``DELETE /datasets/{id}``: erases the rows of a dataset; spend, ledger and models stay."""

from contextlib import suppress
from datetime import datetime

from sqlalchemy.orm import Session

from app.access.roles import MANAGE_DATASET, Principal
from app.core.errors import Unavailable
from app.datasets import catalog, row_files
from app.datasets.erasure_log import ErasureLog
from app.jobs import queue
from app.ledger import control
from app.ledger.entries import EntryKind
from app.services.authorization import acting, authorized_dataset
from app.services.installation import Installation
from app.services.jobs.cancel_jobs import cancel_locked
from app.webhooks import outbox


def delete_dataset(installation: Installation, principal: Principal, reference: str) -> None:
    """Marks a dataset as deleted, destroys its data key and erases its rows. Deleting a deleted dataset succeeds.

    Queued jobs are cancelled and their reservations voided; running jobs are cancelled and stay charged. The mark is
    committed first: if the process dies before the files are erased, the sweeper erases them.

    Raises:
        NotFound: no such dataset, or it is not visible to this key.
        RoleMissing: only the owner erases.
    """
    with acting(installation, principal) as (session, principal):
        dataset = authorized_dataset(session, principal, reference, MANAGE_DATASET)
        mark_deleted(session, dataset.id, actor=principal.key_id, at=installation.database.now(session))
    erase_remains(installation, dataset.id)


def mark_deleted(session: Session, dataset_id: str, *, actor: str, at: datetime) -> None:
    """Turns a dataset into a tombstone without a data key, cancels its jobs, and records the act. The files are erased
    afterwards.

    Raises:
        BalanceMismatch: the balance of a member of a population differs from its entries; nothing was written.
    """
    row = catalog.locked(session, dataset_id).row  # locked before its jobs, so that no job is added meanwhile
    # All jobs are locked before the account: a worker that holds a job may be waiting for the account.
    unfinished = [queue.locked(session, job_id) for job_id in queue.unfinished_of(session, dataset_id)]
    cancel_locked(session, unfinished, actor=actor, at=at)
    if row.deleted_at is None:
        catalog.mark_deleted(row, at=at)
        outbox.remove(session, [webhook.id for webhook in outbox.of_dataset(session, dataset_id)])
        control.record(session, EntryKind.DATASET_DELETED, actor=actor, dataset=dataset_id)


def erase_remains(installation: Installation, dataset_id: str) -> None:
    """Erases the files of a deleted dataset, and what the database still has of its key. The sweeper repeats both.

    The deletion is recorded first, so that no restore of an older backup brings the rows back.
    """
    ErasureLog(installation.heads).record_dataset(dataset_id)
    row_files.erase_dataset(installation.files, dataset_id)
    with suppress(Unavailable):
        installation.database.forget_deleted()
