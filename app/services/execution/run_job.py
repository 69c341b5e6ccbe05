"""Runs a claimed job from its charge to its end: two transactions with the child
process between them.

Before the charge, the files that the job needs are copied to this machine: models, and
encrypted files of rows, which are authenticated, or looked up where a copy would tell of
rows. Transaction 1 charges and commits;
only then are rows read. Transaction 2 checks the lease and commits the output and
``succeeded`` together. Its budget is spent, so it is repeated for as long as the
database is unreachable. A worker that stops meanwhile leaves a note of the output, with
which a sweep commits it. A job that is lost between the two transactions stays charged
and fails.
"""

import errno
import logging
import os
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cache, partial
from itertools import chain
from pathlib import Path
from typing import TypeVar

from app.core import limits
from app.core.errors import (
    DatasetDeleted,
    Frozen,
    InstallationError,
    LeaseLost,
    SubmitterRevoked,
    Unavailable,
)
from app.core.files import Directory
from app.core.processes import Stop
from app.core.sealed_files import SealBroken, SealedFile
from app.datasets import catalog, row_files
from app.db.database import transaction_time
from app.jobs import queue
from app.jobs.queue import Claim
from app.jobs.states import EndReason, JobState, PutBack
from app.jobs.tables import JobRow
from app.ledger import reservations
from app.registry import models
from app.registry.store import ArtifactLost
from app.services.execution import finished
from app.services.execution.charge import (
    WORKER,
    TaskNotPaid,
    charge_claimed,
    charged_task,
    cluster_of,
    planned_bytes,
    row_file_names,
)
from app.services.execution.lease import CannotRun, Lease, Stopped
from app.services.installation import Installation
from app.services.jobs import notices
from app.services.jobs.show_jobs import closed_datasets
from app.services.jobs.task import JobTask, Needs, input_path
from app.services.releases import kinds
from app.services.releases.contract import OutputInvalid
from app.services.releases.outputs import Output, keep
from grovekeeper_common import durable_files
from grovekeeper_forests import catalogue
from grovekeeper_forests.errors import GrovekeeperError, StatedError

Load = Callable[[Lease, Needs], None]
"""Brings up what runs a job, before its charge, and looks at what the job needs."""

Result = TypeVar("Result")

_log = logging.getLogger(__name__)

COMMIT_RETRY_S = 2.0
"""Longest pause between attempts of the last commit, in seconds; the first ones are
shorter.
"""

COMMIT_STOP_S = 5.0
"""Seconds for which a process that is asked to stop still tries the last commit: Docker
kills after ten.
"""

STORE_RETRY_S = (1.0, 2.0, 4.0, 8.0, 15.0, 30.0)
"""Pauses between questions of a paid job to a store or a disk that fails, in seconds."""


class JobFailed(StatedError):
    """The child ended without an output. The cause is not recorded: it may depend on
    rows.

    Attributes:
        reason: ``FAILED``, or ``LOST`` when the worker was asked to stop now.
    """

    reason: EndReason = EndReason.FAILED


class CodeNotLoaded(GrovekeeperError):
    """A child of this worker could not load the code of jobs: a folder, memory or a
    library is missing on this machine.

    The job is uncharged and goes back to the queue.
    """

    sentence = "this machine cannot load the code of jobs"


class CodeChanged(InstallationError, CodeNotLoaded):
    """The files of the program are not those that this worker loaded: a child would run
    other code than the worker.

    The job is uncharged and goes back to the queue.
    """

    def __init__(self) -> None:
        super().__init__(
            "the files of this program or its libraries changed while the worker ran. A job of two versions could fail "
            "after its charge, so this worker takes none and ends: start it again, and the API, too"
        )


