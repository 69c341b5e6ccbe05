"""Check that the reservations of a job pay for what its task will release."""

from collections.abc import Mapping
from fractions import Fraction
from typing import Any

from sqlalchemy.orm import Session

from app.core.errors import GrovekeeperError
from app.datasets import catalog
from app.jobs.tables import JobRow
from app.ledger import service as ledger
from app.ledger.tables import ReservationRow
from app.privacy import accountants, events
from app.services.jobs import output_facts


class TaskNotPaid(GrovekeeperError):
    """The task of a job differs from what its reservations pay for."""

    def __str__(self) -> str:
        return "the reservations of a job do not pay for its task"


def require_paid(session: Session, row: JobRow) -> None:
    """Compares every part of a job with its reservation and recomputes the loss of the part's event.

    Runs in the transaction that charges the job, so a row of the queue that was changed, or an event that was priced
    wrongly, reads no private row.

    Raises:
        TaskNotPaid: a part has another event, scope, price or account than its reservation, or an event that costs one
            privacy unit more than the reserved amount; or a reservation has no part.
    """
    plan, also = row.task["work"]["plan"], row.task.get("unlabelled")
    parts = {row.reservation_id: (row.dataset_id, row.price, plan["event"], row.task["scope"])}
    if also is not None:
        parts[also["reservation_id"]] = (also["dataset"], also["price"], plan["unlabelled"]["event"], also["scope"])
    reservations = {reservation.id: reservation for reservation in ledger.reservations_of_job(session, row.id)}
    if reservations.keys() != parts.keys():
        raise TaskNotPaid
    for reservation_id, (dataset_id, price, event, scope) in parts.items():
        _require_paid(session, reservations[reservation_id], dataset_id, price=price, event=event, scope=scope)


def _require_paid(
    session: Session,
    reservation: ReservationRow,
    dataset_id: str,
    *,
    price: Mapping[str, Any],
    event: object,
    scope: Mapping[str, object],
) -> None:
    dataset = catalog.find(session, dataset_id)
    limit = ledger.highest_cap(session, dataset_id)
    is_same = (
        reservation.account_id == dataset_id
        and price["accountant"] == limit.accountant
        and reservation.amount == output_facts.steps_of(price)
        and reservation.event == event
        and reservation.scope == scope
    )
    accountant = accountants.by_name(limit.accountant)
    loss = accountant.loss(events.from_json(event), adjacency=dataset.adjacency)
    of_unit = accountant.group(dataset.max_rows) * loss
    if not is_same or of_unit > Fraction(reservation.amount, 10**accountant.PLACES):
        raise TaskNotPaid
