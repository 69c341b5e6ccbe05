"""Serves ``DELETE /datasets/{id}/uploads/{upload}``: erases the rows of one upload; every charge stays."""

from contextlib import AbstractContextManager, nullcontext, suppress
from datetime import datetime

from sqlalchemy.orm import Session

from app.access.grants import MANAGE_DATASET, Principal
from app.core import stamps
from app.core.errors import Unavailable
from app.core.sealed_files import DataKey
from app.datasets import catalog
from app.datasets.erasure_log import upload_record
from app.datasets.tables import EpochRow
from app.jobs import queue
from app.ledger import control, external
from app.ledger.entries import EntryKind
from app.services.authorization import authorized_dataset, write_as
from app.services.datasets.books import opened_book
from app.services.installation import Installation
from app.services.ledger.erasure_records import open_log
from app.wire.datasets import UploadErasureOut

STAYS = (
    "What was spent on these rows stays spent: nothing is refunded, and models, profiles and evaluations stay. A copy "
    "of the rows that is uploaded again is another upload, and where uploads are cells, its people pay in both cells."
)
"""What an erasure never gives back, for owners to read before it and after it."""

IF_UNREAD = (
    "The places of their units are free again if no job has read the upload or waits to read it, and nothing outside "
    "the service was charged since it came. Otherwise they stay taken: rows of a unit that had all its places are not "
    "stored again."
)
"""What becomes of the places of units, for owners to read before an erasure."""

_FREE = "No job has read these rows, so the places of their units are free again."
_TAKEN = (
    "A job has read these rows or waits to read them, or something outside the service was charged since they came. So "
    "the places of their units stay taken: rows of a unit that had all its places are not stored again. If the job is "
    "cancelled before it is charged, repeat this erasure: it frees the places."
)


def erase_upload(
    installation: Installation, principal: Principal, reference: str, *, upload: str
) -> "UploadErasureOut":
    """Replaces the stored rows of an upload by none. The request may be repeated.

    The upload stays a cell of partitions by upload, with its charges, and jobs that name it read no row there. Queued
    jobs stay queued and run without the rows; a job that has opened the file finishes with the rows it opened. The
    mark is committed first: if the process dies before the rows are erased, the sweeper erases them.

    Where the privacy unit is a column, the places of the upload's units are free again unless a job names the upload
    (docs/proofs/accounting.md A7). This is decided after the rows are erased, so no job of a later charge finds them.

    Raises:
        NotFound: no such dataset or upload, or the dataset is not visible to this key.
        RoleMissing: only the owner erases.
        DatasetDeleted: the dataset's rows are erased.
        Unavailable: an upload is running, or too many requests are waiting; nothing was erased.
    """
    with installation.database.read() as session:
        dataset = authorized_dataset(session, principal, reference, MANAGE_DATASET).living()
        catalog.epoch(session, dataset.id, upload)
    from app.datasets import erasure  # pyarrow takes 0.2 s of CPU and 40 MB to import

    key = dataset.data_key(installation.storage_keys)
    try:
        with _without_uploads(installation, dataset, key):
            with write_as(installation, principal) as (session, principal):
                authorized_dataset(session, principal, dataset.id, MANAGE_DATASET)
                catalog.locked(session, dataset.id).living()
                row = catalog.epoch(session, dataset.id, upload)
                erased_at = mark_upload_erased(
                    session, row, actor=principal.key_id, at=installation.database.now(session)
                )
            open_log(installation).write(upload_record(dataset.id, upload))
            erasure.erase_upload(installation.files, dataset.id, upload, key=key)
            are_places_free = dataset.unit_column is not None and _free_places(
                installation, principal, dataset.id, upload
            )
    except FileNotFoundError:
        with installation.database.read() as session:
            catalog.find(session, dataset.id).living()  # if the dataset was erased meanwhile, this is the error
        raise

    return UploadErasureOut(
        dataset=dataset.id,
        dataset_name=dataset.name,
        epoch=upload,
        erased_at=stamps.to_text(erased_at),
        places=None if dataset.unit_column is None else "free" if are_places_free else "taken",
        stays=STAYS if dataset.unit_column is None else f"{STAYS} {_FREE if are_places_free else _TAKEN}",
    )


def _free_places(installation: Installation, caller: Principal, dataset_id: str, upload: str) -> bool:
    """Frees the places of an upload without rows that no job has read; returns whether they are free.

    The caller holds the dataset's book, so no upload is judged meanwhile. The dataset's lock excludes submissions.
    """
    with write_as(installation, caller) as (session, principal):
        authorized_dataset(session, principal, dataset_id, MANAGE_DATASET)
        catalog.locked(session, dataset_id).living()
        row = catalog.epoch(session, dataset_id, upload)
        is_covered = queue.reads_upload(session, dataset_id, upload) or external.is_charged_since(
            session, dataset_id, row.uploaded_at
        )
        if row.places_freed_at is None and not is_covered:
            row.places_freed_at = installation.database.now(session)
        return row.places_freed_at is not None


def mark_upload_erased(session: Session, row: EpochRow, *, actor: str, at: datetime) -> datetime:
    """Marks an upload as erased and records the act, unless both happened before; returns the time of the mark."""
    if row.erased_at is None:
        row.erased_at = at
        control.record(session, EntryKind.UPLOAD_ERASED, actor=actor, dataset=row.dataset_id, upload=row.id)
    return row.erased_at


def complete_erasures(installation: Installation) -> None:
    """Erases rows of uploads that are marked as erased and whose process died before it erased them."""
    with installation.database.read() as session:
        erased = catalog.erased_uploads(session)
    if not erased:
        return
    from app.datasets import erasure, row_layout  # pyarrow takes 0.2 s of CPU and 40 MB to import

    for dataset, uploads in erased:
        key = dataset.data_key(installation.storage_keys)
        with suppress(FileNotFoundError, Unavailable):  # the dataset was erased, or the next search completes it
            stored = row_layout.stored_uploads(installation.files, dataset.id, uploads, key=key)
            remaining = [upload for upload, facts in stored.items() if facts.n_rows]
            if remaining:
                with _without_uploads(installation, dataset, key):
                    for upload in remaining:
                        erasure.erase_upload(installation.files, dataset.id, upload, key=key)


def _without_uploads(
    installation: Installation, dataset: catalog.Dataset, key: DataKey
) -> AbstractContextManager[object]:
    """Where units have books, holds the dataset's book: an erasure of a unit writes the same files."""
    if dataset.unit_column is None:
        return nullcontext()
    return opened_book(installation, dataset, key)
