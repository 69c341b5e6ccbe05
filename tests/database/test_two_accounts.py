"""Every end of a job that two accounts pay for settles both accounts exactly once, on
both databases.
"""

from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from unittest.mock import patch

import pytest

from app.access.idempotency import IdempotentRequest
from app.core.errors import (
    BudgetExceeded,
    DatasetDeleted,
    Frozen,
    LeaseLost,
    NoRowsYet,
    NotFound,
)
from app.datasets import catalog
from app.jobs import queue
from app.jobs.states import EndReason
from app.registry import releases
from app.services.datasets.erase import delete_dataset, mark_deleted
from app.services.execution import charge, run_job
from app.services.execution.run_job import JobFailed
from app.services.jobs import show_jobs
from app.services.jobs.task import JobTask
from app.services.keys import put_grant, remove_grant
from app.services.spending.spend import spending
from app.services.webhooks import create_webhook, deliver_due
from app.wire.webhooks import WebhookIn
from tests.support.crash_scene import OWNER, STRANGER, Scene
from tests.support.databases import on_one_database
from tests.support.job_kinds import claimed, must_not_run, perform_here, run_here
from tests.support.receiver import Receiver, listening, may_reach_loopback
from tests.support.ruled import set_rules
from tests.support.sweeping import expired_at
from tests.support.two_datasets import Pair

pytestmark = pytest.mark.contract

CHARGED, VOIDED = ["reserve", "charge"], ["reserve", "void"]


@pytest.fixture
def pair(scene: Scene) -> Pair:
    return Pair.beside(scene)


def _fail(_task: JobTask, _kept: object) -> None:
    raise JobFailed


def _run(pair: Pair, work: object = perform_here) -> None:
    claim = claimed(pair.first.installation)
    run_here(pair.first.installation, claim, work)  # type: ignore[arg-type]


def test_a_job_that_succeeds_was_charged_on_both_accounts_and_its_model_names_both(
    pair: Pair,
) -> None:
    job_id = pair.submit(key="k")
    _run(pair)
    row = pair.first.job(job_id)
    with pair.first.installation.database.read() as session:
        model = releases.find(session, "train", str(row.release_id))
    facts = pair.first.installation.cache.get(model.digest).metadata

    assert (row.state, pair.kinds_of(job_id)) == ("succeeded", (CHARGED, CHARGED))
    assert facts["dataset"] == pair.first.dataset_id
    assert facts["unlabelled"]["dataset"] == pair.second.dataset_id  # type: ignore[index, call-overload]
    pair.verify()


def test_both_are_charged_before_the_first_row_of_either_is_read(pair: Pair) -> None:
    job_id, seen = pair.submit(key="k"), []
    _run(
        pair,
        lambda task, _: (seen.append(pair.kinds_of(job_id)), perform_here(task))[-1],
    )
    assert seen == [(CHARGED, CHARGED)]


def test_a_job_that_fails_stays_charged_on_both(pair: Pair) -> None:
    job_id = pair.submit(key="k")
    _run(pair, _fail)
    assert (pair.first.job(job_id).state, pair.kinds_of(job_id)) == (
        "failed",
        (CHARGED, CHARGED),
    )
    pair.verify()


def test_a_waiting_job_that_is_cancelled_is_void_on_both(pair: Pair) -> None:
    job_id = pair.submit(key="k")
    show_jobs.cancel_job(pair.first.installation, OWNER, job_id)
    assert (pair.first.job(job_id).state, pair.kinds_of(job_id)) == (
        "cancelled",
        (VOIDED, VOIDED),
    )
    assert run_job.claim_next(pair.first.installation) is None
    pair.verify()


def test_a_running_job_that_is_cancelled_stays_charged_on_both(pair: Pair) -> None:
    job_id = pair.submit(key="k")

    def cancelled(task: JobTask, _kept: object) -> None:
        show_jobs.cancel_job(pair.first.installation, OWNER, job_id)
        perform_here(task)

    with pytest.raises(LeaseLost):
        _run(pair, cancelled)
    assert (pair.first.job(job_id).state, pair.kinds_of(job_id)) == (
        "cancelled",
        (CHARGED, CHARGED),
    )
    pair.verify()


