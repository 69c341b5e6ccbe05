"""Charges accounts for external mechanisms, at once and for good, on the word of an attester.

An external mechanism reads rows outside the service, so the service cannot verify that the mechanism did not run. A
reservation is charged in the transaction that makes it, and never voided or expired. Both entries name the attester.

An (ε, δ)-mechanism pays an amount in the account's unit, and δ out of the part that a ``zcdp`` account sets aside. In
every joint cell the charged δ stays within that part (docs/proofs/external.md).
"""

from collections.abc import Collection
from dataclasses import replace
from datetime import datetime

from sqlalchemy import select
from sqlalchemy.orm import Session

from app.core import stamps
from app.core.errors import BudgetExceeded, NotFound
from app.ledger import repository, service, statements
from app.ledger.entries import EntryKind
from app.ledger.reservations import NewReservation
from app.ledger.state import CellDelta
from app.ledger.tables import AccountRow, EntryRow, ReservationRow
from app.privacy import accountants
from app.privacy.accountants import zcdp


def charge(session: Session, new_reservation: NewReservation, *, delta: int = 0, actor: str) -> str:
    """Reserves and charges in one step: all or nothing.

    Args:
        session: of the caller's transaction.
        new_reservation: a reservation without a job, whose details name the attester.
        delta: steps of 10⁻¹⁸ out of the part that is set aside; the details of both entries state it.
        actor: the attester's key.

    Returns:
        The reservation's id.

    Raises:
        BudgetExceeded: the account refuses the amount or the δ; nothing was changed.
        Frozen: the dataset is frozen; nothing was changed.
        QuotaExceeded: the rules refuse the amount; nothing was changed.
        NeedsApproval: the amount is above what needs an approval; nothing was changed.
    """
    if new_reservation.job_id is not None:
        raise ValueError("the reservation of a job is charged when a worker starts it")
    row = repository.locked_account(session, new_reservation.account_id)
    if delta:
        spent = statements.spent_delta(session, row, new_reservation.scope)
        if spent.charged + delta > statements.delta_set_aside(row):
            raise _refusal(row, spent, delta)
    if delta:
        details = {**(new_reservation.details or {}), "delta": accountants.delta_text(delta)}
        new_reservation = replace(new_reservation, details=details)
    [reservation_id] = service.reserve(session, [new_reservation], actor=actor, may_wait=False)
    service.charge(session, reservation_id, actor=actor)
    return reservation_id


def find(session: Session, account_id: str, reservation_id: str) -> ReservationRow:
    """A charge of an account for an external mechanism.

    Raises:
        NotFound: the account has no such reservation, or a job holds it.
    """
    if not stamps.is_reference(reservation_id):
        raise NotFound("reservation")
    row = repository.reservation(session, reservation_id)
    if row.account_id != account_id or row.job_id is not None:
        raise NotFound("reservation")
    return row


def page(session: Session, account_id: str, *, after: str | None, limit: int) -> list[ReservationRow]:
    """A page of an account's charges for external mechanisms, in order of id."""
    return repository.external_reservations(session, account_id, after=after, limit=limit)


def is_charged_since(session: Session, account_id: str, at: datetime) -> bool:
    """Whether an account was charged for a mechanism outside the service since a time."""
    query = select(EntryRow.sequence).join(ReservationRow, ReservationRow.id == EntryRow.job_id)
    query = query.where(ReservationRow.job_id.is_(None), EntryRow.account_id == account_id)
    query = query.where(EntryRow.kind == EntryKind.CHARGE.value, EntryRow.at >= stamps.to_text(at))
    return session.execute(query.limit(1)).first() is not None


def count(session: Session, account_id: str) -> int:
    """The number of charges for mechanisms outside the service."""
    return repository.n_external_reservations(session, account_id)


def charged(session: Session, account_ids: Collection[str]) -> set[str]:
    """Those of several accounts that were charged for mechanisms outside the service."""
    return repository.externally_charged(session, account_ids)


def _refusal(row: AccountRow, spent: CellDelta, delta: int) -> BudgetExceeded:
    """A refusal for want of δ. No ε fits at this δ, however small."""
    set_aside = statements.delta_set_aside(row)
    return BudgetExceeded(
        dataset=row.id,
        dataset_name=row.name,
        accountant=zcdp.NAME,
        unit="delta",
        cap=accountants.delta_text(set_aside),
        charged=accountants.delta_text(spent.charged),
        reserved="0",
        remaining=accountants.delta_text(set_aside - spent.charged),
        requested=accountants.delta_text(delta),
        tightest_cell=dict(spent.cell),
        what_fits=lambda: "0",
        exact=spent.is_exact,
    )
