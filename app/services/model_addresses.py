"""Finds the model that a request addresses, by id or by alias, and checks the caller's role on its dataset."""

from collections.abc import Set

from sqlalchemy.orm import Session

from app.access import grants
from app.access.grants import Principal, Role
from app.core.errors import NotFound
from app.registry import aliases, models
from app.registry.tables import ModelRow


def addressed_model(session: Session, principal: Principal, address: str, roles: Set[Role]) -> ModelRow:
    """Finds a model by its id or by ``dataset@alias``, with the id or the name of the dataset.

    A name of a dataset may stand for several datasets, because the name of an erased one is free. The address then
    means the dataset that had the alias first, among those on which the caller has a role: declaring a dataset moves no
    address of callers who use it already, and no answer depends on a dataset that the caller may not see.

    Raises:
        NotFound: no such model or alias, or it is not visible to this key.
        RoleMissing: the key's role on the model's dataset does not allow this.
    """
    parts = aliases.split(address)
    if parts is None:
        row = models.find(session, address)
        grants.require(session, principal, row.dataset_id, roles, kind="model")
        return row
    for dataset_id in aliases.datasets_at(session, *parts):
        move = aliases.last_move(session, dataset_id, parts[1])
        role = grants.granted(session, principal, dataset_id)
        if principal.acts_as(role) and move is not None and move.model_id is not None:
            grants.check(principal, role, roles, kind="model")
            return models.find(session, move.model_id)
    raise NotFound("model")
