"""The turns of submitters in the queue, and the limit on the unfinished jobs of one
key, on both databases.
"""

import json
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import Connection, event, insert, text

from app.core.errors import TooManyRequests
from app.db.database import transaction_time
from app.jobs import queue
from app.jobs.states import EndReason, JobState, PutBack
from app.jobs.tables import JobRow
from app.services.installation import Installation
from app.services.jobs import show_jobs
from tests.support.crash_scene import ADMIN, OWNER, Scene
from tests.support.job_kinds import claimed
from tests.support.set_limits import SetLimit

pytestmark = pytest.mark.contract

TTL_S = 600
A_MINUTE = timedelta(minutes=1)
THREE_DAYS = timedelta(days=3)


def _enqueue(
    installation: Installation, submitters: Iterable[str], *, at: datetime
) -> None:
    """Queues jobs of these submitters, one per microsecond; a job's name tells its
    submitter.
    """
    rows = [
        _row(number, submitter, at=at) for number, submitter in enumerate(submitters)
    ]
    with installation.database.write() as session:
        session.execute(insert(JobRow), rows)


def _row(number: int, submitter: str, *, at: datetime, **state: Any) -> dict[str, Any]:
    empty = {column.name: None for column in JobRow.__table__.columns}
    return empty | {
        "id": f"jb_{at.timestamp():.0f}_{number}",
        "dataset_id": "ds_any",
        "dataset_name": "any",
        "kind": "profile",
        "task": {"work": {}, "parts": []},
        "submitted_by": submitter,
        "submitted_at": at + timedelta(microseconds=number),
        "waits_since": at + timedelta(microseconds=number),
        "state": JobState.QUEUED.value,
        "trees_done": 0,
        "n_trees": 0,
        **state,
    }


def _served(installation: Installation, *, n_claims: int, ends: bool = True) -> str:
    """The submitters of the next jobs that one worker claims and runs one after
    another.
    """
    served = ""
    for _ in range(n_claims):
        claim = claimed(installation)
        with installation.database.write() as session:
            row = queue.leased(session, claim)
            served += row.submitted_by
            row.charged_at = transaction_time(session)
            if ends:
                queue.finish(
                    row, state=JobState.SUCCEEDED, reason=None, at=row.charged_at
                )
    return served


def test_a_job_of_a_second_submitter_waits_for_one_job_of_the_first(
    installation: Installation,
) -> None:
    now = datetime.now(UTC)
    _enqueue(installation, "A" * 20, at=now - 2 * A_MINUTE)
    assert _served(installation, n_claims=3) == "AAA"
    _enqueue(installation, "B", at=now - A_MINUTE)
    assert _served(installation, n_claims=3) == "BAA"


def test_submitters_take_turns_whether_or_not_their_jobs_ended(
    installation: Installation,
) -> None:
    _enqueue(installation, "AAAABBBCC", at=datetime.now(UTC) - A_MINUTE)
    assert _served(installation, n_claims=4, ends=False) == "ABCA"
    assert _served(installation, n_claims=5) == "BCABA"


def test_a_submitter_gains_no_turns_from_waiting_idle(
    installation: Installation,
) -> None:
    now = datetime.now(UTC)
    _enqueue(installation, "AAAA", at=now - 2 * A_MINUTE)
    assert _served(installation, n_claims=4) == "AAAA"
    _enqueue(installation, "AABBBB", at=now - A_MINUTE)
    assert _served(installation, n_claims=6) == "BABABB"


def test_a_job_that_goes_back_to_the_queue_does_not_keep_the_others_waiting(
    installation: Installation,
) -> None:
    _enqueue(installation, "AABB", at=datetime.now(UTC) - A_MINUTE)
    first = claimed(installation)
    assert _served(installation, n_claims=1) == "B"
    with installation.database.write() as session:
        queue.requeue(queue.leased(session, first))
    assert _served(installation, n_claims=3) == "ABA"


