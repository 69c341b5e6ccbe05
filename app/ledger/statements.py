"""States the balances, limits and entries of accounts. Changes nothing and locks nothing."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from sqlalchemy.orm import Session

from app.core import amounts
from app.ledger import account_facts, admission, populations, repository, state
from app.ledger.account_facts import amount_text
from app.ledger.admission import Budgets, CellBalance, Population, Request, Room
from app.ledger.entries import Entry
from app.ledger.limit import Limit
from app.ledger.tables import AccountRow
from app.privacy import accountants
from app.privacy.composition import Scope


@dataclass(frozen=True)
class Balance:
    """An account at the tightest joint cell of a scope.

    ``cap == charged + reserved + remaining``, unless the cap was lowered below what is spent. Amounts are whole steps
    of the account's unit; :meth:`text` formats them.

    Attributes:
        is_exact: whether ``charged + reserved`` is the cell's load rather than an upper bound for every cell.
        delta: the δ that the cap was converted at.
        room: the largest reservation that would be admitted: ``remaining``, or less where the population is nearly
            used up.
    """

    account_id: str
    name: str
    accountant: str
    cap: int
    charged: int
    reserved: int
    tightest_cell: dict[str, Any]
    is_exact: bool
    delta: Fraction | None
    room: int

    @property
    def load(self) -> int:
        """Charges and reservations together."""
        return self.charged + self.reserved

    @property
    def remaining(self) -> int:
        """The room of the tightest cell on the account itself; zero where the cap was lowered below its load."""
        return max(self.cap - self.load, 0)

    @property
    def unit(self) -> str:
        """The unit of the amounts: ``epsilon``, ``rho`` or ``mu_squared``."""
        return accountants.by_name(self.accountant).UNIT

    @property
    def largest_that_fits(self) -> str:
        """The largest ε, at the account's own δ, that a request of this scope could carry now."""
        unit = accountants.by_name(self.accountant)
        return amounts.to_text(unit.largest_that_fits(self.room, self.delta))

    def text(self, amount: int) -> str:
        """An amount of this account as exact decimal text."""
        return amount_text(self.accountant, amount)


@dataclass(frozen=True)
class Detail:
    """An account in detail.

    Attributes:
        balance: at the tightest joint cell of a scope.
        cells: for every partition and every cell of it inside the scope, the tightest joint cell that lies in the cell.
        load: of the tightest joint cell of the whole account.
    """

    balance: Balance
    cells: Mapping[str, list[CellBalance]]
    load: int


def balance(session: Session, account_id: str, scope: Scope | None = None) -> Balance:
    """The tightest joint cell of an account, or of a scope of it."""
    row = repository.account(session, account_id)
    budgets = _standing(session, [row])
    return _balance(row, budgets, budgets.room(Request(account_id, 0, scope or {})))


def balances(session: Session, account_ids: Sequence[str]) -> dict[str, Balance]:
    """The tightest joint cell of each of several accounts, in a fixed number of queries."""
    rows = repository.accounts(session, account_ids)
    budgets = _standing(session, rows)
    return {row.id: _balance(row, budgets, budgets.room(Request(row.id, 0, {}))) for row in rows}


def balance_of_new(row: AccountRow, cap: int, population: Population | None) -> Balance:
    """The balance that an account which is not open yet would have, as a member of a population or of none."""
    account = state.State(row.id, cap=cap, highest_cap=cap, facts=account_facts.of_account(row)).budget
    budgets = Budgets({row.id: account}, [] if population is None else [population])
    return _balance(row, budgets, budgets.room(Request(row.id, 0, {})))


def balances_of_job(session: Session, parts: Sequence[Request]) -> list[Balance]:
    """The balance of every part of a job, with the room that is left for it where the other parts get their amounts.

    Parts on members of one population add up in the population. A job is admitted if and only if each part fits its
    room.
    """
    rows = {row.id: row for row in repository.accounts(session, [part.account_id for part in parts])}
    budgets = _standing(session, list(rows.values()))
    rooms = admission.rooms(budgets, parts)
    return [_balance(rows[part.account_id], budgets, room) for part, room in zip(parts, rooms, strict=True)]


def highest_cap(session: Session, account_id: str) -> Limit:
    """The highest cap in force since the first reservation that was not given back.

    Outputs that were released under a cap are covered by that cap, even if it was lowered afterwards
    (docs/proofs/caps.md).
    """
    row = repository.account(session, account_id)
    return Limit.of(row, state.of(session, row).highest_cap)


def highest_caps(session: Session, account_ids: Sequence[str]) -> dict[str, Limit]:
    """The highest caps of several accounts, by id; see :func:`highest_cap`."""
    rows = repository.accounts(session, account_ids)
    return {row.id: Limit.of(row, state.of(session, row).highest_cap) for row in rows}


def detail(session: Session, account_id: str, scope: Scope | None = None) -> Detail:
    """An account in detail within a scope, from one read of its state."""
    scope = scope or {}
    row = repository.account(session, account_id)
    budgets = _standing(session, [row])
    account = budgets.accounts[account_id]
    tightest, cells = account.by_cell(scope)
    whole = account.tightest({}) if scope else tightest
    return Detail(_balance(row, budgets, budgets.room_at(account_id, tightest)), cells, whole.load)


def entries(session: Session, account_id: str, *, after: int, limit: int) -> list[Entry]:
    """A page of the account's history."""
    return repository.entries(session, account_id, after=after, limit=limit)


def size(session: Session, account_id: str) -> int:
    """Number of entries of an account."""
    return repository.account(session, account_id).last_sequence


def export_header(session: Session, account_id: str) -> tuple[dict[str, Any], int]:
    """The header of an export, and the sequence of the last entry in the export.

    Entries never change, so several transactions may then read them.
    """
    row = repository.account(session, account_id)
    header = {
        "kind": "export",
        "format": 1,
        "cap": amount_text(row.accountant, state.of(session, row).cap),
        **account_facts.of_account(row),
    }
    return header, row.last_sequence


def _standing(session: Session, rows: Sequence[AccountRow]) -> Budgets:
    """The budgets of accounts and of their populations, without a lock."""
    population_ids = set(populations.ids_of(session, [row.id for row in rows]).values())
    accounts = {row.id: state.of(session, row).budget for row in rows}
    return Budgets(accounts, list(populations.of_ids(session, population_ids).values()))


def _balance(row: AccountRow, budgets: Budgets, room: Room) -> Balance:
    return Balance(
        account_id=row.id,
        name=row.name,
        accountant=row.accountant,
        cap=budgets.accounts[row.id].cap,
        charged=room.tightest.charged,
        reserved=room.tightest.reserved,
        tightest_cell=dict(room.tightest.cell),
        is_exact=room.tightest.is_exact,
        delta=Limit.of(row, 0).split.converted_at,
        room=room.amount,
    )
