"""Jobs that wait for an approval, on both databases: when, who decides, and what each
end leaves in the ledger.
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import timedelta
from threading import Event
from typing import Any
from unittest.mock import patch

import pytest

from app.access.tables import KeyRow
from app.core import limits, stamps
from app.core.errors import (
    BudgetExceeded,
    NeedsApproval,
    NotFound,
    NotWaiting,
    RoleMissing,
    SameSubmitter,
    SubmitterRevoked,
    TooManyRequests,
)
from app.jobs import queue
from app.ledger import tables
from app.services.dataset_rules import list_approvals, list_decisions
from app.services.datasets.erase import delete_dataset
from app.services.execution import run_job
from app.services.execution.sweep import settle_overdue
from app.services.jobs.show_jobs import cancel_job, show_job
from app.services.keys import put_grant, remove_grant, revoke_key
from app.services.ledger import audit
from app.services.pagination import PageRequest
from app.wire.training import PlanIn
from tests.support import job_kinds
from tests.support.asking import show_plan
from tests.support.crash_scene import ADMIN, OWNER, STRANGER, Scene, open_installation
from tests.support.databases import on_one_database
from tests.support.job_kinds import claimed, must_not_run, run_here
from tests.support.ruled import SECOND, decided, grant, set_rules
from tests.support.set_limits import SetLimit
from tests.support.sweeping import expired_at
from tests.support.two_datasets import Pair

pytestmark = pytest.mark.contract

A_WEEK = timedelta(seconds=limits.MAX_APPROVAL_S)
A_MICROSECOND = timedelta(microseconds=1)


@pytest.fixture
def guarded(scene: Scene) -> Scene:
    """A key that spends more than 0.5 needs an approval. The second key is an analyst."""
    grant(scene, "analyst")
    set_rules(scene, approval_above="0.5")
    return scene


def _submitted(scene: Scene, key: str, epsilon: str) -> tuple[str, str]:
    """Submits a job of the analyst; returns its id and state."""
    job_id = scene.submit_job(key=key, epsilon=epsilon, by=SECOND)
    return job_id, scene.job(job_id).state


def test_a_key_waits_once_its_jobs_together_are_above_the_limit(guarded: Scene) -> None:
    assert _submitted(guarded, "a", "0.3")[1] == "queued"
    first, state = _submitted(guarded, "b", "0.2")
    assert state == "queued", "exactly at the limit"
    waiting, state = _submitted(guarded, "c", "0.000000001")
    assert state == "waiting"
    assert guarded.submit_job(key="d", epsilon="0.5"), (
        "other keys have a count of their own"
    )
    assert guarded.kinds_of(waiting) == ["reserve"]
    cancel_job(guarded.installation, SECOND, first)
    assert _submitted(guarded, "e", "0.1")[1] == "queued", (
        "what was given back does not count"
    )
    assert guarded.verified().tightest.reserved == 10**9 - 10**8 + 1


@on_one_database
def test_an_approval_queues_the_job_and_begins_a_new_count(guarded: Scene) -> None:
    job_id, state = _submitted(guarded, "a", "0.6")
    assert state == "waiting"
    assert run_job.claim_next(guarded.installation) is None
    assert show_job(guarded.installation, SECOND, job_id).state == "waiting"
    (listed,) = list_approvals(guarded.installation, OWNER, PageRequest()).approvals
    assert (
        listed.job,
        listed.submitted_by,
        [part.price.amount for part in listed.parts],
    ) == (
        job_id,
        SECOND.key_id,
        ["0.6"],
    )
    assert decided(guarded, job_id, "approve", by=OWNER).state == "queued"
    assert list_approvals(guarded.installation, OWNER, PageRequest()).approvals == []
    assert claimed(guarded.installation).job_id == job_id
    assert _submitted(guarded, "b", "0.5")[1] == "queued"
    assert _submitted(guarded, "c", "0.1")[1] == "waiting"
    act = audit.list_acts(guarded.installation, ADMIN, PageRequest(limit=500)).acts[-1]
    assert (act.kind, act.actor, act.details) == (
        "job-approved",
        OWNER.key_id,
        {"job": job_id, "datasets": [guarded.dataset_id], "reason": "a test"},
    )


def test_a_rejection_voids_the_reservation(guarded: Scene) -> None:
    job_id, _ = _submitted(guarded, "a", "0.6")
    assert decided(guarded, job_id, "reject", by=OWNER).state == "cancelled"
    assert guarded.end(job_id) == ("cancelled", "rejected", ["reserve", "void"])
    assert guarded.verified().tightest.load == 0
    assert _submitted(guarded, "b", "0.5")[1] == "queued"


def test_a_job_that_nobody_decides_expires_after_a_week(guarded: Scene) -> None:
    job_id, _ = _submitted(guarded, "a", "0.6")
    deadline = guarded.job(job_id).submitted_at + A_WEEK
    assert expired_at(guarded.installation, deadline) == 0
    assert expired_at(guarded.installation, deadline + A_MICROSECOND) == 1
    assert guarded.end(job_id) == ("failed", "not-approved", ["reserve", "expire"])
    with pytest.raises(NotWaiting):
        decided(guarded, job_id, "approve", by=OWNER)


def test_a_job_is_not_approved_after_its_week_although_nobody_swept(
    guarded: Scene,
) -> None:
    job_id, _ = _submitted(guarded, "a", "0.6")
    with guarded.installation.database.write() as session:
        row = session.merge(guarded.job(job_id))
        row.waits_since = stamps.now() - A_WEEK - timedelta(seconds=1)
    for decision in ("approve", "reject"):
        with pytest.raises(NotWaiting):
            decided(guarded, job_id, decision, by=OWNER)


def test_an_approved_job_has_the_whole_time_of_the_queue(guarded: Scene) -> None:
    job_id, _ = _submitted(guarded, "a", "0.6")
    six_days = timedelta(days=6)
    with guarded.installation.database.write() as session:
        row = session.merge(guarded.job(job_id))
        row.submitted_at = row.waits_since = row.submitted_at - six_days
    decided(guarded, job_id, "approve", by=OWNER)
    queued_at = guarded.job(job_id).waits_since
    assert (
        expired_at(
            guarded.installation, queued_at + timedelta(seconds=limits.MAX_QUEUE_S)
        )
        == 0
    )
    assert (
        expired_at(
            guarded.installation,
            queued_at + timedelta(seconds=limits.MAX_QUEUE_S) + A_MICROSECOND,
        )
        == 1
    )


@on_one_database
def test_only_an_owner_other_than_the_submitter_decides(guarded: Scene) -> None:
    job_id, _ = _submitted(guarded, "a", "0.6")
    with pytest.raises(RoleMissing):
        decided(guarded, job_id, "approve", by=SECOND)
    with pytest.raises(NotFound):
        decided(guarded, "jb_nothing", "approve", by=OWNER)
    grant(guarded, "owner")
    with pytest.raises(SameSubmitter):
        decided(guarded, job_id, "approve", by=SECOND)
    with pytest.raises(SameSubmitter):
        decided(guarded, job_id, "reject", by=SECOND)
    assert guarded.job(job_id).state == "waiting"
    mine = guarded.submit_job(key="b", epsilon="0.7")
    with pytest.raises(SameSubmitter):
        decided(guarded, mine, "approve", by=OWNER)
    assert decided(guarded, mine, "approve", by=SECOND).state == "queued"
    assert decided(guarded, job_id, "approve", by=ADMIN).state == "queued", (
        "an admin is an owner everywhere"
    )


def test_a_job_is_decided_once(guarded: Scene) -> None:
    for number, end in enumerate(("approve", "reject", "cancel", "erase")):
        job_id, _ = _submitted(guarded, str(number), "0.6")
        if end == "cancel":
            cancel_job(guarded.installation, SECOND, job_id)
        elif end == "erase":
            delete_dataset(guarded.installation, OWNER, guarded.dataset_id)
        else:
            decided(guarded, job_id, end, by=OWNER)
        for decision in ("approve", "reject"):
            with pytest.raises(NotWaiting):
                decided(guarded, job_id, decision, by=ADMIN)
        assert guarded.kinds_of(job_id) == (
            ["reserve"] if end == "approve" else ["reserve", "void"]
        )
        if end == "approve":
            cancel_job(guarded.installation, SECOND, job_id)
    assert guarded.verified().tightest.load == 0


@on_one_database
def test_cancelling_and_submitting_again_gains_no_approval(guarded: Scene) -> None:
    """An approval does not count for more than was approved, whatever is given back
    afterwards.
    """
    early, _ = _submitted(guarded, "a", "0.4")
    large, _ = _submitted(guarded, "b", "1")
    decided(guarded, large, "approve", by=OWNER)
    cancel_job(guarded.installation, SECOND, large)
    cancel_job(guarded.installation, SECOND, early)
    assert _submitted(guarded, "c", "0.5")[1] == "queued"
    assert _submitted(guarded, "d", "0.1")[1] == "waiting"


@on_one_database
def test_an_approval_does_not_cover_other_waiting_jobs(guarded: Scene) -> None:
    first, _ = _submitted(guarded, "a", "0.6")
    second, _ = _submitted(guarded, "b", "0.6")
    decided(guarded, first, "approve", by=OWNER)
    assert guarded.job(second).state == "waiting"
    small, state = _submitted(guarded, "c", "0.1")
    assert state == "waiting", "the second job still counts"
    decided(guarded, second, "approve", by=OWNER)
    decided(guarded, small, "reject", by=OWNER)
    assert _submitted(guarded, "d", "0.5")[1] == "queued"


def test_an_approval_covers_no_job_that_began_to_wait_before_it_had_its_locks(
    postgresql_scene: Scene,
) -> None:
    grant(postgresql_scene, "analyst")
    set_rules(postgresql_scene, approval_above="0.5")
    first, _ = _submitted(postgresql_scene, "a", "0.6")
    locked_account, meanwhile = tables.locked_account, list[str]()

    def locked(*arguments: Any) -> Any:
        if not meanwhile:
            meanwhile.append("b")
            assert _submitted(postgresql_scene, "b", "0.6")[1] == "waiting"
        return locked_account(*arguments)

    with patch.object(tables, "locked_account", locked):
        decided(postgresql_scene, first, "approve", by=OWNER)
    assert _submitted(postgresql_scene, "c", "0.1")[1] == "waiting", (
        "the second job still counts"
    )


def test_a_key_has_at_most_three_waiting_jobs_over_all_datasets(guarded: Scene) -> None:
    other = Pair.beside(guarded).second
    grant(other, "analyst")
    set_rules(other, approval_above="0.1")
    jobs = [
        _submitted(place, str(number), "0.6")[0]
        for number, place in enumerate((guarded, other, guarded))
    ]
    n_entries = len(guarded.entries()), len(other.entries())
    for place in (guarded, other):
        with pytest.raises(TooManyRequests, match="3 at most") as refused:
            _submitted(place, "more", "0.6")
        assert refused.value.retry_after_s == limits.APPROVAL_RETRY_S
    assert (len(guarded.entries()), len(other.entries())) == n_entries, (
        "nothing was reserved"
    )
    decided(guarded, jobs[0], "reject", by=OWNER)
    assert _submitted(other, "more", "0.6")[1] == "waiting"


def test_submissions_at_once_on_two_datasets_count_one_another(
    postgresql_scene: Scene,
) -> None:
    """A submission counts the waiting jobs only when no other submission of the key is
    between count and commit.
    """
    pair = Pair.beside(postgresql_scene)
    for place in (pair.first, pair.second):
        grant(place, "analyst")
        set_rules(place, approval_above="0.1")
    for number in range(2):
        _submitted(pair.first, str(number), "0.2")
    settings = postgresql_scene.installation.settings
    other_process = open_installation(settings.database_url, settings.home)
    elsewhere = replace(pair.second, installation=other_process)
    counted, goes_on = Event(), Event()
    ask_approval = queue.ask_approval

    def ask(*arguments: Any) -> None:
        counted.set()
        assert goes_on.wait(60)
        ask_approval(*arguments)

    with ThreadPoolExecutor(2) as pool, patch.object(queue, "ask_approval", ask):
        third = pool.submit(_submitted, pair.first, "third", "0.2")
        assert counted.wait(60)
        fourth = pool.submit(_submitted, elsewhere, "fourth", "0.2")
        with pytest.raises(TimeoutError):
            fourth.result(1)
        goes_on.set()
        assert third.result(60)[1] == "waiting"
        with pytest.raises(TooManyRequests):
            fourth.result(60)
    other_process.close()


def test_every_kind_of_job_waits_and_runs_once_it_is_approved(scene: Scene) -> None:
    model = job_kinds.model(scene, "m")
    set_rules(scene, approval_above="0.1")
    jobs = [job_kinds.profile(scene), job_kinds.evaluation(scene, model)]
    assert [scene.job(job_id).state for job_id in jobs] == ["waiting"] * 2
    for job_id in jobs:
        decided(scene, job_id, "approve", by=ADMIN)
        job_kinds.run(scene)
        assert scene.end(job_id) == ("succeeded", None, ["reserve", "charge"])
    scene.verified()


@on_one_database
def test_a_waiting_job_holds_its_price_and_later_rules_do_not_change_it(
    guarded: Scene,
) -> None:
    job_id, _ = _submitted(guarded, "a", "3")
    with pytest.raises(BudgetExceeded):
        guarded.submit(key="b")
    set_rules(guarded, approval_above="0.5", largest_job="0.2")
    decided(guarded, job_id, "approve", by=OWNER)
    job_kinds.run(guarded)
    assert guarded.end(job_id) == ("succeeded", None, ["reserve", "charge"])


@on_one_database
def test_a_charge_that_cannot_wait_is_refused(guarded: Scene) -> None:
    guarded.charge_external(key="a", epsilon="0.4")
    with pytest.raises(NeedsApproval) as refused:
        guarded.charge_external(key="b", epsilon="0.2")
    assert refused.value.largest_that_fits == "0.1"
    guarded.charge_external(key="b", epsilon="0.1")
    assert guarded.verified().tightest.charged == 5 * 10**8


@on_one_database
def test_a_quote_says_that_a_job_needs_an_approval(guarded: Scene) -> None:
    for epsilon, needs in (("0.5", False), ("0.500000001", True)):
        body = PlanIn.model_validate(
            {"dataset": guarded.dataset_id, "algorithm": "rdt-ta", "epsilon": epsilon}
        )
        quote = show_plan(guarded.installation, SECOND, body)
        assert (quote.fits, quote.needs_approval) == (True, needs)


def _pair_of_two_owners(scene: Scene) -> Pair:
    """Two datasets whose jobs wait for approvals; the second has another owner, too."""
    pair = Pair.beside(scene)
    for place in (pair.first, pair.second):
        set_rules(place, approval_above="0.001")
    grant(pair.second, "owner")
    return pair


@on_one_database
def test_each_dataset_of_a_job_is_approved_by_its_owner(scene: Scene) -> None:
    pair = _pair_of_two_owners(scene)
    job_id = pair.submit(key="a")
    assert decided(pair.second, job_id, "approve", by=SECOND).state == "waiting"
    with pytest.raises(NotWaiting):
        decided(pair.second, job_id, "reject", by=SECOND)
    (listed,) = list_approvals(scene.installation, ADMIN, PageRequest()).approvals
    assert [part.dataset for part in listed.parts] == [pair.first.dataset_id]
    assert list_approvals(scene.installation, SECOND, PageRequest()).approvals == []
    assert decided(pair.first, job_id, "approve", by=ADMIN).state == "queued"
    rejected = pair.submit(key="b")
    decided(pair.second, rejected, "reject", by=SECOND)
    assert pair.kinds_of(rejected) == (["reserve", "void"], ["reserve", "void"])
    pair.verify()


@on_one_database
def test_an_owner_ends_no_count_on_a_dataset_of_others(scene: Scene) -> None:
    pair = _pair_of_two_owners(scene)
    set_rules(pair.first, approval_above="0.5", by=ADMIN)
    assert scene.job(scene.submit_job(key="a", epsilon="0.4")).state == "queued"
    both = pair.submit(key="b", epsilon="0.2")
    decided(pair.second, both, "approve", by=SECOND)
    decided(pair.first, both, "reject", by=ADMIN)
    again = scene.submit_job(key="c", epsilon="0.2")
    assert scene.job(again).state == "waiting", "nobody has approved the first job"


@on_one_database
def test_an_owner_of_one_dataset_of_a_job_is_shown_no_part_on_another(
    scene: Scene,
) -> None:
    pair = _pair_of_two_owners(scene)
    pair.submit(key="a")
    (listed,) = list_approvals(scene.installation, SECOND, PageRequest()).approvals
    assert [part.dataset for part in listed.parts] == [pair.second.dataset_id]


@on_one_database
def test_a_decision_for_two_datasets_is_shown_to_owners_of_both_alone(
    scene: Scene,
) -> None:
    pair = _pair_of_two_owners(scene)
    job_id = pair.submit(key="a")
    decided(pair.first, job_id, "approve", by=ADMIN)
    assert list_decisions(scene.installation, SECOND) == []
    (decision,) = list_decisions(scene.installation, OWNER)
    assert decision.job.job == job_id


def test_a_replay_answers_waiting_after_the_decision(guarded: Scene) -> None:
    first = guarded.submit(key="a", epsilon="0.6", by=SECOND)
    assert b'"state":"waiting"' in first.body
    (listed,) = list_approvals(guarded.installation, OWNER, PageRequest()).approvals
    decided(guarded, listed.job, "approve", by=OWNER)
    set_rules(guarded, approval_above="0.1", frozen=True)
    assert guarded.submit(key="a", epsilon="0.6", by=SECOND) == first


def test_the_list_of_approvals_has_pages_in_order_of_submission(guarded: Scene) -> None:
    jobs = [_submitted(guarded, str(number), "0.6")[0] for number in range(3)]
    listed, cursor = list[str](), None
    for _ in jobs:
        page = list_approvals(
            guarded.installation, OWNER, PageRequest(limit=1, cursor=cursor)
        )
        listed += [approval.job for approval in page.approvals]
        cursor = page.next
    assert (listed, cursor) == (jobs, None)
    assert list_approvals(guarded.installation, STRANGER, PageRequest()).approvals == []


@on_one_database
def test_a_page_of_approvals_ends_where_their_tasks_are_large(
    guarded: Scene, set_limit: SetLimit
) -> None:
    """A task may name thousands of uploads."""
    jobs = [_submitted(guarded, str(number), "0.6")[0] for number in range(2)]
    set_limit("MAX_PAGE_BYTES", 1)
    first = list_approvals(guarded.installation, OWNER, PageRequest(500))
    second = list_approvals(guarded.installation, OWNER, PageRequest(500, first.next))
    pages = [[approval.job for approval in page.approvals] for page in (first, second)]
    assert (pages, second.next) == ([[job] for job in jobs], None)


def _expire(scene: Scene) -> None:
    with scene.installation.database.write() as session:
        row = session.get_one(KeyRow, SECOND.key_id)
        row.expires_at = stamps.now() - A_MICROSECOND


LOSSES: dict[str, tuple[Callable[[Scene], object], str]] = {
    "another role": (lambda scene: grant(scene, "predictor"), "revoked"),
    "no grant": (
        lambda scene: remove_grant(
            scene.installation, OWNER, scene.dataset_id, SECOND.key_id
        ),
        "revoked",
    ),
    "no key": (
        lambda scene: revoke_key(scene.installation, ADMIN, SECOND.key_id),
        "revoked",
    ),
    "the end of the key": (_expire, "key-expired"),
}
"""How a submitter loses the right to train, and the reason of its jobs' end."""