def test_a_job_that_waits_too_long_expires_on_both(pair: Pair) -> None:
    job_id = pair.submit(key="k")
    assert (
        expired_at(pair.first.installation, datetime.now(UTC) + timedelta(days=2)) == 1
    )
    assert pair.kinds_of(job_id) == (["reserve", "expire"], ["reserve", "expire"])
    pair.verify()


@pytest.mark.parametrize("which", ["first", "second"])
def test_erasing_either_dataset_voids_a_waiting_job_on_both_and_refuses_the_next(
    pair: Pair, which: str
) -> None:
    job_id = pair.submit(key="k")
    delete_dataset(pair.first.installation, OWNER, getattr(pair, which).dataset_id)
    assert (pair.first.job(job_id).state, pair.kinds_of(job_id)) == (
        "cancelled",
        (VOIDED, VOIDED),
    )
    with pytest.raises(DatasetDeleted):
        pair.submit(key="another")
    pair.verify()


@pytest.mark.parametrize("which", ["first", "second"])
def test_the_mark_of_either_dataset_cancels_a_running_job_that_stays_charged_on_both(
    pair: Pair, which: str
) -> None:
    job_id, database = pair.submit(key="k"), pair.first.installation.database
    charge.charge_claimed(pair.first.installation, claimed(pair.first.installation))
    with database.write() as session:
        mark_deleted(
            session,
            getattr(pair, which).dataset_id,
            actor=OWNER.key_id,
        )
    row = pair.first.job(job_id)
    assert (row.state, row.reason) == ("cancelled", EndReason.DATASET_ERASED)
    assert pair.kinds_of(job_id) == (CHARGED, CHARGED)
    pair.verify()


@pytest.mark.parametrize("which", ["first", "second"])
def test_freezing_either_dataset_holds_a_job_back_before_its_claim_and_before_its_charge(
    pair: Pair, which: str
) -> None:
    job_id, frozen = pair.submit(key="k"), getattr(pair, which)
    claim = claimed(pair.first.installation)
    set_rules(frozen, frozen=True)
    with pytest.raises(Frozen) as held:
        charge.charge_claimed(pair.first.installation, claim)
    run_here(pair.first.installation, claim, must_not_run)
    assert (held.value.dataset, pair.first.job(job_id).state) == (
        frozen.dataset_id,
        "queued",
    )
    assert pair.kinds_of(job_id) == (["reserve"], ["reserve"])
    assert run_job.claim_next(pair.first.installation) is None


@pytest.mark.parametrize("which", ["first", "second"])
def test_a_job_on_a_frozen_dataset_is_refused_whatever_the_rules_of_the_other_are(
    pair: Pair, which: str
) -> None:
    for scene in (pair.first, pair.second):
        is_frozen = scene is getattr(pair, which)
        set_rules(scene, largest_job="5", frozen=is_frozen)
    with pytest.raises(Frozen) as refused:
        pair.submit(key="k")
    assert refused.value.dataset == getattr(pair, which).dataset_id


@pytest.mark.parametrize("which", ["first", "second"])
@pytest.mark.parametrize("is_charged", [False, True])
def test_an_upload_of_either_dataset_counts_as_read(
    pair: Pair, which: str, is_charged: bool
) -> None:
    """So an erasure of the upload frees no places of its units."""
    installation, dataset_id = pair.first.installation, getattr(pair, which).dataset_id
    with installation.database.read() as session:
        [upload] = catalog.upload_ids(session, dataset_id)
        assert not queue.reads_upload(session, dataset_id, upload)
    pair.submit(key="k")
    if is_charged:
        charge.charge_claimed(installation, claimed(installation))
    with installation.database.read() as session:
        assert queue.reads_upload(session, dataset_id, upload)


@on_one_database
def test_a_job_needs_rows_of_both(scene: Scene) -> None:
    """Rows that are not there would cost budget."""
    with patch.object(Scene, "upload"):
        pair = Pair.beside(scene)
    for order in (pair, pair.swapped):
        with pytest.raises(NoRowsYet):
            order.submit(key="k")
    assert [entry.kind for entry in scene.entries()] == ["open"]


