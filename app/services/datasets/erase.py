"""Erases all rows of a dataset, or those of one upload. Every charge stays."""

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from datetime import datetime
from typing import Literal

from sqlalchemy.orm import Session

from app.access.grants import MANAGE_DATASET, Principal
from app.core import limits, stamps
from app.core.errors import BalanceMismatch, Unavailable
from app.core.sealed_files import DataKey
from app.datasets import catalog, row_files
from app.datasets.erasure_log import dataset_record, upload_record
from app.db.database import transaction_time
from app.jobs import outbox, queue
from app.jobs.states import EndReason
from app.ledger import control, reservations, rules
from app.ledger.tables import EntryKind
from app.services.authorization import authorized_dataset, managed_dataset, write_as
from app.services.datasets.upload import opened_book, unless_erased
from app.services.installation import Installation
from app.services.jobs.notices import end_locked
from app.services.ledger.heads import open_log
from app.wire.uploads import UploadErasureOut

SWEEPER = "sweeper"
"""The actor of what a sweep ends or erases: after a limit of time, on the date that the
owners' rules set, or for a deletion that was interrupted.
"""

STAYS = (
    "What was spent on these rows stays spent: nothing is refunded, and models, statistics, profiles and evaluations "
    "stay. A copy of the rows that is uploaded again is another upload, and where uploads are cells, its people pay in "
    "both cells."
)
"""What an erasure never gives back, for owners to read before it and after it."""

IF_UNREAD = (
    "The places of their units are free again if no job has read the upload or waits to read it, and nothing outside "
    "the service was charged since it came. Otherwise they stay taken: rows of a unit that had all its places are not "
    "stored again."
)
"""What becomes of the places of units, for owners to read before an erasure."""

Places = Literal["free", "taken"]
"""What the places of an erased upload's units are."""

_OF_PLACES: Mapping[Places, str] = {
    "free": "No job has read these rows, so the places of their units are free again.",
    "taken": (
        "A job has read these rows or waits to read them, or something outside the service was charged since they "
        "came. So the places of their units stay taken: rows of a unit that had all its places are not stored again. "
        "If the job is cancelled before it is charged, repeat this erasure: it frees the places."
    ),
}


def delete_dataset(
    installation: Installation, principal: Principal, reference: str
) -> None:
    """Marks a dataset as deleted, destroys its data key and erases its rows. Deleting a
    deleted dataset succeeds.

    Running jobs are cancelled with the mark and stay charged; from then on no job of
    the dataset is charged. The mark is committed first. Then the rows are erased and
    queued jobs end, a few in each transaction, which gives their reservations back. The
    sweeper does what is left: because the process died, or because many jobs were
    queued.
    """
    with write_as(installation, principal) as (session, principal):
        dataset = authorized_dataset(session, principal, reference, MANAGE_DATASET)
        has_jobs = mark_deleted(session, dataset.id, actor=principal.key_id)
    erase_remains(installation, dataset.id)
    if has_jobs:
        end_jobs(installation, dataset.id, actor=principal.key_id)


def mark_deleted(session: Session, dataset_id: str, *, actor: str) -> bool:
    """Turns a dataset into a tombstone without a data key, cancels its charged jobs,
    and records the act. The files are erased afterwards.

    Returns:
        Whether jobs that were not charged are left, which end afterwards (:func:`end_jobs`).
    """
    # Locked before its jobs, so that no job is added or charged meanwhile.
    row = catalog.locked(session, dataset_id).row
    if row.deleted_at is not None:
        return row.jobs_ended_at is None
    charged = queue.locked_several(session, queue.charged_of(session, dataset_id))
    end_locked(session, charged, actor=actor, reason=EndReason.DATASET_ERASED)
    at = transaction_time(session)
    catalog.mark_deleted(row, at=at)
    outbox.remove(
        session, [webhook.id for webhook in outbox.of_dataset(session, dataset_id)]
    )
    control.record(session, EntryKind.DATASET_DELETED, actor=actor, dataset=dataset_id)
    session.flush()
    row.jobs_ended_at = None if queue.unfinished_of(session, dataset_id) else at
    return row.jobs_ended_at is None


