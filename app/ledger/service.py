"""The only writer of the ledger: open, reserve, charge, void, expire, each on the caller's transaction.

Everything of one account happens under the lock of its row. A reservation is admitted only if, in every joint cell of
its scope, ``charged + reserved + new ≤ cap``; each step is a new entry, and no step lowers what was charged. What an
entry of a member changes for its population is said there too, in the same transaction
(:mod:`app.ledger.population_totals`).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial
from typing import Any

from sqlalchemy.orm import Session

from app.core import amounts, ids
from app.core.errors import BudgetExceeded, NotFound, ReservationSettled
from app.ledger import account_facts, chain, population_totals, repository, state
from app.ledger.account_facts import amount_text
from app.ledger.entries import FIRST_PREVIOUS_HASH, Entry, EntryKind
from app.ledger.limit import Limit
from app.ledger.population_totals import Population
from app.ledger.state import CellBalance
from app.ledger.tables import AccountRow, ReservationRow
from app.privacy import accountants
from app.privacy.composition import Partitions, Scope


@dataclass(frozen=True)
class NewAccount:
    """What an account is opened with. ``cap`` in steps of the accountant's unit, ``delta`` as exact decimal text and
    only where the accountant takes one; the JSON values appear in exports as they are. ``cap`` was converted at δ less
    what is set aside of it."""

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
class NewReservation:
    """What a job wants set aside.

    Attributes:
        account_id: whose budget.
        amount: steps of the account's unit, positive: exactly what was asked for.
        scope: in normal form; resolved to joint cells once, by :func:`reserve`.
        event: canonical JSON form of the privacy event; ``None`` where the details declare a loss instead.
        job_id: the job that will spend it; ``None`` of a mechanism that runs elsewhere: the reservation's own id.
        delta: that the job asked for, by which a refusal says what would fit; ``None``: the account's own.
        details: public facts that every entry of this reservation carries; see :class:`app.ledger.entries.Entry`.
        part: which of the job's reservations it is; :func:`reserve_all` counts them.
        largest_within: the largest ε of the same request whose price is within some steps, by which a refusal says
            what would fit; ``None``: that of a job.
    """

    account_id: str
    amount: int
    scope: Scope
    event: dict[str, Any] | None
    job_id: str | None
    delta: Fraction | None = None
    details: dict[str, Any] | None = None
    part: int = 0
    largest_within: Callable[[int], Fraction] | None = None


@dataclass(frozen=True)
class Balance:
    """One account at the tightest joint cell of a box: ``cap == charged + reserved + remaining``, unless the cap was
    lowered below what is spent.

    Amounts are whole steps of the account's unit; :meth:`text` says them. Where not ``is_exact``, the sum is a bound.
    ``room`` is the largest reservation that would be admitted now: what remains, or less where the population is nearly
    used up. ``delta`` is the one that the cap was converted at.
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
    def remaining(self) -> int:
        """What the tightest cell may still hold; nothing where the cap was lowered below what lies on it."""
        return max(self.cap - self.charged - self.reserved, 0)

    @property
    def unit(self) -> str:
        """What the amounts are amounts of: ``epsilon``, ``rho`` or ``mu_squared``."""
        return accountants.by_name(self.accountant).UNIT

    @property
    def largest_that_fits(self) -> str:
        """The largest ε, at the account's own δ, that a request of this box could carry now."""
        unit = accountants.by_name(self.accountant)
        return amounts.to_text(unit.largest_that_fits(self.room, self.delta))

    def text(self, amount: int) -> str:
        """An amount of this account as exact decimal text."""
        return amount_text(self.accountant, amount)


def open_account(session: Session, new: NewAccount, *, actor: str) -> None:
    """Opens an account with its first entry, which holds the account's facts."""
    row = AccountRow(
        id=new.id,
        name=new.name,
        accountant=new.accountant,
        adjacency=new.adjacency,
        cap=new.cap,
        highest_cap=new.cap,
        delta=new.delta,
        delta_set_aside=new.delta_set_aside,
        privacy_unit=new.privacy_unit,
        partitions=new.partitions.to_json(),
        last_sequence=0,
        last_hash=FIRST_PREVIOUS_HASH,
        last_at="",
    )
    session.add(row)
    session.flush()
    opened = chain.NewEntry(EntryKind.OPEN, new.cap, actor=actor, details=account_facts.of_account(row))
    chain.append(session, row, opened)


