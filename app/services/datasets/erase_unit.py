"""``POST /datasets/{id}/erasures``: the rows of one person go; what was spent on them stays spent."""

from app.access.roles import MANAGE_DATASET, Principal
from app.core.errors import DatasetDeleted, InvalidRequest
from app.datasets import admission, catalog, erasure
from app.services.authorization import permitted
from app.services.installation import Installation
from app.wire.datasets import ErasureOut


def erase_unit(installation: Installation, principal: Principal, reference: str, *, unit: str) -> ErasureOut:
    """Erases every stored row of one value of the unit column, and keeps no trace of the value itself.

    Nothing in the ledger changes, and the unit's places stay taken: rows that it sends later are admitted only as far
    as it has places left. Models that learned from the rows stay; that they tell little of them is what was paid for.

    Raises:
        NotFound: no such dataset, or none that this key may know of.
        RoleMissing: only the owner erases.
        DatasetDeleted: only the tombstone is left.
        InvalidRequest: the dataset has no unit column, so that nobody can tell whose a row is.
        Unavailable: an upload is running, or too many wait already; nothing was erased.
    """
    with installation.database.read() as session:
        dataset = permitted(session, principal, reference, MANAGE_DATASET)
        dataset.living()
    if dataset.unit_column is None:
        raise InvalidRequest.at("/unit", "no-unit-column")
    (row_id,) = admission.unit_row_ids([unit], dataset_key=dataset.row.hash_key)
    try:
        with admission.opened(installation.home, dataset.id, max_rows=dataset.max_rows):
            # Under the dataset's lock: the last upload may have left the book and not yet have committed.
            with installation.database.write() as session:
                catalog.locked(session, dataset.id).living()
                epochs = [epoch.id for epoch in catalog.epochs(session, dataset.id)]
            n_erased = erasure.erase_rows(installation.home, dataset.id, epochs, row_id=row_id)
    except FileNotFoundError:  # the folder went in the middle: somebody erased the dataset
        raise DatasetDeleted from None
    return ErasureOut(dataset=dataset.id, dataset_name=dataset.name, erased=n_erased)
