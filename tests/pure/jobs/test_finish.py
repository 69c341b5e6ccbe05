"""Changes to a job's row when the job ends and when it returns to the queue."""

from datetime import UTC, datetime

import pytest

from app.jobs import queue
from app.jobs.states import EndReason, JobState
from app.jobs.tables import JobRow

AT = datetime(2026, 11, 20, tzinfo=UTC)


@pytest.fixture
def row() -> JobRow:
    """A running job: one of three trees is grown."""
    return JobRow(
        id="jb_1",
        state="running",
        lease_token="t",
        lease_until=AT,
        trees_done=1,
        n_trees=3,
        charged_at=AT,
    )


@pytest.mark.parametrize(
    ("state", "reason", "trees_done"),
    [
        (JobState.SUCCEEDED, None, 3),
        (JobState.FAILED, EndReason.LOST, 1),
        (JobState.CANCELLED, EndReason.CANCELLED, 1),
    ],
)
def test_the_lease_ends_with_the_job(
    row: JobRow, state: JobState, reason: EndReason | None, trees_done: int
) -> None:
    queue.finish(row, state=state, reason=reason, at=AT)
    assert (row.state, row.reason, row.finished_at) == (state, reason, AT)
    assert (row.lease_token, row.lease_until) == (None, None)
    assert row.trees_done == trees_done
    assert row.charged_at == AT, "what was charged stays charged"


def test_a_job_that_returns_to_the_queue_has_no_lease_and_no_progress(
    row: JobRow,
) -> None:
    queue.requeue(row)
    assert (row.state, row.lease_token, row.lease_until, row.trees_done) == (
        "queued",
        None,
        None,
        0,
    )
    assert row.finished_at is None
