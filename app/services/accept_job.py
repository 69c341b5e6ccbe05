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
from app.privacy.composition import Scope
from app.privacy.events import Event
from app.services import scopes
from app.services.answers import answer
from app.services.asked import Asked
from app.wire.training import TrainOut


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
    """

    kind: str
    work: dict[str, Any]
    event: Event
    name: str | None = None
    algorithm: str | None = None
    n_trees: int = 0


def accept(session: Session, wanted: Asked, new: NewWork, *, actor: str, at: datetime) -> Answer:
    """Reserves the price and queues the job: all or nothing, since the caller rolls back.

    Raises:
        DatasetDeleted: only the tombstone is left.
        NoRowsYet: nothing was uploaded so far.
        BudgetExceeded: the ledger refuses.
    """
    living = catalog.locked(session, wanted.dataset.id).living()
    if not catalog.epochs(session, living.id):
        raise NoRowsYet
    scope = scopes.resolved(session, living, wanted.scope)
    job_id = ids.new(ids.JOB)
    reservation_id = _reserve(session, replace(wanted, scope=scope), new.event, job_id=job_id, actor=actor)
    row = queue.NewJob(
        id=job_id,
        dataset_id=living.id,
        dataset_name=living.name,
        kind=new.kind,
        algorithm=new.algorithm,
        name=new.name,
        task=_task(new.work, scope, epochs=scopes.epochs_of(session, living, scope)),
        price=wanted.price.model_dump(),
        reservation_id=reservation_id,
        submitted_by=actor,
        n_trees=new.n_trees,
    )
    queue.enqueue(session, row, at=at)
    body = TrainOut(job_id=job_id, reservation_id=reservation_id, price=wanted.price)
    return answer(202, body, location=f"/jobs/{job_id}")


def _reserve(session: Session, wanted: Asked, event: Event, *, job_id: str, actor: str) -> str:
    new = ledger.NewReservation(
        account_id=wanted.dataset.id,
        amount=wanted.amount,
        scope=wanted.scope,
        event=event.to_json(),
        job_id=job_id,
        delta=wanted.delta,
    )
    return ledger.reserve(session, new, actor=actor)


def _task(work: dict[str, Any], scope: Scope, *, epochs: list[str]) -> dict[str, Any]:
    """What the worker will run: the work, and exactly the epochs and cells that exist now."""
    return {"work": work, "epochs": epochs, "scope": {name: list(cells) for name, cells in scope.items()}}
