"""Settles one reservation by the ledger's calls for jobs; the reservation is the only
reservation of its job.
"""

from collections.abc import Callable

from sqlalchemy.orm import Session

from app.ledger import reservations as ledger
from app.ledger import tables


def void(session: Session, reservation_id: str, *, actor: str) -> None:
    """Voids the reservation's job.

    Raises:
        NotFound: no such reservation.
        ReservationSettled: the reservation has already ended.
    """
    ledger.void_jobs(session, [_job_of(session, reservation_id)], actor=actor)


def expire(session: Session, reservation_id: str, *, actor: str) -> None:
    """Expires the reservation's job; raises as :func:`void` does."""
    ledger.expire_job(session, _job_of(session, reservation_id), actor=actor)


ENDS: dict[str, Callable[..., None]] = {
    "charge": ledger.charge,
    "void": void,
    "expire": expire,
}
"""Every end of a reservation, by the kind of its entry."""


def _job_of(session: Session, reservation_id: str) -> str:
    job_id = tables.reservation(session, reservation_id).job_id
    assert job_id is not None, "a reservation without a job is charged at once"
    assert [row.id for row in tables.reservations_of(session, [job_id])] == [
        reservation_id
    ]
    return job_id
