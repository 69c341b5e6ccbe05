"""Serves ``GET /datasets/{id}/overlaps``: shows an owner which rows their datasets share."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from sqlalchemy.orm import Session

from app.access import grants
from app.access.grants import MANAGE_DATASET, Principal, Role
from app.core import stamps
from app.core.errors import RoleMissing, Unavailable
from app.core.sealed_files import SealedFile, StorageKeys
from app.datasets import catalog, row_files
from app.datasets.tables import EpochRow
from app.services.authorization import authorized_dataset
from app.services.installation import Installation
from app.wire.datasets import EpochOverlap, OverlapOut, SharedRows

if TYPE_CHECKING:  # pyarrow takes 0.2 s of CPU and 40 MB to import
    from app.datasets.fingerprints import Overlap


def show_overlaps(installation: Installation, principal: Principal, reference: str) -> OverlapOut:
    """Compares the uploads of a dataset with each other and with those of other datasets of the same owner.

    Compares only datasets on which the key was granted the role ``owner``, even if the key may see other datasets. So
    an uploaded guess reveals nothing about rows of other owners. The comparison changes no dataset.

    Raises:
        NotFound: no such dataset, or it is not visible to this key.
        RoleMissing: the key was not granted the role ``owner``.
        Unavailable: one of the datasets is being erased.
    """
    from app.datasets import fingerprints

    keys = installation.storage_keys
    with installation.database.read() as session:
        dataset = authorized_dataset(session, principal, reference, MANAGE_DATASET)
        owned = grants.granted_as(session, principal, Role.OWNER)
        if dataset.id not in owned:
            raise RoleMissing([Role.OWNER.value])
        epochs = catalog.epochs(session, dataset.id)
        facts = {dataset_id: catalog.find(session, dataset_id) for dataset_id in owned}
        files = {
            dataset_id: _files(installation, session, facts[dataset_id], keys)
            for dataset_id in owned
            if not facts[dataset_id].is_deleted
        }
    try:
        overlaps = fingerprints.compare(files.get(dataset.id, {}), files)
    except FileNotFoundError:  # a dataset was erased meanwhile
        raise Unavailable("a dataset is being erased") from None
    return OverlapOut(
        dataset=dataset.id,
        dataset_name=dataset.name,
        population=dataset.row.population,
        epochs=[_epoch(epoch, overlaps.get(epoch.id), facts) for epoch in epochs],
    )


def _files(
    installation: Installation, session: Session, dataset: catalog.Dataset, keys: StorageKeys
) -> dict[str, SealedFile]:
    """Fingerprint files by epoch, without epochs whose file is missing."""
    key, printed = dataset.data_key(keys), row_files.printed(installation.files, dataset.id)
    return {
        epoch.id: row_files.sealed_prints(installation.files, dataset.id, epoch.id, key=key)
        for epoch in catalog.epochs(session, dataset.id)
        if epoch.id in printed
    }


def _epoch(epoch: EpochRow, overlap: "Overlap | None", facts: Mapping[str, catalog.Dataset]) -> EpochOverlap:
    shared = {} if overlap is None else overlap.shared
    return EpochOverlap(
        epoch=epoch.id,
        uploaded_at=stamps.to_text(epoch.uploaded_at),
        rows=None if overlap is None else overlap.rows,
        distinct=None if overlap is None else overlap.distinct,
        shared=[
            SharedRows(dataset=other, dataset_name=facts[other].name, population=facts[other].row.population, rows=rows)
            for other, rows in shared.items()
            if rows
        ],
    )
