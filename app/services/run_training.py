"""A claimed job, from its charge to its end: two transactions, and the growing between them.

Transaction 1 charges and commits; only then are rows read. Transaction 2 checks that the lease is still ours and
commits artifact, model and ``succeeded`` together. A job lost in between stays charged and is settled as failed.
"""

import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

from sqlalchemy.orm import Session

from app.core import ids
from app.core.errors import GrovekeeperError, LeaseLost, Unavailable
from app.datasets import catalog, row_files
from app.forests import codec
from app.jobs import queue
from app.jobs.queue import Claim
from app.jobs.tables import JobRow
from app.ledger import service as ledger
from app.privacy import events, guarantees, receipts
from app.privacy.accountants import pure
from app.privacy.adjacency import Adjacency
from app.registry import models
from app.registry.tables import ModelRow
from app.services.installation import Installation
from app.services.training_task import TrainingTask

COMMIT_RETRY_S = (0.25, 0.5, 1.0)
"""Waits between tries of the last commit."""

WORKER = "worker"
"""The actor of entries that no key caused."""


@dataclass(eq=False)
class TrainingFailed(GrovekeeperError):
    """The child ended without an artifact. Why is nobody's business: it could depend on rows.

    Attributes:
        reason: ``failed``, or ``lost`` when the worker itself was told to stop.
    """

    reason: Literal["failed", "lost"] = "failed"


def claim_next(installation: Installation) -> Claim | None:
    """Takes the oldest queued job under a lease, or none."""
    database = installation.database
    with database.read() as session:
        if not queue.has_queued(session):
            return None
    with database.write() as session:
        return queue.claim(session, at=database.now(session), ttl_s=installation.settings.lease_ttl_s)


def run_training(installation: Installation, claim: Claim, train: Callable[[TrainingTask], None]) -> None:
    """Charges the job, lets ``train`` grow it, and registers what it left.

    Args:
        train: starts the child and waits for it, outside any transaction; extends the lease meanwhile.

    Raises:
        LeaseLost: the job is no longer ours; nothing was written after that.
    """
    task = charge_job(installation, claim)
    try:
        _grow_and_settle(installation, claim, task=task, train=train)
    except LeaseLost:
        shutil.rmtree(task.folder, ignore_errors=True)
        raise
    # Not after any other exception: where the last commit is in doubt, the sweeper finds the artifact by this folder.
    shutil.rmtree(task.folder, ignore_errors=True)


def charge_job(installation: Installation, claim: Claim) -> TrainingTask:
    """Transaction 1: the reservation becomes a charge. When this returns, the charge is committed.

    Raises:
        LeaseLost: the job is no longer ours; nothing was charged.
    """
    with installation.database.write() as session:
        row = queue.held(session, claim)
        if row.charged_at is not None:
            raise LeaseLost  # a charged job is never run twice
        ledger.charge_job(session, row.id, actor=WORKER)
        row.charged_at = installation.database.now(session)
        return _task(installation, row, catalog.find(session, row.dataset_id), covered=_covered(session, row))


def heartbeat(installation: Installation, claim: Claim, *, trees_done: int) -> None:
    """Extends the lease and notes progress.

    Raises:
        LeaseLost: the job was cancelled or taken; stop, and write nothing.
    """
    with installation.database.write() as session:
        queue.heartbeat(
            session,
            claim,
            at=installation.database.now(session),
            ttl_s=installation.settings.lease_ttl_s,
            trees_done=trees_done,
        )


def _covered(session: Session, row: JobRow) -> ledger.Limit:
    """What the model's guarantee is made of: its own price where losses just add up, else the whole account's cap."""
    if row.price["accountant"] == pure.NAME:
        return ledger.Limit(pure.NAME, pure.price(Fraction(row.price["amount"])), None)
    return ledger.highest_cap(session, row.dataset_id)


def _task(installation: Installation, row: JobRow, dataset: catalog.Dataset, *, covered: ledger.Limit) -> TrainingTask:
    plan = row.task["plan"]
    partition = dataset.hash_partition
    files = tuple(row_files.epoch_file(installation.home, dataset.id, epoch) for epoch in row.task["epochs"])
    return TrainingTask(
        job_id=row.id,
        folder=installation.job_folder(row.id),
        schema=dataset.row.schema,
        plan=plan,
        row_files=files,
        partition=None if partition is None else {"name": partition.name, "cells": partition.cells},
        cells=None if row.task["cells"] is None else tuple(row.task["cells"]),
        metadata=_public_facts(row, dataset, covered),
    )


def _public_facts(row: JobRow, dataset: catalog.Dataset, covered: ledger.Limit) -> dict[str, object]:
    """What the model card will show, bound into the artifact's own bytes."""
    unit = dataset.row.privacy_unit
    printed = guarantees.guarantee_of_labels if dataset.adjacency is Adjacency.LABEL else guarantees.guarantee
    event = events.from_json(row.task["plan"]["event"])
    return {
        "job_id": row.id,
        "name": row.name,
        "dataset": dataset.id,
        "dataset_name": dataset.name,
        "price": row.price,
        "guarantee": printed(
            accountant=covered.accountant,
            amount=covered.amount,
            delta=covered.delta,
            subject="model",
            unit_column=unit["column"],
            max_rows=unit["max_rows"],
        ),
        "receipt": receipts.in_words(event, accountant=covered.accountant, adjacency=dataset.adjacency),
        "ledger": {"dataset": dataset.id, "reservation_id": row.reservation_id, "job_id": row.id},
    }


def _grow_and_settle(
    installation: Installation, claim: Claim, *, task: TrainingTask, train: Callable[[TrainingTask], None]
) -> None:
    try:
        task.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        train(task)
        data = task.artifact_path.read_bytes()
        codec.loads(data)
        digest = installation.store.put(data)
    except TrainingFailed as failure:
        _fail(installation, claim, reason=failure.reason)
    except (codec.ArtifactInvalid, OSError):
        _fail(installation, claim, reason="failed")
    else:
        _succeed(installation, claim, digest=digest, size_bytes=len(data))


def _fail(installation: Installation, claim: Claim, *, reason: str) -> None:
    with installation.database.write() as session:
        row = queue.held(session, claim)
        queue.finish(row, state="failed", reason=reason, at=installation.database.now(session))


def _succeed(installation: Installation, claim: Claim, *, digest: str, size_bytes: int) -> None:
    """Transaction 2, tried again where the database is away for a moment: the budget for this artifact is spent."""
    for wait_s in (*COMMIT_RETRY_S, None):
        try:
            _register(installation, claim, digest=digest, size_bytes=size_bytes)
            return
        except Unavailable:
            if wait_s is None:
                raise
            time.sleep(wait_s)
        except LeaseLost:
            with installation.database.read() as session:
                if models.is_referenced(session, digest):
                    return  # an earlier try did commit; only its answer was lost
            installation.store.remove(digest)  # its digest holds the job's id, so no other model can share it
            raise


def _register(installation: Installation, claim: Claim, *, digest: str, size_bytes: int) -> None:
    with installation.database.write() as session:
        row = queue.held(session, claim)
        model = ModelRow(
            id=ids.new(ids.MODEL),
            name=row.name,
            dataset_id=row.dataset_id,
            dataset_name=row.dataset_name,
            job_id=row.id,
            algorithm=row.algorithm,
            digest=digest,
            size_bytes=size_bytes,
            created_at=row.submitted_at,  # public: the time of completion would tell how long the growing took
        )
        models.add(session, model)
        queue.finish(row, state="succeeded", reason=None, at=installation.database.now(session), model_id=model.id)
