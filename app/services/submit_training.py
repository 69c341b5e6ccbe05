"""``POST /train``: reservation, job and answer in one transaction, committed before the 202 leaves."""

from datetime import datetime
from functools import partial
from typing import Any

from sqlalchemy.orm import Session

from app.access.idempotency import Answer, IdempotentRequest, once, stored
from app.access.roles import Principal
from app.core import ids
from app.core.errors import NoRowsYet
from app.datasets import catalog
from app.jobs import queue
from app.ledger import service as ledger
from app.services.answers import answer
from app.services.installation import Installation
from app.services.quote import Quote, permitted_dataset, quote
from app.wire.training import TrainIn, TrainOut


def submit_training(
    installation: Installation, principal: Principal, wanted: TrainIn, *, request: IdempotentRequest
) -> Answer:
    """Accepts a job or refuses it: a refused request leaves neither job nor reservation, and its key stays free.

    Raises:
        NotFound: no such dataset, or none that this key may know of.
        RoleMissing: the key may not train on it.
        InvalidRequest: algorithm, parameters or scope break a rule.
        NotSupported: a documented choice that is not built yet.
        DatasetDeleted: only the tombstone is left.
        AccountantMismatch: the algorithm has no bound in the account's unit.
        AdjacencyMismatch: the algorithm protects labels only, and the account more.
        NoRowsYet: nothing was uploaded so far.
        BudgetExceeded: the ledger refuses.
    """
    with installation.database.read() as session:
        dataset = permitted_dataset(session, principal, wanted.dataset)
        earlier = stored(session, request)
        if earlier is not None:
            return earlier
        # Public facts never change, so the price is worked out before anything is locked.
        quoted = quote(session, dataset, wanted)
    with installation.database.write() as session:
        at = installation.database.now(session)
        accepted = partial(_accept, session, quoted, actor=principal.key_id, name=wanted.name, at=at)
        return once(session, request, at=at, work=accepted)


def _accept(session: Session, quoted: Quote, *, actor: str, name: str | None, at: datetime) -> Answer:
    living = catalog.locked(session, quoted.dataset.id).living()
    epochs = [epoch.id for epoch in catalog.epochs(session, living.id)]
    if not epochs:
        raise NoRowsYet
    job_id = ids.new(ids.JOB)
    reservation_id = _reserve(session, quoted, job_id=job_id, actor=actor)
    new = queue.NewJob(
        id=job_id,
        dataset_id=living.id,
        dataset_name=living.name,
        kind="train",
        algorithm=quoted.plan.algorithm,
        name=name,
        task=_task(quoted, epochs),
        price=quoted.price.model_dump(),
        reservation_id=reservation_id,
        submitted_by=actor,
        n_trees=quoted.plan.n_trees,
    )
    queue.enqueue(session, new, at=at)
    body = TrainOut(job_id=job_id, reservation_id=reservation_id, price=quoted.price)
    return answer(202, body, location=f"/jobs/{job_id}")


def _reserve(session: Session, quoted: Quote, *, job_id: str, actor: str) -> str:
    new = ledger.NewReservation(
        account_id=quoted.dataset.id,
        amount=quoted.amount,
        scope=quoted.scope,
        event=quoted.plan.event.to_json(),
        job_id=job_id,
        delta=quoted.delta,
    )
    return ledger.reserve(session, new, actor=actor)


def _task(quoted: Quote, epochs: list[str]) -> dict[str, Any]:
    """What the worker will run: the plan, and exactly the epochs and cells that exist now."""
    partition = quoted.dataset.hash_partition
    cells = None if partition is None else quoted.scope.get(partition.name)
    return {
        "work": {"plan": quoted.plan.to_json()},
        "epochs": epochs,
        "cells": None if cells is None else list(cells),
    }
