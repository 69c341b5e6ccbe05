"""Keeps what the child of a job released: checks and stores it, and registers it."""

from dataclasses import dataclass

from sqlalchemy.orm import Session

from app.core import stamps
from app.jobs.tables import JobRow
from app.registry import releases
from app.registry.tables import ReleaseRow
from app.services.installation import Installation
from app.services.jobs.task import JobTask
from app.services.releases import kinds
from grovekeeper_common.json_types import JsonMapping


@dataclass(frozen=True)
class Output:
    """A release that was checked and, where it is a file, stored durably, but is not
    registered yet.

    JSON values, so that a note can keep them (:mod:`app.services.execution.finished`).

    Attributes:
        digest: of the stored file. Its bytes hold the job's id, so no two jobs share
            it.
        size_bytes: of that file.
        body: of a release that is no file.
    """

    digest: str | None = None
    size_bytes: int | None = None
    body: JsonMapping | None = None

    def discard(self, installation: Installation) -> None:
        """Removes the stored file of a job that was lost before :func:`register`."""
        if self.digest is not None:
            installation.store.remove(self.digest)


def keep(installation: Installation, task: JobTask, data: bytes) -> Output:
    """Checks the child's output and stores it durably, where it is a file.

    Raises:
        OutputInvalid: the bytes are not a release of the job's kind.
        OSError: the output could not be stored.
    """
    kind = kinds.KINDS[task.kind]
    body = kind.body(task, data)
    if kind.is_file:
        return Output(digest=installation.store.put(data), size_bytes=len(data))
    return Output(body=body)


def register(session: Session, row: JobRow, output: Output) -> None:
    """Adds the row of the release and names it in the job, on the transaction that ends
    the job.
    """
    kind = kinds.KINDS[row.kind]
    release = ReleaseRow(
        id=stamps.new(kind.prefix),
        kind=row.kind,
        name=row.name,
        dataset_id=row.dataset_id,
        dataset_name=row.dataset_name,
        job_id=row.id,
        algorithm=row.algorithm,
        # public: the time of completion would reveal how long the job took
        created_at=row.submitted_at,
        **vars(output),
    )
    releases.add(
        session,
        release,
        evaluated=[model_id for model_id, _ in kind.inputs(row.task["work"])],
    )
    row.release_id = release.id
