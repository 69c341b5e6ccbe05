"""Charges for mechanisms that run elsewhere: spent at once, for good, on somebody's word.

The service does not gate what such a mechanism reads, so nothing can show that it did not run: there is no time between
reservation and charge, no void and no expiry. Both entries carry who attests the charge.
"""

from sqlalchemy.orm import Session

from app.core import ids
from app.core.errors import NotFound
from app.ledger import repository, service
from app.ledger.service import NewReservation
from app.ledger.tables import ReservationRow


def charge(session: Session, new: NewReservation, *, actor: str) -> str:
    """Reserves and charges in one step: all or nothing.

    Args:
        session: of the caller's transaction.
        new: without a job; its details say who attests it.
        actor: the key that attests it.

    Returns:
        The reservation's id.

    Raises:
        BudgetExceeded: the account refuses; nothing was changed.
    """
    assert new.job_id is None, "the reservation of a job is charged when a worker starts it"
    reservation_id = service.reserve(session, new, actor=actor)
    service.charge(session, reservation_id, actor=actor)
    return reservation_id


def find(session: Session, account_id: str, reservation_id: str) -> ReservationRow:
    """One of an account's charges for mechanisms that run elsewhere.

    Raises:
        NotFound: no such reservation there, or one that a job holds.
    """
    if not ids.is_reference(reservation_id):
        raise NotFound("reservation")
    row = repository.reservation(session, reservation_id)
    if row.account_id != account_id or row.job_id != row.id:
        raise NotFound("reservation")
    return row


def page(session: Session, account_id: str, *, after: str | None, limit: int) -> list[ReservationRow]:
    """A page of them, in order of id."""
    return repository.standing_alone(session, account_id, after=after, limit=limit)
