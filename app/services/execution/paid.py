"""Checks that the reservations of a job pay for every release of its task."""

from fractions import Fraction

from sqlalchemy.orm import Session

from app.core.errors import GrovekeeperError
from app.datasets import catalog
from app.forests import catalogue, planning
from app.forests.contract.plan import PlanInvalid
from app.forests.data.schema import Schema
from app.jobs.tables import JobPart, JobRow
from app.ledger import statements, tables
from app.ledger.tables import ReservationRow
from app.privacy import accountants, events
from app.services.jobs import kinds


class TaskNotPaid(GrovekeeperError):
    """The task of a job differs from what its reservations pay for."""

    def __str__(self) -> str:
        return "the reservations of a job do not pay for its task"


def require_paid(session: Session, row: JobRow) -> None:
    """Compares every part of a job with its reservation, and recomputes the event of a forest and the loss of events.

    Runs in the transaction that charges the job,
    so a job with a changed queue row or a wrongly priced event reads no private row. What the job draws is held to the
    event while it is drawn (:mod:`app.forests.noise.randomness`).

    Raises:
        TaskNotPaid: a part has no reservation, or another event, scope, price or account than its reservation, or an
            event that costs one privacy unit more than the reserved amount; the parameters of a forest cost another
            event; or a reservation has no part.
    """
    reservations = {reservation.id: reservation for reservation in tables.reservations_of(session, [row.id])}
    named = [part.reservation_id for part in row.parts]
    if reservations.keys() != set(named) or len(reservations) != len(named):
        raise TaskNotPaid
    for part, event in zip(row.parts, kinds.events_of(row), strict=True):
        _require_paid(session, reservations[part.reservation_id], part, event=event)
    if row.kind == "train":
        _require_priced(row.task["work"]["plan"], catalog.find(session, row.dataset_id).schema)


def _require_priced(stored_plan: object, schema: Schema) -> None:
    try:
        planning.require_priced(catalogue.read_plan(stored_plan), schema)
    except PlanInvalid:
        raise TaskNotPaid from None


def _require_paid(session: Session, reservation: ReservationRow, part: JobPart, *, event: object) -> None:
    dataset = catalog.find(session, part.dataset)
    limit = statements.highest_cap(session, part.dataset)
    is_same = (
        reservation.account_id == part.dataset
        and part.price["accountant"] == limit.accountant
        and reservation.amount == kinds.steps_of(part.price)
        and reservation.event == event
        and reservation.scope == part.scope
    )
    accountant = accountants.by_name(limit.accountant)
    try:
        loss = accountant.loss(events.from_json(event), adjacency=dataset.adjacency)
    except events.UnknownPrivacyEvent:
        raise TaskNotPaid from None
    of_unit = accountant.group(dataset.max_rows) * loss
    if not is_same or of_unit > Fraction(reservation.amount, 10**accountant.PLACES):
        raise TaskNotPaid
