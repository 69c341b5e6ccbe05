"""Accepting a job of any kind, on the caller's transaction: reservation, queue row and answer, or a refusal."""

from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from sqlalchemy.orm import Session

from app.access.idempotency import Answer
from app.core import ids
from app.core.errors import NoRowsYet
from app.datasets import catalog
from app.jobs import queue
from app.ledger import service as ledger
from app.privacy.events import Event
from app.services.answers import answer
from app.services.spending import scopes
from app.services.spending.price import Asked
from app.wire.training import TrainOut, UnlabelledOut


@dataclass(frozen=True)
class NewWork:
    """What a job will do.

    Attributes:
        kind: ``train``, ``profile`` or ``evaluation``.
        work: all of it that the child is told beside schema and rows; JSON-able.
        event: what is released; the reservation's event.
        name: that the client gave, if any.
        algorithm: of a job that trains.
        n_trees: the unit of progress; 0 where no tree grows.
        unlabelled: what is asked of a second dataset, and the event that its account pays for.
    """

    kind: str
    work: dict[str, Any]
    event: Event
    name: str | None = None
    algorithm: str | None = None
    n_trees: int = 0
    unlabelled: tuple[Asked, Event] | None = None


def accept(session: Session, wanted: Asked, new: NewWork, *, actor: str, at: datetime) -> Answer:
    """Reserves the price, or the prices, and queues the job: all or nothing, since the caller rolls back.

    Raises:
        DatasetDeleted: only a tombstone is left.
        NoRowsYet: nothing was uploaded so far.
        BudgetExceeded: the ledger refuses; the error names the account.
    """
    job_id = ids.new(ids.JOB)
    paying = [(wanted, new.event), *([] if new.unlabelled is None else [new.unlabelled])]
    _lock(session, [part.dataset.id for part, _ in paying])
    parts = [_resolved(session, part) for part, _ in paying]
    reservations = [_reservation(part, event, job_id=job_id) for part, (_, event) in zip(parts, paying, strict=True)]
    reservation_id, *others = ledger.reserve(session, reservations, actor=actor)
    also = [_unlabelled_out(part, held) for part, held in zip(parts[1:], others, strict=True)]
    task = {"work": new.work, **_read(session, parts[0])}
    if also:
        task["unlabelled"] = {**also[0].model_dump(), **_read(session, parts[1])}
    row = queue.NewJob(
        id=job_id,
        dataset_id=wanted.dataset.id,
        dataset_name=wanted.dataset.name,
        kind=new.kind,
        algorithm=new.algorithm,
        name=new.name,
        task=task,
        price=wanted.price.model_dump(),
        reservation_id=reservation_id,
        submitted_by=actor,
        n_trees=new.n_trees,
        unlabelled_dataset_id=also[0].dataset if also else None,
    )
    queue.enqueue(session, row, at=at)
    body = TrainOut(
        job_id=job_id, reservation_id=reservation_id, price=wanted.price, unlabelled=also[0] if also else None
    )
    return answer(202, body, location=f"/jobs/{job_id}")


def _lock(session: Session, dataset_ids: list[str]) -> None:
    """In order of their ids, so that jobs that cross never wait in a circle."""
    for dataset_id in sorted(set(dataset_ids)):
        living = catalog.locked(session, dataset_id).living()
        if not catalog.epochs(session, living.id):
            raise NoRowsYet


def _resolved(session: Session, part: Asked) -> Asked:
    return replace(part, scope=scopes.resolved(session, part.dataset, part.scope))


def _reservation(part: Asked, event: Event, *, job_id: str) -> ledger.NewReservation:
    return ledger.NewReservation(
        account_id=part.dataset.id,
        amount=part.amount,
        scope=part.scope,
        event=event.to_json(),
        job_id=job_id,
        delta=part.delta,
    )


def _read(session: Session, part: Asked) -> dict[str, Any]:
    """What the worker will read: exactly the epochs and cells that exist now."""
    return {
        "epochs": scopes.epochs_of(session, part.dataset, part.scope),
        "scope": {name: list(cells) for name, cells in part.scope.items()},
    }


def _unlabelled_out(part: Asked, reservation_id: str) -> UnlabelledOut:
    return UnlabelledOut(
        dataset=part.dataset.id, dataset_name=part.dataset.name, reservation_id=reservation_id, price=part.price
    )