def claim_next(installation: Installation) -> Claim | None:
    """Takes the queued job whose turn it is (:func:`app.jobs.queue.claim`) under a lease;
    ``None`` if none waits.

    Jobs of frozen or deleted datasets stay in the queue, and jobs of kinds or
    algorithms that this version does not know: a newer worker takes them.
    """
    database = installation.database
    known = frozenset((*kinds.KINDS, *catalogue.BY_SLUG))
    # A read first: most looks find no job, and a write transaction would take the one
    # writer of SQLite from requests.
    with database.read() as session:
        closed = closed_datasets(session)
        if not queue.has_queued(session, closed=closed, known=known):
            if queue.has_queued(session, closed=closed):
                _warn_of_newer_jobs()
            return None
    with database.write() as session:
        return queue.claim(
            session,
            at=transaction_time(session),
            ttl_s=installation.settings.lease_ttl_s,
            # again: a dataset may have been frozen since the read
            closed=closed_datasets(session),
            known=known,
        )


@cache
def _warn_of_newer_jobs() -> None:
    """Warns once in a process."""
    _log.warning(
        "jobs wait for a newer worker: this version does not know their kind or algorithm; upgrade this one"
    )


def run_job(
    installation: Installation,
    claim: Claim,
    run: Callable[[JobTask, Lease], None],
    *,
    load: Load,
    stop: Stop | None = None,
) -> None:
    """Charges the job, runs its child, and registers the output, while the job's lease
    is kept.

    Args:
        run: gives the child its task and waits for it, outside any transaction; shows
            progress through the lease.
        load: before the charge, starts the child, waits until it has loaded its code,
            and looks at what the job needs.
        stop: after ``stop.begun``, an uncharged job returns to the queue; after
            ``stop.now``, a charged job fails as lost.

    Raises:
        CodeNotLoaded: this machine cannot run the job, which is uncharged and in the
            queue again.
        CannotRun: this worker cannot run the job now, which is uncharged and in the
            queue again with the reason.
        Unavailable: the database, the home or the store is unreachable; a charged job
            stays charged, an uncharged job waits.
    """
    job = ClaimedJob(installation, claim, stop or Stop())
    try:
        with Lease(installation, claim) as lease:
            task = job.prepare_and_charge(lease, load)
            if task is None:
                return
            try:
                job.run_and_end(lease, task, run)
            except LeaseLost:
                shutil.rmtree(task.folder, ignore_errors=True)
                raise
            # Other exceptions keep the folder: if the last commit is in doubt, the
            # sweeper finds the output through it.
            shutil.rmtree(task.folder, ignore_errors=True)
    except CannotRun as cause:
        job.put_back(partial(queue.put_back, hold=cause.hold))
        raise


def _try_to_write(folder: Path) -> None:
    """Writes a file in a folder where the job will write."""
    durable_files.make_folder(folder)
    probe = folder / f"probe-{os.getpid()}"
    # an empty file would fit on a full disk
    probe.write_bytes(bytes(limits.JOB_PROBE_BYTES))
    probe.unlink()


