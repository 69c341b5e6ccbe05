"""Shows datasets with their public facts and balances, their uploads, and the rows that
an owner's datasets share.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from typing import TYPE_CHECKING

from sqlalchemy.orm import Session

from app.access import grants
from app.access.grants import MANAGE_DATASET, SEE_DATASET, Principal, Role
from app.core import stamps
from app.core.errors import RoleMissing, Unavailable
from app.core.preconditions import etag_of
from app.core.sealed_files import SealedFile, StorageKeys
from app.datasets import catalog, row_files
from app.datasets.catalog import DatasetFilter, EpochRow
from app.ledger import populations, statements, tables
from app.services.authorization import authorized_dataset
from app.services.datasets.upload import stored_uploads
from app.services.guarantees import of_large_amount
from app.services.installation import Installation
from app.services.ledger.pace import paces
from app.services.pagination import PageRequest, page_of
from app.wire.datasets import DatasetList, DatasetOut, DatasetState, PaceOut
from app.wire.uploads import (
    EpochOverlap,
    ListedUpload,
    OverlapOut,
    SharedRows,
    UploadList,
)
from grovekeeper_common.json_types import JsonObject
from grovekeeper_forests.privacy.accountants import Amount

if TYPE_CHECKING:
    from app.datasets.fingerprints import Overlap

EVERY_DATASET = DatasetFilter()


def show_dataset(
    installation: Installation, principal: Principal, reference: str
) -> DatasetOut:
    """Shows one dataset, by id or name."""
    with installation.database.read() as session:
        dataset = authorized_dataset(session, principal, reference, SEE_DATASET)
        return dataset_out(session, dataset, principal)


def list_datasets(
    installation: Installation,
    principal: Principal,
    page: PageRequest,
    matching: DatasetFilter = EVERY_DATASET,
    *,
    role: Role | None = None,
) -> DatasetList:
    """Lists the datasets on which the key has any grant, erased ones included.

    Args:
        matching: the population by id or name; one that does not exist has no members.
        role: that the key was granted.
    """
    with installation.database.read() as session:
        roles = grants.granted_to(session, principal)
        visible = grants.datasets_with(session, principal, SEE_DATASET, roles)
        if role is not None:
            visible = [dataset for dataset in roles if roles[dataset] == role]
        if matching.population is not None:
            population = populations.find(session, matching.population)
            if population is None:
                return DatasetList(datasets=[], next=None)
            matching = replace(matching, population=population.name)
        shown, following = page_of(
            page,
            lambda limit: catalog.page(
                session,
                ids=visible,
                after=page.cursor,
                limit=limit,
                matching=matching,
            ),
            lambda dataset: dataset.id,
            lambda dataset: dataset.n_bytes,
        )
        listed = _all_out(session, shown, principal, roles)
        return DatasetList(datasets=listed, next=following)


def share_used(dataset: DatasetOut) -> Decimal:
    """The share of the cap that is charged or reserved."""
    account = dataset.account
    used = Decimal(account.charged) + Decimal(account.reserved)
    return used / (Decimal(account.cap) or Decimal(1))


def dataset_out(
    session: Session, dataset: catalog.Dataset, principal: Principal
) -> DatasetOut:
    """Formats the public facts of a dataset, with the balance of its tightest joint
    cell and the room of a key.
    """
    role = grants.granted(session, principal, dataset.id)
    roles = {} if role is None else {dataset.id: role.value}
    return _all_out(session, [dataset], principal, roles)[0]


def declared_out(dataset: catalog.Dataset, balance: statements.Balance) -> DatasetOut:
    """Formats the public facts of a dataset that is not declared yet."""
    return _out(dataset, balance, (), role=None, continues=None, pace=None)


def _all_out(
    session: Session,
    datasets: Sequence[catalog.Dataset],
    principal: Principal,
    roles: Mapping[str, str],
) -> list[DatasetOut]:
    ids = [dataset.id for dataset in datasets]
    # each for all datasets at once: a list has up to a page of them
    balances = statements.balances_for(session, ids, principal.key_id)
    epochs = catalog.epochs_of_each(session, ids)
    continued = tables.continued_by(session, ids)
    living = {
        dataset.id: balances[dataset.id]
        for dataset in datasets
        if not dataset.is_deleted
    }
    pace = paces(session, living)
    return [
        _out(
            dataset,
            balances[dataset.id],
            epochs[dataset.id],
            role=roles.get(dataset.id),
            continues=continued.get(dataset.id),
            pace=pace.get(dataset.id),
        )
        for dataset in datasets
    ]


def _out(
    dataset: catalog.Dataset,
    balance: statements.Balance,
    epochs: Sequence[EpochRow],
    *,
    role: str | None,
    continues: str | None,
    pace: PaceOut | None,
) -> DatasetOut:
    left = balance.unless_erased(is_erased=dataset.is_deleted)
    largest = left.largest_that_fits
    large = of_large_amount(
        Amount(balance.accountant, balance.cap),
        delta=balance.delta,
        adjacency=dataset.adjacency,
    )
    return DatasetOut.model_validate(
        {
            **dataset.row.fields(
                "id", "name", "schema", "protects", "partitions", "public_size", "population",
                "created_at", "deleted_at",
            ),
            "role": role,
            "state": _state(dataset, left.limited_by, largest, has_rows=bool(epochs)),
            "continues": continues,
            "account": left.shown,
            "largest_that_fits": largest,
            "pace": pace,
            "adjacency": dataset.adjacency.value,
            "privacy_unit": dataset.privacy_unit,
            "warnings": [*large, *dataset.warnings],
            "epochs": [_epoch(dataset, epoch) for epoch in epochs],
        }
    )  # fmt: skip


def _state(
    dataset: catalog.Dataset, limited_by: str, largest: str, *, has_rows: bool
) -> DatasetState:
    """What a key has to know of a dataset first."""
    if dataset.is_deleted:
        return "erased"
    if limited_by == "frozen":
        return "frozen"
    if not has_rows:
        return "no-rows"
    return "nothing-fits" if largest == "0" else "active"


def columns_etag(columns: JsonObject) -> str:
    """The entity tag of the declared columns: they alone can change.

    The address names the dataset, so equal columns of two datasets have one tag.
    """
    # one number is read from the database as an integer, and from a body as a float
    as_floats = json.loads(json.dumps(columns), parse_int=float)
    return etag_of(as_floats)


def _epoch(dataset: catalog.Dataset, row: EpochRow) -> dict[str, str | None]:
    shown = row.fields("uploaded_at", "erased_at")
    if row.erased_at is None:
        # Its rows went with their dataset, whose erasure writes nothing to its uploads.
        shown["erased_at"] = dataset.row.fields("deleted_at")["deleted_at"]
    return {"epoch": row.id, **shown}


def list_uploads(
    installation: Installation, principal: Principal, reference: str, page: PageRequest
) -> UploadList:
    """Lists uploads in the order of their arrival. Numbers of rows go to keys with the
    role ``owner``.
    """
    with installation.database.read() as session:
        dataset = authorized_dataset(session, principal, reference, MANAGE_DATASET)
        is_owner = dataset.id in grants.granted_as(session, principal, Role.OWNER)
        after = page.sequence()
        all_epochs = catalog.epochs(session, dataset.id)
        epochs = [epoch for epoch in all_epochs if epoch.ordinal > after]
        shown, following = page_of(
            page, lambda limit: epochs[:limit], lambda epoch: str(epoch.ordinal)
        )
    rows: dict[str, int] = {}
    if is_owner and not dataset.is_deleted:
        ids = [epoch.id for epoch in shown]
        key = dataset.data_key(installation.storage_keys)
        stored = stored_uploads(installation, dataset.id, ids, key=key)
        rows = {epoch: upload.n_rows for epoch, upload in stored.items()}
    return UploadList(
        **dataset.named,
        uploads=[
            ListedUpload.model_validate(
                {**_epoch(dataset, epoch), "rows": rows.get(epoch.id)}
            )
            for epoch in shown
        ],
        next=following,
    )


def show_overlaps(
    installation: Installation, principal: Principal, reference: str
) -> OverlapOut:
    """Compares the uploads of a dataset with each other and with those of other
    datasets of the same owner.

    Compares only datasets on which the key was granted the role ``owner``, even if the
    key may see other datasets. So an uploaded guess reveals nothing about rows of other
    owners. The comparison changes no dataset.

    Raises:
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
            dataset_id: _files(installation, session, other, keys)
            for dataset_id, other in facts.items()
            if not other.is_deleted
        }
    try:
        overlaps = fingerprints.compare(files.get(dataset.id, {}), files)
    except FileNotFoundError:  # a dataset was erased meanwhile
        raise Unavailable("a dataset is being erased") from None
    return OverlapOut(
        **dataset.named,
        population=dataset.row.population,
        epochs=[_overlap_out(epoch, overlaps.get(epoch.id), facts) for epoch in epochs],
    )


def _files(
    installation: Installation,
    session: Session,
    dataset: catalog.Dataset,
    keys: StorageKeys,
) -> dict[str, SealedFile]:
    """Fingerprint files by epoch, without epochs whose file is missing."""
    store = installation.files
    key = dataset.data_key(keys)
    printed = row_files.printed(store, dataset.id)
    return {
        epoch_id: row_files.sealed_prints(store, dataset.id, epoch_id, key=key)
        for epoch_id in catalog.upload_ids(session, dataset.id)
        if epoch_id in printed
    }


def _overlap_out(
    epoch: EpochRow, overlap: "Overlap | None", facts: Mapping[str, catalog.Dataset]
) -> EpochOverlap:
    shared = {} if overlap is None else overlap.shared
    return EpochOverlap(
        epoch=epoch.id,
        uploaded_at=stamps.to_text(epoch.uploaded_at),
        rows=None if overlap is None else overlap.rows,
        distinct=None if overlap is None else overlap.distinct,
        shared=[
            SharedRows(
                dataset=other,
                dataset_name=facts[other].name,
                population=facts[other].row.population,
                rows=rows,
            )
            for other, rows in shared.items()
            if rows
        ],
    )
