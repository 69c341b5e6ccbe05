"""Finds the account that a request names, and checks the caller's role on it.

A dataset's account is named by the dataset's id or name, a population's by its id alone: a population may have the name
of a dataset.
"""

from collections.abc import Set
from dataclasses import dataclass

from sqlalchemy.orm import Session

from app.access import grants
from app.access.roles import SEE_LEDGER, Principal, Role
from app.core.errors import NotFound
from app.datasets.catalog import Dataset
from app.ledger import populations
from app.ledger.tables import PopulationRow
from app.privacy.adjacency import Adjacency
from app.services.authorization import authorized_dataset


@dataclass(frozen=True)
class Account:
    """An account, and the dataset or the population that it belongs to."""

    holder: Dataset | PopulationRow

    @property
    def id(self) -> str:
        """The id of the account is the id of its holder."""
        return self.holder.id

    @property
    def name(self) -> str:
        return self.holder.name

    @property
    def kind(self) -> str:
        return "dataset" if isinstance(self.holder, Dataset) else "population"

    @property
    def adjacency(self) -> Adjacency:
        """The change that the account protects against; of a population without members, that of most datasets."""
        if isinstance(self.holder, Dataset):
            return self.holder.adjacency
        return Adjacency(self.holder.adjacency or Adjacency.ADD_REMOVE_ONE)

    @property
    def facts(self) -> dict[str, str]:
        """The members that name the account in an answer."""
        return {"account": self.id, "account_name": self.name, "kind": self.kind}

    @property
    def dataset(self) -> Dataset | None:
        """The dataset, unless the account belongs to a population."""
        return self.holder if isinstance(self.holder, Dataset) else None


def find_account(session: Session, principal: Principal, reference: str, roles: Set[Role]) -> Account:
    """Finds the account of a dataset (id or name) or population (id), and checks the caller's role on it.

    Raises:
        NotFound: no such account, or it is not visible to this key; the error does not say which. A public dataset has
            no account.
        RoleMissing: the key may see the account, but has none of these roles.
    """
    try:
        return Account(_holder(session, principal, reference, roles))
    except NotFound:
        raise NotFound("account") from None


def dataset_with_account(session: Session, principal: Principal, reference: str, roles: Set[Role]) -> Dataset:
    """Finds a dataset that has an account, and checks the caller's role on it.

    Raises:
        NotFound: no such dataset, it is not visible to this key, or it is public.
        RoleMissing: the key may see the dataset, but has none of these roles.
    """
    dataset = authorized_dataset(session, principal, reference, roles)
    if dataset.is_public:
        raise NotFound("account")
    return dataset


def visible_population(session: Session, principal: Principal, reference: str) -> PopulationRow:
    """Finds a population by id or name, if the key opened it or belongs to an admin or auditor.

    Raises:
        NotFound: no such population, or another key opened it; the error does not say which.
    """
    population = populations.find(session, reference)
    if population is None:
        raise NotFound("population")
    _check(principal, population, SEE_LEDGER)
    return population


def sees_all_populations(principal: Principal) -> bool:
    """Whether the key sees populations that other keys opened."""
    return not principal.acts_as(None).isdisjoint(SEE_LEDGER)


def _holder(session: Session, principal: Principal, reference: str, roles: Set[Role]) -> Dataset | PopulationRow:
    population = populations.with_id(session, reference)
    if population is None:
        return dataset_with_account(session, principal, reference, roles)
    _check(principal, population, roles)
    return population


def _check(principal: Principal, population: PopulationRow, roles: Set[Role]) -> None:
    """The key that opened a population is its owner. No other key has a grant on a population."""
    role = Role.OWNER if population.declared_by == principal.key_id else None
    grants.check(principal, role, roles, kind="population")
