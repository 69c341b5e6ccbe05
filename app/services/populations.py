"""Serves ``/populations``: opens and shows populations."""

from collections.abc import Mapping, Sequence

from sqlalchemy.orm import Session

from app.access.grants import Principal, Role
from app.access.idempotency import Answer, IdempotentRequest, once
from app.core import stamps
from app.datasets import catalog
from app.db.database import transaction_time
from app.ledger import control, populations, statements
from app.ledger.admission import Population
from app.ledger.tables import EntryKind, PopulationRow
from app.services.authorization import write_as
from app.services.guarantees import of_large_amount, population_guarantee
from app.services.installation import Installation
from app.services.ledger.balances import (
    Account,
    balance_of_population,
    cap_of,
    sees_all_populations,
    visible_population,
)
from app.services.pagination import PageRequest, page_of
from app.wire.populations import MemberOut, PopulationIn, PopulationList, PopulationOut
from grovekeeper_forests import amounts
from grovekeeper_forests.errors import NotSupported
from grovekeeper_forests.privacy.accountants import Amount


def open_population(
    installation: Installation,
    principal: Principal,
    body: PopulationIn,
    *,
    request: IdempotentRequest | None,
) -> Answer:
    """Opens a population with its own budget, before any dataset is a member.

    Raises:
        NotSupported: the budget sets δ aside.
    """
    if body.budget.delta_set_aside is not None:
        raise NotSupported("delta_set_aside of a population")
    cap = cap_of(body.budget)
    with write_as(installation, principal) as (session, principal):
        principal.require(Role.OWNER)

        def work() -> Answer:
            new_population = populations.NewPopulation(
                id=stamps.new(stamps.POPULATION),
                name=body.name,
                accountant=body.budget.accountant,
                cap=cap,
                delta=amounts.text_or_none(body.budget.delta),
                declared_by=principal.key_id,
            )
            row = populations.open_population(
                session, new_population, at=transaction_time(session)
            )
            control.record(
                session,
                EntryKind.POPULATION_OPENED,
                actor=principal.key_id,
                population=row.id,
            )
            return Answer.of(
                201, population_out(session, row), location=f"/populations/{row.id}"
            )

        return once(session, request, work)


def list_populations(
    installation: Installation, principal: Principal, page: PageRequest
) -> PopulationList:
    """Lists the populations that the key opened; for admins and auditors, all
    populations.
    """
    principal.require(Role.OWNER, Role.AUDITOR)
    declared_by = None if sees_all_populations(principal) else principal.key_id
    with installation.database.read() as session:
        shown, following = page_of(
            page,
            lambda limit: populations.page(
                session, declared_by=declared_by, after=page.cursor, limit=limit
            ),
            lambda row: row.id,
        )
        return PopulationList(populations=_all_out(session, shown), next=following)


def show_population(
    installation: Installation, principal: Principal, reference: str
) -> PopulationOut:
    """Shows one population, by id or name."""
    with installation.database.read() as session:
        return population_out(
            session, visible_population(session, principal, reference)
        )


def population_out(session: Session, row: PopulationRow) -> PopulationOut:
    """Formats a population."""
    return _all_out(session, [row])[0]


def _all_out(session: Session, rows: Sequence[PopulationRow]) -> list[PopulationOut]:
    population_ids = [row.id for row in rows]
    totals = populations.detailed(
        session, populations.of_ids(session, population_ids).values()
    )
    limits = statements.highest_caps(session, population_ids)
    members: list[str] = []
    for population in totals.values():
        members += population.members
    names = catalog.named(session, members)
    return [_out(row, totals[row.id], limits[row.id], names) for row in rows]


def _out(
    row: PopulationRow,
    population: Population,
    limit: statements.Limit,
    names: Mapping[str, catalog.NamedDataset],
) -> PopulationOut:
    balance = balance_of_population(population, limit)
    return PopulationOut(
        id=row.id,
        name=row.name,
        accountant=balance.accountant,
        unit=balance.unit,
        delta=amounts.text_or_none(balance.delta),
        cap=balance.text(balance.cap),
        charged=balance.text(balance.charged),
        reserved=balance.text(balance.reserved),
        remaining=balance.text(balance.remaining),
        adjacency=row.adjacency,
        unit_column=row.unit_column,
        guarantee=population_guarantee(row, population, limit),
        warnings=of_large_amount(
            Amount(balance.accountant, balance.cap),
            delta=balance.delta,
            adjacency=Account(row).adjacency,
        ),
        members=[
            MemberOut(
                dataset=account_id,
                dataset_name=names[account_id].name,
                charged=balance.text(carried.charged),
                reserved=balance.text(carried.reserved),
                deleted_at=stamps.text_or_none(names[account_id].deleted_at),
            )
            for account_id, carried in population.members.items()
        ],
        created_at=stamps.to_text(row.created_at),
    )
