"""``POST /datasets/{id}/rows``: a batch of private rows becomes an epoch."""

from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from app.access import grants
from app.access.idempotency import Answer, IdempotentRequest, once, stored
from app.access.roles import MANAGE_DATASET, Principal
from app.core import ids, limits
from app.core.errors import DatasetDeleted, TooLarge, Unavailable
from app.datasets import catalog, ingest, row_files
from app.services.answers import answer
from app.services.installation import Installation
from app.wire.datasets import ColumnReport, UploadOut


@dataclass(frozen=True)
class SpooledBody:
    """A body that was received completely: a file in the spool folder."""

    path: Path
    is_gzip: bool


def may_upload(installation: Installation, principal: Principal, reference: str) -> str:
    """Checks, before a byte of the body is taken, that the principal owns a living dataset.

    Raises:
        NotFound: no such dataset, or none that this key may know of.
        RoleMissing: only the owner uploads.
    """
    with installation.database.read() as session:
        dataset = catalog.find(session, reference)
        grants.require(session, principal, dataset.id, MANAGE_DATASET, kind="dataset")
        return dataset.id


def upload_rows(
    installation: Installation,
    principal: Principal,
    reference: str,
    body: SpooledBody,
    *,
    request: IdempotentRequest | None,
) -> Answer:
    """Sanitises and stores a batch, then makes it an epoch.

    The file of rows is complete and durable before the epoch commits; if the commit fails the file goes. Nothing in
    the answer's status or time depends on rows of other uploads.

    Raises:
        NotFound: no such dataset, or none that this key may know of.
        RoleMissing: only the owner uploads.
        DatasetDeleted: only the tombstone is left.
        RowsInvalid: the declaration cannot read the batch; nothing was stored.
        TooLarge: over a public limit; nothing was stored.
    """
    with installation.database.read() as session:
        dataset = catalog.find(session, reference)
        grants.require(session, principal, dataset.id, MANAGE_DATASET, kind="dataset")
        earlier = None if request is None else stored(session, request)
        if earlier is not None:
            return earlier
        dataset.living()
    epoch_id = ids.new(ids.EPOCH)
    report = _ingest(installation, dataset, body, epoch_id=epoch_id)
    kept = False
    try:
        with installation.database.write() as session:
            at = installation.database.now(session)

            def work() -> Answer:
                nonlocal kept
                catalog.locked(session, dataset.id).living()
                epochs = [epoch.id for epoch in catalog.epochs(session, dataset.id)]
                n_rows = report.n_rows + row_files.count_rows(installation.home, dataset.id, epochs)
                if n_rows > limits.MAX_ROWS_PER_DATASET:  # of all uploads together: a job reads them all
                    raise TooLarge("the number of rows of the dataset", limits.MAX_ROWS_PER_DATASET)
                catalog.add_epoch(session, dataset.id, epoch_id=epoch_id, at=at)
                kept = True
                return answer(201, _report_out(epoch_id, report))

            given = once(session, request, at=at, work=work)
    except BaseException:
        _discard_unless_committed(installation, dataset.id, epoch_id)
        raise
    if not kept:
        row_files.erase_epoch(installation.home, dataset.id, epoch_id)
    return given


def _discard_unless_committed(installation: Installation, dataset_id: str, epoch_id: str) -> None:
    """Erases the file of an epoch whose commit failed. A broken connection may hide a commit that held, so it asks."""
    with suppress(Unavailable), installation.database.read() as session:  # if it cannot ask, the sweeper will
        if all(epoch.id != epoch_id for epoch in catalog.epochs(session, dataset_id)):
            row_files.erase_epoch(installation.home, dataset_id, epoch_id)


def _ingest(
    installation: Installation, dataset: catalog.Dataset, body: SpooledBody, *, epoch_id: str
) -> ingest.IngestReport:
    destination = row_files.epoch_file(installation.home, dataset.id, epoch_id)
    with body.path.open("rb") as source:
        try:
            return ingest.ingest_csv(
                source,
                destination,
                schema=dataset.schema,
                partition=dataset.hash_partition,
                dataset_key=dataset.row.hash_key,
                gzip=body.is_gzip,
            )
        except FileNotFoundError:  # the folder went in the middle: somebody erased the dataset
            raise DatasetDeleted from None


def _report_out(epoch_id: str, report: ingest.IngestReport) -> UploadOut:
    return UploadOut(
        epoch=epoch_id,
        columns=[
            ColumnReport(name=column.name, clamped=column.clamped, missing=column.missing, unknown=column.unknown)
            for column in report.columns
        ],
    )