@dataclass(frozen=True)
class ClaimedJob:
    """A job on its way through this worker.

    Attributes:
        stop: see :func:`run_job`.
    """

    installation: Installation
    claim: Claim
    stop: Stop = field(default_factory=Stop)

    @property
    def folder(self) -> Path:
        """See :meth:`Installation.job_folder`."""
        return self.installation.job_folder(self.claim.job_id)

    def prepare_and_charge(self, lease: Lease, load: Load) -> JobTask | None:
        """Brings the files and the code of a job and charges it; ``None`` if it ended
        uncharged, or is in the queue again.

        Whatever this machine may lack is needed here, before the charge.
        """
        try:
            if not self._lay_out_inputs(lease):
                return None
            lease.wait_for(self._authenticate_rows, stopping=self.stop.begun)
            needs = self._needs()
            self._require_room(lease, needs.output_bytes)
            # The child is up before the charge, and the charge is committed before the child
            # gets the task with the key of the rows.
            load(lease, needs)
            return self._charge()
        except TaskNotPaid:
            _log.error("a job's task is not what its reservations pay for")
            self.give_back(EndReason.FAILED)
        except SubmitterRevoked as refusal:
            self.give_back(EndReason(refusal.reason))
        except DatasetDeleted:
            self.give_back(EndReason.DATASET_ERASED, JobState.CANCELLED)
        except SealBroken:
            self.give_back(EndReason.DAMAGED)
        except CodeNotLoaded:
            self.put_back(partial(queue.requeue, hold=PutBack.CANNOT_LOAD))
            raise
        except (Frozen, Stopped):
            self.put_back()
        return None

    def _needs(self) -> Needs:
        """What the child, or a cluster, looks at before the charge."""
        with self.installation.database.read() as session:
            row = queue.job(session, self.claim.job_id)
            cluster = cluster_of(self.installation, session, row)
            output_bytes = planned_bytes(session, row)
            names = list(chain.from_iterable(map(row_file_names, row.parts)))
        store = self.installation.files
        if isinstance(store, Directory):
            names = [str(store.folder / name) for name in names]
        elif cluster is None:
            # the child reads copies: this process has read them, or makes them later
            names = []
        return Needs(
            self.folder,
            output_bytes,
            tuple(names),
            cluster,
        )

    def _charge(self) -> JobTask:
        """Charges the job. If the connection breaks in the commit, asks whether the job is
        charged.

        No other worker runs a job that is charged, so this worker must not leave it.
        """
        try:
            return charge_claimed(self.installation, self.claim)
        except Unavailable:
            task = self._until_reached(
                partial(charged_task, self.installation, self.claim)
            )
            if task is None:
                raise
            return task

    def _lay_out_inputs(self, lease: Lease) -> bool:
        """Copies the models that a job reads to its folder, so that nobody can remove them
        after the charge.

        Returns:
            Whether every model exists. If not, the job has failed and its reservations were
            given back: no row was read.

        Raises:
            CannotRun: the home cannot be written now, or the file of a model is lost.
        """
        with self.installation.database.read() as session:
            row = queue.job(session, self.claim.job_id)
            digests = [
                digest for _, digest in kinds.KINDS[row.kind].inputs(row.task["work"])
            ]
        folder = self.folder
        hold = PutBack.NO_ROOM
        try:
            _try_to_write(folder)
            for digest in digests:
                path = input_path(folder, digest)
                durable_files.make_folder(path.parent)
                # an artifact is for callers with a role alone: nobody else reads the copy
                path.touch(mode=0o600)
                hold = PutBack.MODEL_ABSENT
                artifact = self.installation.store.get(digest)
                hold = PutBack.NO_ROOM
                path.write_bytes(artifact)
                lease.require()
        except ArtifactLost:
            # A deleted model ends the job for good. A model that is registered without its
            # file is a damage that an operator can repair, so the job waits.
            with self.installation.database.read() as session:
                if all(models.is_referenced(session, digest) for digest in digests):
                    raise CannotRun(PutBack.MODEL_ABSENT) from None
            self.give_back(EndReason.MODEL_DELETED)
            return False
        except OSError as error:
            raise self._cannot_run(error, hold) from None
        return True

    def _cannot_run(
        self, error: OSError, hold: PutBack, *, dataset: str | None = None
    ) -> CannotRun:
        """Logs why this machine cannot run a job, which is uncharged."""
        if error.errno in (errno.EMFILE, errno.ENFILE):
            # a limit of this process or machine: no disk is full, and no file is absent
            hold = PutBack.CANNOT_LOAD
        _log.error(
            "a job waits, uncharged: a file for it cannot be read or written",
            extra={
                "job_id": self.claim.job_id,
                "dataset_id": dataset,
                "folder": error.filename,
            },
            exc_info=error,
        )
        return CannotRun(hold)

    def give_back(self, reason: EndReason, state: JobState = JobState.FAILED) -> None:
        """Ends a job before its charge: no row was read, so its reservations are given
        back.
        """
        with self.installation.database.write() as session:
            row = queue.leased(session, self.claim)
            reservations.void_jobs(session, [row.id], actor=WORKER)
            notices.end_job(session, row, state=state, reason=reason)
        shutil.rmtree(self.folder, ignore_errors=True)

    def put_back(self, requeue: Callable[[JobRow], None] = queue.requeue) -> None:
        """Returns a job to the queue before its charge: its dataset is frozen, this process
        stops, or it cannot run the job.
        """
        with self.installation.database.write() as session:
            row = queue.leased(session, self.claim)
            # While the job is this worker's: the next one makes the folder anew, may charge
            # the job at once, and its child is in the folder then.
            shutil.rmtree(self.folder, ignore_errors=True)
            requeue(row)

    def _authenticate_rows(self) -> None:
        """Copies the files of a job's rows to this machine, unless they are on it, and
        authenticates every byte of them.

        Runs before the charge, so a damaged file costs nobody budget. An upload is a public
        event, so a file that is absent or damaged reveals nothing private: the tags of the
        file decide, and no row is interpreted. The time of a copy depends on the size of a
        file: with public times, files are copied after the charge, and here only looked up.
        Files that a cluster reads are only looked up, too.

        Raises:
            CannotRun: a file cannot be read now.
            SealBroken: a file is damaged, or another file has its name.
        """
        with self.installation.database.read() as session:
            row = queue.job(session, self.claim.job_id)
            datasets = [
                (part, catalog.find(session, part.dataset)) for part in row.parts
            ]
            keys = self.installation.storage_keys
            living = [
                (part, dataset.data_key(keys))
                for part, dataset in datasets
                if not dataset.is_deleted
            ]
            is_copied_later = (
                cluster_of(self.installation, session, row)
                or self.installation.settings.release_interval_s > 0
            )
        store = self.installation.files
        for part, key in living:
            try:
                for upload in part.epochs:
                    name = row_files.rows_name(part.dataset, upload)
                    if is_copied_later:
                        store.open(name).close()
                    else:
                        SealedFile.at(store.local(name), key).authenticate()
            except SealBroken:
                _log.error(
                    "a job fails, uncharged: a file of its rows is damaged; restore the file from a backup",
                    extra={
                        "job_id": self.claim.job_id,
                        "dataset_id": part.dataset,
                        "upload_id": upload,
                    },
                )
                raise
            except OSError as error:
                raise self._cannot_run(
                    error, PutBack.ROWS_ABSENT, dataset=part.dataset
                ) from None

    def _require_room(self, lease: Lease, n_bytes: int) -> None:
        """Checks that the output of a job can be stored; with too little space, the job
        waits for another machine or time.

        The child writes the output, and this process stores what is a file a second time.
        The size is public.
        """

        def look() -> None:
            required_bytes = 2 * n_bytes + limits.MIN_FREE_DISK_BYTES
            jobs_folder = self.folder.parent
            if shutil.disk_usage(jobs_folder).free < required_bytes:
                raise OSError(errno.ENOSPC, "too little space for the output of a job")
            if n_bytes:
                self.installation.store.require_room(required_bytes)
            if not isinstance(self.installation.files, Directory):
                # rows may be copied after the charge
                _try_to_write(self.installation.home / "cache")

        try:
            lease.wait_for(look, stopping=self.stop.begun)
        except OSError as error:
            raise self._cannot_run(error, PutBack.NO_ROOM) from None

    def run_and_end(
        self, lease: Lease, task: JobTask, run: Callable[[JobTask, Lease], None]
    ) -> None:
        has_run = False
        try:
            durable_files.make_folder(task.folder)
            # Only ``stop.now`` ends the wait: the job is charged, so a first signal lets
            # it finish.
            local_task = lease.wait_for(
                partial(located, self.installation, task, stop=self.stop),
                stopping=self.stop.now,
            )
            run(local_task, lease)
            has_run = True
            lease.trees_done = task.n_trees
            output = _answer(
                lambda: keep(self.installation, task, task.output_path.read_bytes()),
                stop=self.stop,
            )
        except Stopped:
            self._fail(EndReason.LOST)
        except JobFailed as failure:
            self._fail(failure.reason)
        except OutputInvalid:
            self._fail(EndReason.FAILED)
        except OSError:
            if has_run:
                _log.error(
                    "the output of a paid job cannot be stored: the home or the store of models failed"
                )
            else:
                _log.error(
                    "the process of a paid job failed on this machine",
                    exc_info=True,
                )
            self._fail(EndReason.FAILED)
        else:
            # The note comes first: if this worker is killed before the commit, a sweep
            # registers the paid output from the note.
            finished.note(self.installation, self.claim, output)
            self.succeed(output)

    def _fail(self, reason: EndReason) -> None:
        self._until_reached(partial(self.end_as_failed, reason))

    def end_as_failed(self, reason: EndReason) -> None:
        with self.installation.database.write() as session:
            row = queue.leased(session, self.claim)
            notices.end_job(session, row, state=JobState.FAILED, reason=reason)
            parts = row.parts
        # after the commit; whatever the cause was, the line is the same
        for part in parts:
            _log.error(
                "a paid job failed, and its charge stays",
                extra={
                    "job_id": self.claim.job_id,
                    # the account of a dataset has the dataset's id
                    "account_id": part.dataset,
                    "dataset_id": part.dataset,
                    "reservation_id": part.reservation_id,
                },
            )

    def succeed(self, output: Output) -> None:
        """Transaction 2. The note of the output outlives a worker that cannot wait for the
        database.
        """
        try:
            self._until_reached(partial(self.register, output))
        except LeaseLost:
            # A commit whose answer was lost has ended the job, and the repetition finds no
            # lease. To discard the output at once would delete a registered model.
            if not self._until_reached(self._has_succeeded):
                output.discard(self.installation)
                finished.forget(self.installation, self.claim.job_id)
                raise
        finished.forget(self.installation, self.claim.job_id)

    def register(self, output: Output) -> None:
        with self.installation.database.write() as session:
            row = queue.leased(session, self.claim)
            finished.register(session, row, output)

    def _has_succeeded(self) -> bool:
        """Whether an earlier attempt, whose answer was lost, or a sweep has registered the
        output.
        """
        with self.installation.database.read() as session:
            return queue.job(session, self.claim.job_id).state == JobState.SUCCEEDED

    def _until_reached(self, transaction: Callable[[], Result]) -> Result:
        """Repeats a transaction while the database is unreachable, because what the job
        spent stays spent.

        The lease is extended meanwhile, as soon as the database answers.

        Raises:
            Unavailable: the process is to stop now, or was asked to stop
                :data:`COMMIT_STOP_S` ago.
        """
        pause_s = COMMIT_RETRY_S / 8
        stops_at = float("inf")
        while True:
            try:
                return transaction()
            except Unavailable:
                if self.stop.begun.is_set():
                    # counted once, from the first attempt after the signal
                    stops_at = min(stops_at, time.monotonic() + COMMIT_STOP_S)
                left_s = max(stops_at - time.monotonic(), 0)
                if (
                    self.stop.now.wait(min(pause_s, left_s))
                    or time.monotonic() >= stops_at
                ):
                    _log.warning(
                        "this worker stops before the database could take the end of a paid job"
                    )
                    raise
                pause_s = min(2 * pause_s, COMMIT_RETRY_S)


