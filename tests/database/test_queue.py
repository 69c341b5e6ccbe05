"""The leases of the queue on both databases: which worker holds a job, and that no
other worker writes.
"""

from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy import select

from app.core.errors import LeaseLost, NotFound
from app.jobs import queue
from app.jobs.tables import JobRow
from app.services.execution import charge, lease, run_job
from tests.support.crash_scene import Scene
from tests.support.job_kinds import claimed
from tests.support.sweeping import expired_at

pytestmark = pytest.mark.contract

TTL_S = 600


@pytest.fixture
def scene(scene: Scene) -> Scene:
    return scene.with_leases(TTL_S)


@pytest.fixture
def postgresql_scene(postgresql_scene: Scene) -> Scene:
    """PostgreSQL only: on SQLite a write transaction excludes every other one."""
    return postgresql_scene.with_leases(TTL_S)


def _after_leases(scene: Scene) -> datetime:
    return datetime.now(UTC) + timedelta(seconds=TTL_S + 60)


def test_jobs_are_claimed_once_each_oldest_first(scene: Scene) -> None:
    submitted = [scene.submit_job(key=f"k{number}") for number in range(3)]
    claims = [run_job.claim_next(scene.installation) for _ in range(4)]
    assert [claim and claim.job_id for claim in claims] == [*submitted, None]
    assert len({claim.token for claim in claims if claim}) == 3
    assert [scene.job(job_id).state for job_id in submitted] == ["running"] * 3


def test_a_claimant_passes_a_job_that_another_is_claiming(
    postgresql_scene: Scene,
) -> None:
    scene = postgresql_scene
    first, second = scene.submit_job(key="first"), scene.submit_job(key="second")
    at, database = datetime.now(UTC), scene.installation.database
    with database.write() as one, database.write() as other:
        claims = [queue.claim(session, at=at, ttl_s=TTL_S) for session in (one, other)]
    assert [claim and claim.job_id for claim in claims] == [first, second]


def test_a_claimant_passes_a_job_that_left_the_queue_before_its_lock(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The order of claims is read without locks: another worker may hold the job by
    then, or have charged it.
    """
    charged, held, waiting = (scene.submit_job(key=key) for key in "abc")
    charge.charge_claimed(scene.installation, claimed(scene.installation))
    token = claimed(scene.installation).token
    order = select(JobRow.id).order_by(JobRow.submitted_at)
    monkeypatch.setattr(queue, "_in_order", lambda *_: order)
    assert claimed(scene.installation).job_id == waiting
    assert run_job.claim_next(scene.installation) is None
    assert scene.job(charged).lease_token != token == scene.job(held).lease_token


def test_a_token_that_is_not_the_jobs_own_writes_nothing(scene: Scene) -> None:
    job_id = scene.submit_job(key="k")
    claim = claimed(scene.installation)
    stranger = queue.Claim(job_id, "0" * 32)
    before = scene.job(job_id).lease_until
    with pytest.raises(LeaseLost):
        lease.heartbeat(scene.installation, stranger, trees_done=1)
    with pytest.raises(LeaseLost):
        charge.charge_claimed(scene.installation, stranger)
    after = scene.job(job_id)
    assert (after.lease_token, after.lease_until, after.trees_done) == (
        claim.token,
        before,
        0,
    )
    assert scene.kinds_of(job_id) == ["reserve"]


def test_a_heartbeat_extends_the_lease_and_notes_progress(scene: Scene) -> None:
    job_id = scene.submit_job(key="k")
    claim = claimed(scene.installation)
    before = scene.job(job_id).lease_until
    lease.heartbeat(scene.installation, claim, trees_done=1)
    after = scene.job(job_id)
    assert before is not None
    assert after.lease_until is not None
    assert after.lease_until > before
    assert after.trees_done == 1


def test_a_worker_that_lost_its_lease_cannot_charge_and_the_next_one_can(
    scene: Scene,
) -> None:
    job_id = scene.submit_job(key="k")
    slow = claimed(scene.installation)
    assert expired_at(scene.installation, _after_leases(scene)) == 1
    with pytest.raises(LeaseLost):
        charge.charge_claimed(scene.installation, slow)
    quick = claimed(scene.installation)
    with pytest.raises(LeaseLost):
        charge.charge_claimed(scene.installation, slow)
    assert scene.kinds_of(job_id) == ["reserve"]
    charge.charge_claimed(scene.installation, quick)
    assert scene.kinds_of(job_id) == ["reserve", "charge"]


def test_a_charged_job_is_not_charged_again(scene: Scene) -> None:
    job_id = scene.submit_job(key="k")
    claim = claimed(scene.installation)
    charge.charge_claimed(scene.installation, claim)
    with pytest.raises(LeaseLost):
        charge.charge_claimed(scene.installation, claim)
    assert scene.kinds_of(job_id) == ["reserve", "charge"]


def test_a_page_of_jobs_goes_on_where_the_last_one_ended(scene: Scene) -> None:
    submitted = [scene.submit_job(key=f"k{number}") for number in range(5)]
    shown: list[str] = []
    with scene.installation.database.read() as session:
        while True:
            before = shown[-1] if shown else None
            page = queue.page(
                session, dataset_ids=[scene.dataset_id], before=before, limit=2
            )
            if not page:
                break
            shown += page
        assert shown == submitted[::-1]
        assert queue.page(session, dataset_ids=[], before=None, limit=2) == []
        assert queue.page(session, dataset_ids=None, before=None, limit=9) == shown


def test_a_job_that_is_not_there_is_not_found(scene: Scene) -> None:
    with scene.installation.database.write() as session:
        for look in (queue.job, queue.locked):
            with pytest.raises(NotFound, match="no such job"):
                look(session, "jb_none")
        assert not queue.is_unfinished(session, "jb_none")
