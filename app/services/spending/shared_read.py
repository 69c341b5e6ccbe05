"""Reads callers, datasets, grants and accounts of several requests in one query, for the steps of each request."""

from collections.abc import Collection
from typing import Any

from sqlalchemy import BindParameter, bindparam, select, tuple_
from sqlalchemy.orm import Session

from app.access.tables import GrantRow, KeyRow
from app.core.ids import is_reference
from app.datasets import catalog
from app.datasets.tables import DatasetRow, EpochRow
from app.db.snapshots import remember
from app.ledger.tables import AccountRow

_references: BindParameter[Any] = bindparam("references", expanding=True)
_named: BindParameter[Any] = bindparam("named", expanding=True)
_IS_REFERENCE = DatasetRow.id.in_(_references) | DatasetRow.living_name.in_(_references)
_IS_NAMED = tuple_(KeyRow.id, DatasetRow.id).in_(_named) | tuple_(KeyRow.id, DatasetRow.living_name).in_(_named)
_QUERY = (
    select(KeyRow, DatasetRow, GrantRow, AccountRow, catalog.uploads_as_text())
    .select_from(KeyRow)
    .join(DatasetRow, _IS_REFERENCE & _IS_NAMED)
    .outerjoin(GrantRow, (GrantRow.key_id == KeyRow.id) & (GrantRow.dataset_id == DatasetRow.id))
    .outerjoin(AccountRow, AccountRow.id == DatasetRow.id)
    .where(KeyRow.id.in_(bindparam("callers", expanding=True)))
)


def read(session: Session, named: Collection[tuple[str, str]]) -> None:
    """Remembers what the requests name. A dataset that is not remembered, such as a deleted name, is read when needed.

    Args:
        session: a read transaction.
        named: the key of a caller and the id or name of a dataset, for each dataset of each request.
    """
    named = [(key_id, reference) for key_id, reference in named if is_reference(reference)]
    if not named:
        return
    callers, references = {key_id for key_id, _ in named}, {reference for _, reference in named}
    datasets = {}
    names = {"callers": callers, "references": references, "named": named}
    for key, dataset, grant, account, uploads in session.execute(_QUERY, names):
        remember(session, (KeyRow, key.id), key)
        remember(session, (GrantRow, key.id, dataset.id), grant)
        remember(session, (AccountRow, dataset.id), account)
        remember(session, (EpochRow.id, dataset.id), catalog.uploads_of_text(uploads))
        datasets[dataset.id] = dataset
    living = {dataset.living_name: dataset for dataset in datasets.values()}
    for reference in references:
        if (row := datasets.get(reference, living.get(reference))) is not None:
            remember(session, (DatasetRow, reference), catalog.Dataset(row))
