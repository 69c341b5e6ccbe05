"""Finds the account that a request names, states its balance, and changes its cap.

A dataset's account is named by the dataset's id or name, a population's by its id
alone: a population may have the name of a dataset.
"""

from collections.abc import Mapping, Set
from dataclasses import dataclass, replace
from fractions import Fraction
from math import isqrt

from sqlalchemy.orm import Session

from app.access import grants
from app.access.grants import MANAGE_DATASET, SEE_BALANCE, SEE_LEDGER, Principal, Role
from app.access.idempotency import Answer, IdempotentRequest, once
from app.core import limits
from app.core.errors import InvalidRequest, NotFound, RoleMissing
from app.core.stamps import to_text
from app.datasets import catalog
from app.datasets.catalog import Dataset
from app.ledger import (
    accounts,
    control,
    populations,
    rules,
    statements,
    verifications,
)
from app.ledger.admission import CellBalance, Population
from app.ledger.statements import Limit
from app.ledger.tables import Entry, EntryKind, PopulationRow
from app.registry import models
from app.services.authorization import authorized_dataset, write_as
from app.services.guarantees import of_account, of_large_amount, population_guarantee
from app.services.installation import Installation
from app.services.jobs import notices
from app.services.pagination import PageRequest, page_of
from app.wire.datasets import BudgetIn
from app.wire.ledger import (
    AccountBalance,
    BalanceList,
    BalanceOut,
    CapIn,
    CellOut,
    ChangedCap,
    DeltaOut,
    PartitionBalance,
    VerifiedBalance,
)
from grovekeeper_forests import amounts
from grovekeeper_forests import limits as forest_limits
from grovekeeper_forests.privacy import accountants
from grovekeeper_forests.privacy.accountants import Amount, gdp, zcdp
from grovekeeper_forests.privacy.accountants.accountant import steps_down
from grovekeeper_forests.privacy.events import Adjacency
from grovekeeper_forests.privacy.scope import Cell


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
        """The change that the account protects against; of a population without
        members, that of most datasets.
        """
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


def find_account(
    session: Session, principal: Principal, reference: str, roles: Set[Role]
) -> Account:
    """Finds the account of a dataset (id or name) or population (id), and checks the
    caller's role on it.

    Raises:
        NotFound: no such account, or it is not visible to this key; the error does not
            say which.
    """
    try:
        population = populations.with_id(session, reference)
        if population is None:
            return Account(authorized_dataset(session, principal, reference, roles))
        _check(principal, population, roles)
        return Account(population)
    except NotFound:
        raise NotFound("account") from None


def visible_population(
    session: Session, principal: Principal, reference: str
) -> PopulationRow:
    """Finds a population by id or name, if the key opened it or belongs to an admin or
    auditor.

    Raises:
        NotFound: no such population, or another key opened it; the error does not say
            which.
    """
    population = populations.find(session, reference)
    if population is None:
        raise NotFound("population")
    _check(principal, population, SEE_LEDGER)
    return population


def sees_all_populations(principal: Principal) -> bool:
    """Whether the key sees populations that other keys opened."""
    return not principal.acts_as(None).isdisjoint(SEE_LEDGER)


def _check(principal: Principal, population: PopulationRow, roles: Set[Role]) -> None:
    """The key that opened a population is its owner. No other key has a grant on a
    population.
    """
    role = None
    if population.declared_by == principal.key_id:
        role = Role.OWNER
    grants.check(principal, role, roles, kind="population")


def list_balances(
    installation: Installation, principal: Principal, page: PageRequest
) -> BalanceList:
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
            lambda limit: catalog.page(
                session, ids=visible, after=page.cursor, limit=limit
            ),
            lambda dataset: dataset.id,
            lambda dataset: dataset.n_bytes,
        )
        ids = [dataset.id for dataset in shown]
        balances = statements.balances_for(session, ids, principal.key_id)
        verified = verifications.last(session, ids)
        listed = [
            VerifiedBalance.model_validate(
                {
                    **_amounts(
                        Account(dataset),
                        balances[dataset.id].unless_erased(
                            is_erased=dataset.is_deleted
                        ),
                    ),
                    "verifications": verified[dataset.id],
                }
            )
            for dataset in shown
        ]
        return BalanceList(datasets=listed, next=following)


