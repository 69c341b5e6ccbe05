"""``/populations``: open, look at, join."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import datetime

from sqlalchemy.orm import Session

from app.access.idempotency import Answer, IdempotentRequest, once
from app.access.roles import MANAGE_DATASET, Principal, Role
from app.core import amounts, clock, ids
from app.core.errors import NameTaken, NotSupported
from app.datasets import catalog
from app.datasets.catalog import Named
from app.ledger import account_facts, caps, population_totals, populations
from app.ledger.admission import MemberTotal, Population
from app.ledger.limit import Limit
from app.ledger.populations import NewPopulation
from app.ledger.tables import PopulationRow
from app.privacy import accountants, guarantees
from app.privacy.adjacency import Adjacency
from app.registry import models
from app.services.answers import answer
from app.services.authorization import permitted
from app.services.datasets.show_datasets import dataset_out
from app.services.installation import Installation
from app.services.ledger.budgets import cap_of
from app.services.ledger.readable_accounts import sees_all_populations, visible_population
from app.services.pages import PageRequest, page_of
from app.wire.datasets import DatasetOut
from app.wire.populations import MemberOut, PopulationIn, PopulationList, PopulationOut


def open_population(
    installation: Installation, principal: Principal, wanted: PopulationIn, *, request: IdempotentRequest | None
) -> Answer:
    """Opens a population with a budget of its own, before any dataset belongs to it.

    Raises:
        RoleMissing: the key may not declare datasets.
        InvalidRequest: a budget that no account can have.
        NotSupported: a budget that sets δ aside.
        NameTaken: there is a population of that name.
    """
    if wanted.budget.delta_set_aside is not None:
        raise NotSupported("delta_set_aside of a population")
    cap = cap_of(wanted.budget)
    principal.require(Role.OWNER)
    with installation.database.write() as session:
        at = installation.database.now(session)

        def work() -> Answer:
            new = NewPopulation(
                id=ids.new(ids.POPULATION),
                name=wanted.name,
                accountant=wanted.budget.accountant,
                cap=cap,
                delta=None if wanted.budget.delta is None else amounts.to_text(wanted.budget.delta),
                declared_by=principal.key_id,
            )
            row = populations.open_population(session, new, at=at)
            return answer(201, population_out(session, row), location=f"/populations/{row.id}")

        return once(session, request, at=at, work=work)


def list_populations(installation: Installation, principal: Principal, page: PageRequest) -> PopulationList:
    """The populations that the key opened; all of them for admins and auditors.

    Raises:
        RoleMissing: the key neither declares datasets nor audits.
    """
    principal.require(Role.OWNER, Role.AUDITOR)
    declared_by = None if sees_all_populations(principal) else principal.key_id
    with installation.database.read() as session:
        shown, following = page_of(
            page,
            lambda limit: populations.page(session, declared_by=declared_by, after=page.cursor, limit=limit),
            lambda row: row.id,
        )
        return PopulationList(populations=_all_out(session, shown), next=following)


def show_population(installation: Installation, principal: Principal, reference: str) -> PopulationOut:
    """One population, by id or name.

    Raises:
        NotFound: no such population, or somebody else's.
    """
    with installation.database.read() as session:
        return population_out(session, visible_population(session, principal, reference))


def join_population(installation: Installation, principal: Principal, reference: str, *, population: str) -> DatasetOut:
    """Makes a dataset a member of a population, for good; what they name is the owner's public declaration.

    Raises:
        NotFound: no such dataset or population, or none that this key may know of.
        RoleMissing: only the owner says whom the rows are about.
        DatasetDeleted: only the tombstone is left.
        PopulationMismatch: the dataset cannot be added up with the members, or belongs to another population.
    """
    with installation.database.write() as session:
        dataset = permitted(session, principal, reference, MANAGE_DATASET)
        locked = catalog.locked(session, dataset.id).living()
        locked.row.population = join(
            session, principal, dataset.id, population=population, at=installation.database.now(session)
        )
        session.flush()
        return dataset_out(session, locked)


def join(session: Session, principal: Principal, dataset_id: str, *, population: str, at: datetime) -> str:
    """Joins on the caller's transaction; a population of a new name is opened with the dataset's budget.

    What was released of the dataset before is told from here on, too, that it is one of several.

    Returns:
        The population's name.
    """
    found = populations.find(session, population)
    if found is None:
        with suppress(NameTaken):  # somebody opened it in between
            populations.open_with_budget_of(session, dataset_id, name=population, by=principal.key_id, at=at)
        found = populations.find(session, population)
    row = populations.require_visible(found, key_id=principal.key_id, sees_all=principal.is_admin)
    populations.join(session, row.id, dataset_id, actor=principal.key_id, at=at)
    models.put_population(session, dataset_id, row.name)
    return row.name


def population_out(session: Session, row: PopulationRow) -> PopulationOut:
    """A population as answers show it."""
    return _all_out(session, [row])[0]


def _all_out(session: Session, rows: Sequence[PopulationRow]) -> list[PopulationOut]:
    found = population_totals.of_populations(session, [row.id for row in rows])
    members = [account_id for population in found.values() for account_id in population.members]
    named = catalog.named(session, members)
    return [_out(row, found[row.id], caps.printable_of(session, found[row.id]), named=named) for row in rows]


def _out(row: PopulationRow, population: Population, limit: Limit, *, named: Mapping[str, Named]) -> PopulationOut:
    figures: Mapping[str, int] = {
        "cap": population.cap,
        "charged": population.charged,
        "reserved": population.reserved,
        "remaining": max(population.cap - population.together, 0),
    }
    return PopulationOut.model_validate(
        {
            "id": row.id,
            "name": row.name,
            "accountant": limit.accountant,
            "unit": accountants.by_name(limit.accountant).UNIT,
            "delta": None if limit.delta is None else amounts.to_text(limit.delta),
            **{name: account_facts.amount_text(limit.accountant, amount) for name, amount in figures.items()},
            "adjacency": row.adjacency,
            "unit_column": row.unit_column,
            "guarantee": guarantees.guarantee_of_population(
                accountant=limit.accountant,
                amount=limit.amount,
                delta=limit.delta,
                adjacency=Adjacency(row.adjacency or Adjacency.ADD_REMOVE_ONE),
                unit_column=row.unit_column,
            ),
            "members": [
                _member(limit.accountant, account_id, carried, named[account_id])
                for account_id, carried in population.members.items()
            ],
            "created_at": clock.to_text(row.created_at),
        }
    )


def _member(accountant: str, dataset_id: str, carried: MemberTotal, named: Named) -> MemberOut:
    return MemberOut(
        dataset=dataset_id,
        dataset_name=named.name,
        charged=account_facts.amount_text(accountant, carried.charged),
        reserved=account_facts.amount_text(accountant, carried.reserved),
        deleted_at=None if named.deleted_at is None else clock.to_text(named.deleted_at),
    )