def erase_remains(installation: Installation, dataset_id: str) -> None:
    """Erases the files of a deleted dataset, and what the database still has of its
    key. The sweeper repeats both.

    The deletion is recorded first, so that no restore of an older backup brings the
    rows back.
    """
    open_log(installation).write(dataset_record(dataset_id))
    row_files.erase_dataset(installation.files, dataset_id)
    with suppress(Unavailable):
        installation.database.forget_deleted()


def end_jobs(installation: Installation, dataset_id: str, *, actor: str) -> None:
    """Cancels jobs of a deleted dataset and gives their reservations back:
    ``limits.MAX_JOBS_ENDED_BY_A_SWEEP`` jobs.

    A transaction ends a few jobs, so that others wait a moment at most for the
    accounts, or for SQLite's one writer. A job whose reservation cannot be given back,
    because a balance differs from its entries, is left to a later call.
    """
    database = installation.database
    n_ended = 0
    with database.read() as session:
        unfinished = queue.unfinished_of(session, dataset_id)
    for start in range(0, len(unfinished), limits.JOBS_ENDED_TOGETHER):
        if n_ended >= limits.MAX_JOBS_ENDED_BY_A_SWEEP:
            return
        n_ended += _n_ended(
            installation,
            unfinished[start : start + limits.JOBS_ENDED_TOGETHER],
            actor=actor,
        )
    with database.write() as session:
        row = catalog.locked(session, dataset_id).row
        if not queue.unfinished_of(session, dataset_id):
            row.jobs_ended_at = row.jobs_ended_at or transaction_time(session)


def _n_ended(installation: Installation, job_ids: Sequence[str], *, actor: str) -> int:
    """Ends jobs in one transaction or, if one of them cannot end, each in its own;
    returns how many ended.
    """
    database = installation.database
    try:
        with database.write() as session:
            rows = queue.locked_several(session, job_ids)
            end_locked(session, rows, actor=actor, reason=EndReason.DATASET_ERASED)
    except BalanceMismatch:
        if len(job_ids) == 1:
            return 0
        # one account that differs from its entries does not hold up the other jobs
        return sum(_n_ended(installation, [job_id], actor=actor) for job_id in job_ids)
    return len(job_ids)


def erase_due(installation: Installation) -> list[str]:
    """Deletes every dataset whose date has come: the rows go, and the spend, the ledger
    and the models stay. Then ends jobs of all datasets that were deleted.

    Workers and API processes repeat the search. Each dataset has its own transaction,
    which reads the dataset again under its lock, so several processes may search at
    once. If the process dies before the files are erased,
    :func:`app.services.execution.sweep.tidy_rows` erases them.

    Returns:
        Ids of the datasets that this call deleted.
    """
    database = installation.database
    erased = list[str]()
    with database.read() as session:
        due = rules.due_accounts(session)
        named = catalog.named(session, due)
        living = [
            dataset_id for dataset_id in due if named[dataset_id].deleted_at is None
        ]
    for dataset_id in living:
        if _is_deleted_now(installation, dataset_id):
            erase_remains(installation, dataset_id)
            erased.append(dataset_id)
    with database.read() as session:
        closing = catalog.closing_ids(session)
    for dataset_id in sorted(closing):
        end_jobs(installation, dataset_id, actor=SWEEPER)
    return erased


def _is_deleted_now(installation: Installation, dataset_id: str) -> bool:
    """Deletes a dataset unless another process did, as its row says under the lock."""
    with installation.database.write() as session:
        is_deleted = catalog.locked(session, dataset_id).is_deleted
        if is_deleted or dataset_id not in rules.due_accounts(session):
            return False
        mark_deleted(session, dataset_id, actor=SWEEPER)
        return True


