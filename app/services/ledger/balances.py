"""Serves ``GET /ledger`` and ``GET /ledger/{account}``: shows balances of accounts."""

from collections.abc import Mapping
from dataclasses import replace

from sqlalchemy.orm import Session

from app.access import grants
from app.access.roles import SEE_BALANCE, SEE_LEDGER, Principal, Role
from app.core.clock import to_text
from app.core.errors import InvalidRequest, RoleMissing
from app.datasets import catalog
from app.datasets.catalog import Dataset
from app.ledger import account_facts, caps, external, populations, statements, stored_rules
from app.ledger.admission import CellBalance, Population
from app.ledger.limit import Limit
from app.ledger.tables import PopulationRow
from app.privacy.composition import Cell
from app.services.guarantees import guarantee_of, of_attested, population_guarantee
from app.services.installation import Installation
from app.services.ledger.accounts import Account, find_account
from app.services.pages import PageRequest, page_of
from app.wire.ledger import AccountBalance, BalanceList, BalanceOut, CellOut, DeltaOut, PartitionBalance


def list_balances(installation: Installation, principal: Principal, page: PageRequest) -> BalanceList:
    """Lists the balance of every dataset whose ledger the key may read.

    Raises:
        RoleMissing: the key may read no ledger at all.
    """
    with installation.database.read() as session:
        visible = grants.datasets_with(session, principal, SEE_LEDGER)
        if visible == [] and Role.OWNER not in principal.roles:
            raise RoleMissing(sorted(role.value for role in SEE_LEDGER))
        shown, following = page_of(
            page,
            lambda limit: catalog.page(session, ids=visible, after=page.cursor, limit=limit, with_account=True),
            lambda dataset: dataset.id,
            lambda dataset: dataset.weight,
        )
        balances = statements.balances(session, [dataset.id for dataset in shown])
        listed = [balance_out(Account(dataset), balances[dataset.id]) for dataset in shown]
        return BalanceList(datasets=listed, next=following)


def show_balance(
    installation: Installation, principal: Principal, reference: str, *, scope: Mapping[str, object]
) -> AccountBalance:
    """Shows the balance of a dataset (at the tightest joint cell and in each cell of a scope) or of a population.

    Raises:
        NotFound: no such account, or it is not visible to this key.
        RoleMissing: the key may only predict.
        InvalidRequest: the scope names a partition or a cell that does not exist.
    """
    with installation.database.read() as session:
        account = find_account(session, principal, reference, SEE_BALANCE)
        if scope and account.dataset is None:
            raise InvalidRequest.at("/scope", "unknown-partition")
        return detailed(session, principal, account, scope)


def detailed(session: Session, principal: Principal, account: Account, scope: Mapping[str, object]) -> AccountBalance:
    """Shows an account with its cells and its guarantee, to a caller who may read it."""
    if isinstance(account.holder, Dataset):
        return _of_dataset(session, principal, account.holder, scope)
    return _of_population(session, account.holder)


def balance_of(session: Session, account: Account) -> statements.Balance:
    """Reads the balance of a whole account."""
    if account.dataset is not None:
        return statements.balance(session, account.id)
    population = populations.of_population(session, account.id)
    return balance_of_population(population, statements.highest_cap(session, account.id))


def balance_out(account: Account, balance: statements.Balance) -> BalanceOut:
    """Formats the balance of an account."""
    return BalanceOut.model_validate(_amounts(account, balance))


def balance_of_population(population: Population, limit: Limit) -> statements.Balance:
    """The sums over a population's members, as the balance of its account."""
    return statements.Balance(
        account_id=population.id,
        name=population.name,
        accountant=limit.accountant,
        cap=population.cap,
        charged=population.charged,
        reserved=population.reserved,
        tightest_cell={},
        is_exact=population.is_exact,
        delta=limit.delta,
        room=max(population.cap - population.together, 0),
    )


def _of_dataset(
    session: Session, principal: Principal, dataset: Dataset, scope: Mapping[str, object]
) -> AccountBalance:
    uploads = catalog.upload_ids(session, dataset.id)
    box = dataset.with_uploads(dataset.read_scope(scope, uploads), uploads)
    detail, highest = (
        statements.detail(session, dataset.id, box),
        statements.highest_cap(session, dataset.id),
    )
    delta = external.delta_balance(session, dataset.id, box)
    partitions = [
        PartitionBalance(
            name=partition.name,
            kind=partition.kind,
            cells=[cell_out(cell.cell[partition.name], cell, detail.balance) for cell in detail.cells[partition.name]],
        )
        for partition in dataset.partitions.declared
    ]
    allowance = stored_rules.allowance(session, dataset.id, principal.key_id)
    limit = caps.printable_at(highest, cap=detail.balance.cap, load=detail.load)
    balance = replace(detail.balance, room=allowance.at_most(detail.balance.room))
    return AccountBalance.model_validate(
        {
            **_members(Account(dataset), balance),
            "scope": {name: list(listed) for name, listed in box.items()},
            "partitions": partitions,
            "guarantee": of_attested(session, dataset.id, guarantee_of(dataset, limit)),
            "delta_set_aside": None if delta is None else _delta(delta),
        }
    )


def _of_population(session: Session, row: PopulationRow) -> AccountBalance:
    population = populations.of_population(session, row.id)
    limit = statements.highest_cap(session, row.id)
    return AccountBalance.model_validate(
        {
            **_members(Account(row), balance_of_population(population, limit)),
            "scope": {},
            "partitions": [],
            "guarantee": population_guarantee(row, population, limit),
            "delta_set_aside": None,
        }
    )


def _members(account: Account, balance: statements.Balance) -> dict[str, object]:
    return {
        **_amounts(account, balance),
        "tightest_cell": balance.tightest_cell,
        "exact": balance.is_exact,
        "largest_that_fits": balance.largest_that_fits,
    }


def _amounts(account: Account, balance: statements.Balance) -> dict[str, object]:
    dataset = account.dataset
    return {
        **account.facts,
        "dataset": None if dataset is None else dataset.id,
        "dataset_name": None if dataset is None else dataset.name,
        "deleted_at": None if dataset is None or dataset.row.deleted_at is None else to_text(dataset.row.deleted_at),
        "accountant": balance.accountant,
        "unit": balance.unit,
        "cap": balance.text(balance.cap),
        "charged": balance.text(balance.charged),
        "reserved": balance.text(balance.reserved),
        "remaining": balance.text(balance.remaining),
        "available": balance.text(balance.room),
    }


def cell_out(name: Cell, cell: CellBalance, balance: statements.Balance) -> CellOut:
    """Formats the tightest joint cell of a cell."""
    return CellOut(
        cell=name,
        charged=balance.text(cell.charged),
        reserved=balance.text(cell.reserved),
        remaining=balance.text(max(balance.cap - cell.charged - cell.reserved, 0)),
    )


def _delta(delta: external.DeltaBalance) -> DeltaOut:
    return DeltaOut(
        set_aside=account_facts.delta_text(delta.set_aside),
        charged=account_facts.delta_text(delta.charged),
        remaining=account_facts.delta_text(delta.remaining),
    )
