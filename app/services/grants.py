"""Serves ``/datasets/{id}/grants``: grants and revokes roles on a dataset."""

from app.access import grants, keys
from app.access.roles import MANAGE_DATASET, Principal, Role
from app.core.errors import NotFound
from app.services.authorization import acting, authorized_dataset
from app.services.installation import Installation
from app.wire.datasets import GrantOut


def put_grant(installation: Installation, principal: Principal, reference: str, key_id: str, *, role: str) -> GrantOut:
    """Grants a role to a key, in place of its earlier role on the dataset.

    Raises:
        NotFound: no such dataset or key, or the key is revoked.
        RoleMissing: only the owner grants.
    """
    with acting(installation, principal.key_id, changing=key_id) as (session, principal):
        dataset = authorized_dataset(session, principal, reference, MANAGE_DATASET)
        if keys.find(session, key_id).revoked_at is not None:
            raise NotFound("key")
        grants.put(session, dataset_id=dataset.id, key_id=key_id, role=Role(role))
        return GrantOut(dataset=dataset.id, dataset_name=dataset.name, key_id=key_id, role=role)


def remove_grant(installation: Installation, principal: Principal, reference: str, key_id: str) -> None:
    """Revokes a grant. Revoking a grant that does not exist succeeds.

    Raises:
        NotFound: no such dataset or key.
        RoleMissing: only the owner revokes.
    """
    with acting(installation, principal.key_id, changing=key_id) as (session, principal):
        dataset = authorized_dataset(session, principal, reference, MANAGE_DATASET)
        keys.find(session, key_id)
        grants.remove(session, dataset_id=dataset.id, key_id=key_id)
