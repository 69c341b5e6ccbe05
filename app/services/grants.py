"""Serves ``/datasets/{id}/grants``: lists, grants and revokes roles on a dataset."""

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from datetime import datetime

from sqlalchemy.orm import Session

from app.access import grants, keys
from app.access.roles import MANAGE_DATASET, SEE_DATASET, SEE_GRANTS, Principal, Role
from app.access.tables import GrantRow, KeyRow
from app.core import stamps
from app.core.errors import LastOwner, NotFound
from app.core.stamps import is_reference
from app.datasets import catalog
from app.datasets.catalog import Dataset
from app.ledger import control
from app.ledger.entries import EntryKind
from app.services.authorization import acting, authorized_dataset
from app.services.installation import Installation
from app.services.pages import PageRequest, page_of
from app.wire.datasets import GrantList, GrantOut, ListedGrant


def list_grants(installation: Installation, principal: Principal, reference: str, page: PageRequest) -> GrantList:
    """Lists the grants on a dataset, in order of the keys' ids. Grants of expired and revoked keys have no effect.

    Raises:
        NotFound: no such dataset, or it is not visible to this key.
        RoleMissing: the key is neither an owner nor an auditor of the dataset.
    """
    with installation.database.read() as session:
        dataset = authorized_dataset(session, principal, reference, SEE_GRANTS)
        shown, following = page_of(
            page,
            lambda limit: grants.page(session, dataset.id, after=page.cursor, limit=limit),
            lambda item: item[0].key_id,
        )
        listed = [_listed(grant, key) for grant, key in shown]
        return GrantList(dataset=dataset.id, dataset_name=dataset.name, grants=listed, next=following)


def names_of_keys(
    installation: Installation, principal: Principal, reference: str, ids: Collection[str]
) -> dict[str, str]:
    """Reads the names of those of several keys whose names the caller may know, by id.

    Raises:
        NotFound: no such dataset, or it is not visible to this key.
    """
    with installation.database.read() as session:
        dataset = authorized_dataset(session, principal, reference, SEE_DATASET)
        return grants.names_of_keys(session, principal, dataset.id, ids)


def put_grant(installation: Installation, principal: Principal, reference: str, key_id: str, *, role: str) -> GrantOut:
    """Grants a role to a key, in place of its earlier role on the dataset.

    Raises:
        NotFound: no such dataset or key, or the key is revoked.
        RoleMissing: only the owner grants.
        LastOwner: the key is the only owner, and the role is another.
    """
    with _changing(installation, principal, reference, key_id) as (session, principal, dataset):
        if keys.find(session, key_id).revoked_at is not None:
            raise NotFound("key")
        at = installation.database.now(session)
        if role != Role.OWNER:
            _require_another_owner(session, dataset.id, key_id, at=at)
        grants.put(session, dataset_id=dataset.id, key_id=key_id, role=Role(role), by=principal.key_id, at=at)
        control.record(session, EntryKind.GRANT_MADE, actor=principal.key_id, dataset=dataset.id, key=key_id, role=role)
        return GrantOut(dataset=dataset.id, dataset_name=dataset.name, key_id=key_id, role=role)


def remove_grant(installation: Installation, principal: Principal, reference: str, key_id: str) -> None:
    """Revokes a grant. Revoking a grant that does not exist succeeds.

    Raises:
        NotFound: no such dataset or key.
        RoleMissing: only the owner revokes.
        LastOwner: the key is the only owner. An admin can still revoke the key itself.
    """
    with _changing(installation, principal, reference, key_id) as (session, principal, dataset):
        keys.find(session, key_id)
        _require_another_owner(session, dataset.id, key_id, at=installation.database.now(session))
        if grants.remove(session, dataset_id=dataset.id, key_id=key_id):
            control.record(session, EntryKind.GRANT_REMOVED, actor=principal.key_id, dataset=dataset.id, key=key_id)


def show_grant(
    installation: Installation, principal: Principal, reference: str, key_id: str
) -> tuple[ListedGrant, bool]:
    """Shows a grant before it is revoked, and whether its key is the only owner.

    Raises:
        NotFound: no such dataset or grant, or the dataset is not visible to this key.
        RoleMissing: only the owner revokes.
    """
    with installation.database.read() as session:
        dataset = authorized_dataset(session, principal, reference, MANAGE_DATASET)
        row = session.get(GrantRow, (key_id, dataset.id)) if is_reference(key_id) else None
        if row is None:
            raise NotFound("grant")
        is_last = grants.has_only_owner(session, dataset.id, key_id, at=installation.database.now(session))
        return _listed(row, keys.find(session, key_id)), is_last


@contextmanager
def _changing(
    installation: Installation, principal: Principal, reference: str, key_id: str
) -> Iterator[tuple[Session, Principal, Dataset]]:
    """Opens a transaction that changes a grant of a key on a dataset, whose other grants nobody changes meanwhile.

    The transaction delays the requests of that key, so nobody opens it without a first check of the role.
    """
    with installation.database.read() as session:
        authorized_dataset(session, principal, reference, MANAGE_DATASET)
    with acting(installation, principal, changing=key_id) as (session, principal):
        dataset = authorized_dataset(session, principal, reference, MANAGE_DATASET)
        yield session, principal, catalog.locked(session, dataset.id)


def _require_another_owner(session: Session, dataset_id: str, key_id: str, *, at: datetime) -> None:
    if grants.has_only_owner(session, dataset_id, key_id, at=at):
        raise LastOwner


def _listed(grant: GrantRow, key: KeyRow) -> ListedGrant:
    return ListedGrant(
        key_id=key.id,
        key_name=key.name,
        role=grant.role,
        granted_at=stamps.to_text(grant.granted_at),
        granted_by=grant.granted_by,
        expires_at=None if key.expires_at is None else stamps.to_text(key.expires_at),
        revoked_at=None if key.revoked_at is None else stamps.to_text(key.revoked_at),
    )
