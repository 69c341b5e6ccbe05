"""Defines what all kinds of jobs have in common: their interface, and the public facts of their outputs.

A kind states the inputs and public facts of its jobs, and checks, stores and registers the output of their children.
All kinds share the queue, the child process, the charge and the end. A new kind is one file that implements
:class:`JobKind`, one line in ``app.services.execution.charge.KINDS``, and the function that reads the rows in
``app.services.releases.release``.
"""

from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any, Protocol

from sqlalchemy.orm import Session

from app.core import stamps
from app.core.errors import GrovekeeperError
from app.datasets import catalog
from app.forests.data.schema import Schema
from app.jobs.tables import JobRow
from app.privacy import accountants, events, receipts
from app.privacy.calibration import Terms
from app.privacy.guarantees import Output
from app.services.guarantees import of_charged
from app.services.installation import Installation
from app.services.jobs.task import JobTask


class OutputInvalid(GrovekeeperError):
    """The bytes that the child wrote are not an output of the job's kind."""

    sentence = "the job's output is not of its form"


class JobOutput(Protocol):
    """An output that was checked and, where it is a file, stored durably, but is not registered yet.

    A dataclass whose fields are JSON values, so that a note can keep it (:mod:`app.services.execution.finished`).
    """

    def register(self, session: Session, row: JobRow) -> None:
        """Adds the row of the output and names it in the job, on the transaction that ends the job."""

    def discard(self, installation: Installation) -> None:
        """Removes the stored file of a job that was lost before :meth:`register`."""


class JobKind(Protocol):
    """One kind of job."""

    def is_planned(self, session: Session, row: JobRow, schema: Schema, terms: Sequence[Terms]) -> bool:
        """Whether the stored work is what planning makes of its parameters, for the first part's schema and the terms
        on which each part is paid. Raises an error of any kind where the work is not of its form.
        """

    def inputs(self, row: JobRow) -> Sequence[str]:
        """Digests of the artifacts that the child reads; they are copied to the job's folder before the charge."""

    def public_facts(self, session: Session, row: JobRow) -> dict[str, Any]:
        """The public facts that the output carries beside the release: price, guarantee, receipt."""

    def keep(self, installation: Installation, task: JobTask, data: bytes) -> JobOutput:
        """Checks the child's output and stores it durably, where it is a file.

        Raises:
            OutputInvalid: the bytes are not an output of this kind.
            OSError: the output could not be stored.
        """

    def output(self, fields: dict[str, Any]) -> JobOutput:
        """The output that :meth:`keep` returned, from its fields."""


def facts_of_job(session: Session, row: JobRow, *, output: Output) -> dict[str, Any]:
    """The facts of a job that is being charged, with the facts of its first part.

    Args:
        session: the session of the charging transaction; the guarantee follows from the caps in it.
    """
    return {"job_id": row.id, "name": row.name, **facts_of_part(session, row, 0, output=output)}


def facts_of_part(session: Session, row: JobRow, position: int, *, output: Output) -> dict[str, Any]:
    """The facts of one part of a job, on the account that pays for it."""
    part, event = row.parts[position], events_of(row)[position]
    dataset = catalog.find(session, part.dataset)
    facts = {"dataset": dataset.id, "dataset_name": dataset.name, "price": part.price}
    accountant = part.price["accountant"]
    return {
        **facts,
        "guarantee": of_charged(session, dataset, amount=_charged(row, dataset.id), output=output),
        "receipt": receipts.in_words(
            events.from_json(event), accountant=accountant, adjacency=dataset.adjacency, max_rows=dataset.max_rows
        ),
        "ledger": {"dataset": dataset.id, "reservation_id": part.reservation_id, "job_id": row.id},
    }


def events_of(row: JobRow) -> list[Any]:
    """The events of a job's plan, one per part, in JSON form."""
    plan = row.task["work"]["plan"]
    return [plan["event"], *([plan["unlabelled"]["event"]] if "unlabelled" in plan else [])]


def identity_of_output(row: JobRow, *, prefix: str) -> dict[str, Any]:
    """The columns of every release that name its job, and a new id."""
    return {
        "id": stamps.new(prefix),
        "kind": row.kind,
        "name": row.name,
        "dataset_id": row.dataset_id,
        "dataset_name": row.dataset_name,
        "job_id": row.id,
        "created_at": row.submitted_at,  # public: the time of completion would reveal how long the job took
    }


def _charged(row: JobRow, dataset_id: str) -> int:
    """The steps that a job charges for one unit of a dataset: the largest price of its parts there.

    The scopes of two parts of one dataset are disjoint, so a row is in one part at most (docs/proofs/sspe-1.md).
    """
    return max(steps_of(part.price) for part in row.parts if part.dataset == dataset_id)


def steps_of(price: Mapping[str, Any]) -> int:
    """The amount of a price in whole steps of its accountant's unit."""
    return int(Fraction(price["amount"]) * 10 ** accountants.by_name(price["accountant"]).PLACES)
