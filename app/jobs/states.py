"""Defines the states of a job, and the reasons for an end without an output.

A job is ``queued``, then ``running``, then ``succeeded``, ``failed`` or ``cancelled``. A job that needs an approval is
``waiting`` before it is queued. A running job returns to ``queued`` if its lease ends before its charge. A waiting or
queued job ends as ``failed`` (it expired) or ``cancelled``.
"""

from collections.abc import Mapping
from enum import StrEnum

from app.core import limits


class JobState(StrEnum):
    """The state of a job. The first three states are unfinished; the others are final."""

    WAITING = "waiting"
    """Accepted, with its price reserved. The job waits for the approval of an owner."""
    QUEUED = "queued"
    """Accepted, with its price reserved. The job waits for a worker and has read no row."""
    RUNNING = "running"
    """Held by a worker under a lease. The price is charged before the first row is read."""
    SUCCEEDED = "succeeded"
    """The output is stored and registered. The price is charged."""
    FAILED = "failed"
    """Ended without an output. A charge stays; a job that failed before its charge has none."""
    CANCELLED = "cancelled"
    """Ended on request, or because its dataset was erased. An uncharged reservation is void; a charge stays."""


class EndReason(StrEnum):
    """Why a job ended without an output; :data:`SENTENCES` explains each. A reason reveals nothing about rows."""

    CANCELLED = "cancelled"
    REJECTED = "rejected"
    EXPIRED = "expired"
    LOST = "lost"
    REVOKED = "revoked"
    FAILED = "failed"


SENTENCES: Mapping[EndReason, str] = {
    EndReason.CANCELLED: "somebody cancelled the job or erased its dataset",
    EndReason.REJECTED: "an owner of a dataset rejected the job, so its reservation is void",
    EndReason.EXPIRED: (
        f"no worker took the job within {limits.MAX_QUEUE_S // 3_600} hours, or no owner approved it within "
        f"{limits.MAX_APPROVAL_S // 86_400} days, so its reservation expired"
    ),
    EndReason.LOST: "its worker stopped, or was out of reach for too long, after the charge",
    EndReason.REVOKED: "the key that submitted it was revoked, or lost its role, before the charge",
    EndReason.FAILED: "it broke while running, or an input was gone; the cause may depend on rows and is not recorded",
}
"""What happened, for people, by reason."""


UNFINISHED = (JobState.WAITING, JobState.QUEUED, JobState.RUNNING)
"""States of a job that has not ended."""
ENDED = (JobState.SUCCEEDED, JobState.FAILED, JobState.CANCELLED)
"""States that never change."""