def show_balance(
    installation: Installation,
    principal: Principal,
    reference: str,
    *,
    scope: Mapping[str, object],
) -> AccountBalance:
    """Shows the balance of a dataset (at the tightest joint cell and in each cell of a
    scope) or of a population.

    Raises:
        InvalidRequest: the scope names a partition or a cell that does not exist.
    """
    with installation.database.read() as session:
        account = find_account(session, principal, reference, SEE_BALANCE)
        if scope and account.dataset is None:
            raise InvalidRequest.at("/scope", "unknown-partition")
        return detailed(session, principal, account, scope)


def detailed(
    session: Session,
    principal: Principal,
    account: Account,
    scope: Mapping[str, object],
) -> AccountBalance:
    """Shows an account with its cells and its guarantee, to a caller who may read it."""
    if isinstance(account.holder, Dataset):
        return _of_dataset(session, principal, account.holder, scope)
    return _of_population(session, account.holder)


def balance_of(session: Session, account: Account) -> statements.Balance:
    """Reads the balance of a whole account, whatever the rules leave to a key."""
    if account.dataset is not None:
        return statements.balance(session, account.id)
    population = populations.of_population(session, account.id)
    return balance_of_population(
        population, statements.highest_cap(session, account.id)
    )


def balance_out(account: Account, balance: statements.Balance) -> BalanceOut:
    """Formats the balance of an account."""
    return BalanceOut.model_validate(_amounts(account, balance))


def balance_of_population(population: Population, limit: Limit) -> statements.Balance:
    """The sums over a population's members, as the balance of its account."""
    return statements.Balance(
        account_id=population.id,
        name=population.name,
        accountant=limit.amount.accountant,
        cap=population.cap,
        charged=population.charged,
        reserved=population.reserved,
        tightest_cell={},
        is_exact=population.is_exact,
        delta=limit.delta.converted_at,
        room=max(population.cap - population.together, 0),
        limited_by="cap",
        least_price=1,
    )


def _of_dataset(
    session: Session,
    principal: Principal,
    dataset: Dataset,
    scope: Mapping[str, object],
) -> AccountBalance:
    uploads = catalog.upload_ids(session, dataset.id)
    box = dataset.narrowed(dataset.read_scope(scope, uploads), uploads)
    detail = statements.detail(session, dataset.id, box)
    highest = statements.highest_cap(session, dataset.id)
    delta = statements.delta_balance(session, dataset.id, box)
    partitions = []
    for partition in dataset.partitions.declared:
        name = partition.name
        cells = [
            cell_out(cell.cell[name], cell, detail.balance)
            for cell in detail.cells[name]
        ]
        partitions.append(PartitionBalance(name=name, kind=partition.kind, cells=cells))
    allowance = rules.allowance(session, dataset.id, principal.key_id)
    limit = statements.printable_at(highest, cap=detail.balance.cap, load=detail.load)
    balance = detail.balance.within(allowance.room, allowance.limited_by).unless_erased(
        is_erased=dataset.is_deleted
    )
    return AccountBalance.model_validate(
        {
            **_members(session, Account(dataset), balance),
            "scope": box.to_json(),
            "partitions": partitions,
            "guarantee": of_account(session, dataset, limit),
            "delta_set_aside": delta and _delta(delta),
        }
    )


def _of_population(session: Session, row: PopulationRow) -> AccountBalance:
    population = populations.of_population(session, row.id)
    limit = statements.highest_cap(session, row.id)
    return AccountBalance.model_validate(
        {
            **_members(session, Account(row), balance_of_population(population, limit)),
            "scope": {},
            "partitions": [],
            "guarantee": population_guarantee(row, population, limit),
            "delta_set_aside": None,
        }
    )


