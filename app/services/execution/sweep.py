"""Ends jobs of dead workers, expired jobs and uncharged jobs of keys that have ended,
and removes files that no database row refers to (the sweeper).

Each job is ended in its own transaction, which first reads the job again under its
lock, because the job's worker may have resumed.
"""

import hashlib
import logging
import shutil
from collections.abc import Collection
from contextlib import suppress
from datetime import datetime, timedelta
from pathlib import Path

from sqlalchemy import Select, func, select
from sqlalchemy.orm import Session

from app.access.tables import KeyRow, is_working
from app.core import limits, stamps
from app.core.errors import BalanceMismatch, SubmitterRevoked
from app.datasets import catalog, row_files
from app.db.database import transaction_time
from app.jobs import queue
from app.jobs.states import EndReason, JobState
from app.jobs.tables import JobRow
from app.ledger import reservations, rules
from app.registry import models
from app.services.authorization import require_submitter
from app.services.datasets.erase import SWEEPER, complete_erasures, erase_remains
from app.services.execution import finished
from app.services.installation import Installation
from app.services.jobs import notices
from app.services.jobs.task import OUTPUT
from app.services.releases import kinds

_log = logging.getLogger(__name__)

STALE_UPLOAD = timedelta(hours=24)
"""No upload can still be running after this long."""
STALE_ARTIFACT = timedelta(hours=24)
"""A model is registered within seconds after its artifact was stored, or never."""


def settle_overdue(installation: Installation) -> int:
    """Ends or requeues every job whose lease ran out or that waited for too long.

    * Claimed but not charged, or put back a lease ago: it is in the queue again.
    * Charged: it succeeds if a note has its output. Otherwise it fails, reason
      ``lost``, once its worker did not extend the lease for another term; the charge
      stays.
    * Queued for longer than the limit: it fails, reason ``not-started``, and its
      reservations expire in the same transaction.
    * Waiting for an approval for longer than its limit: so, too, with the reason
      ``not-approved``.
    * Not charged when the key of its submitter came to an end: it fails, reason
      ``revoked`` or ``key-expired``, and its reservations are given back.

    A lease that ends too late, because the clock was set back, is shortened to that of
    a claim made now. Otherwise, a dead worker would keep its job for as long as the
    clock was ahead. A worker that lives extends the lease again.

    Returns:
        Number of jobs that were ended or requeued.
    """
    database = installation.database
    ttl_s = installation.settings.lease_ttl_s
    with database.read() as session:
        at = transaction_time(session)
        closed = rules.closed_accounts(session) | catalog.closing_ids(session)
        overdue = queue.overdue(session, at=at, ttl_s=ttl_s, closed=closed)
        orphans = session.scalars(_of_ended_keys(at)).all()
    if not overdue:
        installation.late_leases.clear()
    n_ended = 0
    is_overdue = dict.fromkeys(orphans, False) | dict.fromkeys(overdue, True)
    for job_id in is_overdue:
        with suppress(BalanceMismatch):  # other accounts' jobs go on
            n_ended += _settle(
                installation, job_id, is_overdue=is_overdue[job_id], closed=closed
            )
    return n_ended


def _of_ended_keys(at: datetime) -> Select[str]:
    """Selects some jobs that are not charged and whose submitter's key has ended."""
    ended = select(KeyRow.id).where(~is_working(at))
    query = select(JobRow.id).where(
        JobRow.submitted_by.in_(ended),
        JobRow.charged_at.is_(None),
        JobRow.finished_at.is_(None),
    )
    # in any order, as jobs that are overdue
    return query.order_by(func.random()).limit(limits.MAX_JOBS_ENDED_BY_A_SWEEP)


