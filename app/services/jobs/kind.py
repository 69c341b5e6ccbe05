"""Defines the interface of a kind of job. All kinds share the queue, the child process, the charge and the end.

A kind states the inputs and public facts of its jobs, and checks, stores and registers the output of their children.
A new kind is one file that implements :class:`JobKind`, one line in ``app.services.execution.kinds.KINDS``, and the
function that reads the rows in ``app.services.execution.perform``.
"""

from collections.abc import Sequence
from typing import Any, Protocol

from sqlalchemy.orm import Session

from app.core.errors import GrovekeeperError
from app.jobs.tables import JobRow
from app.services.installation import Installation
from app.services.jobs.task import JobTask


class OutputInvalid(GrovekeeperError):
    """The bytes that the child wrote are not an output of the job's kind."""

    def __str__(self) -> str:
        return "the job's output is not of its form"


class Output(Protocol):
    """An output that was checked and, where it is a file, stored durably, but is not registered yet."""

    def register(self, session: Session, row: JobRow) -> None:
        """Adds the row of the output and names it in the job, on the transaction that ends the job."""

    def is_registered(self, session: Session) -> bool:
        """Whether an earlier attempt of the registering transaction committed."""

    def discard(self, installation: Installation) -> None:
        """Removes the stored file of a job that was lost before :meth:`register`."""


class JobKind(Protocol):
    """One kind of job."""

    def inputs(self, row: JobRow) -> Sequence[str]:
        """Digests of the artifacts that the child reads; they are copied to the job's folder before the charge."""

    def public_facts(self, session: Session, row: JobRow) -> dict[str, Any]:
        """The public facts that the output carries beside the release: price, guarantee, receipt."""

    def keep(self, installation: Installation, task: JobTask, data: bytes) -> Output:
        """Checks the child's output and stores it durably, where it is a file.

        Raises:
            OutputInvalid: the bytes are not an output of this kind.
            OSError: the output could not be stored.
        """
