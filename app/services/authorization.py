"""The dataset that a request names, for whoever may do there what the request is about: the one way to get at it."""

from collections.abc import Set

from sqlalchemy.orm import Session

from app.access import grants
from app.access.roles import Principal, Role
from app.datasets import catalog


def permitted(session: Session, principal: Principal, reference: str, roles: Set[Role]) -> catalog.Dataset:
    """Finds a dataset by id or name, if the principal acts there as one of some roles.

    Raises:
        NotFound: no such dataset, or none that this key may know of.
        RoleMissing: the key has a grant, but none of these roles.
    """
    dataset = catalog.find(session, reference)
    grants.require(session, principal, dataset.id, roles, kind="dataset")
    return dataset