def tidy_jobs(installation: Installation) -> None:
    """Removes folders of finished jobs, and artifacts in them that no model refers to.

    A job's folder exists until the job's last transaction has committed. So an artifact
    that was stored but not registered is found through the folder, whatever its age.

    The worker of a job that somebody cancelled, or whose key ended, may be in the folder
    until its next look at its lease, so that folder stays for the term of a lease. Without it, the worker
    would take the loss for a fault of its machine.
    """
    folder = installation.home / "jobs"
    term = timedelta(seconds=installation.settings.lease_ttl_s)
    if not folder.is_dir():
        return
    for job_folder in filter(Path.is_dir, folder.iterdir()):
        with installation.database.read() as session:
            if queue.is_unfinished(session, job_folder.name):
                continue
            row = session.get(JobRow, job_folder.name)
            left_since = transaction_time(session) - term
        if row is not None and _may_be_in_use(row, after=left_since):
            continue
        # A folder without a job may be that of a database restored from a backup.
        if row is None or (row.kind in kinds.KINDS and kinds.KINDS[row.kind].is_file):
            _remove_unregistered(installation, job_folder)
        shutil.rmtree(job_folder, ignore_errors=True)


def _may_be_in_use(row: JobRow, *, after: datetime) -> bool:
    ended_at = row.finished_at
    was_taken = row.state == JobState.CANCELLED or row.charged_at is None
    return was_taken and ended_at is not None and ended_at > after


def _remove_unregistered(installation: Installation, job_folder: Path) -> None:
    with suppress(FileNotFoundError):  # no folder, or its worker is removing it
        digest = hashlib.sha256((job_folder / OUTPUT).read_bytes()).hexdigest()
        with installation.database.read() as session:
            is_needed = models.is_referenced(session, digest)
        if not is_needed:
            installation.store.remove(digest)


def tidy_rows(installation: Installation) -> None:
    """Erases rows of deleted datasets and of erased uploads, and files of uploads that
    were interrupted :data:`STALE_UPLOAD` ago.
    """
    complete_erasures(installation)
    stale_before = stamps.now() - STALE_UPLOAD
    with installation.database.read() as session:
        epochs = catalog.epoch_ids(session)
        deleted = catalog.deleted_ids(session)
    store = installation.files
    files = list(row_files.files_of_datasets(store))
    for dataset_id in {dataset_id for dataset_id, _ in files} & deleted:
        erase_remains(installation, dataset_id)
    for dataset_id, file in files:
        epoch_id = row_files.upload_of(file)
        if epoch_id is None or epoch_id in epochs:
            continue
        # a younger file may belong to an upload that has not committed yet
        if file.changed_at < stale_before:
            row_files.erase_epoch(store, dataset_id, epoch_id)
    installation.database.forget_deleted()
    row_files.erase_unfinished(store, before=stale_before)
    store.tidy()


def tidy_artifacts(installation: Installation) -> None:
    """Removes artifacts of removed models whose process died before it removed the
    file, and notes of ended jobs.

    Younger artifacts stay: their models may be about to be registered. So do those that
    a note names.
    """
    stale_before = stamps.now() - STALE_ARTIFACT
    finished.erase_unfinished(installation, before=stale_before)
    stored = installation.store.digests(before=stale_before)
    notes = {
        job_id: finished.read(installation, job_id)
        for job_id in finished.noted_jobs(installation)
    }
    if not stored and not notes:
        return
    # after the files were listed, so that no new model is missed
    with installation.database.read() as session:
        needed = models.digests(session)
        ended = [job_id for job_id in notes if not queue.is_unfinished(session, job_id)]
    noted = {
        note.output.digest
        for job_id, note in notes.items()
        if note is not None and job_id not in ended
    }
    for digest in set(stored) - needed - noted:
        installation.store.remove(digest)
    for job_id in ended:
        finished.forget(installation, job_id)


