"""Compares the order of claims with a plain statement of the rule, a window over the
whole queue, on both databases.
"""

from collections.abc import Collection
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import delete, func, insert, select, update
from sqlalchemy.orm import Session

from app.core import limits
from app.jobs import queue
from app.jobs.states import ENDED, JobState
from app.jobs.tables import JobDatasetRow, JobRow
from app.services.installation import Installation

pytestmark = pytest.mark.contract

NOW = datetime(2026, 11, 20, 9, 30, tzinfo=UTC)
A_DAY = timedelta(seconds=limits.MAX_QUEUE_S)
TTL_S = 30


def first_by_rule(session: Session, closed: Collection[str]) -> str | None:
    """The next job: first jobs of all submitters first, then the submitter whose last
    job left longest ago.
    """
    queued = JobRow.state == JobState.QUEUED.value
    reading = select(JobDatasetRow.job_id).where(JobDatasetRow.dataset_id.in_(closed))
    free = queued & JobRow.id.not_in(reading)
    in_order = func.row_number().over(
        partition_by=JobRow.submitted_by, order_by=(JobRow.submitted_at, JobRow.id)
    )
    waiting = select(JobRow.id, in_order.label("turn")).where(free).subquery()
    left_at = func.max(
        func.coalesce(JobRow.charged_at, JobRow.lease_until, JobRow.finished_at)
    ).label("left_at")
    left = JobRow.state.in_([JobState.RUNNING.value, *(state.value for state in ENDED)])
    last = select(JobRow.submitted_by, left_at).where(left)
    last_turns = last.group_by(JobRow.submitted_by).subquery()
    order = (
        waiting.c.turn,
        last_turns.c.left_at.nulls_first(),
        JobRow.submitted_at,
        JobRow.id,
    )
    jobs = select(JobRow.id).join(waiting, waiting.c.id == JobRow.id)
    jobs = jobs.outerjoin(
        last_turns, last_turns.c.submitted_by == JobRow.submitted_by
    ).order_by(*order)
    return session.execute(jobs.limit(1)).scalar()


@st.composite
def jobs(draw: st.DrawFn) -> list[tuple[dict[str, Any], list[str]]]:
    """Rows of jobs in every state, with the datasets that each reads; many of their
    times are equal.
    """
    minutes = st.integers(0, 6).map(lambda number: timedelta(minutes=number))
    ages = st.sampled_from([timedelta(), A_DAY, 3 * A_DAY])
    listed = []
    for number in range(draw(st.integers(1, 14))):
        submitted_at = NOW - draw(ages) - draw(minutes)
        later = submitted_at + draw(ages) + draw(minutes)
        state = draw(st.sampled_from([*[JobState.QUEUED] * 4, *JobState]))
        row = {
            "id": f"jb_{draw(st.integers(0, 99))}_{number}",
            "submitted_by": draw(st.sampled_from("ABCD")),
            "submitted_at": submitted_at,
            "state": state.value,
        }
        charged = state is JobState.SUCCEEDED or (
            state not in (JobState.QUEUED, JobState.WAITING) and draw(st.booleans())
        )
        row["charged_at"] = later if charged else None
        row["finished_at"] = later + draw(minutes) if state in ENDED else None
        running = state is JobState.RUNNING
        row |= (
            {"lease_token": "token", "lease_until": later + draw(minutes)}
            if running
            else {}
        )
        reads = sorted(
            draw(
                st.sets(
                    st.sampled_from(["ds_open", "ds_closed", "ds_other"]), max_size=2
                )
            )
        )
        listed.append((row, reads))
    return listed


@settings(max_examples=30, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    listed=jobs(),
    closed=st.sampled_from([(), ("ds_closed",)]),
    ends=st.lists(st.booleans(), min_size=14, max_size=14),
)
def test_claims_take_the_jobs_in_the_order_of_the_rule(
    installation: Installation,
    listed: list[tuple[dict[str, Any], list[str]]],
    closed: Collection[str],
    ends: list[bool],
) -> None:
    with installation.database.write() as session:
        session.execute(delete(JobRow))
        session.execute(delete(JobDatasetRow))
        session.execute(insert(JobRow), [_row(**row) for row, _ in listed])
        reading = [
            {"job_id": row["id"], "dataset_id": dataset}
            for row, reads in listed
            for dataset in reads
        ]
        if reading:
            session.execute(insert(JobDatasetRow), reading)
        for number in range(len(listed) + 1):
            at = NOW + timedelta(seconds=number)
            expected = first_by_rule(session, closed)
            claim = queue.claim(session, at=at, ttl_s=TTL_S, closed=closed)
            assert (claim and claim.job_id) == expected
            if claim is not None and ends[number % len(ends)]:
                session.execute(
                    update(JobRow)
                    .where(JobRow.id == claim.job_id)
                    .values(charged_at=at)
                )
        assert claim is None, "the last claim finds no job"
        assert not queue.has_queued(session, closed=closed)


def _row(**fields: Any) -> dict[str, Any]:
    at = fields["submitted_at"]
    fixed = {
        "dataset_id": "ds_any",
        "dataset_name": "any",
        "kind": "profile",
        "task": {"work": {}, "parts": []},
    }
    empty = {column.name: None for column in JobRow.__table__.columns}
    return empty | fixed | {"waits_since": at, "trees_done": 0, "n_trees": 0} | fields
