"""Defines the database tables of jobs (queue and history) and of the datasets that each
job reads.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import CheckConstraint, Index, text
from sqlalchemy.orm import Mapped, mapped_column

from app.db.base import Base, PrimaryKey
from grovekeeper_common import statistic_words
from grovekeeper_common.json_types import JsonObject
from grovekeeper_forests.releases.names import PROFILE, STATISTICS

_QUEUED = text("state = 'queued'")
_LEASED = text("lease_until IS NOT NULL")


@dataclass(frozen=True)
class JobPart:
    """One part of a job: the rows that it reads in one dataset, and the reservation
    that pays for them.

    Attributes:
        dataset: id of the dataset, whose account pays.
        scope: the cells that are read, by partition, in JSON form.
        epochs: ids of the uploads that are read.
        label: the label that is read, where the dataset declares several.
    """

    dataset: str
    dataset_name: str
    scope: Mapping[str, Sequence[Any]]
    epochs: Sequence[str]
    price: JsonObject
    reservation_id: str
    label: str | None = None

    def to_json(self) -> JsonObject:
        """For :attr:`JobRow.task`."""
        stored = dict(vars(self))
        # most jobs name none, and keep their bytes
        if self.label is None:
            del stored["label"]
        return stored


def part_fields(parts: Sequence[JobPart]) -> dict[str, Any]:
    """Reservation and price of every part, as answers show them: the second part stands
    in ``unlabelled``.
    """
    first, *others = parts
    unlabelled = None
    if others:
        names = ("dataset", "dataset_name", "reservation_id", "price")
        unlabelled = {name: getattr(others[0], name) for name in names}
    return {
        "reservation_id": first.reservation_id,
        "price": first.price,
        "unlabelled": unlabelled,
    }


class JobRow(Base):
    """A job, from its submission to its end.

    Attributes:
        dataset_id: the dataset whose grants govern the job and its output.
        kind: what the job releases; its name in
            :mod:`app.services.releases.kinds`.
        task: ``work``, the child's instructions, ``parts``, the JSON forms of
            :attr:`parts`, and ``purpose``, if the submitter stated one, as the entries
            of the job have it.
        state: a :class:`app.jobs.states.JobState`; ``reason`` is an
            :class:`app.jobs.states.EndReason`, or of a queued job a
            :class:`app.jobs.states.PutBack`.
        lease_token: of the worker that runs the job; a worker with another token writes
            nothing.
        lease_until: when the lease of a running job ends; of a queued job, when workers
            try again that could not run it.
        waits_since: when the present wait began: the submission, the approval, or the
            end of a freeze.
        trees_done: finished trees, or :data:`app.jobs.states.PREPARING`.
        charged_at: set in the transaction that commits the charge.
    """

    __tablename__ = "jobs"

    id: Mapped[PrimaryKey]
    dataset_id: Mapped[str] = mapped_column(index=True)
    dataset_name: Mapped[str]
    kind: Mapped[str]
    algorithm: Mapped[str | None]
    name: Mapped[str | None]
    task: Mapped[JsonObject]
    submitted_by: Mapped[str]
    submitted_at: Mapped[datetime]
    waits_since: Mapped[datetime]
    state: Mapped[str]
    reason: Mapped[str | None]
    trees_done: Mapped[int]
    n_trees: Mapped[int]
    lease_token: Mapped[str | None]
    lease_until: Mapped[datetime | None]
    charged_at: Mapped[datetime | None]
    finished_at: Mapped[datetime | None]
    release_id: Mapped[str | None]

    __table_args__ = (
        Index("ix_jobs_state_submitted_at", "state", "submitted_at"),
        Index(
            "ix_jobs_state_submitted_by_submitted_at_id",
            "state",
            "submitted_by",
            "submitted_at",
            "id",
        ),
        # The next two are for claims: jobs that were put back may be many.
        Index(
            "ix_jobs_state_lease_until_submitted_by",
            "state",
            "lease_until",
            "submitted_by",
            "submitted_at",
            "id",
            sqlite_where=_QUEUED,
            postgresql_where=_QUEUED,
        ),
        Index(
            "ix_jobs_submitted_by_lease_until",
            "submitted_by",
            "lease_until",
            sqlite_where=_LEASED,
            postgresql_where=_LEASED,
        ),
        Index(
            "ix_jobs_submitted_by_charged_at_finished_at",
            "submitted_by",
            "charged_at",
            "finished_at",
        ),
        CheckConstraint(
            "state IN ('waiting', 'queued', 'running', 'succeeded', 'failed', 'cancelled')",
            name="state_known",
        ),
        CheckConstraint(
            "(kind = 'train') = (algorithm IS NOT NULL)",
            name="training_names_its_algorithm",
        ),
        CheckConstraint(
            "(state = 'running') = (lease_token IS NOT NULL)", name="running_is_leased"
        ),
        CheckConstraint(
            "state <> 'succeeded' OR charged_at IS NOT NULL", name="success_is_charged"
        ),
    )

    @property
    def what(self) -> str:
        """What the job runs, in lists: an algorithm, the statistics that it releases, or
        the kind of another release, of a profile with the label, if there are several.
        """
        if self.kind == STATISTICS:
            return statistic_words.titles(self.task["work"]["plan"]["tables"])
        if self.kind == PROFILE and self.label is not None:
            return f"{PROFILE} of {self.label}"
        return self.algorithm or self.kind

    @property
    def purpose(self) -> str | None:
        """The reason that the submitter stated."""
        return self.task.get("purpose")

    @property
    def label(self) -> str | None:
        """The label that the first part reads, where its dataset declares several."""
        for part in self.task["parts"]:
            label: str | None = part.get("label")
            return label
        return None

    @property
    def parts(self) -> tuple[JobPart, ...]:
        """The parts of the job, at least one, in the order in which the work names them."""
        return tuple(JobPart(**part) for part in self.task["parts"])


class JobDatasetRow(Base):
    """A dataset whose rows a job reads in at least one of its parts."""

    __tablename__ = "job_datasets"

    job_id: Mapped[PrimaryKey]
    dataset_id: Mapped[str] = mapped_column(primary_key=True, index=True)


class WorkerRow(Base):
    """A worker process that has not ended in order."""

    __tablename__ = "workers"

    id: Mapped[PrimaryKey]
    seen_at: Mapped[datetime]


class ApprovalRow(Base):
    """A dataset whose rules make a job wait for a decision of an owner.

    Attributes:
        decision: ``approve`` or ``reject``; ``None`` while the job waits, and if it
            ended without a decision.
        decided_by: the owner's key.
    """

    __tablename__ = "approvals"

    job_id: Mapped[PrimaryKey]
    dataset_id: Mapped[str] = mapped_column(primary_key=True, index=True)
    decision: Mapped[str | None]
    decided_by: Mapped[str | None]
    decided_at: Mapped[datetime | None]

    __table_args__ = (
        CheckConstraint("decision IN ('approve', 'reject')", name="decision_known"),
        CheckConstraint(
            "(decision IS NULL) = (decided_by IS NULL) AND (decision IS NULL) = (decided_at IS NULL)",
            name="decision_is_of_a_key",
        ),
    )
