"""Runs a claimed job from its charge to its end: two transactions with the child process between them.

Transaction 1 charges and commits; only then are rows read. Transaction 2 checks the lease and commits the output and
``succeeded`` together. A job that is lost between the two transactions stays charged and fails.
"""

import logging
import shutil
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import TypeVar

from sqlalchemy.orm import Session

from app.access import authority, grants
from app.access.roles import TRAIN
from app.core import durable
from app.core.dask_cluster import DaskCluster
from app.core.errors import (
    DatasetDeleted,
    Frozen,
    GrovekeeperError,
    LeaseLost,
    NotFound,
    RoleMissing,
    Unauthenticated,
    Unavailable,
)
from app.datasets import catalog, row_files
from app.jobs import queue
from app.jobs.queue import Claim
from app.jobs.states import EndReason, JobState
from app.jobs.tables import JobPart, JobRow
from app.ledger import service as ledger
from app.ledger import stored_rules
from app.registry import models
from app.registry.store import ArtifactLost
from app.services.evaluations.released_evaluation import EvaluationKind
from app.services.execution.paid import TaskNotPaid, require_paid
from app.services.installation import Installation
from app.services.jobs import notices
from app.services.jobs.kind import JobKind, Output, OutputInvalid
from app.services.jobs.task import JobTask, PartRows, input_path
from app.services.profiles.released_profile import ProfileKind
from app.services.training.trained_model import TrainKind

Result = TypeVar("Result")

_log = logging.getLogger(__name__)

KINDS: Mapping[str, JobKind] = MappingProxyType(
    {"train": TrainKind(), "profile": ProfileKind(), "evaluation": EvaluationKind()}
)
"""Every kind of job by the name that the job's row stores."""

COMMIT_RETRY_S = (0.25, 0.5, 1.0)
"""Pauses between attempts of the last commit, in seconds."""

WORKER = "worker"
"""The actor of entries that no key caused."""


class SubmitterRevoked(GrovekeeperError):
    """The submitter's key or grant was revoked, or the key expired, before the job was charged."""

    def __str__(self) -> str:
        return "the submitter of a job may not train any more"


@dataclass(eq=False)
class JobFailed(GrovekeeperError):
    """The child ended without an output. The cause is not recorded: it may depend on rows.

    Attributes:
        reason: ``FAILED``, or ``LOST`` when the worker received a signal to stop.
    """

    reason: EndReason = EndReason.FAILED


def claim_next(installation: Installation) -> Claim | None:
    """Takes the oldest queued job under a lease; ``None`` if no job waits, or only jobs of frozen datasets."""
    database = installation.database
    with database.read() as session:
        if not queue.has_queued(session, closed=stored_rules.closed_accounts(session, at=database.now(session))):
            return None
    with database.write() as session:
        at = database.now(session)
        closed = stored_rules.closed_accounts(session, at=at)
        return queue.claim(session, at=at, ttl_s=installation.settings.lease_ttl_s, closed=closed)


def run_job(installation: Installation, claim: Claim, run: Callable[[JobTask], None]) -> None:
    """Charges the job, runs its child, and registers the output.

    Args:
        run: starts the child and waits for it, outside any transaction; extends the lease meanwhile.

    Raises:
        LeaseLost: another worker has the job, or the job ended; nothing was written afterwards.
        Unavailable: the database, the home or the store is unreachable; a charged job stays charged, an uncharged job
            waits.
    """
    if not _lay_out_inputs(installation, claim):
        return
    _bring_rows(installation, claim)
    try:
        task = charge_job(installation, claim)
    except TaskNotPaid:
        _log.error("a job's task is not what its reservations pay for")
        _give_back(installation, claim, reason=EndReason.FAILED)
        return
    except SubmitterRevoked:
        _give_back(installation, claim, reason=EndReason.REVOKED)
        return
    except DatasetDeleted:
        _give_back(installation, claim, reason=EndReason.FAILED)
        return
    except Frozen:
        _put_back(installation, claim)
        return
    try:
        _run_and_settle(installation, claim, task=task, run=run)
    except LeaseLost:
        shutil.rmtree(task.folder, ignore_errors=True)
        raise
    # Other exceptions keep the folder: if the last commit is in doubt, the sweeper finds the output through it.
    shutil.rmtree(task.folder, ignore_errors=True)


