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
from app.core.errors import BudgetExceeded, DatasetDeleted, Frozen, NotFound, QuotaExceeded, ReservationSettled
from app.ledger import (
    account_facts,
    admission,
    chain,
    population_totals,
    reconciliation,
    repository,
    rules,
    state,
    statements,
    stored_rules,
)
from app.ledger.account_facts import amount_text
from app.ledger.admission import Budgets, Placed, Refused, Request
from app.ledger.entries import EntryKind
from app.ledger.limit import Limit
from app.ledger.rules import Allowance
from app.ledger.tables import AccountRow, ReservationRow
from app.privacy import accountants
from app.privacy.composition import Partitions


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
        DatasetDeleted: the rows of an account are to be erased by now; nothing was written.
        Frozen: the dataset of an account is frozen; nothing was written.
        QuotaExceeded: the rules of an account refuse its part; nothing was written.
        BudgetExceeded: the first account, in order of their ids, that does not admit its part; nothing was written.
        BalanceMismatch: the balance of an account or a population differs from its entries; nothing was written.
        Unverified: an account is still being compared with its entries; nothing was written.
    """
    if not all(part.amount > 0 for part in parts):
        raise ValueError("a reservation is positive")
    rows = _locked_accounts(session, [part.account_id for part in parts])
    populations = population_totals.locked_rows(session, rows)
    budgets = statements.budgets_of(session, rows, populations)
    reconciliation.confirm(session, {**rows, **populations}, budgets)
    allowances = stored_rules.allowances(session, rows, actor)
    _require_rules(rows, allowances, budgets, parts)
    [decision] = admission.admit(budgets, [parts])
    if isinstance(decision, Refused):
        part, ruled = parts[decision.position], rules.room_beside(allowances, parts, decision.position)
        raise _refusal(rows[part.account_id], part, decision, ruled=ruled)
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


def _locked_accounts(session: Session, account_ids: Collection[str]) -> dict[str, AccountRow]:
    return {account_id: repository.locked_account(session, account_id) for account_id in sorted(set(account_ids))}


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
        reserved_by=actor,
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
    if populations:  # a wrong balance would lower the member's load in the population's entries
        reconciliation.confirm_account(session, row)
    before = population_totals.populations_of(session, list(populations.values()))
    state.move(session, row.id, scope, reserved=-reservation.amount)
    [population] = populations.values() or [None]
    entry = population_totals.append(session, population, row, chain.of_reservation(kind, reservation, actor=actor))
    if population is not None:
        total = state.tightest(session, row, {}).at_most(before[population.id].loads[row.id])
        population_totals.record(session, population, row, entry, total=total)


def _require_rules(
    rows: Mapping[str, AccountRow],
    allowances: Mapping[str, Allowance],
    budgets: Budgets,
    parts: Sequence[NewReservation],
) -> None:
    for position, part in sorted(enumerate(parts), key=lambda item: item[1].account_id):
        allowance, row = allowances.get(part.account_id), rows[part.account_id]
        if allowance is None:
            continue
        if allowance.is_due:
            raise DatasetDeleted
        if allowance.is_frozen:
            raise Frozen(row.id, row.name)
        ruled = rules.room_beside(allowances, parts, position)
        if ruled is not None and part.amount > ruled:
            fits = min(ruled, admission.rooms(budgets, parts)[position].amount)
            raise QuotaExceeded(
                dataset=row.id,
                dataset_name=row.name,
                accountant=row.accountant,
                unit=accountants.by_name(row.accountant).UNIT,
                requested=amount_text(row.accountant, part.amount),
                what_fits=largest_epsilon(row, part, fits),
            )


def largest_epsilon(row: AccountRow, part: NewReservation, steps: int) -> Callable[[], str]:
    """Computes the largest ε of a part that costs no more than some steps."""
    accountant = accountants.by_name(row.accountant)
    delta = part.delta if part.delta is not None else Limit.of(row).split.converted_at
    largest_within = part.largest_within or partial(accountant.largest_that_fits, delta=delta)
    return lambda: amounts.to_text(largest_within(steps))


def _refusal(row: AccountRow, part: NewReservation, refused: Refused, *, ruled: int | None) -> BudgetExceeded:
    """Names the cap that leaves less, the account's or the population's, and the largest ε that would fit.

    ``ruled`` is what the rules admit of the part, where a rule sets a limit.
    """
    accountant = accountants.by_name(row.accountant)
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
        what_fits=largest_epsilon(row, part, refused.fits if ruled is None else min(refused.fits, ruled)),
        population=None if refusing is None else refusing.name,
        exact=tightest.is_exact if refusing is None else refusing.is_exact,
    )