def located(
    installation: Installation, task: JobTask, *, stop: Stop | None = None
) -> JobTask:
    """The task with the paths of its rows on this machine, as they are now: an erasure
    may have replaced a file.

    So a store that does not answer is asked again, although a copy from before the
    charge is on this machine. A file that cannot be brought keeps its name, at which
    the child finds nothing. So the child fails as it does with a broken disk, and the
    job ends when the end of a child shows (ADR 0030). The workers of a cluster read
    files of a store that machines share by their names.
    """
    if task.cluster is not None and not isinstance(installation.files, Directory):
        return task
    parts = []
    for part in task.parts:
        paths = []
        try:
            for name in part.row_files:
                local = partial(installation.files.local, name.as_posix())
                paths.append(_answer(local, stop=stop or Stop()))
            parts.append(replace(part, row_files=tuple(paths)))
        except OSError:
            _log.warning("the rows of a charged job cannot be read")
            parts.append(part)
    return replace(task, parts=tuple(parts))


def _answer(ask: Callable[[], Result], *, stop: Stop) -> Result:
    """What a store or a disk answers, which is asked again while it fails: what the job
    spent stays spent.
    """
    for wait_s in STORE_RETRY_S:
        try:
            return ask()
        except FileNotFoundError:
            raise
        except OSError:  # it does not answer, or is full
            if stop.now.wait(wait_s):
                raise
    return ask()