@pytest.mark.parametrize("which", ["first", "second"])
def test_webhooks_of_a_dataset_are_told_of_a_job_under_the_name_of_that_dataset_alone(
    pair: Pair, which: str
) -> None:
    installation, told = (
        may_reach_loopback(pair.first.installation),
        getattr(pair, which).dataset_id,
    )
    with listening(Receiver()) as receiver:
        body = {
            "url": receiver.url,
            "events": ["job.queued", "job.started", "job.ended"],
        }
        webhook = create_webhook(
            installation, OWNER, told, WebhookIn.model_validate(body)
        )
        pair.submit(key="k")
        _run(pair, _fail)
        deliver_due(installation)
        events = receiver.events(webhook.secret)
    other = ({pair.first.dataset_id, pair.second.dataset_id} - {told}).pop()
    assert [event["type"] for event in events] == body["events"]
    assert {event["dataset"] for event in events} == {told}
    assert other not in str(events)


@pytest.mark.parametrize(("epsilon", "of_second"), [("3.5", "1"), ("1", "3.5")])
def test_one_account_that_refuses_leaves_no_job_and_no_entry(
    pair: Pair, epsilon: str, of_second: str
) -> None:
    with pytest.raises(BudgetExceeded) as refused:
        pair.submit(key="k", epsilon=epsilon, of_second=of_second)
    refusing = pair.first if epsilon == "3.5" else pair.second
    assert refused.value.dataset == refusing.dataset_id
    assert [
        entry.kind.value
        for scene in (pair.first, pair.second)
        for entry in scene.entries()
    ] == ["open"] * 2
    assert run_job.claim_next(pair.first.installation) is None


def test_concurrent_jobs_on_two_datasets_in_both_orders_all_end(pair: Pair) -> None:
    """Eight jobs at a time on A/B and B/A do not deadlock; both accounts record the
    ends that callers received.
    """
    roles, installation = [pair, pair.swapped], pair.first.installation
    charged: set[str] = set()
    cancelled: set[str] = set()

    def charge_one() -> None:
        while (claim := run_job.claim_next(installation)) is not None:
            with suppress(LeaseLost):  # its owner cancelled it in the meantime
                charge.charge_claimed(installation, claim)
                charged.add(claim.job_id)
                return

    def one(number: int) -> str:
        job_id = roles[number % 2].submit(key=f"k{number}")
        if number % 4 < 2:
            show_jobs.cancel_job(installation, OWNER, job_id)
            cancelled.add(job_id)
        else:
            charge_one()
        return job_id

    with ThreadPoolExecutor(8) as pool:
        job_ids = list(pool.map(one, range(12), timeout=600))
    for job_id in job_ids:
        reported = (
            CHARGED
            if job_id in charged
            else VOIDED
            if job_id in cancelled
            else ["reserve"]
        )
        assert pair.kinds_of(job_id) == (reported, reported)
    assert charged, (
        "somebody whose own job was taken by another knows that it was charged"
    )
    pair.verify()


@on_one_database
@pytest.mark.parametrize("lost", ["first", "second"])
def test_an_earlier_answer_is_for_those_who_may_train_on_both(
    pair: Pair, lost: str
) -> None:
    """A request that names what is gone finds its answer without its datasets."""
    job_id, here = pair.submit(key="k"), pair.first.installation
    request = IdempotentRequest(OWNER.key_id, "POST /train", "k", b"k".ljust(32, b"."))
    gone = NotFound("profile")
    with spending(here, OWNER, request) as opened:
        assert job_id in opened.answered_before(gone).body.decode()
    dataset = getattr(pair, lost).dataset_id
    put_grant(here, OWNER, dataset, STRANGER.key_id, role="owner")
    remove_grant(here, OWNER, dataset, OWNER.key_id)
    with pytest.raises(NotFound), spending(here, OWNER, request) as opened:
        opened.answered_before(gone)