def charge_job(installation: Installation, claim: Claim) -> JobTask:
    """Transaction 1: the reservation becomes a charge. When this returns, the charge is committed.

    Raises:
        LeaseLost: another worker has the job, or the job ended; nothing was charged.
        SubmitterRevoked: the submitter may not train on a dataset of the job any more; nothing was charged.
        TaskNotPaid: the job's reservations do not pay for the job's task; nothing was charged.
        Unavailable: the database cannot be read now; nothing was charged.
        DatasetDeleted: the data key of a dataset was destroyed; nothing was charged.
        Frozen: a dataset of the job was frozen since the claim; nothing was charged.
    """
    with installation.database.write() as session:
        _hold_submitter(installation, session, queue.job(session, claim.job_id))
        row = queue.leased(session, claim)
        if row.charged_at is not None:
            raise LeaseLost  # a charged job is never run twice
        require_paid(session, row)
        if any(part.reservation_id is not None for part in row.parts):
            ledger.charge_job(session, row.id, actor=WORKER)
        row.charged_at = at = installation.database.now(session)
        _require_open(session, row, at=at)
        notices.job_changed(session, row, notices.JOB_STARTED, at=at)
        return _task(installation, session, row)


def _hold_submitter(installation: Installation, session: Session, row: JobRow) -> None:
    """Locks the submitter's key, before the job is locked, and checks its roles on every dataset of the job."""
    try:
        authority.lock(session, row.submitted_by)
        submitter = authority.read(session, row.submitted_by, now=installation.database.now)
        for dataset_id in {row.dataset_id, *(part.dataset for part in row.parts)}:
            grants.require(session, submitter, dataset_id, TRAIN, kind="dataset")
    except (Unauthenticated, NotFound, RoleMissing):
        raise SubmitterRevoked from None


def _require_open(session: Session, row: JobRow, *, at: datetime) -> None:
    """Checks the rules under the locks of the job's accounts, which a change of rules takes, too."""
    closed = stored_rules.closed_accounts(session, at=at)
    for part in row.parts:
        if part.dataset in closed:
            raise Frozen(part.dataset, part.dataset_name)


def _lay_out_inputs(installation: Installation, claim: Claim) -> bool:
    """Copies the artifacts that a job reads to its folder, so that nobody can remove them after the charge.

    Returns:
        Whether every model exists. If not, the job has failed and its reservations were given back: no row was read.

    Raises:
        Unavailable: the home cannot be written now, or the file of a model is lost.
    """
    with installation.database.read() as session:
        row = queue.job(session, claim.job_id)
    folder = installation.job_folder(claim.job_id)
    try:
        for digest in KINDS[row.kind].inputs(row):
            path = input_path(folder, digest)
            durable.make_folder(path.parent)
            path.touch(mode=0o600)
            path.write_bytes(installation.store.get(digest))
            heartbeat(installation, claim, trees_done=0)  # the copy of many large models outlasts a lease
    except ArtifactLost:
        with installation.database.read() as session:
            if all(models.is_referenced(session, digest) for digest in KINDS[row.kind].inputs(row)):
                raise
        _give_back(installation, claim, reason=EndReason.FAILED)
        return False
    except OSError:  # the disk is full: nothing was charged, and the job goes back to the queue with its lease
        raise Unavailable("the home cannot be written") from None
    return True


def _give_back(installation: Installation, claim: Claim, *, reason: EndReason) -> None:
    """Fails a job before its charge: no row was read, so its reservations are given back."""
    with installation.database.write() as session:
        row = queue.leased(session, claim)
        ledger.void_jobs(session, [row.id], actor=WORKER)
        notices.end_job(session, row, state=JobState.FAILED, reason=reason, at=installation.database.now(session))
    shutil.rmtree(installation.job_folder(claim.job_id), ignore_errors=True)


def _put_back(installation: Installation, claim: Claim) -> None:
    """Returns a job of a frozen dataset to the queue before its charge."""
    with installation.database.write() as session:
        queue.requeue(queue.leased(session, claim))
    shutil.rmtree(installation.job_folder(claim.job_id), ignore_errors=True)


def heartbeat(installation: Installation, claim: Claim, *, trees_done: int) -> None:
    """Extends the lease and stores the number of finished trees.

    Raises:
        LeaseLost: the job was cancelled or another worker has it; the caller stops and writes nothing.
    """
    with installation.database.write() as session:
        queue.heartbeat(
            session,
            claim,
            at=installation.database.now(session),
            ttl_s=installation.settings.lease_ttl_s,
            trees_done=trees_done,
        )


def _task(installation: Installation, session: Session, row: JobRow) -> JobTask:
    """The task of the child: public facts, and the files of exactly the uploads that were in scope at submission."""
    return JobTask(
        kind=row.kind,
        job_id=row.id,
        folder=installation.job_folder(row.id),
        work=row.task["work"],
        n_trees=row.n_trees,
        parts=tuple(_rows(installation, session, part) for part in row.parts),
        metadata=KINDS[row.kind].public_facts(session, row),
        cluster=_cluster(installation, session, row),
    )