@on_one_database
@pytest.mark.parametrize("loss", LOSSES)
def test_an_approval_ends_the_job_of_a_submitter_that_may_not_train(
    guarded: Scene, loss: str
) -> None:
    lose, reason = LOSSES[loss]
    job_id, _ = _submitted(guarded, "a", "0.6")
    lose(guarded)
    with pytest.raises(SubmitterRevoked) as refused:
        decided(guarded, job_id, "approve", by=OWNER)
    assert refused.value.reason == reason
    assert guarded.end(job_id) == ("failed", reason, ["reserve", "void"])
    assert guarded.verified().tightest.load == 0
    assert list_approvals(guarded.installation, OWNER, PageRequest()).approvals == []
    acts = audit.list_acts(guarded.installation, ADMIN, PageRequest(limit=500)).acts
    assert "job-approved" not in [act.kind for act in acts]


def test_a_waiting_job_ends_with_the_key_of_its_submitter(guarded: Scene) -> None:
    job_id, _ = _submitted(guarded, "a", "0.6")
    other = guarded.submit_job(key="b", by=OWNER)
    revoke_key(guarded.installation, ADMIN, SECOND.key_id)
    assert settle_overdue(guarded.installation) == 1
    assert guarded.end(job_id) == ("failed", "revoked", ["reserve", "void"])
    assert guarded.end(other) == ("queued", None, ["reserve"])


@on_one_database
def test_a_job_of_a_submitter_that_may_not_train_can_be_rejected(
    guarded: Scene,
) -> None:
    job_id, _ = _submitted(guarded, "a", "0.6")
    revoke_key(guarded.installation, ADMIN, SECOND.key_id)
    assert decided(guarded, job_id, "reject", by=OWNER).state == "cancelled"


@on_one_database
def test_a_submitter_that_loses_its_grant_after_the_approval_gets_no_charge(
    guarded: Scene,
) -> None:
    job_id, _ = _submitted(guarded, "a", "0.6")
    decided(guarded, job_id, "approve", by=OWNER)
    put_grant(
        guarded.installation, OWNER, guarded.dataset_id, SECOND.key_id, role="predictor"
    )
    run_here(guarded.installation, claimed(guarded.installation), must_not_run)
    assert guarded.end(job_id) == ("failed", "revoked", ["reserve", "void"])
