"""Whose ledger may be read: a dataset's by its auditors and owner, a population's by whoever sees the population.

A history, an export, a checkpoint and a proof are the same of both: what they need is the id of an account, found in
the transaction that reads it.
"""

from collections.abc import Callable
from typing import TypeAlias

from sqlalchemy.orm import Session

from app.access.roles import SEE_LEDGER, Principal, Role
from app.ledger import populations
from app.ledger.tables import PopulationRow
from app.services.authorization import permitted

Readable: TypeAlias = Callable[[Session, Principal, str], str]
"""Given who asks and what the request names, the id of an account whose ledger they may read."""


def of_dataset(session: Session, principal: Principal, reference: str) -> str:
    """The account of a dataset.

    Raises:
        NotFound: no such dataset, or none that this key may know of.
        RoleMissing: the key may not read the ledger.
    """
    return permitted(session, principal, reference, SEE_LEDGER).id


def of_population(session: Session, principal: Principal, reference: str) -> str:
    """The account of a population.

    Raises:
        NotFound: no such population, or somebody else's.
    """
    return visible_population(session, principal, reference).id


def visible_population(session: Session, principal: Principal, reference: str) -> PopulationRow:
    """A population by id or name, if the key opened it, or is an admin's or auditor's.

    Raises:
        NotFound: no such population, or somebody else's: the two look the same.
    """
    found = populations.find(session, reference)
    return populations.require_visible(found, key_id=principal.key_id, sees_all=sees_all_populations(principal))


def sees_all_populations(principal: Principal) -> bool:
    """Whether the key sees populations that other keys opened."""
    return principal.is_admin or Role.AUDITOR in principal.roles