def test_claims_at_the_same_moment_are_of_different_submitters(
    postgresql_scene: Scene,
) -> None:
    database, now = postgresql_scene.installation.database, datetime.now(UTC)
    _enqueue(postgresql_scene.installation, "AAABB", at=now - A_MINUTE)
    with (
        database.write() as one,
        database.write() as other,
        database.write() as third,
        database.write() as last,
    ):
        claims = [
            queue.claim(session, at=now, ttl_s=TTL_S)
            for session in (one, other, third, last)
        ]
        assert [
            claim and queue.job(one, claim.job_id).submitted_by for claim in claims
        ] == ["A", "B", "A", "B"]


@contextmanager
def _statements(connection: Connection) -> Iterator[list[tuple[str, Any]]]:
    seen: list[tuple[str, Any]] = []

    def note(
        _connection: Any, _cursor: Any, statement: str, parameters: Any, *_: Any
    ) -> None:
        seen.append((statement, parameters))

    event.listen(connection, "before_cursor_execute", note)
    yield seen
    event.remove(connection, "before_cursor_execute", note)


@pytest.mark.parametrize("closed", [(), ("ds_closed",)])
def test_a_claim_reads_no_job_but_through_an_index(
    installation: Installation, closed: Collection[str]
) -> None:
    now = datetime.now(UTC)
    ended = {
        "state": "failed",
        "reason": EndReason.EXPIRED.value,
        "finished_at": now - THREE_DAYS,
    }
    with installation.database.write() as session:
        rows = [
            _row(number, "A", at=now - THREE_DAYS, **ended) for number in range(2_000)
        ]
        session.execute(insert(JobRow), rows)
        session.execute(text("ANALYZE"))
    _enqueue(installation, "AAB", at=now - A_MINUTE)
    plans = _plans_of_a_claim(installation, closed)
    assert len(plans) == 2
    assert not any(
        "Seq Scan on jobs" in plan or "SCAN jobs" in plan for plan in plans
    ), plans


def _plans_of_a_claim(
    installation: Installation, closed: Collection[str] = ()
) -> list[str]:
    """How the database runs each query of a claim."""
    explain = "EXPLAIN"
    if installation.database.dialect == "sqlite":
        explain = "EXPLAIN QUERY PLAN"
    with installation.database.write() as session:
        connection = session.connection()
        with _statements(connection) as seen:
            queue.claim(session, at=datetime.now(UTC), ttl_s=TTL_S, closed=closed)
        return [
            str(connection.exec_driver_sql(f"{explain} {statement}", values).all())
            for statement, values in seen
            if not statement.startswith("UPDATE")
        ]


def test_a_claim_passes_over_jobs_that_were_put_back(
    installation: Installation,
) -> None:
    """A full disk puts all jobs of a key back, and a claim that read each of them took
    longer than a small job's charge.
    """
    now = datetime.now(UTC)
    held = {"reason": PutBack.NO_ROOM.value, "lease_until": now + A_MINUTE}
    rows = [_row(number, "A", at=now - A_MINUTE, **held) for number in range(2_000)]
    with installation.database.write() as session:
        session.execute(insert(JobRow), rows)
        session.execute(text("ANALYZE"))
    _enqueue(installation, "AB", at=now - 2 * A_MINUTE)
    order, _ = _plans_of_a_claim(installation)
    assert "ix_jobs_state_lease_until_submitted_by" in order
    assert "ix_jobs_submitted_by_lease_until" in order


@pytest.mark.parametrize("closed", [(), ("ds_closed",)])
def test_the_search_for_overdue_jobs_passes_over_the_jobs_that_wait_in_the_queue(
    installation: Installation, closed: Collection[str]
) -> None:
    """Every process searches every second, and 10,000 queued jobs were read each time."""
    now = datetime.now(UTC)
    held = {"reason": PutBack.NO_ROOM.value, "lease_until": now + A_MINUTE}
    rows = [
        *(_row(number, "A", at=now) for number in range(2_000)),
        *(_row(number, "A", at=now - A_MINUTE, **held) for number in range(2_000)),
    ]
    with installation.database.write() as session:
        session.execute(insert(JobRow), rows)
        session.execute(text("ANALYZE"))
    with installation.database.write() as session:
        connection = session.connection()
        with _statements(connection) as seen:
            assert queue.overdue(session, at=now, ttl_s=TTL_S, closed=closed) == []
        [(statement, values)] = seen
        if installation.database.dialect == "sqlite":
            explained = connection.exec_driver_sql(
                f"EXPLAIN QUERY PLAN {statement}", values
            )
            plan = [step for *_, step in explained if " jobs " in f"{step} "]
            # by the state alone, all queued jobs would be read
            assert plan
            assert all("<?" in step or ">?" in step for step in plan), plan
            return
        explained = connection.exec_driver_sql(f"EXPLAIN ANALYZE {statement}", values)
        plan = [step for (step,) in explained]
    assert not any("Rows Removed by Filter" in step for step in plan), plan


