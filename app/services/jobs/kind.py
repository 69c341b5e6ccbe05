"""What differs between the kinds of jobs: one queue, one child, one charge and one end serve all of them.

A kind says what its child is told beside the work itself, and how what the child left is checked, kept and registered.
Adding one is one file that implements :class:`JobKind`, one line in ``app.services.jobs.kinds``, and the function that
reads the rows in ``app.services.jobs.perform``.
"""

from collections.abc import Sequence
from typing import Any, Protocol

from sqlalchemy.orm import Session

from app.core.errors import GrovekeeperError
from app.jobs.tables import JobRow
from app.services.installation import Installation
from app.services.jobs.task import JobTask


class OutputInvalid(GrovekeeperError):
    """The child left bytes that are no output of its kind."""

    def __str__(self) -> str:
        return "the job's output is not of its form"


class Output(Protocol):
    """What a child left: checked, durable where it is a file, and not yet known to anybody."""

    def register(self, session: Session, row: JobRow) -> None:
        """Adds what was made and names it in the job, on the transaction that ends the job."""

    def is_registered(self, session: Session) -> bool:
        """Whether an earlier try of that transaction did commit."""

    def discard(self, installation: Installation) -> None:
        """Removes what :meth:`register` will never refer to, because the job was lost."""


class JobKind(Protocol):
    """One kind of job."""

    def inputs(self, row: JobRow) -> Sequence[str]:
        """Digests of the artifacts that the child reads; they are laid into the job's folder before the charge."""

    def public_facts(self, session: Session, row: JobRow) -> dict[str, Any]:
        """What the output carries beside what is released: price, guarantee, receipt. All of it is public."""

    def keep(self, installation: Installation, task: JobTask, data: bytes) -> Output:
        """Checks the child's output and stores it durably, where it is a file.

        Raises:
            OutputInvalid: not what this kind leaves.
            OSError: it could not be stored.
        """
