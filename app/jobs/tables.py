"""The table of jobs: queue and history in one."""

from datetime import datetime
from typing import Any

from sqlalchemy import CheckConstraint, Index
from sqlalchemy.orm import Mapped, mapped_column

from app.db.base import Base
from app.db.types import CanonicalJson


class JobRow(Base):
    """A request that reads private rows, from submission to its end.

    ``unlabelled_dataset_id`` is a second dataset that the job reads and that pays for its own part. ``task`` is all a
    worker needs besides the public schema (work, epochs, cells); ``algorithm`` is that of a job that trains; what a job
    made is a model, a profile or an evaluation, by its kind; ``lease_token`` fences: whoever does not hold it writes
    nothing. ``charged_at`` is set in the transaction that commits the charge.
    """

    __tablename__ = "jobs"

    id: Mapped[str] = mapped_column(primary_key=True)
    dataset_id: Mapped[str] = mapped_column(index=True)
    dataset_name: Mapped[str]
    unlabelled_dataset_id: Mapped[str | None] = mapped_column(index=True)
    kind: Mapped[str]
    algorithm: Mapped[str | None]
    name: Mapped[str | None]
    task: Mapped[dict[str, Any]] = mapped_column(CanonicalJson)
    price: Mapped[dict[str, Any]] = mapped_column(CanonicalJson)
    reservation_id: Mapped[str]
    submitted_by: Mapped[str]
    submitted_at: Mapped[datetime]
    state: Mapped[str]
    reason: Mapped[str | None]
    trees_done: Mapped[int]
    n_trees: Mapped[int]
    lease_token: Mapped[str | None]
    lease_until: Mapped[datetime | None]
    charged_at: Mapped[datetime | None]
    finished_at: Mapped[datetime | None]
    model_id: Mapped[str | None]
    profile_id: Mapped[str | None]
    evaluation_id: Mapped[str | None]

    __table_args__ = (
        Index("ix_jobs_state_submitted_at", "state", "submitted_at"),
        CheckConstraint("state IN ('queued', 'running', 'succeeded', 'failed', 'cancelled')", name="state_known"),
        CheckConstraint("kind IN ('train', 'profile', 'evaluation')", name="kind_known"),
        CheckConstraint("(kind = 'train') = (algorithm IS NOT NULL)", name="training_names_its_algorithm"),
        CheckConstraint("(state = 'running') = (lease_token IS NOT NULL)", name="running_is_leased"),
        CheckConstraint("state <> 'succeeded' OR charged_at IS NOT NULL", name="success_is_charged"),
    )
