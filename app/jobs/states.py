"""Defines the states of a job, the reasons for an end without an output, and why a
worker put a job back.

A job is ``queued``, then ``running``, then ``succeeded``, ``failed`` or ``cancelled``.
A job that needs an approval is ``waiting`` before it is queued. A running job returns
to ``queued`` if its lease ends before its charge, or if its worker cannot run it. A waiting or queued job ends as
``failed`` (it expired) or ``cancelled``.
"""

from enum import StrEnum


class JobState(StrEnum):
    """The state of a job. The first three states are unfinished; the others are final."""

    WAITING = "waiting"
    """Accepted, with its price reserved. The job waits for the approval of an owner."""
    QUEUED = "queued"
    """Accepted, with its price reserved. The job waits for a worker and has read no
    row.
    """
    RUNNING = "running"
    """Held by a worker under a lease. The price is charged before the first row is
    read.
    """
    SUCCEEDED = "succeeded"
    """The output is stored and registered. The price is charged."""
    FAILED = "failed"
    """Ended without an output. A charge stays; a job that failed before its charge has
    none.
    """
    CANCELLED = "cancelled"
    """Ended on request, or because its dataset was erased. An uncharged reservation is
    void; a charge stays.
    """


class EndReason(StrEnum):
    """Why a job ended without an output; ``grovekeeper_common.job_words`` explains
    each. None reveals a row.
    """

    CANCELLED = "cancelled"
    DATASET_ERASED = "dataset-erased"
    REJECTED = "rejected"
    EXPIRED = "expired"
    """Of jobs that ended under earlier versions, which did not store whether the queue
    or an approval took too long.
    """
    NOT_STARTED = "not-started"
    NOT_APPROVED = "not-approved"
    LOST = "lost"
    REVOKED = "revoked"
    KEY_EXPIRED = "key-expired"
    MODEL_DELETED = "model-deleted"
    FAILED = "failed"
    DAMAGED = "damaged"


class PutBack(StrEnum):
    """Why the last worker put a job back into the queue before its charge;
    ``grovekeeper_common.job_words`` explains each. All are facts of a machine or of
    public files, and none reveals a row.
    """

    NO_ROOM = "no-room"
    ROWS_ABSENT = "rows-absent"
    MODEL_ABSENT = "model-absent"
    CANNOT_LOAD = "cannot-load"


UNFINISHED = (JobState.WAITING, JobState.QUEUED, JobState.RUNNING)
"""States of a job that has not ended."""
ENDED = (JobState.SUCCEEDED, JobState.FAILED, JobState.CANCELLED)
"""States that never change."""

PREPARING = -1
"""Number of finished trees while the process of a running job compiles code and loads
modules, before it reads rows.
"""