def _cluster(installation: Installation, session: Session, row: JobRow) -> DaskCluster | None:
    """The Dask cluster, for forests on datasets whose declared, public size is at least that of the setting."""
    cluster, dataset = installation.settings.dask_cluster, catalog.find(session, row.parts[0].dataset)
    is_large = (dataset.row.public_size or 0) >= installation.settings.dask_rows
    return cluster if row.kind == "train" and is_large else None


def _rows(installation: Installation, session: Session, part: JobPart) -> PartRows:
    dataset = catalog.find(session, part.dataset)
    return PartRows(
        schema=dataset.row.schema,
        row_files=_names(part),
        partitions=dataset.row.partitions,
        scope={name: tuple(cells) for name, cells in part.scope.items()},
        data_key=dataset.data_key(installation.storage_keys),
    )


def _names(part: JobPart) -> tuple[Path, ...]:
    """The names in the store of the rows of one part."""
    return tuple(Path(row_files.rows_name(part.dataset, epoch)) for epoch in part.epochs)


def _bring_rows(installation: Installation, claim: Claim) -> None:
    """Copies the files of a job's rows to this machine, unless they are on it, while the lease is extended.

    An upload is a public event, so a file that is absent reveals nothing private. The time of a copy depends on the
    size of a file: with public times, files are copied after the charge, and here only looked up.

    Raises:
        LeaseLost: the job was cancelled meanwhile.
        Unavailable: a file cannot be read now.
    """
    with installation.database.read() as session:
        parts = queue.job(session, claim.job_id).parts
        living = [part for part in parts if not catalog.find(session, part.dataset).is_deleted]
    store, is_timed = installation.files, installation.settings.release_interval_s > 0

    def bring() -> None:
        for part in living:
            try:
                for name in _names(part):
                    if is_timed:
                        store.open(name.as_posix()).close()
                    else:
                        store.local(name.as_posix())
            except FileNotFoundError:
                _log.error(
                    "a job waits, uncharged: a file of its rows is absent; bring the file back, or cancel the job",
                    extra={"job_id": claim.job_id, "dataset_id": part.dataset},
                )
                raise

    try:
        _while_leased(installation, claim, bring)
    except OSError:  # nothing was charged, and the job goes back to the queue with its lease
        raise Unavailable("the rows of a job cannot be read") from None


def _while_leased(installation: Installation, claim: Claim, work: Callable[[], Result]) -> Result:
    """Does work that may take longer than a lease, and extends the lease meanwhile; returns or raises what it does.

    Raises:
        LeaseLost: the job was cancelled, or another worker has it.
    """
    with ThreadPoolExecutor(1) as pool:
        done = pool.submit(work)
        while wait([done], timeout=installation.settings.lease_ttl_s / 4).not_done:
            try:
                heartbeat(installation, claim, trees_done=0)
            except Unavailable:
                _log.warning("a heartbeat was missed")
    return done.result()


def located(installation: Installation, task: JobTask) -> JobTask:
    """The task with the paths of its rows on this machine, as they are now: an erasure may have replaced a file."""
    parts = (
        replace(part, row_files=tuple(installation.files.local(name.as_posix()) for name in part.row_files))
        for part in task.parts
    )
    return replace(task, parts=tuple(parts))


def _run_and_settle(installation: Installation, claim: Claim, *, task: JobTask, run: Callable[[JobTask], None]) -> None:
    try:
        durable.make_folder(task.folder)
        run(_while_leased(installation, claim, partial(located, installation, task)))
        output = KINDS[task.kind].keep(installation, task, task.output_path.read_bytes())
    except JobFailed as failure:
        _fail(installation, claim, reason=failure.reason)
    except (OutputInvalid, OSError):
        _fail(installation, claim, reason=EndReason.FAILED)
    else:
        _succeed(installation, claim, output)


def _fail(installation: Installation, claim: Claim, *, reason: EndReason) -> None:
    with installation.database.write() as session:
        row = queue.leased(session, claim)
        notices.end_job(session, row, state=JobState.FAILED, reason=reason, at=installation.database.now(session))


def _succeed(installation: Installation, claim: Claim, output: Output) -> None:
    """Transaction 2, repeated while the database is unreachable, since the budget for this output is spent."""
    for wait_s in (*COMMIT_RETRY_S, None):
        try:
            _register(installation, claim, output)
            return
        except Unavailable:
            if wait_s is None:
                raise
            time.sleep(wait_s)
        except LeaseLost:
            with installation.database.read() as session:
                if output.is_registered(session):
                    return  # an earlier attempt committed; its answer was lost
            output.discard(installation)
            raise


def _register(installation: Installation, claim: Claim, output: Output) -> None:
    with installation.database.write() as session:
        row = queue.leased(session, claim)
        output.register(session, row)
        notices.end_job(session, row, state=JobState.SUCCEEDED, reason=None, at=installation.database.now(session))