def reserve(session: Session, new: NewReservation, *, actor: str, beside: Sequence[NewReservation] = ()) -> str:
    """Sets an amount aside in every joint cell of a scope: all or nothing.

    Args:
        session: of the caller's transaction.
        new: what is wanted.
        actor: the key that asks.
        beside: what the same job will ask for next; a refusal says what would fit with that.

    Returns:
        The reservation's id.

    Raises:
        BudgetExceeded: in some cell ``charged + reserved + amount`` would pass the cap, or all members of the account's
            population together that of the population; nothing was changed.
    """
    if new.amount <= 0:
        raise ValueError("a reservation is positive")
    row = repository.locked_account(session, new.account_id)
    tightest = state.tightest(session, row, new.scope)
    population = population_totals.locked_of(session, row.id)
    if new.amount > _room(row, tightest, population):
        fits = _room(row, tightest, population_totals.holding(session, population, beside))
        raise _refusal(row, tightest, new, together=population, fits=fits)
    reservation_id = ids.new(ids.RESERVATION)
    reservation = ReservationRow(
        id=reservation_id,
        account_id=new.account_id,
        job_id=new.job_id or reservation_id,
        part=new.part,
        amount=new.amount,
        scope={name: list(listed) for name, listed in new.scope.items()},
        event=new.event,
        state="reserved",
        details=new.details or None,
    )
    session.add(reservation)
    state.move(session, row.id, new.scope, reserved=new.amount)
    entry = population_totals.append(
        session, population, row, chain.of_reservation(EntryKind.RESERVE, reservation, actor=actor)
    )
    if population is not None:
        at_most = max(population.loads[row.id], tightest.load + new.amount)
        population_totals.record(session, population, row, entry, at_most=at_most)
    return reservation.id


def charge(session: Session, reservation_id: str, *, actor: str) -> None:
    """Turns a reservation into a charge. From here on no code path gives it back.

    Raises:
        ReservationSettled: it came to an end before.
    """
    _settle(session, reservation_id, kind=EntryKind.CHARGE, end="charged", actor=actor)


def void(session: Session, reservation_id: str, *, actor: str) -> None:
    """Gives back a reservation whose job never started.

    Raises:
        ReservationSettled: it came to an end before.
    """
    _settle(session, reservation_id, kind=EntryKind.VOID, end="void", actor=actor)


def expire(session: Session, reservation_id: str, *, actor: str) -> None:
    """Gives back a reservation whose job waited too long and never started.

    Raises:
        ReservationSettled: it came to an end before.
    """
    _settle(session, reservation_id, kind=EntryKind.EXPIRE, end="expired", actor=actor)


def reserve_all(session: Session, wanted: Sequence[NewReservation], *, actor: str) -> list[str]:
    """Every reservation of one job: all of them, or an error and none, since the caller rolls back.

    Two may be on one account if no row lies in both scopes: by that, its readers tell them apart. Accounts, then their
    populations, are locked in order of their ids before the first is looked at: jobs that cross never wait in a circle.

    Returns:
        The reservations' ids, in the order of ``wanted``.

    Raises:
        BudgetExceeded: an account refuses; the error names it.
    """
    _lock_accounts(session, [new.account_id for new in wanted])
    population_totals.lock_all(session, [new.account_id for new in wanted])
    by_account = sorted(enumerate(wanted), key=lambda each: each[1].account_id)
    made = {}
    for place, (part, new) in enumerate(by_account, start=1):
        beside = [other for _, other in by_account[place:]]
        made[part] = reserve(session, replace(new, part=part), actor=actor, beside=beside)
    return [made[part] for part in range(len(wanted))]


def reservations_of_job(session: Session, job_id: str) -> list[ReservationRow]:
    """Every reservation of a job, in whatever state."""
    return repository.reservations_of(session, [job_id])


def charge_job(session: Session, job_id: str, *, actor: str) -> None:
    """Turns every reservation of a job into a charge, in order of the accounts' ids.

    Raises:
        ReservationSettled: one of them came to an end before.
        NotFound: the job holds no reservation.
    """
    _settle_jobs(session, [job_id], kind=EntryKind.CHARGE, end="charged", actor=actor)


def void_jobs(session: Session, job_ids: Sequence[str], *, actor: str) -> None:
    """Gives back every reservation of jobs that never started; see :func:`charge_job`.

    The accounts of all jobs are locked before the first entry is written.
    """
    _settle_jobs(session, job_ids, kind=EntryKind.VOID, end="void", actor=actor)


def expire_job(session: Session, job_id: str, *, actor: str) -> None:
    """Gives back every reservation of a job that waited too long and never started; see :func:`charge_job`."""
    _settle_jobs(session, [job_id], kind=EntryKind.EXPIRE, end="expired", actor=actor)


def balance(session: Session, account_id: str, scope: Scope | None = None) -> Balance:
    """The tightest joint cell of an account, or of a box of it."""
    row = repository.account(session, account_id)
    tightest = state.tightest(session, row, scope or {})
    return _balance(row, tightest, population_totals.of_account(session, account_id))


def balances(session: Session, account_ids: Sequence[str]) -> dict[str, Balance]:
    """The tightest joint cell of each of several accounts, in as many questions to the database as for one."""
    accounts = repository.accounts(session, account_ids)
    tightest = state.tightest_of_each(session, accounts)
    found = population_totals.of_each(session, account_ids)
    return {row.id: _balance(row, tightest[row.id], found.get(row.id)) for row in accounts}


def _balance(row: AccountRow, tightest: CellBalance, population: Population | None) -> Balance:
    return Balance(
        account_id=row.id,
        name=row.name,
        accountant=row.accountant,
        cap=row.cap,
        charged=tightest.charged,
        reserved=tightest.reserved,
        tightest_cell=dict(tightest.cell),
        is_exact=tightest.is_exact,
        delta=Limit.of(row).split.converted_at,
        room=_room(row, tightest, population),
    )


