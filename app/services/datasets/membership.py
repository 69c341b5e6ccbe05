"""Makes datasets members of populations."""

from contextlib import suppress

from sqlalchemy.orm import Session

from app.access.grants import Principal
from app.core.errors import NameTaken
from app.db.database import transaction_time
from app.ledger import control, populations
from app.ledger.admission import Population
from app.ledger.tables import AccountRow, EntryKind
from app.registry import models
from app.services.authorization import managed_dataset, write_as
from app.services.datasets.show import dataset_out
from app.services.installation import Installation
from app.services.jobs import notices
from app.wire.datasets import DatasetOut


def join_population(
    installation: Installation, principal: Principal, reference: str, *, population: str
) -> DatasetOut:
    """Makes a dataset a member of a population, for good, on the owner's public
    statement.
    """
    with write_as(installation, principal) as (session, principal):
        dataset = managed_dataset(session, principal, reference)
        dataset.row.population = join(
            session, principal, dataset.id, population=population
        )
        return dataset_out(session, dataset, principal)


def join(
    session: Session, principal: Principal, dataset_id: str, *, population: str
) -> str:
    """Makes a dataset a member in the caller's transaction. A new name opens a
    population with the dataset's budget.

    Returns the population's name. From then on, the cards of earlier releases name the
    population, too. Webhooks are told before the acts are recorded, because the control
    chain is locked last.
    """
    at = transaction_time(session)
    existing, opened = populations.find(session, population), None
    if existing is None:
        with suppress(NameTaken):  # another request opened it in between
            opened = populations.open_with_budget_of(
                session, dataset_id, name=population, by=principal.key_id, at=at
            )
        existing = populations.find(session, population)
    row = populations.require_visible(
        existing, key_id=principal.key_id, sees_all=principal.is_admin
    )
    entry = populations.join(session, row.id, dataset_id, actor=principal.key_id, at=at)
    models.put_population(session, dataset_id, row.name)
    notices.budgets_changed(session, [dataset_id])
    if opened is not None:
        control.record(
            session,
            EntryKind.POPULATION_OPENED,
            actor=principal.key_id,
            population=row.id,
        )
    if entry is not None:
        control.record(
            session,
            EntryKind.POPULATION_JOINED,
            actor=principal.key_id,
            population=row.id,
            dataset=dataset_id,
            sequence=entry.sequence,
        )
    return row.name


def with_new_member(
    session: Session, principal: Principal, account: AccountRow, *, population: str
) -> tuple[str, Population | None]:
    """The name of the population that an account would join, and its totals then,
    unless it would be opened. Only reads; raises what
    :func:`app.ledger.populations.require_visible` and
    :func:`app.ledger.populations.with_new_member` raise.
    """
    existing = populations.find(session, population)
    if existing is not None:
        populations.require_visible(
            existing, key_id=principal.key_id, sees_all=principal.is_admin
        )
    totals = populations.with_new_member(session, existing, account)
    return population if existing is None else existing.name, totals
