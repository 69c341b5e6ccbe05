"""Serves ``DELETE /datasets/{id}/uploads/{upload}``: erases the rows of one upload; every charge stays."""

from contextlib import AbstractContextManager, nullcontext, suppress
from datetime import datetime
from typing import TYPE_CHECKING

from sqlalchemy.orm import Session

from app.access.roles import MANAGE_DATASET, Principal
from app.core import clock
from app.core.data_keys import DataKey
from app.core.errors import Unavailable
from app.datasets import catalog
from app.datasets.erasure_log import ErasureLog
from app.datasets.tables import EpochRow
from app.ledger import control
from app.ledger.entries import EntryKind
from app.services.authorization import acting, authorized_dataset
from app.services.datasets.books import opened_book
from app.services.installation import Installation

if TYPE_CHECKING:  # pydantic takes 0.09 s of CPU and 8 MB to import, which a worker that sweeps need not spend
    from app.wire.datasets import UploadErasureOut

STAYS = (
    "What was spent on these rows stays spent: nothing is refunded, and models, profiles and evaluations stay. The "
    "places of their units stay taken: rows of a unit that had all its places are not stored again. A copy of the rows "
    "that is uploaded again is another upload, and where uploads are cells, its people pay in both cells."
)
"""What an erasure does not give back, for owners to read before it and after it."""


def erase_upload(
    installation: Installation, principal: Principal, reference: str, *, upload: str
) -> "UploadErasureOut":
    """Replaces the stored rows of an upload by none. The request may be repeated.

    The upload stays a cell of partitions by upload, with its charges, and jobs that name it read no row there. Queued
    jobs stay queued and run without the rows; a job that has opened the file finishes with the rows it opened. The
    mark is committed first: if the process dies before the rows are erased, the sweeper erases them.

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
            with acting(installation, principal) as (session, principal):
                authorized_dataset(session, principal, dataset.id, MANAGE_DATASET)
                catalog.locked(session, dataset.id).living()
                row = catalog.epoch(session, dataset.id, upload)
                erased_at = mark_upload_erased(
                    session, row, actor=principal.key_id, at=installation.database.now(session)
                )
            ErasureLog(installation.heads).record_upload(dataset.id, upload)
            erasure.erase_upload(installation.files, dataset.id, upload, key=key)
    except FileNotFoundError:
        with installation.database.read() as session:
            catalog.find(session, dataset.id).living()  # if the dataset was erased meanwhile, this is the error
        raise
    from app.wire.datasets import UploadErasureOut  # for the reason above

    return UploadErasureOut(
        dataset=dataset.id, dataset_name=dataset.name, epoch=upload, erased_at=clock.to_text(erased_at), stays=STAYS
    )


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