def _settle(
    installation: Installation,
    job_id: str,
    *,
    is_overdue: bool,
    closed: Collection[str],
) -> bool:
    """Ends or requeues one overdue job, unless its worker resumed, and then says what
    became of a paid job; ends another job whose key has ended, if it is not charged.
    """
    database = installation.database
    try:
        # A job that is not charged has none, whether the store answers or not.
        note = finished.read(installation, job_id) if is_overdue else None
    except OSError:
        # nobody knows whether the job has an output; the next sweep asks again
        _log.warning(
            "an overdue job waits, because the store does not answer",
            extra={"job_id": job_id},
        )
        return False
    with database.write() as session:
        row = queue.locked(session, job_id)
        now = transaction_time(session)
        if row.lease_until is not None:
            # a clock that was set back has left a lease that ends too late
            longest_lease = timedelta(seconds=installation.settings.lease_ttl_s)
            row.lease_until = min(row.lease_until, now + longest_lease)
        is_paid = row.state == JobState.RUNNING and row.charged_at is not None
        if is_paid:
            is_settled = is_overdue and _end_paid(installation, session, row, note)
        else:
            is_settled = _end_unpaid(session, row, closed=closed)
    # after the commit: a sweep that is rolled back has ended no job
    if is_paid and is_settled:
        _tell_end(installation, row)
    return is_settled


def _tell_end(installation: Installation, row: JobRow) -> None:
    if row.state == JobState.SUCCEEDED:
        _log.info(
            "a sweep registered the output of a paid job, because its worker did not",
            extra={"job_id": row.id},
        )
        finished.forget(installation, row.id)
        return
    for part in row.parts:
        _log.warning(
            "a paid job was lost: its lease was not extended, and no output is noted; its charge stays",
            extra={
                "job_id": row.id,
                # the account of a dataset has the dataset's id
                "account_id": part.dataset,
                "dataset_id": part.dataset,
                "reservation_id": part.reservation_id,
            },
        )


def _end_paid(
    installation: Installation,
    session: Session,
    row: JobRow,
    note: finished.Note | None,
) -> bool:
    if row.lease_until is None or row.lease_until >= transaction_time(session):
        return False
    # The note of another claim is not the output of the run that was charged.
    if note is not None and note.token == row.lease_token:
        finished.register(session, row, note.output)
        return True
    if _may_be_extended(installation, row.id, row.lease_until):
        return False
    notices.end_job(session, row, state=JobState.FAILED, reason=EndReason.LOST)
    return True


def _may_be_extended(
    installation: Installation, job_id: str, lease_until: datetime
) -> bool:
    """Whether the worker of a paid job may still extend a lease that has ended.

    While the database is away, no worker can extend a lease. The first sweep after an
    outage finds the leases of living workers ended, too. So a worker has as long as a
    lease takes, counted in sweeps, which run while the database answers: no clock tells
    how long it was away.
    """
    installation.late_leases[job_id, lease_until] += 1
    n_waits = installation.late_leases[job_id, lease_until] - 1
    return n_waits * limits.SWEEP_INTERVAL_S < installation.settings.lease_ttl_s


def _end_unpaid(session: Session, row: JobRow, *, closed: Collection[str]) -> bool:
    at = transaction_time(session)
    waited = at - row.waits_since
    # A frozen job cannot start, so its time in the queue does not end it.
    can_start = all(part.dataset not in closed for part in row.parts)
    waited_too_long = can_start and waited > timedelta(seconds=limits.MAX_QUEUE_S)
    lease_until = row.lease_until
    # of a running job, or of one that its worker put back
    if lease_until is not None and lease_until < at:
        queue.requeue(row)
        if not waited_too_long:
            return True
    max_approval = timedelta(seconds=limits.MAX_APPROVAL_S)
    is_undecided = row.state == JobState.WAITING and waited > max_approval
    if is_undecided or (row.state == JobState.QUEUED and waited_too_long):
        reservations.expire_job(session, row.id, actor=SWEEPER)
        reason = EndReason.NOT_APPROVED if is_undecided else EndReason.NOT_STARTED
        notices.end_job(session, row, state=JobState.FAILED, reason=reason)
        return True
    if row.finished_at is None:
        try:
            require_submitter(session, row)
        except SubmitterRevoked as revoked:
            notices.end_locked(
                session,
                [row],
                actor=SWEEPER,
                state=JobState.FAILED,
                reason=EndReason(revoked.reason),
            )
            return True
    return False
