"""Writes the ledger: opens accounts, and reserves, charges, voids and expires on the caller's transaction.

Every change of an account happens under the lock of its row, and every step is a new entry; no step lowers what was
charged. A reservation is written if :mod:`app.ledger.admission` admits it under the locks. An entry of a population's
member is followed by an entry of the population in the same transaction (:mod:`app.ledger.population_totals`).
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from typing import Any

from sqlalchemy.orm import Session

from app.core import amounts, ids
from app.core.errors import BudgetExceeded, NotFound, ReservationSettled
from app.ledger import account_facts, admission, chain, population_totals, repository, state
from app.ledger.account_facts import amount_text
from app.ledger.admission import Budgets, CellBalance, Placed, Refused, Request, Room
from app.ledger.entries import FIRST_PREVIOUS_HASH, Entry, EntryKind
from app.ledger.limit import Limit
from app.ledger.tables import AccountRow, ReservationRow
from app.privacy import accountants
from app.privacy.composition import Partitions, Scope


@dataclass(frozen=True)
class NewAccount:
    """The facts that an account is opened with.

    Attributes:
        cap: steps of the accountant's unit, converted at δ without the part that is set aside.
        delta: exact decimal text, only where the accountant takes a δ.
        privacy_unit: JSON form, as exports show it.
        delta_set_aside: exact decimal text; the part of ``delta`` for (ε, δ) mechanisms.
    """

    id: str
    name: str
    accountant: str
    adjacency: str
    cap: int
    delta: str | None
    privacy_unit: dict[str, Any]
    partitions: Partitions
    delta_set_aside: str | None = None


@dataclass(frozen=True)
class NewReservation(Request):
    """One priced part of a job: its amount on one account, and the content of its entries.

    Attributes:
        event: canonical JSON form of the privacy event; ``None`` where the details declare a loss instead.
        job_id: the job that will spend it; ``None`` for a mechanism that runs outside the service.
        delta: the δ of the request, at which a refusal converts the largest admissible amount; ``None``: the account's
            δ.
        details: public facts of every entry of the reservation; see :class:`app.ledger.entries.Entry`.
        largest_within: maps an amount to the largest ε of the request that costs no more, for the text of a refusal;
            ``None``: the largest ε of a job.
    """

    event: dict[str, Any] | None
    job_id: str | None
    delta: Fraction | None = None
    details: dict[str, Any] | None = None
    largest_within: Callable[[int], Fraction] | None = None


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


def open_account(session: Session, new_account: NewAccount, *, actor: str) -> None:
    """Opens an account with its first entry, which holds the account's facts."""
    row = AccountRow(
        id=new_account.id,
        name=new_account.name,
        accountant=new_account.accountant,
        adjacency=new_account.adjacency,
        cap=new_account.cap,
        highest_cap=new_account.cap,
        delta=new_account.delta,
        delta_set_aside=new_account.delta_set_aside,
        privacy_unit=new_account.privacy_unit,
        partitions=new_account.partitions.to_json(),
        last_sequence=0,
        last_hash=FIRST_PREVIOUS_HASH,
        last_at="",
    )
    session.add(row)
    session.flush()
    opened = chain.NewEntry(EntryKind.OPEN, new_account.cap, actor=actor, details=account_facts.of_account(row))
    chain.append(session, row, opened)


def reserve(session: Session, parts: Sequence[NewReservation], *, actor: str) -> list[str]:
    """Reserves every part of one job: all of them, or an error and none.

    Two parts may be on one account if their scopes are disjoint. Accounts, then their populations, are locked in order
    of their ids before the first is read, so that jobs on several accounts never deadlock. A job without parts reserves
    nothing.

    Returns:
        The reservations' ids, in the order of ``parts``.

    Raises:
        BudgetExceeded: the first account, in order of their ids, that does not admit its part; nothing was written.
    """
    if not all(part.amount > 0 for part in parts):
        raise ValueError("a reservation is positive")
    rows = _locked_accounts(session, [part.account_id for part in parts])
    populations = population_totals.locked_rows(session, rows)
    budgets = _budgets(session, rows, populations)
    [decision] = admission.admit(budgets, [parts])
    if isinstance(decision, Refused):
        part = parts[decision.position]
        raise _refusal(rows[part.account_id], part, decision)
    reservation_ids: dict[int, str] = {}
    for placed in decision:
        part = parts[placed.position]
        population = budgets.population_of(part.account_id)
        population_row = None if population is None else populations[population.id]
        reservation_ids[placed.position] = _write(
            session, rows[part.account_id], population_row, part, placed, actor=actor
        )
    return [reservation_ids[position] for position in range(len(parts))]


