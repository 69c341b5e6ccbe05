"""Compares what the queue reads of its rows with plain statements over the same rows, at
the edges of every time that matters.
"""

import itertools
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import insert
from sqlalchemy.orm import Session

from app.core import limits
from app.jobs import queue
from app.jobs.states import UNFINISHED, EndReason, JobState
from app.jobs.tables import JobDatasetRow, JobRow
from app.services.installation import Installation

pytestmark = pytest.mark.contract

NOW = datetime(2026, 11, 20, 9, 30, tzinfo=UTC)
TTL_S = 30
A_MICROSECOND = timedelta(microseconds=1)
IN_QUEUE = timedelta(seconds=limits.MAX_QUEUE_S)
FOR_APPROVAL = timedelta(seconds=limits.MAX_APPROVAL_S)
AGES = [
    timedelta(),
    *(age + late for age in (IN_QUEUE, FOR_APPROVAL) for late in (0 * A_MICROSECOND, A_MICROSECOND)),
]  # fmt: skip
LEASES = [
    None,
    NOW - A_MICROSECOND,
    NOW,
    NOW + timedelta(seconds=TTL_S),
    NOW + timedelta(seconds=TTL_S) + A_MICROSECOND,
]
DATASETS = ("ds_open", "ds_closed", "ds_third")
REASONS = (EndReason.FAILED.value, EndReason.DAMAGED.value, "another-version")


