"""Serves ``POST /datasets/{id}/erasures``: erases the rows of one privacy unit; every charge stays."""

from app.access.grants import MANAGE_DATASET, Principal
from app.core import stamps
from app.core.errors import DatasetDeleted, InvalidRequest, NoRowsOfUnit
from app.datasets import admission, catalog, row_files
from app.datasets.cells import digest_key
from app.datasets.erasure_log import ErasedUnit, unit_record
from app.ledger import control
from app.ledger.entries import EntryKind
from app.services.authorization import authorized_dataset, write_as
from app.services.datasets.books import opened_book
from app.services.installation import Installation
from app.services.ledger.erasure_records import open_log
from app.wire.datasets import ErasureOut


def erase_unit(installation: Installation, principal: Principal, reference: str, *, unit: str) -> ErasureOut:
    """Erases every stored row with one value of the unit column, and stores the value nowhere.

    Rows of uploads that were killed before they were committed are erased, too, whatever their unit.

    The erasure is recorded outside the database first, so that a restore of an older backup applies it again. If the
    process dies after that, a repetition of the request erases what is left; an erasure without rows is no act.
    The ledger does not change. The unit's admitted rows still count towards ``max_rows``: later rows of the unit are
    admitted only while the unit has places left. Models that were trained on the rows stay.

    Raises:
        NotFound: no such dataset, or it is not visible to this key.
        RoleMissing: only the owner erases.
        DatasetDeleted: the dataset's rows are erased.
        InvalidRequest: the dataset has no unit column.
        NoRowsOfUnit: no row of the unit is stored, so nothing was erased or recorded.
        Unavailable: an upload is running, or too many requests are waiting; nothing was erased.
    """
    with installation.database.read() as session:
        dataset = authorized_dataset(session, principal, reference, MANAGE_DATASET)
        dataset.living()
    if dataset.unit_column is None:
        raise InvalidRequest.at("/unit", "no-unit-column")
    from app.datasets import erasure  # pyarrow takes 0.2 s of CPU and 40 MB to import

    key = dataset.data_key(installation.storage_keys)
    (row_id,) = admission.unit_row_ids([unit], dataset_key=digest_key(key))
    try:
        with opened_book(installation, dataset, key):
            # Under the dataset's lock: the last upload may have closed the book without having committed yet.
            with write_as(installation, principal) as (session, principal):
                authorized_dataset(session, principal, dataset.id, MANAGE_DATASET)
                catalog.locked(session, dataset.id).living()
                uploads = catalog.epochs(session, dataset.id)
                epochs = [epoch.id for epoch in uploads]
            row_files.erase_uncommitted(installation.files, dataset.id, committed=epochs)
            if not erasure.has_rows(installation.files, dataset.id, epochs, key=key, row_id=row_id):
                raise NoRowsOfUnit
            with write_as(installation, principal) as (session, principal):
                authorized_dataset(session, principal, dataset.id, MANAGE_DATASET)
                record, erased = stamps.new(stamps.ERASURE), ErasedUnit(row_id, last_upload=uploads[-1].ordinal)
                # The record is before the act: of a unit, it could not be written again from the act.
                open_log(installation).write_unit(unit_record(dataset.id, record), erased, key=key)
                actor = principal.key_id
                control.record(session, EntryKind.UNIT_ERASED, actor=actor, dataset=dataset.id, record=record)
            n_erased = erasure.erase_rows(installation.files, dataset.id, epochs, key=key, row_id=row_id)
    except FileNotFoundError:  # the dataset was erased meanwhile
        raise DatasetDeleted from None
    return ErasureOut(dataset=dataset.id, dataset_name=dataset.name, erased=n_erased)
