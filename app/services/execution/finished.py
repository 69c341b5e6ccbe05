"""Notes the output of a paid job that is stored and not registered yet, and registers
it.

A worker writes the note before the job's last transaction. If the worker ends before
the database takes that transaction, the first sweep after the end of the lease does it,
on any machine that shares the store. The note has the fencing token of the charge, and
the transaction that registers the output ends the lease, so one of them commits.
"""

import json
import logging
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy.orm import Session

from app.jobs.queue import Claim
from app.jobs.states import JobState
from app.jobs.tables import JobRow
from app.services.installation import FINISHED_FOLDER, Installation
from app.services.jobs import notices
from app.services.releases import outputs
from grovekeeper_common.durable_files import UNFINISHED
from grovekeeper_common.json_types import JsonObject

_ENDING = ".json"
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Note:
    """An output that was stored, and the token under which its job was charged."""

    token: str
    output: outputs.Output

    @classmethod
    def from_json(cls, value: JsonObject) -> "Note":
        """Inverse of what :func:`note` writes.

        Raises ``ValueError`` unless the output is a file or a body: the note may be of
        another version.
        """
        output = outputs.Output(**value["output"])
        is_file = output.digest is not None
        has_size = output.size_bytes is not None
        has_body = output.body is not None
        if is_file is not has_size or is_file is has_body:
            raise ValueError("an output is a file or a body")
        return cls(value["token"], output)


def note(installation: Installation, claim: Claim, output: outputs.Output) -> None:
    """Writes the note of an output. Without it, the worker can still register the
    output.
    """
    text = json.dumps({"token": claim.token, "output": vars(output)})
    try:
        with installation.files.new(_name(claim.job_id), existing="replace") as file:
            file.write(text.encode("utf-8"))
    except OSError:
        _log.warning(
            "the output of a paid job is not noted; only its worker can register it"
        )


def read(installation: Installation, job_id: str) -> Note | None:
    """The note of a job's output, if there is one.

    Raises:
        OSError: the store does not answer.
    """
    try:
        with installation.files.open(_name(job_id)) as file:
            return Note.from_json(json.loads(file.read()))
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError):  # of another version
        _log.error("the note of an output cannot be read", extra={"job_id": job_id})
        return None


def noted_jobs(installation: Installation) -> list[str]:
    """Ids of the jobs that have a note."""
    files = installation.files.files(FINISHED_FOLDER)
    names = [file.basename for file in files if not file.basename.endswith(UNFINISHED)]
    return [name.removesuffix(_ENDING) for name in names]


def erase_unfinished(installation: Installation, *, before: datetime) -> None:
    """Removes what workers left that were killed while they wrote a note."""
    for file in installation.files.files(FINISHED_FOLDER):
        if file.basename.endswith(UNFINISHED) and file.changed_at < before:
            installation.files.delete(file.name)


def forget(installation: Installation, job_id: str) -> None:
    """Removes the note of a job that has ended. A note that stays is removed later."""
    try:
        installation.files.delete(_name(job_id))
    except OSError:
        _log.warning(
            "the note of an output stays until a later sweep", extra={"job_id": job_id}
        )


def register(session: Session, row: JobRow, output: outputs.Output) -> None:
    """Registers the output of a job that the caller has locked, and ends the job."""
    outputs.register(session, row, output)
    notices.end_job(session, row, state=JobState.SUCCEEDED, reason=None)


def _name(job_id: str) -> str:
    return f"{FINISHED_FOLDER}/{job_id}{_ENDING}"