def charge(session: Session, reservation_id: str, *, actor: str) -> None:
    """Turns one reservation into a charge. No code path gives a charge back.

    Raises:
        ReservationSettled: the reservation has already ended.
    """
    _settle(session, reservation_id, kind=EntryKind.CHARGE, end="charged", actor=actor)


def reservations_of_job(session: Session, job_id: str) -> list[ReservationRow]:
    """Every reservation of a job, in whatever state."""
    return repository.reservations_of(session, [job_id])


def charge_job(session: Session, job_id: str, *, actor: str) -> None:
    """Turns every reservation of a job into a charge, in order of the accounts' ids.

    Raises:
        ReservationSettled: one of the reservations has already ended.
        NotFound: the job has no reservation.
    """
    if not reservations_of_job(session, job_id):
        raise NotFound("reservation")
    _settle_jobs(session, [job_id], kind=EntryKind.CHARGE, end="charged", actor=actor)


def void_jobs(session: Session, job_ids: Sequence[str], *, actor: str) -> None:
    """Gives back every reservation of jobs that never started; a job without parts has none.

    The accounts of all jobs are locked before the first entry is written.
    """
    _settle_jobs(session, job_ids, kind=EntryKind.VOID, end="void", actor=actor)


def expire_job(session: Session, job_id: str, *, actor: str) -> None:
    """Gives back every reservation of a job that waited too long and never started; see :func:`charge_job`."""
    _settle_jobs(session, [job_id], kind=EntryKind.EXPIRE, end="expired", actor=actor)


def balance(session: Session, account_id: str, scope: Scope | None = None) -> Balance:
    """The tightest joint cell of an account, or of a scope of it."""
    row = repository.account(session, account_id)
    room = _standing(session, [row]).room(Request(account_id, 0, scope or {}))
    return _balance(row, room)


def balances(session: Session, account_ids: Sequence[str]) -> dict[str, Balance]:
    """The tightest joint cell of each of several accounts, in a fixed number of queries."""
    rows = repository.accounts(session, account_ids)
    budgets = _standing(session, rows)
    return {row.id: _balance(row, budgets.room(Request(row.id, 0, {}))) for row in rows}


def balances_of_job(session: Session, parts: Sequence[Request]) -> list[Balance]:
    """The balance of every part of a job, with the room that is left for it where the other parts get their amounts.

    Parts on members of one population add up in the population. A job is admitted if and only if each part fits its
    room.
    """
    rows = {row.id: row for row in repository.accounts(session, [part.account_id for part in parts])}
    rooms = admission.rooms(_standing(session, list(rows.values())), parts)
    return [_balance(rows[part.account_id], room) for part, room in zip(parts, rooms, strict=True)]


def accountant_of(session: Session, account_id: str) -> str:
    """The name of an account's accountant, which never changes."""
    return repository.account(session, account_id).accountant


def highest_cap(session: Session, account_id: str) -> Limit:
    """The highest cap in force since the first reservation that was not given back.

    Outputs that were released under a cap are covered by that cap, even if it was lowered afterwards
    (docs/proofs/caps.md).
    """
    return Limit.of(repository.account(session, account_id))


def highest_caps(session: Session, account_ids: Sequence[str]) -> dict[str, Limit]:
    """The highest caps of several accounts, by id, in one query; see :func:`highest_cap`."""
    return {row.id: Limit.of(row) for row in repository.accounts(session, account_ids)}


def detail(session: Session, account_id: str, scope: Scope | None = None) -> Detail:
    """An account in detail within a scope, from one read of its state."""
    scope = scope or {}
    row = repository.account(session, account_id)
    budgets = _standing(session, [row])
    account = budgets.accounts[account_id]
    tightest, cells = account.by_cell(scope)
    whole = account.tightest({}) if scope else tightest
    return Detail(_balance(row, budgets.room_at(account_id, tightest)), cells, whole.load)


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
        "cap": amount_text(row.accountant, row.cap),
        **account_facts.of_account(row),
    }
    return header, row.last_sequence


def _locked_accounts(session: Session, account_ids: Collection[str]) -> dict[str, AccountRow]:
    return {account_id: repository.locked_account(session, account_id) for account_id in sorted(set(account_ids))}


def _standing(session: Session, rows: Sequence[AccountRow]) -> Budgets:
    """The budgets of accounts without a lock."""
    population_ids = sorted(set(population_totals.ids_of(session, [row.id for row in rows]).values()))
    populations = {row.id: row for row in repository.accounts(session, population_ids)} if population_ids else {}
    return _budgets(session, {row.id: row for row in rows}, populations)


def _budgets(session: Session, rows: Mapping[str, AccountRow], populations: Mapping[str, AccountRow]) -> Budgets:
    accounts = state.read(session, list(rows.values()))
    return Budgets(accounts, list(population_totals.populations_of(session, list(populations.values())).values()))


