"""Defines the states of a job, and the reasons for an end without an output.

A job is ``queued``, then ``running``, then ``succeeded``, ``failed`` or ``cancelled``. A running job returns to
``queued`` if its lease ends before its charge. A queued job ends as ``failed`` (it expired) or ``cancelled``.
"""

from enum import StrEnum


class JobState(StrEnum):
    """The state of a job. The first two states are unfinished; the others are final."""

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
    """Why a job ended without an output. A reason reveals nothing about rows."""

    CANCELLED = "cancelled"
    """Somebody cancelled the job or erased its dataset."""
    EXPIRED = "expired"
    """The job waited in the queue for longer than ``limits.MAX_QUEUE_S``; its reservation expired."""
    LOST = "lost"
    """The worker stopped, or its lease ended, after the charge."""
    FAILED = "failed"
    """The child process ended without an output, or an input of the job was gone. The cause, which may depend on rows,
    is not recorded."""


UNFINISHED = (JobState.QUEUED, JobState.RUNNING)
"""States of a job that has not ended."""
ENDED = (JobState.SUCCEEDED, JobState.FAILED, JobState.CANCELLED)
"""States that never change."""