def _members(
    session: Session, account: Account, balance: statements.Balance
) -> dict[str, object]:
    return {
        **_amounts(account, balance),
        "verifications": verifications.last(session, [account.id])[account.id],
        "tightest_cell": balance.tightest_cell,
        "exact": balance.is_exact,
        "largest_that_fits": balance.largest_that_fits,
    }


def _amounts(account: Account, balance: statements.Balance) -> dict[str, object]:
    dataset, deleted_at = account.dataset, None
    if dataset is not None and dataset.row.deleted_at is not None:
        deleted_at = to_text(dataset.row.deleted_at)
    return {
        **account.facts,
        "dataset": dataset and dataset.id,
        "dataset_name": dataset and dataset.name,
        "deleted_at": deleted_at,
        **balance.shown,
    }


def cell_out(name: Cell, cell: CellBalance, balance: statements.Balance) -> CellOut:
    """Formats the tightest joint cell of a cell."""
    return CellOut(
        cell=name,
        charged=balance.text(cell.charged),
        reserved=balance.text(cell.reserved),
        remaining=balance.text(max(balance.cap - cell.charged - cell.reserved, 0)),
    )


def _delta(delta: statements.DeltaBalance) -> DeltaOut:
    return DeltaOut(
        set_aside=accountants.delta_text(delta.set_aside),
        charged=accountants.delta_text(delta.charged),
        remaining=accountants.delta_text(delta.remaining),
    )


def largest_epsilon(accountant: str) -> int:
    """The largest ε of a cap: amounts are stored in 64 bits."""
    if accountants.by_name(accountant).TAKES_DELTA:
        return forest_limits.MAX_CAP_EPSILON_WITH_DELTA
    return limits.MAX_CAP_EPSILON


_UNITS_OF_CAPS = {"rho": zcdp.UNIT, "mu": gdp.UNIT}


def cap_of(budget: BudgetIn) -> int:
    """Converts a budget to a cap in whole steps of the accountant's unit.

    Raises:
        InvalidRequest: the cap is too large for 64 bits, or less than one step.
    """
    delta = budget.conversion_delta
    if budget.epsilon is not None:
        return _cap(budget.accountant, budget.epsilon, delta, at="/budget/epsilon")
    return _cap_in_unit(
        budget.accountant, rho=budget.rho, mu=budget.mu, delta=delta, at="/budget"
    )


def change_cap(
    installation: Installation,
    principal: Principal,
    reference: str,
    body: CapIn,
    *,
    request: IdempotentRequest | None,
) -> Answer:
    """Lowers or raises the cap of an account, and answers with the balance under the
    new cap.

    A cap is lowered by the dataset's owner, or by the key that opened the population; a
    lower cap restricts later admissions only. Raising a cap weakens the guarantee that
    was promised, so only an admin may. A change never alters what is reserved or
    charged.

    Raises:
        RoleMissing: only the owner lowers, only an admin raises.
        InvalidRequest: the cap is out of range, or is in force already, or the account
            lost entries in a restore.
    """
    with installation.database.read() as session:
        account = find_account(session, principal, reference, MANAGE_DATASET)
        # The conversion is slow on zcdp and gdp accounts, so it runs before anything is
        # locked.
        highest = statements.highest_cap(session, account.id)
        accountant = highest.amount.accountant
        delta = highest.delta.converted_at
        if body.cap is not None:
            cap = _cap(accountant, body.cap, delta, at="/cap")
        else:
            cap = _cap_in_unit(accountant, rho=body.rho, mu=body.mu, delta=delta, at="")
        warnings = of_large_amount(
            Amount(accountant, cap), delta=delta, adjacency=account.adjacency
        )
    # The route of the idempotency key names the id, because a name may come to mean
    # another dataset.
    identity = None
    if request is not None:
        identity = replace(request, route=f"POST /ledger/{account.id}/cap")
    with write_as(installation, principal) as (session, principal):
        account = find_account(session, principal, account.id, MANAGE_DATASET)

        def work() -> Answer:
            balance = _apply_cap(
                session, principal, account, cap=cap, reason=body.reason
            )
            changed = {**balance.model_dump(), "warnings": warnings}
            return Answer.of(200, ChangedCap.model_validate(changed))

        return once(session, identity, work)