def erase_upload(
    installation: Installation, principal: Principal, reference: str, *, upload: str
) -> "UploadErasureOut":
    """Replaces the stored rows of an upload by none. The request may be repeated.

    The upload stays a cell of partitions by upload, with its charges, and jobs that
    name it read no row there. Queued jobs stay queued and run without the rows; a job
    that has opened the file finishes with the rows it opened. The mark is committed
    first: if the process dies before the rows are erased, the sweeper erases them.

    Where the privacy unit is a column, the places of the upload's units are free again
    unless a job names the upload (docs/proofs/accounting.md A7). This is decided after
    the rows are erased, so no job of a later charge finds them.
    """
    with installation.database.read() as session:
        dataset = authorized_dataset(
            session, principal, reference, MANAGE_DATASET
        ).living()
        catalog.epoch(session, dataset.id, upload)
    # pyarrow takes 0.2 s of CPU and 40 MB to import
    from app.datasets import erasure, row_layout

    key = dataset.data_key(installation.storage_keys)
    form = row_layout.arrow_schema(dataset.schema, dataset.partitions)
    with (
        unless_erased(installation, dataset.id),
        _without_uploads(installation, dataset, key),
    ):
        with write_as(installation, principal) as (session, principal):
            managed_dataset(session, principal, dataset.id)
            row = catalog.epoch(session, dataset.id, upload)
            erased_at = mark_upload_erased(session, row, actor=principal.key_id)
        open_log(installation).write(upload_record(dataset.id, upload))
        erasure.erase_upload(installation.files, dataset.id, upload, form=form, key=key)
        places: Places | None = None
        stays = STAYS
        if dataset.unit_column is not None:
            places = _freed_places(installation, principal, dataset.id, upload)
            stays = f"{STAYS} {_OF_PLACES[places]}"
    return UploadErasureOut(
        **dataset.named,
        epoch=upload,
        erased_at=stamps.to_text(erased_at),
        places=places,
        stays=stays,
    )


def _freed_places(
    installation: Installation, caller: Principal, dataset_id: str, upload: str
) -> Places:
    """Frees the places of an upload without rows that no job has read; returns what
    they are then.

    The caller holds the dataset's book, so no upload is judged meanwhile. The dataset's
    lock excludes submissions.
    """
    with write_as(installation, caller) as (session, principal):
        managed_dataset(session, principal, dataset_id)
        row = catalog.epoch(session, dataset_id, upload)
        # An external mechanism may have read any upload that was there.
        is_covered = queue.reads_upload(
            session, dataset_id, upload
        ) or reservations.is_charged_externally_since(
            session, dataset_id, row.uploaded_at
        )
        if row.places_freed_at is None and not is_covered:
            row.places_freed_at = transaction_time(session)
        return "taken" if row.places_freed_at is None else "free"


def mark_upload_erased(
    session: Session, row: catalog.EpochRow, *, actor: str
) -> datetime:
    """Marks an upload as erased and records the act, unless both happened before;
    returns the time of the mark.
    """
    if row.erased_at is None:
        row.erased_at = transaction_time(session)
        control.record(
            session,
            EntryKind.UPLOAD_ERASED,
            actor=actor,
            dataset=row.dataset_id,
            upload=row.id,
        )
    return row.erased_at


def complete_erasures(installation: Installation) -> None:
    """Erases rows of uploads that are marked as erased and whose process died before it
    erased them.
    """
    with installation.database.read() as session:
        erased = catalog.erased_uploads(session)
    if not erased:
        return
    # pyarrow takes 0.2 s of CPU and 40 MB to import
    from app.datasets import erasure, row_layout

    for dataset, uploads in erased:
        key = dataset.data_key(installation.storage_keys)
        store = installation.files
        # the dataset was erased, or the next search completes it
        with suppress(FileNotFoundError, Unavailable):
            remaining = [
                upload
                for upload in uploads
                if erasure.has_remains(store, dataset.id, upload, key=key)
            ]
            if remaining:
                with installation.database.read() as session:
                    found = catalog.find(session, dataset.id)
                form = row_layout.arrow_schema(found.schema, found.partitions)
                with _without_uploads(installation, dataset, key):
                    for upload in remaining:
                        erasure.erase_upload(
                            store, dataset.id, upload, form=form, key=key
                        )


def _without_uploads(
    installation: Installation, dataset: catalog.Dataset, key: DataKey
) -> AbstractContextManager[object]:
    """Where units have books, holds the dataset's book: an erasure of a unit writes the
    same files.
    """
    if dataset.unit_column is None:
        return nullcontext()
    return opened_book(installation, dataset, key)
