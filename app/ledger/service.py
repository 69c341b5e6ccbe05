"""Writes the ledger: opens accounts, and reserves, charges, voids and expires on the caller's transaction.

Every change of an account happens under the lock of its row, and every step is a new entry; no step lowers what was
charged. A reservation is written if :mod:`app.ledger.admission` admits it under the locks
(:mod:`app.ledger.reservations`). An entry of a population's member is followed by an entry of the population in the
same transaction (:mod:`app.ledger.populations`).
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy.orm import Session

from app.core.errors import NotFound, ReservationSettled
from app.ledger import chain, populations, repository, state
from app.ledger.entries import EntryKind
from app.ledger.reservations import NewReservation as NewReservation
from app.ledger.reservations import reserve as reserve
from app.ledger.tables import AccountRow, ReservationRow
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


def open_account(session: Session, new_account: NewAccount, *, actor: str) -> None:
    """Opens an account with its first entry, which holds the account's facts."""
    row = account_row(new_account)
    session.add(row)
    session.flush()
    opened = chain.NewEntry(EntryKind.OPEN, new_account.cap, actor=actor, details=state.facts_of(row))
    chain.append(session, row, opened)


def account_row(new_account: NewAccount) -> AccountRow:
    """The row of an account that is not open yet."""
    return AccountRow(
        id=new_account.id,
        name=new_account.name,
        accountant=new_account.accountant,
        adjacency=new_account.adjacency,
        unread_cap=new_account.cap,
        unread_highest_cap=new_account.cap,
        delta=new_account.delta,
        delta_set_aside=new_account.delta_set_aside,
        privacy_unit=new_account.privacy_unit,
        partitions=new_account.partitions.to_json(),
    )


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


def _settle_jobs(session: Session, job_ids: Sequence[str], *, kind: EntryKind, end: str, actor: str) -> None:
    reservations = repository.reservations_of(session, job_ids)
    rows = _locked_accounts(session, {reservation.account_id for reservation in reservations})
    if kind is not EntryKind.CHARGE:
        populations.locked_rows(session, rows)
    for reservation in reservations:
        _settle(session, reservation.id, kind=kind, end=end, actor=actor)


def _settle(session: Session, reservation_id: str, *, kind: EntryKind, end: str, actor: str) -> None:
    row = repository.locked_account(session, repository.reservation(session, reservation_id).account_id)
    reservation = repository.reservation(session, reservation_id)  # again, now under the account's lock
    if reservation.state != "reserved":
        raise ReservationSettled(reservation.state)
    reservation.state = end
    new_entry = chain.of_reservation(kind, reservation, actor=actor)
    locked = {} if kind is EntryKind.CHARGE else populations.locked_rows(session, [row.id])
    if not locked:
        chain.append(session, row, new_entry)
        return
    [population] = locked.values()
    chain.write(session, populations.extend(session, population, row, new_entry))