def test_a_key_with_too_many_unfinished_jobs_submits_no_other_and_reserves_nothing(
    scene: Scene, set_limit: SetLimit
) -> None:
    set_limit("MAX_UNFINISHED_JOBS_PER_KEY", 10)
    now = datetime.now(UTC)
    _enqueue(scene.installation, [OWNER.key_id] * 8, at=now - A_MINUTE)
    running = claimed(scene.installation)
    last = scene.submit(key="the last")
    _enqueue(scene.installation, [ADMIN.key_id] * 10, at=now)
    scene.submit(key="one more")
    with pytest.raises(TooManyRequests, match="unfinished jobs"):
        scene.submit(key="too many")
    assert [entry.kind.value for entry in scene.entries()] == [
        "open",
        "reserve",
        "reserve",
    ]
    assert scene.submit(key="the last").body == last.body
    show_jobs.cancel_job(
        scene.installation, OWNER, str(json.loads(last.body)["job_id"])
    )
    scene.submit(key="too many")
    assert scene.job(running.job_id).state == "running"


def test_jobs_that_are_put_back_take_turns_like_those_that_run(
    installation: Installation,
) -> None:
    """The disk is full for one submitter: the other waits for one attempt."""
    _enqueue(installation, "AAAABB", at=datetime.now(UTC) - A_MINUTE)
    tried = ""
    for _ in range(4):
        claim = claimed(installation)
        with installation.database.write() as session:
            row = queue.leased(session, claim)
            tried += row.submitted_by
            queue.put_back(row, PutBack.NO_ROOM)
    assert tried == "ABAB"


def _waiting(installation: Installation) -> list[str]:
    """The jobs that wait, in the order of their places."""
    with installation.database.read() as session:
        return queue.first_in_order(session, most=100)


def test_the_places_of_jobs_are_the_order_in_which_they_are_claimed(
    installation: Installation,
) -> None:
    now = datetime.now(UTC)
    _enqueue(installation, "AAC", at=now - 3 * A_MINUTE)
    _served(installation, n_claims=3)
    # more jobs of one submitter than a claim looks at
    _enqueue(installation, "AAAABBBCC" + "A" * 20, at=now - A_MINUTE)
    places = _waiting(installation)
    assert len(places) == 29
    served = []
    while claimed_next := _waiting(installation):
        served.append(claimed_next[0])
        claim = claimed(installation)
        assert claim.job_id == served[-1]
        with installation.database.write() as session:
            row = queue.leased(session, claim)
            row.charged_at = transaction_time(session)
    assert served == places


def test_a_place_counts_no_job_that_no_worker_would_take(
    installation: Installation,
) -> None:
    at = datetime.now(UTC) - A_MINUTE
    _enqueue(installation, "AAB", at=at)
    taken = claimed(installation)
    put_back = claimed(installation)
    with installation.database.write() as session:
        queue.put_back(queue.leased(session, put_back), PutBack.NO_ROOM)
    [left] = _waiting(installation)
    assert left not in (taken.job_id, put_back.job_id)


def test_as_many_places_are_told_as_are_asked_for(installation: Installation) -> None:
    """Also where the jobs of one submitter have all of them."""
    _enqueue(installation, "AAA", at=datetime.now(UTC) - A_MINUTE)
    with installation.database.read() as session:
        every = queue.first_in_order(session, most=3)
        assert queue.first_in_order(session, most=2) == every[:2]
    assert len(every) == 3