def _balance(row: AccountRow, room: Room) -> Balance:
    return Balance(
        account_id=row.id,
        name=row.name,
        accountant=row.accountant,
        cap=row.cap,
        charged=room.tightest.charged,
        reserved=room.tightest.reserved,
        tightest_cell=dict(room.tightest.cell),
        is_exact=room.tightest.is_exact,
        delta=Limit.of(row).split.converted_at,
        room=room.amount,
    )


def _write(
    session: Session,
    row: AccountRow,
    population: AccountRow | None,
    part: NewReservation,
    placed: Placed,
    *,
    actor: str,
) -> str:
    """Writes an admitted reservation, its entry, and the entry of the population; returns its id."""
    reservation = ReservationRow(
        id=ids.new(ids.RESERVATION),
        account_id=part.account_id,
        job_id=part.job_id,
        part=placed.position,
        amount=part.amount,
        scope={name: list(listed) for name, listed in part.scope.items()},
        event=part.event,
        state="reserved",
        details=part.details or None,
    )
    session.add(reservation)
    state.move(session, row.id, part.scope, reserved=part.amount)
    new_entry = chain.of_reservation(EntryKind.RESERVE, reservation, actor=actor)
    entry = population_totals.append(session, population, row, new_entry)
    if population is not None:
        assert placed.member is not None, "a member's total follows every reservation"
        population_totals.record(session, population, row, entry, total=placed.member)
    return reservation.id


def _settle_jobs(session: Session, job_ids: Sequence[str], *, kind: EntryKind, end: str, actor: str) -> None:
    reservations = repository.reservations_of(session, job_ids)
    rows = _locked_accounts(session, {reservation.account_id for reservation in reservations})
    if kind is not EntryKind.CHARGE:
        population_totals.locked_rows(session, rows)
    for reservation in reservations:
        _settle(session, reservation.id, kind=kind, end=end, actor=actor)


def _settle(session: Session, reservation_id: str, *, kind: EntryKind, end: str, actor: str) -> None:
    row = repository.locked_account(session, repository.reservation(session, reservation_id).account_id)
    reservation = repository.reservation(session, reservation_id)  # again, now under the account's lock
    if reservation.state != "reserved":
        raise ReservationSettled(reservation.state)
    scope = {name: tuple(listed) for name, listed in reservation.scope.items()}
    reservation.state = end
    if kind is EntryKind.CHARGE:
        state.move(session, row.id, scope, charged=reservation.amount, reserved=-reservation.amount)
        chain.append(session, row, chain.of_reservation(kind, reservation, actor=actor))
        population_totals.record_charge(session, row.id, scope, reservation.amount)
        return
    populations = population_totals.locked_rows(session, [row.id])
    before = population_totals.populations_of(session, list(populations.values()))
    state.move(session, row.id, scope, reserved=-reservation.amount)
    [population] = populations.values() or [None]
    entry = population_totals.append(session, population, row, chain.of_reservation(kind, reservation, actor=actor))
    if population is not None:
        total = state.tightest(session, row, {}).at_most(before[population.id].loads[row.id])
        population_totals.record(session, population, row, entry, total=total)


def _refusal(row: AccountRow, part: NewReservation, refused: Refused) -> BudgetExceeded:
    """Names the cap that leaves less, the account's or the population's, and the largest ε that would fit."""
    accountant = accountants.by_name(row.accountant)
    delta = part.delta if part.delta is not None else Limit.of(row).split.converted_at
    largest_within = part.largest_within or partial(accountant.largest_that_fits, delta=delta)
    tightest, population = refused.room.tightest, refused.room.population
    cap, charged, reserved = row.cap, tightest.charged, tightest.reserved
    refusing = population if refused.room.amount < max(cap - charged - reserved, 0) else None
    if refusing is not None:
        cap, charged, reserved = refusing.cap, refusing.charged, refusing.reserved
    return BudgetExceeded(
        dataset=row.id,
        dataset_name=row.name,
        accountant=row.accountant,
        unit=accountant.UNIT,
        cap=amount_text(row.accountant, cap),
        charged=amount_text(row.accountant, charged),
        reserved=amount_text(row.accountant, reserved),
        remaining=amount_text(row.accountant, max(cap - charged - reserved, 0)),
        requested=amount_text(row.accountant, part.amount),
        tightest_cell=dict(tightest.cell) if refusing is None else {},
        what_fits=lambda: amounts.to_text(largest_within(refused.fits)),
        population=None if refusing is None else refusing.name,
        exact=tightest.is_exact if refusing is None else refusing.is_exact,
    )