def highest_cap(session: Session, account_id: str) -> Limit:
    """The highest cap in force since the first reservation that was not given back: what an account with a δ may print.

    Outputs that were released under a cap are covered by that cap, whatever it was lowered to afterwards
    (docs/proofs/caps.md).
    """
    return Limit.of(repository.account(session, account_id))


def highest_caps(session: Session, account_ids: Sequence[str]) -> dict[str, Limit]:
    """The same of several accounts, by id: asked for once."""
    return {row.id: Limit.of(row) for row in repository.accounts(session, account_ids)}


def cells(session: Session, account_id: str, scope: Scope | None = None) -> dict[str, list[CellBalance]]:
    """For every partition and every cell of it inside a box, the tightest joint cell that lies in the cell."""
    return state.by_cell(session, repository.account(session, account_id), scope or {})


def entries(session: Session, account_id: str, *, after: int, limit: int) -> list[Entry]:
    """A page of the account's history."""
    return repository.entries(session, account_id, after=after, limit=limit)


def size(session: Session, account_id: str) -> int:
    """Number of entries of an account."""
    return repository.account(session, account_id).last_sequence


def export_header(session: Session, account_id: str) -> tuple[dict[str, Any], int]:
    """The header of an export, and the sequence of its last entry: later ones are left out.

    Entries never change, so they may then be read in as many transactions as is convenient.
    """
    row = repository.account(session, account_id)
    header = {
        "kind": "export",
        "format": 1,
        "cap": amount_text(row.accountant, row.cap),
        **account_facts.of_account(row),
    }
    return header, row.last_sequence


def _settle_jobs(session: Session, job_ids: Sequence[str], *, kind: EntryKind, end: str, actor: str) -> None:
    held = repository.reservations_of(session, job_ids)
    if {row.job_id for row in held} != set(job_ids):
        raise NotFound("reservation")
    _lock_accounts(session, [row.account_id for row in held])
    if kind is not EntryKind.CHARGE:
        population_totals.lock_all(session, [row.account_id for row in held])
    for row in held:
        _settle(session, row.id, kind=kind, end=end, actor=actor)


def _lock_accounts(session: Session, account_ids: Sequence[str]) -> None:
    for account_id in sorted(set(account_ids)):
        repository.locked_account(session, account_id)


def _settle(session: Session, reservation_id: str, *, kind: EntryKind, end: str, actor: str) -> None:
    row = repository.locked_account(session, repository.reservation(session, reservation_id).account_id)
    reservation = repository.reservation(session, reservation_id)  # again, now under the account's lock
    if reservation.state != "reserved":
        raise ReservationSettled(reservation.state)
    charged = reservation.amount if kind is EntryKind.CHARGE else 0
    population = None if charged else population_totals.locked_of(session, row.id)
    reservation.state = end
    state.move(session, row.id, _scope(reservation), charged=charged, reserved=-reservation.amount)
    entry = population_totals.append(session, population, row, chain.of_reservation(kind, reservation, actor=actor))
    if charged:
        population_totals.record_charge(session, row.id, _scope(reservation), charged)
    if population is not None:
        population_totals.record(session, population, row, entry, at_most=population.loads[row.id])


def _scope(reservation: ReservationRow) -> Scope:
    return {name: tuple(listed) for name, listed in reservation.scope.items()}


def _room(row: AccountRow, tightest: CellBalance, population: Population | None) -> int:
    """The largest amount that both caps admit in a box whose tightest joint cell is given."""
    room = row.cap - tightest.load
    return max(room if population is None else min(room, population.room(row.id, tightest.load)), 0)


def _refusal(
    row: AccountRow, tightest: CellBalance, new: NewReservation, *, together: Population | None, fits: int
) -> BudgetExceeded:
    """Tells of the cap that leaves less: the account's own, or the population's; and what ``fits``."""
    accountant = accountants.by_name(row.accountant)
    room = _room(row, tightest, together)
    delta = new.delta if new.delta is not None else Limit.of(row).split.converted_at
    largest_within = new.largest_within or partial(accountant.largest_that_fits, delta=delta)
    cap, charged, reserved = row.cap, tightest.charged, tightest.reserved
    named = together if room < max(cap - charged - reserved, 0) else None
    if named is not None:
        cap, charged, reserved = named.account.cap, named.charged, named.reserved
    return BudgetExceeded(
        dataset=row.id,
        dataset_name=row.name,
        accountant=row.accountant,
        unit=accountant.UNIT,
        cap=amount_text(row.accountant, cap),
        charged=amount_text(row.accountant, charged),
        reserved=amount_text(row.accountant, reserved),
        remaining=amount_text(row.accountant, max(cap - charged - reserved, 0)),
        requested=amount_text(row.accountant, new.amount),
        tightest_cell=dict(tightest.cell) if named is None else {},
        what_fits=lambda: amounts.to_text(largest_within(fits)),
        population=None if named is None else named.account.name,
        exact=tightest.is_exact if named is None else named.is_exact,
    )
