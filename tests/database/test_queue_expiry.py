"""The reservations and jobs that the sweeper settles, and at which second, on both
databases.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta

import pytest
from sqlalchemy.orm import Session

from app.cli.serve import upkeep
from app.core import limits
from app.core.errors import BudgetExceeded, LeaseLost, Unavailable
from app.db.database import Database, transaction_time
from app.jobs import queue
from app.services.execution import charge, run_job
from app.services.execution.sweep import settle_overdue
from app.services.ledger.heads import Heads
from tests.support.crash_scene import Scene
from tests.support.job_kinds import submitted_and_claimed
from tests.support.sweeping import expired_at
from tests.support.waiting import wait_for

pytestmark = pytest.mark.contract

TTL_S = 600
A_MICROSECOND = timedelta(microseconds=1)
THE_QUEUE_LIMIT = timedelta(seconds=limits.MAX_QUEUE_S)


@pytest.fixture
def scene(scene: Scene) -> Scene:
    return scene.with_leases(TTL_S)


def test_a_claimed_job_goes_back_to_the_queue_once_its_lease_is_over(
    scene: Scene,
) -> None:
    job_id, _ = submitted_and_claimed(scene)
    lease_until = scene.job(job_id).lease_until
    assert lease_until is not None
    assert expired_at(scene.installation, lease_until) == 0
    assert scene.end(job_id) == ("running", None, ["reserve"])
    assert expired_at(scene.installation, lease_until + A_MICROSECOND) == 1
    assert scene.end(job_id) == ("queued", None, ["reserve"])
    assert expired_at(scene.installation, lease_until + A_MICROSECOND) == 0


def test_a_lease_that_began_before_the_clock_was_set_back_ends_like_one_that_begins_now(
    scene: Scene,
) -> None:
    job_id, _ = submitted_and_claimed(scene)
    lease_until = scene.job(job_id).lease_until
    assert lease_until is not None
    an_hour_earlier = lease_until - timedelta(seconds=TTL_S, hours=1)
    assert expired_at(scene.installation, an_hour_earlier) == 0
    assert scene.end(job_id) == ("running", None, ["reserve"])
    assert (
        expired_at(
            scene.installation,
            an_hour_earlier + timedelta(seconds=TTL_S) + A_MICROSECOND,
        )
        == 1
    )
    assert scene.end(job_id) == ("queued", None, ["reserve"])


def test_a_serving_process_ends_a_lost_job_while_every_worker_is_busy(
    scene: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    """A worker sweeps between two jobs, and a job may take hours."""
    job_id, claim = submitted_and_claimed(scene)
    charge.charge_claimed(scene.installation, claim)
    with scene.installation.database.write() as session:
        queue.job(session, job_id).lease_until = transaction_time(session) - timedelta(
            seconds=1
        )
    brief = replace(
        scene.installation, settings=replace(scene.installation.settings, lease_ttl_s=3)
    )
    tasks = upkeep(brief, Heads(brief))
    for task in tasks:
        task.start()
    wait_for("the job is lost", lambda: scene.end(job_id)[:2] == ("failed", "lost"))
    wait_for("the loss is logged", lambda: "a paid job was lost" in caplog.text)
    for task in tasks:
        task.stop()


def test_a_charged_job_whose_lease_is_over_is_lost_and_spent(
    scene: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    job_id, claim = submitted_and_claimed(scene)
    charge.charge_claimed(scene.installation, claim)
    lease_until = scene.job(job_id).lease_until
    assert lease_until is not None
    assert expired_at(scene.installation, lease_until) == 0
    assert not caplog.records
    assert expired_at(scene.installation, lease_until + A_MICROSECOND) == 1
    assert scene.end(job_id) == ("failed", "lost", ["reserve", "charge"])
    (warning,) = caplog.records
    facts = (
        warning.levelname,
        vars(warning)["job_id"],
        vars(warning)["account_id"],
        vars(warning)["reservation_id"],
    )
    assert facts == (
        "WARNING",
        job_id,
        scene.dataset_id,
        scene.job(job_id).parts[0].reservation_id,
    )
    assert scene.verified().tightest.charged == 10_000_000


def test_a_sweep_that_is_rolled_back_logs_no_loss(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    job_id, claim = submitted_and_claimed(scene)
    charge.charge_claimed(scene.installation, claim)
    lease_until = scene.job(job_id).lease_until
    assert lease_until is not None
    write = Database.write

    @contextmanager
    def cut(database: Database) -> Iterator[Session]:
        with write(database) as session:
            yield session
            raise Unavailable("the connection broke before the commit")

    with monkeypatch.context() as broken, pytest.raises(Unavailable):
        broken.setattr(Database, "write", cut)
        expired_at(scene.installation, lease_until + A_MICROSECOND)
    assert (scene.job(job_id).state, caplog.records) == ("running", [])
    assert expired_at(scene.installation, lease_until + A_MICROSECOND) == 1
    assert [vars(warning)["job_id"] for warning in caplog.records] == [job_id]


def test_a_job_that_waited_for_too_long_expires_with_its_reservation(
    scene: Scene,
) -> None:
    job_id = scene.submit_job(key="k", epsilon="3")
    deadline = scene.job(job_id).submitted_at + THE_QUEUE_LIMIT
    assert expired_at(scene.installation, deadline) == 0
    assert scene.end(job_id) == ("queued", None, ["reserve"])
    with pytest.raises(BudgetExceeded):
        scene.submit(key="next", epsilon="0.1")
    assert expired_at(scene.installation, deadline + A_MICROSECOND) == 1
    assert scene.end(job_id) == ("failed", "not-started", ["reserve", "expire"])
    assert scene.verified().tightest.load == 0
    scene.submit(key="next", epsilon="3")


def test_a_job_that_waited_for_too_long_expires_at_the_end_of_an_uncharged_claim(
    scene: Scene,
) -> None:
    job_id, claim = submitted_and_claimed(scene)
    assert (
        expired_at(
            scene.installation,
            scene.job(job_id).submitted_at + THE_QUEUE_LIMIT + A_MICROSECOND,
        )
        == 1
    )
    assert scene.end(job_id) == ("failed", "not-started", ["reserve", "expire"])
    with pytest.raises(LeaseLost):
        charge.charge_claimed(scene.installation, claim)


def test_a_job_that_runs_for_longer_than_the_queues_limit_is_left_alone(
    scene: Scene,
) -> None:
    job_id, claim = submitted_and_claimed(scene)
    charge.charge_claimed(scene.installation, claim)
    with scene.installation.database.write() as session:
        row = queue.leased(session, claim)
        row.submitted_at = row.waits_since = (
            row.submitted_at - THE_QUEUE_LIMIT - timedelta(hours=1)
        )
    assert settle_overdue(scene.installation) == 0
    assert scene.end(job_id) == ("running", None, ["reserve", "charge"])


def test_jobs_are_settled_each_by_its_own_facts(scene: Scene) -> None:
    charged, claim = submitted_and_claimed(scene)
    charge.charge_claimed(scene.installation, claim)
    claimed = scene.submit_job(key="second")
    assert run_job.claim_next(scene.installation) is not None
    queued = scene.submit_job(key="third")
    lease_until = scene.job(claimed).lease_until
    assert lease_until is not None
    assert expired_at(scene.installation, lease_until + timedelta(seconds=60)) == 2
    assert scene.end(charged) == ("failed", "lost", ["reserve", "charge"])
    assert scene.end(claimed) == ("queued", None, ["reserve"])
    assert scene.end(queued) == ("queued", None, ["reserve"])
    scene.verified()
