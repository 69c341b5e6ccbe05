"""Copies the files that a job needs to this machine: models, and encrypted files of rows, which are authenticated."""

import logging
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from sqlalchemy.orm import Session

from app.core import files
from app.core.dask_cluster import DaskCluster
from app.core.errors import Unavailable
from app.core.sealed_files import SealBroken, SealedFile
from app.core.stores import Directory
from app.datasets import catalog, row_files
from app.forests import catalogue
from app.jobs import queue
from app.jobs.queue import Claim
from app.jobs.tables import JobPart, JobRow
from app.services.execution import lease
from app.services.installation import Installation
from app.services.jobs.task import JobTask, PartRows, input_path

_log = logging.getLogger(__name__)


def lay_out_inputs(installation: Installation, claim: Claim, digests: Sequence[str]) -> None:
    """Copies the artifacts that a job reads to its folder, so that nobody can remove them after the charge.

    Raises:
        ArtifactLost: the file of a model is absent or damaged.
        LeaseLost: the job was cancelled, or another worker has it.
        Unavailable: the home cannot be written now.
    """
    folder = installation.job_folder(claim.job_id)
    try:
        with lease.extended(installation, claim, trees_done=0):
            for digest in digests:
                path = input_path(folder, digest)
                files.make_folder(path.parent)
                path.touch(mode=0o600)
                path.write_bytes(installation.store.get(digest))
                lease.heartbeat(installation, claim, trees_done=0)  # also notices a cancellation
    except OSError:  # the disk is full: nothing was charged, and the job goes back to the queue with its lease
        raise Unavailable("the home cannot be written") from None


def row_names(part: JobPart) -> tuple[Path, ...]:
    """The names in the store of the rows of one part."""
    return tuple(Path(row_files.rows_name(part.dataset, epoch)) for epoch in part.epochs)


def cluster_of(installation: Installation, session: Session, row: JobRow) -> DaskCluster | None:
    """The Dask cluster that reads the rows of a job: for forests that count codes, on datasets whose declared,
    public size is at least that of the setting.
    """
    if row.kind != "train" or row.algorithm is None:
        return None
    if catalogue.algorithm(row.algorithm).reads_values:
        return None
    size = catalog.find(session, row.dataset_id).row.public_size or 0
    return installation.settings.dask_cluster if size >= installation.settings.dask_rows else None


def bring_rows(installation: Installation, claim: Claim) -> None:
    """Copies the files of a job's rows to this machine, unless they are on it, and authenticates every byte of them.

    Runs before the charge, so a damaged file costs nobody budget. An upload is a public event, so a file that is absent
    or damaged reveals nothing private: the tags of the file decide, and no row is interpreted. The time of a copy
    depends on the size of a file: with public times, files are copied after the charge, and here only looked up. Files
    that a cluster reads are only looked up, too.

    Raises:
        OSError: a file cannot be read now.
        SealBroken: a file is damaged, or another file has its name.
    """
    with installation.database.read() as session:
        row = queue.job(session, claim.job_id)
        datasets = [(part, catalog.find(session, part.dataset)) for part in row.parts]
        keys = installation.storage_keys
        living = [(part, dataset.data_key(keys)) for part, dataset in datasets if not dataset.is_deleted]
        is_copied_later = cluster_of(installation, session, row) or installation.settings.release_interval_s > 0
    store = installation.files
    for part, key in living:
        try:
            for name in row_names(part):
                if is_copied_later:
                    store.open(name.as_posix()).close()
                else:
                    SealedFile.at(store.local(name.as_posix()), key).authenticate()
        except SealBroken:
            _log.error(
                "a job fails, uncharged: a file of its rows is damaged; restore the file from a backup",
                extra={"job_id": claim.job_id, "dataset_id": part.dataset, "upload_id": name.stem},
            )
            raise
        except FileNotFoundError:
            _log.error(
                "a job waits, uncharged: a file of its rows is absent; bring the file back, or cancel the job",
                extra={"job_id": claim.job_id, "dataset_id": part.dataset},
            )
            raise


def located(installation: Installation, task: JobTask) -> JobTask:
    """The task with the paths of its rows on this machine, as they are now: an erasure may have replaced a file.

    A file that cannot be brought keeps its name, at which the child finds nothing. So the child fails as it does with a
    broken disk, and the job ends when the end of a child shows (ADR 0030). The workers of a cluster read files of a
    store that machines share by their names.
    """
    if task.cluster is not None and not isinstance(installation.files, Directory):
        return task
    return replace(task, parts=tuple(_located(installation, part) for part in task.parts))


def _located(installation: Installation, part: PartRows) -> PartRows:
    try:
        paths = tuple(installation.files.local(name.as_posix()) for name in part.row_files)
    except OSError:
        _log.warning("the rows of a charged job cannot be read")
        return part
    return replace(part, row_files=paths)