def _apply_cap(
    session: Session,
    principal: Principal,
    account: Account,
    *,
    cap: int,
    reason: str,
) -> BalanceOut:
    """Changes the cap, in the ledger and in what follows from it; returns the balance
    under the new cap.
    """
    dataset = None
    if account.dataset is not None:
        dataset = catalog.locked(session, account.id).living()
    entry = _changed(session, principal, account.id, cap=cap, reason=reason)
    balance = balance_of(session, account)
    if dataset is not None:
        _print_guarantee(session, dataset, balance)
    notices.budgets_changed(session, [account.id])
    control.record(
        session,
        EntryKind.CAP_CHANGED,
        actor=principal.key_id,
        account=account.id,
        sequence=entry.sequence,
    )
    allowance = rules.allowance(session, account.id, principal.key_id)
    of_key = balance.within(allowance.room, allowance.limited_by)
    return balance_out(account, of_key)


def _print_guarantee(
    session: Session, dataset: Dataset, balance: statements.Balance
) -> None:
    """Writes the guarantee under the new cap on the cards of the dataset's models."""
    highest = statements.highest_cap(session, dataset.id)
    printable = statements.printable_at(highest, cap=balance.cap, load=balance.load)
    guarantee = of_account(session, dataset, printable)
    models.put_guarantee(session, dataset.id, guarantee)


def may_change_cap(
    installation: Installation, principal: Principal, reference: str
) -> bool:
    """Whether the key may lower the cap of an account that it sees; an admin may also
    raise it.
    """
    with installation.database.read() as session:
        try:
            find_account(session, principal, reference, MANAGE_DATASET)
        except RoleMissing:
            return False
        return True


def _changed(
    session: Session, principal: Principal, account_id: str, *, cap: int, reason: str
) -> Entry:
    in_force = accounts.locked_cap(session, account_id)
    if cap > in_force:
        principal.require()  # an admin
    if cap == in_force:
        raise InvalidRequest.at("/cap", "unchanged")
    return accounts.change_cap(
        session, account_id, cap, reason=reason, actor=principal.key_id
    )


def _cap(accountant: str, epsilon: Fraction, delta: Fraction | None, *, at: str) -> int:
    if epsilon > largest_epsilon(accountant):
        raise InvalidRequest.at(
            at, "too-large", accepted=[f"at most {largest_epsilon(accountant)}"]
        )
    cap = accountants.by_name(accountant).cap(epsilon, delta)
    if cap == 0:
        smallest = Amount(accountant, 1).epsilon_at(delta)
        raise InvalidRequest.at(at, "too-small", accepted=[f"at least {smallest}"])
    return cap


def _cap_in_unit(
    accountant: str,
    *,
    rho: Fraction | None,
    mu: Fraction | None,
    delta: Fraction | None,
    at: str,
) -> int:
    """Rounds a ρ or a μ down to whole steps of the accountant's unit.

    Raises:
        InvalidRequest: the accountant has another unit, or the cap is out of range.
    """
    name, stated = ("rho", rho) if rho is not None else ("mu", mu)
    kind = accountants.by_name(accountant)
    if _UNITS_OF_CAPS[name] != kind.UNIT:
        raise InvalidRequest.at(f"{at}/{name}", "unit-of-another-accountant")
    assert stated is not None, "a cap without ε states ρ or μ"
    amount = stated if name == "rho" else stated**2
    cap = steps_down(amount, kind.PLACES)
    most = kind.cap(Fraction(largest_epsilon(accountant)), delta)

    def text(steps: int) -> str:
        if name == "rho":
            return amounts.from_steps(steps, kind.PLACES)
        return amounts.from_steps(isqrt(steps), kind.PLACES // 2)

    if cap > most:
        accepted = [f"at most {text(most)}"]
        raise InvalidRequest.at(f"{at}/{name}", "too-large", accepted=accepted)
    if cap == 0:
        accepted = [f"at least {text(1)}"]
        raise InvalidRequest.at(f"{at}/{name}", "too-small", accepted=accepted)
    return cap