def _algorithm(number: int, is_charged: bool) -> str:
    return ("mrf", "nbrt")[number // 2 % 2] if is_charged else "rpf"


def _job(number: int, state: JobState, age: timedelta, **fields: Any) -> dict[str, Any]:
    at = NOW - age
    is_charged = state is JobState.SUCCEEDED or number % 5 == 0
    is_running = state is JobState.RUNNING
    row = {column.name: None for column in JobRow.__table__.columns}
    return row | {
        "id": f"jb_{number:04}",
        "dataset_id": DATASETS[number % 3],
        "dataset_name": "any",
        "kind": "train" if number % 2 else "profile",
"algorithm": _algorithm(number, is_charged) if number % 2 else None,
        "task": {"work": {}, "parts": [{"epochs": [f"ep_{number:04}"]}]},
        "submitted_by": "AB"[number // 3 % 2],
        "submitted_at": at,
        "waits_since": at,
        "state": state.value,
        "reason": REASONS[number % 3] if number % 2 or state is JobState.FAILED else None,
        "trees_done": 3,
        "n_trees": 7,
        "lease_token": f"token {number}" if is_running else None,
        "charged_at": at if is_charged else None,
    } | fields  # fmt: skip


def _jobs() -> list[dict[str, Any]]:
    """Jobs of every state, age and lease; some of them waited less than their age."""
    rows = list[dict[str, Any]]()
    for state, age, lease in itertools.product(JobState, AGES, LEASES):
        for waits_since in dict.fromkeys((NOW - age, max(NOW - age, NOW - IN_QUEUE))):
            fields = {"lease_until": lease, "waits_since": waits_since}
            rows.append(_job(len(rows), state, age, **fields))
    return rows


JOBS = _jobs()
READS = [
    (row["id"], dataset)
    for number, row in enumerate(JOBS)
    for dataset in dict.fromkeys((row["dataset_id"], DATASETS[number // 2 % 3]))
]


@pytest.fixture
def session(installation: Installation) -> Iterator[Session]:
    with installation.database.write() as opened:
        opened.execute(insert(JobRow), JOBS[::-1])
        reads = [{"job_id": job, "dataset_id": dataset} for job, dataset in READS]
        opened.execute(insert(JobDatasetRow), reads)
        yield opened


def _ids(jobs: list[dict[str, Any]]) -> list[str]:
    return sorted(job["id"] for job in jobs)


def _reading(*datasets: str) -> list[dict[str, Any]]:
    ids = {job for job, dataset in READS if dataset in datasets}
    return [job for job in JOBS if job["id"] in ids]


@pytest.mark.parametrize("states", [[*JobState], [JobState.FAILED, JobState.QUEUED]])
@pytest.mark.parametrize("datasets", [None, ["ds_open", "ds_third"], []])
def test_jobs_are_counted_by_state(
    session: Session, states: list[JobState], datasets: list[str] | None
) -> None:
    expected = {
        state: sum(
            job["state"] == state
            for job in JOBS
            if datasets is None or job["dataset_id"] in datasets
        )
        for state in states
    }
    assert queue.counts(session, states, dataset_ids=datasets) == expected


def test_states_without_jobs_are_counted_too(installation: Installation) -> None:
    with installation.database.read() as session:
        numbers = queue.counts(session, [*JobState])
    assert numbers == dict.fromkeys(JobState, 0)


def test_failures_are_counted_by_the_reasons_that_this_version_knows(
    session: Session,
) -> None:
    numbers = Counter(job["reason"] for job in JOBS if job["state"] == "failed")
    del numbers["another-version"]
    assert queue.failed(session) == numbers
    assert len(numbers) == 2


def test_the_oldest_wait_is_that_of_a_queued_job(session: Session) -> None:
    session.execute(
        insert(JobRow),
        [
            _job(9998, JobState.CANCELLED, 9 * FOR_APPROVAL),
            _job(9999, JobState.WAITING, 9 * FOR_APPROVAL),
        ],
    )
    queued = [job["waits_since"] for job in JOBS if job["state"] == "queued"]
    assert queue.oldest_wait(session) == min(queued)


@pytest.mark.parametrize("closed", [(), ("ds_closed",), ("ds_closed", "ds_third")])
def test_jobs_are_overdue_one_moment_after_each_limit(
    session: Session, closed: tuple[str, ...]
) -> None:
    held = set(_ids(_reading(*closed)))
    leased_until = NOW + timedelta(seconds=TTL_S)

    def is_overdue(job: dict[str, Any]) -> bool:
        lease, asked = job["lease_until"], job["submitted_at"]
        is_over = lease is not None and bool(lease < NOW or lease > leased_until)
        match job["state"]:
            case JobState.RUNNING:
                return is_over
            case JobState.WAITING:
                return bool(asked < NOW - FOR_APPROVAL)
            case JobState.QUEUED if lease is None:
                since = max(asked, job["waits_since"])
                return bool(since < NOW - IN_QUEUE) and job["id"] not in held
            case state:
                return state == JobState.QUEUED and is_over

    found = queue.overdue(session, at=NOW, ttl_s=TTL_S, closed=closed, limit=9999)
    assert sorted(found) == _ids([job for job in JOBS if is_overdue(job)])
    firsts = {
        queue.overdue(session, at=NOW, ttl_s=TTL_S, closed=closed, limit=1)[0]
        for _ in range(40)
    }
    assert len(firsts) > 1, "one that cannot end hides no other"
    few = queue.overdue(session, at=NOW, ttl_s=TTL_S, closed=closed, limit=5)
    assert len(few) == 5
    assert set(few) <= set(found)


def test_an_upload_is_read_by_jobs_that_were_or_may_be_charged_of_its_dataset(
    session: Session,
) -> None:
    states = {state.value for state in UNFINISHED}
    for job in JOBS[::7]:
        upload = job["task"]["parts"][0]["epochs"][0]
        is_paid = job["charged_at"] is not None or job["state"] in states
        for dataset in DATASETS:
            expected = is_paid and (job["id"], dataset) in READS
            assert queue.reads_upload(session, dataset, upload) == expected


def test_the_time_in_the_queue_begins_anew_for_queued_jobs_of_one_dataset(
    session: Session,
) -> None:
    queue.restart_waits(session, "ds_closed", at=NOW + timedelta(hours=1))
    anew = {job["id"] for job in _reading("ds_closed") if job["state"] == "queued"}
    for job in JOBS:
        expected = NOW + timedelta(hours=1) if job["id"] in anew else job["waits_since"]
        assert queue.job(session, job["id"]).waits_since == expected


def test_unfinished_and_charged_jobs_of_a_dataset_are_listed_in_order_of_ids(
    session: Session,
) -> None:
    theirs = _reading("ds_third")
    unfinished = [job for job in theirs if job["state"] in UNFINISHED]
    running = [job for job in theirs if job["state"] == "running"]
    charged = [job for job in running if job["charged_at"] is not None]
    assert queue.unfinished_of(session, "ds_third") == _ids(unfinished)
    assert queue.charged_of(session, "ds_third") == _ids(charged)
    assert queue.charged_algorithms(session, "ds_third") == {"mrf", "nbrt"}
    assert queue.charged_algorithms(session, "ds_none") == set()
    for job in JOBS[::11]:
        assert queue.is_unfinished(session, job["id"]) == (job["state"] in UNFINISHED)


def test_jobs_are_read_in_the_order_of_the_given_ids(session: Session) -> None:
    ids = _ids(JOBS)[40:0:-1]
    several = queue.several(session, [*ids[:20], "jb_none", *ids[20:]])
    assert [row.id for row in several] == ids
    assert [row.id for row in queue.locked_several(session, ids)] == sorted(ids)
    by_id = {job["id"]: job for job in JOBS}
    assert queue.submitters(session, [*ids, "jb_none"]) == {
        id_: (by_id[id_]["dataset_id"], by_id[id_]["submitted_by"]) for id_ in ids
    }


def test_the_waiting_jobs_of_a_key_are_those_that_it_submitted(
    session: Session,
) -> None:
    waiting = [job for job in JOBS if job["state"] == "waiting"]
    theirs = [job for job in waiting if job["submitted_by"] == "A"]
    assert sorted(queue.waiting_of_key(session, "A")) == _ids(theirs)


@pytest.mark.parametrize("datasets", [None, ["ds_closed", "ds_third"]])
def test_jobs_that_wait_for_a_decision_are_paged_with_the_oldest_first(
    session: Session, datasets: list[str] | None
) -> None:
    waiting = [job for job in JOBS if job["state"] == "waiting"]
    decided = {job["id"] for job in waiting[::4]}
    for job in waiting:
        queue.ask_approval(session, job["id"], [job["dataset_id"]])
        if job["id"] in decided:
            rows = queue.approvals_of_job(session, job["id"])
            queue.record_decisions(rows, "approve", by="C", at=NOW)
    session.flush()
    expected = [
        job["id"]
        for job in sorted(waiting, key=lambda job: (job["submitted_at"], job["id"]))
        if job["id"] not in decided
        and (datasets is None or job["dataset_id"] in datasets)
    ]
    listed, after = list[str](), None
    while page := queue.page_of_waiting(
        session, dataset_ids=datasets, after=after, limit=4
    ):
        assert len(page) <= 4
        listed += page
        after = page[-1]
    assert listed == expected


def test_decisions_are_listed_in_order_of_datasets_and_those_of_other_jobs_stay_open(
    session: Session,
) -> None:
    asked = ["ds_third", "ds_closed", "ds_open"]
    queue.ask_approval(session, "jb_0000", asked)
    queue.ask_approval(session, "jb_0001", asked)
    session.expire_all()
    rows = queue.approvals_of_job(session, "jb_0000")
    assert [row.dataset_id for row in rows] == sorted(asked)
    queue.record_decisions(rows[:2], "approve", by="C", at=NOW)
    session.flush()
    for row in rows[:2]:
        assert (row.decided_by, row.decided_at) == ("C", NOW)
    assert queue.open_approvals(session, ["jb_0000", "jb_0001", "jb_0002"]) == {
        "jb_0000": ["ds_third"],
        "jb_0001": sorted(asked),
        "jb_0002": [],
    }


@pytest.mark.parametrize("closed", [(), ("ds_closed", "ds_third")])
def test_a_claim_holds_one_job_for_the_term_of_its_lease(
    session: Session, closed: tuple[str, ...]
) -> None:
    held_up = set(_ids(_reading(*closed)))
    row = next(
        row
        for job in JOBS
        if (row := queue.job(session, job["id"])).state == "queued"
        and row.lease_until is None
    )
    row.reason = "no-room"
    session.flush()
    ids = [job["id"] for job in JOBS if job["state"] == "queued"]
    assert queue.has_queued(session, closed=closed)
    n_claims = 0
    while claim := queue.claim(session, at=NOW, ttl_s=TTL_S, closed=closed):
        n_claims += 1
        held = queue.leased(session, claim)
        assert held.id in ids
        assert (held.state, held.reason) == ("running", None)
        assert held.lease_until == NOW + timedelta(seconds=TTL_S)
        queue.heartbeat(session, claim, at=NOW, ttl_s=2 * TTL_S, trees_done=5)
        session.expire_all()
        others = [job for job in JOBS if job["id"] not in ids]
        assert queue.leased(session, claim).trees_done == 5
        assert queue.leased(session, claim).lease_until == NOW + timedelta(seconds=60)
        assert all(
            queue.job(session, job["id"]).trees_done == 3 for job in others[::20]
        )
    free = [job for job in JOBS if job["state"] == "queued" and not job["lease_until"]]
    assert n_claims == len([job for job in free if job["id"] not in held_up])
    assert {"ds_third"} in [
        {dataset for id_, dataset in READS if id_ == job["id"]} for job in free
    ]


def test_workers_that_were_seen_lately_are_counted_and_dead_ones_forgotten(
    session: Session,
) -> None:
    queue.see_worker(session, "w_dead", at=NOW - timedelta(days=1, microseconds=1))
    queue.see_worker(session, "w_old", at=NOW - timedelta(days=1))
    since = timedelta(seconds=limits.WORKER_SEEN_S)
    queue.see_worker(session, "w_late", at=NOW - since - A_MICROSECOND)
    queue.see_worker(session, "w_edge", at=NOW - since)
    queue.see_worker(session, "w_new", at=NOW)
    queue.see_worker(session, "w_new", at=NOW)
    assert queue.n_workers(session, at=NOW) == 2
    assert queue.n_workers(session, at=NOW - timedelta(days=2)) == 4
    queue.forget_worker(session, "w_edge")
    assert queue.n_workers(session, at=NOW - timedelta(days=2)) == 3
    assert queue.n_workers(session, at=NOW) == 1


FILTERS: list[dict[str, Any]] = [
    {},
    {"kind": "train"},
    {"algorithm": "nbrt"},
    {"state": "queued"},
    {"since": NOW - IN_QUEUE},
    {"is_put_back": True},
    {"submitters": ["A", "nobody"]},
    {"kind": "train", "state": "failed", "since": NOW - FOR_APPROVAL},
]


@pytest.mark.parametrize("fields", FILTERS, ids=str)
@pytest.mark.parametrize("datasets", [None, ["ds_closed", "ds_third"]])
def test_jobs_are_paged_with_the_newest_first(
    session: Session, fields: dict[str, Any], datasets: list[str] | None
) -> None:
    def is_listed(job: dict[str, Any]) -> bool:
        return (
            (datasets is None or job["dataset_id"] in datasets)
            and all(
                job[name] == fields[name]
                for name in ("kind", "algorithm", "state")
                if name in fields
            )
            and ("submitters" not in fields or job["submitted_by"] == "A")
            and ("since" not in fields or job["submitted_at"] >= fields["since"])
            and (
                "is_put_back" not in fields
                or (job["state"] == "queued" and job["reason"] is not None)
            )
        )

    newest = sorted(JOBS, key=lambda job: (job["submitted_at"], job["id"]))[::-1]
    expected = [job["id"] for job in newest if is_listed(job)]
    assert expected
    listed, before = list[str](), None
    while page := queue.page(
        session,
        dataset_ids=datasets,
        before=before,
        limit=7,
        matching=queue.JobFilter(**fields),
    ):
        assert len(page) <= 7
        listed += page
        before = page[-1]
    assert listed == expected


def test_a_charged_job_left_the_queue_at_its_charge_and_not_at_its_end(
    installation: Installation,
) -> None:
    minutes = [timedelta(minutes=number) for number in range(10)]
    jobs = [
        _job(
            number,
            state,
            minutes[9 - number],
            submitted_by=key,
            charged_at=None if charged is None else NOW + minutes[charged],
            finished_at=None if charged is None else NOW + minutes[finished],
        )
        for number, (state, key, charged, finished) in enumerate(
            [
                (JobState.SUCCEEDED, "A", 1, 9),
                (JobState.SUCCEEDED, "B", 5, 6),
                (JobState.QUEUED, "B", None, 0),
                (JobState.QUEUED, "A", None, 0),
            ]
        )
    ]
    with installation.database.write() as session:
        session.execute(insert(JobRow), jobs)
        claim = queue.claim(session, at=NOW, ttl_s=TTL_S)
        assert claim is not None
        assert claim.job_id == jobs[3]["id"]
