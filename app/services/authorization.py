"""Finds the dataset that a request names, and checks the caller's role on it."""

from collections.abc import Set

from sqlalchemy.orm import Session

from app.access import grants
from app.access.roles import Principal, Role
from app.datasets import catalog


def authorized_dataset(session: Session, principal: Principal, reference: str, roles: Set[Role]) -> catalog.Dataset:
    """Finds a dataset by id or name, and checks that the caller has one of several roles on it.

    Raises:
        NotFound: no such dataset, or it is not visible to this key.
        RoleMissing: the key may see the dataset, but has none of these roles.
    """
    dataset = catalog.find(session, reference)
    grants.require(session, principal, dataset.id, roles, kind="dataset")
    return dataset
