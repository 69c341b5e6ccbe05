"""Webhooks are told about every event at least once and in order, while their owner and
their dataset last.
"""

import base64
import dataclasses
import hashlib
import hmac
import json
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from ipaddress import ip_network
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from pydantic import ValidationError
from sqlalchemy import delete, text
from sqlalchemy.orm import Session

from app.core import limits
from app.core.errors import (
    BudgetExceeded,
    DatasetDeleted,
    ErasureDue,
    Frozen,
    InvalidRequest,
    LedgerRewound,
    NeedsApproval,
    NotFound,
    RoleMissing,
    TooLarge,
    TooManyCells,
)
from app.db.database import transaction_time
from app.jobs import outbox
from app.jobs.outbox import DeliveryRow, WebhookRow
from app.jobs.states import EndReason
from app.jobs.tables import JobRow
from app.ledger import control, tables
from app.services import webhook_sender
from app.services.datasets.erase import delete_dataset
from app.services.execution import charge, run_job
from app.services.execution.sweep import settle_overdue
from app.services.installation import Installation
from app.services.jobs import notices
from app.services.jobs.show_jobs import cancel_job
from app.services.keys import remove_grant
from app.services.ledger.heads import Heads
from app.services.webhooks import (
    _deliver_oldest,
    create_webhook,
    delete_webhook,
    deliver_due,
    list_webhooks,
    rotate_webhook,
    send_test,
)
from app.wire.webhooks import (
    DeliveryOut,
    WebhookIn,
    WebhookRotationIn,
    WebhookWithSecret,
)
from grovekeeper_client.cli.problems import _BY_TYPE, ExitCode
from grovekeeper_client.webhooks import SignatureInvalid, verified
from tests.support import people, snapshot
from tests.support.crash_scene import OWNER, Scene
from tests.support.databases import on_one_database
from tests.support.environments import environment, version_in
from tests.support.locks import waits_for
from tests.support.member_scene import POPULATION, MemberScene
from tests.support.ports import free_port
from tests.support.receiver import Receiver, listening, may_reach_loopback
from tests.support.ruled import SECOND, grant, set_rules
from tests.support.set_limits import SetLimit
from tests.support.two_datasets import Pair
from tests.support.waiting import wait_for

pytestmark = [pytest.mark.contract, pytest.mark.in_turn("database_url")]

LOOPBACK = (ip_network("127.0.0.0/8"),)
ALL = ["job.queued", "job.started", "job.ended", "request.refused"]


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with listening(Receiver()) as receiver:
        yield receiver


@pytest.fixture
def here(scene: Scene) -> Installation:
    """The installation of the scene, which may reach loopback."""
    return may_reach_loopback(scene.installation)


def _told(
    here: Installation, scene: Scene, url: str, **changes: Any
) -> WebhookWithSecret:
    body = WebhookIn.model_validate({"url": url, "events": ALL} | changes)
    return create_webhook(here, OWNER, scene.dataset_id, body)


def _waiting(scene: Scene) -> int:
    with scene.installation.database.read() as session:
        return session.query(DeliveryRow).count()


def _run(scene: Scene) -> str:
    claim = run_job.claim_next(scene.installation)
    assert claim is not None
    charge.charge_claimed(scene.installation, claim)
    return claim.job_id


def test_a_job_and_a_refusal_are_told_in_order_and_with_public_facts(
    scene: Scene, here: Installation, receiver: Receiver
) -> None:
    webhook = _told(here, scene, receiver.url)
    scene.submit(key="a")
    job_id = _run(scene)
    cancel_job(scene.installation, OWNER, job_id)
    with pytest.raises(BudgetExceeded):
        scene.submit(key="b", epsilon="100")
    assert deliver_due(here) == 4
    events = receiver.events(webhook.secret)
    assert [event["type"] for event in events] == ALL
    assert {event["dataset"] for event in events} == {scene.dataset_id}
    assert [event.get("state") for event in events] == [
        "queued",
        "running",
        "cancelled",
        None,
    ]
    assert set(events[2]) == {
        "id",
        "type",
        "at",
        "dataset",
        "job",
        "kind",
        "algorithm",
        "state",
        "reason",
    }
    assert (events[2]["job"], events[3]["problem"], events[3]["by"]) == (
        job_id,
        "budget-exceeded",
        OWNER.key_id,
    )
    assert len({event["id"] for event in events}) == 4
    assert (_waiting(scene), deliver_due(here)) == (0, 0)


@on_one_database
def test_a_refusal_for_want_of_an_approval_is_told(
    scene: Scene, here: Installation, receiver: Receiver
) -> None:
    webhook = _told(here, scene, receiver.url)
    set_rules(scene, approval_above="0.1")
    with pytest.raises(NeedsApproval):
        scene.charge_external(key="a", epsilon="0.5")
    assert deliver_due(here) == 1
    (event,) = receiver.events(webhook.secret)
    assert (event["type"], event["problem"]) == ("request.refused", "needs-approval")


@on_one_database
def test_each_refusal_that_ends_a_command_with_3_is_told(
    scene: Scene, here: Installation, receiver: Receiver
) -> None:
    webhook = _told(here, scene, receiver.url, events=["request.refused"])
    for refusal in (TooManyCells, Frozen, ErasureDue):
        facts = (
            scene.dataset_id,
            "census",
            *([65_536] if refusal is TooManyCells else []),
        )
        notices.refused(here, refusal(*facts), by="key_a")
    assert deliver_due(here) == 3
    problems = [event["problem"] for event in receiver.events(webhook.secret)]
    assert problems == ["too-many-cells", "frozen", "erasure-due"]
    told = {*notices._REFUSALS.values()}
    assert told == {slug for slug, code in _BY_TYPE.items() if code is ExitCode.REFUSED}


def test_a_low_budget_is_told_once_for_each_fall_below_the_threshold(
    scene: Scene, here: Installation, receiver: Receiver
) -> None:
    webhook = _told(here, scene, receiver.url, events=["budget.low"], threshold="0.5")
    for key, epsilon in (("a", "1"), ("b", "1"), ("c", "0.1")):
        scene.charge_external(key=key, epsilon=epsilon)
    deliver_due(here)
    (event,) = receiver.events(webhook.secret)
    assert (event["cap"], event["remaining"], event["threshold"]) == ("3", "1", "0.5")


@on_one_database
@pytest.mark.parametrize("end", ["cancelled", "revoked", "not-started"])
def test_a_budget_that_rose_because_a_reservation_was_given_back_falls_again(
    scene: Scene,
    here: Installation,
    receiver: Receiver,
    end: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    webhook = _told(here, scene, receiver.url, events=["budget.low"], threshold="0.5")
    job_id = scene.submit_job(key="a", epsilon="2")
    if end == "cancelled":
        cancel_job(scene.installation, OWNER, job_id)
    elif end == "revoked":
        claim = run_job.claim_next(scene.installation)
        assert claim is not None
        run_job.ClaimedJob(scene.installation, claim).give_back(EndReason.REVOKED)
    else:
        with monkeypatch.context() as late:
            late.setattr(limits, "MAX_QUEUE_S", -60)
            assert settle_overdue(scene.installation) == 1
    scene.submit_job(key="b", epsilon="2")
    assert deliver_due(here) == 2
    assert [event["remaining"] for event in receiver.events(webhook.secret)] == [
        "1",
        "1",
    ]


@on_one_database
def test_a_budget_of_the_second_dataset_that_rose_falls_again(
    scene: Scene, here: Installation, receiver: Receiver
) -> None:
    pair = Pair.beside(scene)
    options = {"events": ["budget.low"], "threshold": "0.5"}
    webhook = _told(here, pair.second, receiver.url, **options)
    cancel_job(here, OWNER, pair.submit(key="a", of_second="2"))
    pair.submit(key="b", of_second="2")
    assert deliver_due(here) == 2
    assert [event["dataset"] for event in receiver.events(webhook.secret)] == [
        pair.second.dataset_id,
        pair.second.dataset_id,
    ]


def test_a_budget_is_low_where_the_population_leaves_little(
    scene: Scene, here: Installation, receiver: Receiver
) -> None:
    webhook = _told(here, scene, receiver.url, events=["budget.low"], threshold="0.5")
    MemberScene.joined(scene)
    other = people.declared(scene.installation, population=POPULATION)["id"]
    sibling = Scene(scene.installation, other)
    sibling.charge_external(key="a", epsilon="1")
    deliver_due(here)
    assert receiver.requests == []
    sibling.charge_external(key="b", epsilon="1")
    deliver_due(here)
    (event,) = receiver.events(webhook.secret)
    assert (event["dataset"], event["remaining"], event["available"]) == (
        scene.dataset_id,
        "3",
        "1",
    )
    assert event["limited_by"] == "population"


def test_a_lower_cap_of_a_population_is_told_to_its_members(
    scene: Scene, here: Installation, receiver: Receiver
) -> None:
    webhook = _told(here, scene, receiver.url, events=["budget.low"], threshold="0.5")
    MemberScene.joined(scene).lower_cap("1", key="cap")
    deliver_due(here)
    (event,) = receiver.events(webhook.secret)
    assert (event["cap"], event["available"]) == ("3", "1")


def test_a_declaration_that_brings_spend_into_a_population_is_told_to_its_members(
    scene: Scene, here: Installation, receiver: Receiver
) -> None:
    webhook = _told(here, scene, receiver.url, events=["budget.low"], threshold="0.5")
    MemberScene.joined(scene)
    erased = people.declared(scene.installation)
    Scene(scene.installation, erased["id"]).charge_external(key="a", epsilon="2")
    delete_dataset(scene.installation, OWNER, erased["id"])
    deliver_due(here)
    assert receiver.requests == []
    people.declared(scene.installation, name=erased["name"], population=POPULATION)
    deliver_due(here)
    (event,) = receiver.events(webhook.secret)
    assert (event["dataset"], event["remaining"], event["available"]) == (
        scene.dataset_id,
        "3",
        "1",
    )


def test_a_transaction_that_rolls_back_tells_nothing(
    scene: Scene, here: Installation
) -> None:
    _told(here, scene, "https://hooks.invalid/")
    scene.submit(key="a")
    queued, accepted = list[int](), notices.accepted

    def accept_and_fail(session: Session, row: JobRow) -> None:
        accepted(session, row)
        queued.append(session.query(DeliveryRow).count())
        raise ConnectionError

    with (
        patch.object(notices, "accepted", accept_and_fail),
        pytest.raises(ConnectionError),
    ):
        scene.submit(key="b")
    assert (queued, _waiting(scene)) == ([2], 1)


def test_a_process_that_dies_between_sending_and_removing_loses_nothing(
    scene: Scene,
    here: Installation,
    receiver: Receiver,
    monkeypatch: pytest.MonkeyPatch,
    set_limit: SetLimit,
) -> None:
    webhook = _told(here, scene, receiver.url)
    scene.submit(key="a")

    def die(*_: object, **__: object) -> bool:
        raise SystemExit

    with monkeypatch.context() as dying:
        dying.setattr(webhook_sender, "send", die)
        with pytest.raises(SystemExit):
            deliver_due(here)
    assert (_waiting(scene), deliver_due(here)) == (1, 0), (
        "the dead process still holds the webhook"
    )
    set_limit("WEBHOOK_HOLD_S", 0)
    with scene.installation.database.write() as session:
        (row,) = outbox.of_dataset(session, scene.dataset_id)
        row.next_at = row.created_at
    assert deliver_due(here) == 1
    assert [event["type"] for event in receiver.events(webhook.secret)] == [
        "job.queued"
    ]


@pytest.mark.parametrize("accepted", [True, False])
def test_a_webhook_that_is_removed_while_its_delivery_ends_is_done(
    postgresql_scene: Scene, monkeypatch: pytest.MonkeyPatch, accepted: bool
) -> None:
    """The end of the delivery waits for the removal, and finds no webhook."""
    here = may_reach_loopback(postgresql_scene.installation)
    webhook = _told(here, postgresql_scene, "https://hooks.invalid/")
    postgresql_scene.submit(key="a")
    engine = here.database.engine
    with (
        ThreadPoolExecutor(1) as pool,
        engine.connect() as remover,
        engine.connect() as observer,
    ):

        def send(*_: object, **__: object) -> int:
            remover.execute(delete(WebhookRow).where(WebhookRow.id == webhook.id))
            return 204 if accepted else 500

        monkeypatch.setattr(webhook_sender, "send", send)
        pid = remover.execute(text("SELECT pg_backend_pid()")).scalar_one()
        delivering = pool.submit(deliver_due, here)
        try:
            waits_for(observer, pid, delivering, what="the webhook")
            remover.commit()
        finally:
            remover.rollback()  # lets the delivery end, also when an assertion failed
        assert delivering.result() == 0
    assert list_webhooks(here, OWNER, postgresql_scene.dataset_id).webhooks == []


def _deliveries(scene: Scene) -> list[DeliveryOut]:
    (webhook,) = list_webhooks(scene.installation, OWNER, scene.dataset_id).webhooks
    return webhook.deliveries


def _make_due(scene: Scene) -> None:
    with scene.installation.database.write() as session:
        (row,) = outbox.of_dataset(session, scene.dataset_id)
        row.next_at = row.created_at


def test_a_test_event_is_delivered_once_after_those_that_wait(
    scene: Scene, here: Installation, receiver: Receiver
) -> None:
    webhook = _told(here, scene, receiver.url, events=["job.queued"])
    assert webhook.deliveries == []
    scene.submit(key="a")
    for _ in range(3):
        told = send_test(here, OWNER, scene.dataset_id, webhook.id)
        assert told.waiting == 2, "a test that waits is not repeated"
    assert deliver_due(here) == 2
    queued, tested = receiver.events(webhook.secret)
    assert (queued["type"], tested["type"]) == ("job.queued", "webhook.test")
    assert set(tested) == {"id", "type", "at", "dataset"}
    last, first = _deliveries(scene)
    assert (last.id, last.event, last.status) == (tested["id"], "webhook.test", 204)
    assert (first.id, first.attempts, first.reason) == (queued["id"], 1, None)
    assert first.created_at <= first.attempted_at
    assert send_test(here, OWNER, scene.dataset_id, webhook.id).waiting == 1


def test_only_owners_test_and_only_webhooks_of_their_dataset(
    scene: Scene, here: Installation
) -> None:
    webhook = _told(here, scene, "https://hooks.invalid/")
    grant(scene, "analyst")
    other = people.declared(scene.installation, name="another")["id"]
    for by, dataset, refusal in (
        (SECOND, scene.dataset_id, RoleMissing),
        (OWNER, other, NotFound),
    ):
        with pytest.raises(refusal):
            send_test(here, by, dataset, webhook.id)
    assert _waiting(scene) == 0


def test_a_webhook_with_too_many_waiting_events_takes_no_test(
    scene: Scene, here: Installation, set_limit: SetLimit
) -> None:
    webhook = _told(here, scene, "https://hooks.invalid/", events=["job.queued"])
    set_limit("MAX_WAITING_DELIVERIES", 1)
    scene.submit(key="a")
    with pytest.raises(TooLarge):
        send_test(here, OWNER, scene.dataset_id, webhook.id)


def test_the_last_deliveries_stay_with_the_answer_to_their_last_attempt(
    scene: Scene,
    here: Installation,
    receiver: Receiver,
    set_limit: SetLimit,
) -> None:
    set_limit("MAX_RECENT_DELIVERIES", 2)
    webhook = _told(here, scene, receiver.url, events=["job.queued"])
    receiver.status = 500
    scene.submit(key="a")
    for attempts in (1, 2):
        assert deliver_due(here) == 0
        (failed,) = _deliveries(scene)
        assert (failed.attempts, failed.status) == (attempts, 500)
        _make_due(scene)
    receiver.status = 204
    assert deliver_due(here) == 1
    (done,) = _deliveries(scene)
    assert (done.id, done.attempts, done.status) == (failed.id, 3, 204)
    for _ in range(3):
        send_test(here, OWNER, scene.dataset_id, webhook.id)
        assert deliver_due(here) == 1
    assert [item.event for item in _deliveries(scene)] == ["webhook.test"] * 2


@on_one_database
def test_an_address_that_is_refused_looks_like_one_without_a_receiver(
    scene: Scene, here: Installation, receiver: Receiver
) -> None:
    webhook = _told(here, scene, receiver.url, events=["job.queued"])
    refused, nobody = scene.installation, f"http://127.0.0.1:{free_port()}/"
    for installation, url in ((refused, receiver.url), (here, nobody)):
        with scene.installation.database.write() as session:
            (row,) = outbox.of_dataset(session, scene.dataset_id)
            row.url, row.next_at = url, row.created_at
        send_test(here, OWNER, scene.dataset_id, webhook.id)
        assert deliver_due(installation) == 0
        (delivery,) = _deliveries(scene)
        assert (delivery.status, delivery.reason) == (None, "unreachable")


@on_one_database
@pytest.mark.parametrize("status", [302, 400, 500])
def test_a_refused_delivery_waits_longer_each_time_and_no_redirect_is_followed(
    scene: Scene,
    here: Installation,
    receiver: Receiver,
    status: int,
    set_limit: SetLimit,
) -> None:
    set_limit("WEBHOOK_RETRY_S", 600)
    receiver.status, receiver.headers = status, {"Location": receiver.url}
    _told(here, scene, receiver.url)
    scene.submit(key="a")
    for n_failures in (1, 2):
        with scene.installation.database.read() as session:
            began = transaction_time(session)
        assert deliver_due(here) == 0
        assert (len(receiver.requests), deliver_due(here), len(receiver.requests)) == (
            n_failures,
            0,
            n_failures,
        )
        (shown,) = list_webhooks(here, OWNER, scene.dataset_id).webhooks
        assert (shown.failures, shown.waiting) == (n_failures, 1)
        with scene.installation.database.write() as session:
            (row,) = outbox.of_dataset(session, scene.dataset_id)
            pause = timedelta(seconds=600 * n_failures)
            assert began < row.next_at - pause
            assert row.next_at - pause < transaction_time(session)
            row.next_at = row.created_at
    receiver.status = 200
    assert deliver_due(here) == 1
    (shown,) = list_webhooks(here, OWNER, scene.dataset_id).webhooks
    assert shown.failures == 0, "a later failure waits as long as a first one"


@on_one_database
def test_an_event_that_nobody_accepts_is_dropped_in_the_end(
    scene: Scene,
    here: Installation,
    receiver: Receiver,
    set_limit: SetLimit,
) -> None:
    _told(here, scene, receiver.url)
    scene.submit(key="a")
    set_limit("MAX_DELIVERY_AGE_S", -1)
    assert (deliver_due(here), _waiting(scene), receiver.requests) == (0, 0, [])


def _refuse(here: Installation, scene: Scene, times: int, *, by: str) -> list[str]:
    """Refuses requests of a key, and returns the kind or the key of every event that
    waits then, in order.
    """
    for _ in range(times):
        notices.refused(here, Frozen(scene.dataset_id, "census"), by=by)
    with here.database.read() as session:
        rows = session.query(DeliveryRow).order_by(
            DeliveryRow.created_at, DeliveryRow.id
        )
        return sorted(row.body.get("by", row.event) for row in rows)


@on_one_database
def test_one_caller_does_not_fill_the_places_of_a_receiver_that_is_down(
    scene: Scene, here: Installation, set_limit: SetLimit
) -> None:
    """A refusal costs its caller nothing. Of each kind, and of the refusals of each
    key, at most as many wait as leave room for as many others.
    """
    set_limit("MAX_WAITING_DELIVERIES", 16)
    _told(
        here,
        scene,
        "https://hooks.invalid/",
        events=[*ALL, "budget.low"],
        threshold="0.5",
    )
    assert _refuse(here, scene, 20, by="key_a") == ["key_a"] * 4
    assert _refuse(here, scene, 20, by="key_b") == ["key_a"] * 4 + ["key_b"] * 2
    for number in range(20):
        waiting = _refuse(here, scene, 1, by=f"key_{number}")
    assert len(waiting) == 8
    for number in range(20):
        cancel_job(scene.installation, OWNER, scene.submit_job(key=f"k{number}"))
    scene.charge_external(key="a", epsilon="2")
    with here.database.read() as session:
        events = [row.event for row in session.query(DeliveryRow)]
    counts = {event: events.count(event) for event in events}
    assert counts == {
        "request.refused": 8,
        "job.queued": 3,
        "job.ended": 3,
        "budget.low": 1,
    }


@on_one_database
def test_what_waits_for_one_webhook_takes_nothing_from_another(
    scene: Scene, here: Installation, set_limit: SetLimit
) -> None:
    set_limit("MAX_WAITING_DELIVERIES", 16)
    places = [scene, Pair.beside(scene).second]
    made = [_told(here, place, "https://hooks.invalid/").id for place in places]
    for n_before, place, webhook in zip((0, 5), places, made, strict=True):
        assert len(_refuse(here, place, 20, by="key_a")) == n_before + 4
        assert send_test(here, OWNER, place.dataset_id, webhook).waiting == 5
    with here.database.write() as session:
        row = outbox.locked(session, scene.dataset_id, made[0])
        later = transaction_time(session) + timedelta(days=365)
        assert outbox.oldest(session, row, at=later) is None
        assert [outbox.n_waiting(session, webhook) for webhook in made] == [0, 5]


@on_one_database
def test_a_low_budget_whose_event_was_dropped_is_told_by_the_next_change(
    scene: Scene,
    here: Installation,
    receiver: Receiver,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    webhook = _told(here, scene, receiver.url, events=["budget.low"], threshold="0.9")
    with monkeypatch.context() as full:
        full.setattr(limits, "MAX_WAITING_DELIVERIES", 0)
        scene.charge_external(key="a")
    assert _waiting(scene) == 0
    scene.charge_external(key="b")
    with monkeypatch.context() as late:
        late.setattr(limits, "MAX_DELIVERY_AGE_S", -1)
        assert (_waiting(scene), deliver_due(here), _waiting(scene)) == (1, 0, 0)
    for key in ("c", "d"):
        scene.charge_external(key=key)
    deliver_due(here)
    (event,) = receiver.events(webhook.secret)
    assert (event["type"], event["remaining"]) == ("budget.low", "1.5")


@on_one_database
@pytest.mark.parametrize(
    ("scheme", "first"), [("http", b""), ("https", b"\x16\x03\x03\x40\x00")]
)
def test_a_slow_receiver_is_cut_off_and_does_not_hold_up_another(
    scene: Scene,
    here: Installation,
    receiver: Receiver,
    set_limit: SetLimit,
    scheme: str,
    first: bytes,
) -> None:
    """A receiver that sends its answer, or the 16 KiB of a record of its handshake,
    byte by byte, which would take minutes.
    """
    set_limit("WEBHOOK_WAIT_S", 1)
    set_limit("WEBHOOK_RETRY_S", 1)
    with _dripping(scheme, first) as (slow, ends):
        _told(here, scene, slow)
        _told(here, scene, receiver.url)
        scene.submit(key="a")
        # on a busy machine, an attempt may end before it is connected
        wait_for(
            "the other receiver is told, and the slow one's connection ends",
            lambda: deliver_due(here) >= 0 and bool(receiver.requests and ends),
        )
    assert ends == ["cut off"]


@contextmanager
def _holding(receivers: int) -> Iterator[tuple[list[str], list[str], threading.Event]]:
    """Receivers that answer nothing before an event is set: their addresses, and the
    paths that were asked.
    """
    asked: list[str] = []
    released = threading.Event()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            asked.append(self.path)
            released.wait()
            self.send_response(204)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Prints nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(
        target=server.serve_forever, kwargs={"poll_interval": 0.01}
    )
    thread.start()
    try:
        yield (
            [
                f"http://127.0.0.1:{server.server_port}/{number}"
                for number in range(receivers)
            ],
            asked,
            released,
        )
    finally:
        released.set()
        server.shutdown()
        server.server_close()
        thread.join()


@on_one_database
def test_slow_receivers_of_one_owner_hold_up_no_other_owner(
    scene: Scene,
    here: Installation,
    receiver: Receiver,
    set_limit: SetLimit,
) -> None:
    """They take one thread, one delivery each and turn, and events of others are told
    while they are waited for.
    """
    set_limit("WEBHOOK_WAIT_S", 60)
    set_limit("WEBHOOK_INTERVAL_S", 0.05)
    other = dataclasses.replace(
        scene, dataset_id=people.declared(scene.installation)["id"]
    )
    other.upload()
    grant(other, "owner")
    with _holding(6) as (addresses, asked, released), ThreadPoolExecutor(1) as pool:
        for address in addresses:
            _told(here, scene, address)
        for key in ("a", "b"):
            scene.submit(key=key)
        delivering = pool.submit(deliver_due, here)
        wait_for("a receiver is asked", lambda: len(asked) == 1)
        body = WebhookIn.model_validate({"url": receiver.url, "events": ALL})
        create_webhook(here, SECOND, other.dataset_id, body)
        for number in range(3):
            other.submit(key=f"other_{number}")
            wait_for(
                "the other owner is told",
                lambda number=number: len(receiver.requests) == number + 1,
            )
        assert len(asked) == 1, "one thread of one owner"
        assert not delivering.done()
        released.set()
        assert delivering.result() == 2 * 6 + 3
    assert [asked.count(f"/{number}") for number in range(6)] == [2] * 6
    assert set(asked[:6]) == {f"/{number}" for number in range(6)}, (
        "a turn of each webhook before the second of any"
    )


def test_a_webhook_that_another_process_holds_is_asked_for_again_only_after_a_pause(
    scene: Scene,
    here: Installation,
    receiver: Receiver,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    _told(here, scene, receiver.url)
    scene.submit(key="a")
    looks = []
    monkeypatch.setattr(outbox, "hold", lambda *_, **__: looks.append(1))
    assert (deliver_due(here), len(looks), receiver.requests) == (0, 1, [])


def test_nothing_is_told_on_the_word_of_a_database_that_contradicts_its_heads(
    scene: Scene, here: Installation, receiver: Receiver
) -> None:
    _told(here, scene, receiver.url)
    scene.submit(key="a")
    heads = Heads(here)
    heads.rewound = LedgerRewound(scene.dataset_id)
    with pytest.raises(LedgerRewound):
        deliver_due(here, heads=heads)
    assert receiver.requests == []
    assert deliver_due(here, heads=Heads(here)) == 1


def test_a_process_that_learns_of_an_older_copy_delivers_no_more(
    scene: Scene,
    here: Installation,
    receiver: Receiver,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    _told(here, scene, receiver.url)
    for key in ("a", "b"):
        scene.submit(key=key)
    heads, send = Heads(here), webhook_sender.send

    def learns(*arguments: Any, **options: Any) -> int | outbox.Unanswered:
        heads.rewound = LedgerRewound(scene.dataset_id)
        return send(*arguments, **options)

    monkeypatch.setattr(webhook_sender, "send", learns)
    with pytest.raises(LedgerRewound):
        deliver_due(here, heads=heads)
    assert len(receiver.requests) == 1


def test_an_event_that_a_process_sends_is_sent_by_no_other_meanwhile(
    scene: Scene,
    here: Installation,
    receiver: Receiver,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made = _told(here, scene, receiver.url)
    scene.submit(key="a")
    send = webhook_sender.send

    def sends(*arguments: Any, **options: Any) -> int | outbox.Unanswered:
        monkeypatch.setattr(webhook_sender, "send", send)
        # another process has found the webhook due before it was held
        assert _deliver_oldest(here, made.id) is None
        return send(*arguments, **options)

    monkeypatch.setattr(webhook_sender, "send", sends)
    assert deliver_due(here) == 1
    assert len(receiver.requests) == 1


@contextmanager
def _dripping(scheme: str, first: bytes) -> Iterator[tuple[str, list[str]]]:
    """A receiver that sends a byte now and then after the first bytes, for half a
    minute and never the last one: its address, and how its connection ended.
    """
    listener = socket.create_server(("127.0.0.1", 0))
    stopping, ends = threading.Event(), list[str]()

    def drip() -> None:
        stream, _ = listener.accept()
        with stream:
            try:
                stream.sendall(first)
                for _ in range(3_000):
                    if stopping.wait(0.01):
                        return
                    stream.sendall(b"H")
            except OSError:
                ends.append("cut off")
            else:
                ends.append("waited for")

    thread = threading.Thread(target=drip)
    thread.start()
    try:
        yield f"{scheme}://127.0.0.1:{listener.getsockname()[1]}/", ends
    finally:
        stopping.set()
        thread.join()
        listener.close()


def _revoke_grant(scene: Scene) -> None:
    remove_grant(scene.installation, OWNER, scene.dataset_id, SECOND.key_id)


def _delete(scene: Scene) -> None:
    delete_dataset(scene.installation, OWNER, scene.dataset_id)


@pytest.mark.parametrize("end", [_revoke_grant, _delete])
def test_nothing_is_delivered_after_the_owner_lost_the_role_or_the_dataset_its_rows(
    scene: Scene, here: Installation, receiver: Receiver, end: Callable[[Scene], None]
) -> None:
    grant(scene, "owner")
    create_webhook(
        here,
        SECOND,
        scene.dataset_id,
        WebhookIn.model_validate({"url": receiver.url, "events": ALL}),
    )
    scene.submit(key="a")
    end(scene)
    assert (deliver_due(here), receiver.requests, _waiting(scene)) == (0, [], 0)


@on_one_database
def test_only_owners_register_and_within_limits(
    scene: Scene, here: Installation, set_limit: SetLimit
) -> None:
    grant(scene, "analyst")
    body = WebhookIn.model_validate({"url": "https://hooks.invalid/", "events": ALL})
    with pytest.raises(RoleMissing):
        create_webhook(here, SECOND, scene.dataset_id, body)
    set_limit("MAX_WEBHOOKS", 1)
    first = create_webhook(here, OWNER, scene.dataset_id, body)
    with pytest.raises(TooLarge):
        create_webhook(here, OWNER, scene.dataset_id, body)
    set_limit("MAX_WAITING_DELIVERIES", 1)
    scene.submit(key="a")
    scene.submit(key="b")
    assert _waiting(scene) == 1
    delete_webhook(here, OWNER, scene.dataset_id, first.id)
    assert _waiting(scene) == 0
    delete_dataset(scene.installation, OWNER, scene.dataset_id)
    with pytest.raises(DatasetDeleted):
        create_webhook(here, OWNER, scene.dataset_id, body)


@on_one_database
@pytest.mark.parametrize(
    "changes",
    [
        {"url": "http://example.org/"}, {"url": "https://10.0.0.1/"}, {"events": ["budget.low"]},
        {"threshold": "0.5"}, {"events": ["budget.low"], "threshold": "1.5"},
    ],
)  # fmt: skip
def test_a_webhook_that_cannot_work_is_refused(
    scene: Scene, changes: dict[str, Any]
) -> None:
    with pytest.raises(InvalidRequest):
        _told(scene.installation, scene, **{"url": "https://hooks.invalid/"} | changes)


def test_the_secret_is_sealed_and_a_changed_or_old_request_is_detected(
    scene: Scene, here: Installation, receiver: Receiver
) -> None:
    webhook = _told(here, scene, receiver.url)
    with scene.installation.database.read() as session:
        (row,) = outbox.of_dataset(session, scene.dataset_id)
        assert webhook.secret.encode() not in row.sealed_secret
    scene.submit(key="a")
    deliver_due(here)
    ((headers, body),) = receiver.requests
    signature = headers["Grovekeeper-Signature"]
    assert (
        verified(webhook.secret, signature, body)["id"]
        == headers["Grovekeeper-Delivery"]
    )
    key = base64.b64decode(webhook.secret.removeprefix("whsec_"), validate=True)
    assert len(key) == 32
    assert headers["webhook-id"] == headers["Grovekeeper-Delivery"]
    signed = f"{headers['webhook-id']}.{headers['webhook-timestamp']}.".encode() + body
    mac = base64.b64encode(hmac.new(key, signed, hashlib.sha256).digest()).decode()
    assert headers["webhook-signature"] == f"v1,{mac}"
    old = webhook_sender.signature((webhook.secret,), body, at_s=int(time.time()) - 301)
    for forged in ((webhook.secret + "x", signature, body), (webhook.secret, signature, body + b" "),
                   (webhook.secret, old, body), (webhook.secret, "", body)):  # fmt: skip
        with pytest.raises(SignatureInvalid):
            verified(*forged)
    assert json.loads(body)["type"] == "job.queued"


def _rotated(
    here: Installation, scene: Scene, webhook_id: str, **body: Any
) -> WebhookWithSecret:
    return rotate_webhook(
        here,
        OWNER,
        scene.dataset_id,
        webhook_id,
        WebhookRotationIn.model_validate(body),
    )


def _end_overlap(scene: Scene) -> None:
    """Lets the overlap of the only webhook end."""
    with scene.installation.database.write() as session:
        (row,) = outbox.of_dataset(session, scene.dataset_id)
        row.earlier_secret_until = row.created_at


def _row(scene: Scene) -> WebhookRow:
    with scene.installation.database.read() as session:
        (row,) = outbox.of_dataset(session, scene.dataset_id)
        session.expunge(row)
        return row


def _delivered(
    scene: Scene, here: Installation, receiver: Receiver, key: str
) -> tuple[dict[str, str], bytes]:
    """The request that tells about another job."""
    scene.submit(key=key)
    assert deliver_due(here) == 1
    return receiver.requests[-1]


def _standard_macs(
    secrets: list[str], headers: dict[str, str], body: bytes
) -> list[str]:
    """The signatures of Standard Webhooks, computed here."""
    signed = f"{headers['webhook-id']}.{headers['webhook-timestamp']}.".encode() + body
    keys = (
        base64.b64decode(secret.removeprefix("whsec_"), validate=True)
        for secret in secrets
    )
    macs = (hmac.new(key, signed, hashlib.sha256).digest() for key in keys)
    return [f"v1,{base64.b64encode(mac).decode()}" for mac in macs]


def _signers(secrets: list[str], headers: dict[str, str], body: bytes) -> list[str]:
    """Those of several secrets that verify the service's own header; both headers have
    to name the same.
    """
    signers = []
    for secret in secrets:
        try:
            verified(secret, headers["Grovekeeper-Signature"], body)
        except SignatureInvalid:
            continue
        signers.append(secret)
    assert headers["webhook-signature"].split(" ") == _standard_macs(
        signers, headers, body
    )
    return signers


def test_after_a_rotation_deliveries_carry_both_signatures_until_the_overlap_ends(
    scene: Scene, here: Installation, receiver: Receiver
) -> None:
    webhook = _told(here, scene, receiver.url, events=["job.queued"])
    assert webhook.earlier_secret_until is None
    rotated = _rotated(here, scene, webhook.id)
    assert rotated.secret != webhook.secret
    assert rotated.earlier_secret_until is not None
    assert rotated.model_dump(
        exclude={"secret", "earlier_secret_until"}
    ) == webhook.model_dump(exclude={"secret", "earlier_secret_until"})
    (shown,) = list_webhooks(here, OWNER, scene.dataset_id).webhooks
    assert shown.model_dump() == rotated.model_dump(exclude={"secret"})
    secrets = [rotated.secret, webhook.secret]
    assert _signers(secrets, *_delivered(scene, here, receiver, "a")) == secrets, (
        "the new signature is the first"
    )
    _end_overlap(scene)
    assert _signers(secrets, *_delivered(scene, here, receiver, "b")) == [
        rotated.secret
    ]
    row = _row(scene)
    assert (row.sealed_earlier_secret, row.earlier_secret_until) == (None, None)


@on_one_database
def test_an_overlap_has_the_length_that_is_asked(
    scene: Scene, here: Installation
) -> None:
    webhook = _told(here, scene, "https://hooks.invalid/")
    for body, seconds in (({}, limits.WEBHOOK_OVERLAP_S), ({"overlap_s": 60}, 60)):
        with scene.installation.database.read() as session:
            at = transaction_time(session)
        _rotated(here, scene, webhook.id, **body)
        until = _row(scene).earlier_secret_until
        assert until is not None
        assert (until - at).total_seconds() == pytest.approx(seconds, abs=30)
    assert _rotated(here, scene, webhook.id, overlap_s=0).earlier_secret_until is None
    assert (_row(scene).sealed_earlier_secret, _row(scene).earlier_secret_until) == (
        None,
        None,
    )


@pytest.mark.parametrize(
    "overlap_s", [-1, limits.MAX_WEBHOOK_OVERLAP_S + 1, 1.5, "60", True, None]
)
def test_an_overlap_that_is_none_is_refused(overlap_s: object) -> None:
    with pytest.raises(ValidationError):
        WebhookRotationIn.model_validate({"overlap_s": overlap_s})


def test_a_second_rotation_within_the_overlap_keeps_the_secret_that_it_replaces(
    scene: Scene, here: Installation, receiver: Receiver
) -> None:
    first = _told(here, scene, receiver.url, events=["job.queued"])
    second, third = _rotated(here, scene, first.id), _rotated(here, scene, first.id)
    secrets = [third.secret, second.secret, first.secret]
    assert _signers(secrets, *_delivered(scene, here, receiver, "a")) == secrets[:2]
    last = _rotated(here, scene, first.id, overlap_s=0)
    assert _signers(
        [last.secret, *secrets], *_delivered(scene, here, receiver, "b")
    ) == [last.secret]


def test_an_earlier_secret_is_removed_at_the_end_of_the_overlap_although_nothing_waits(
    scene: Scene, here: Installation
) -> None:
    webhook = _told(here, scene, "https://hooks.invalid/")
    _rotated(here, scene, webhook.id)
    assert (deliver_due(here), _row(scene).sealed_earlier_secret is None) == (0, False)
    _end_overlap(scene)
    assert deliver_due(here) == 0
    assert (_row(scene).sealed_earlier_secret, _row(scene).earlier_secret_until) == (
        None,
        None,
    )


def test_an_ended_secret_does_not_sign_before_it_is_removed(
    scene: Scene,
    here: Installation,
    receiver: Receiver,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    webhook = _told(here, scene, receiver.url, events=["job.queued"])
    rotated = _rotated(here, scene, webhook.id)
    _end_overlap(scene)
    monkeypatch.setattr(outbox, "has_ended_secrets", lambda *_, **__: False)
    assert _signers(
        [rotated.secret, webhook.secret], *_delivered(scene, here, receiver, "a")
    ) == [rotated.secret]


@on_one_database
def test_a_rotation_seals_both_secrets_and_leaves_neither_in_a_row_or_a_log(
    scene: Scene,
    here: Installation,
    receiver: Receiver,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("DEBUG")
    webhook = _told(here, scene, receiver.url, events=["job.queued"])
    rotated = _rotated(here, scene, webhook.id)
    _delivered(scene, here, receiver, "a")
    row = _row(scene)
    assert row.sealed_earlier_secret is not None
    with scene.installation.database.read() as session:
        acts = tables.entries(session, control.CHAIN, after=0, limit=1_000)
    details = {"dataset": scene.dataset_id, "webhook": webhook.id}
    assert (acts[-1].kind, acts[-1].actor, acts[-1].details) == (
        "webhook-rotated",
        OWNER.key_id,
        details,
    )
    with scene.installation.database.engine.connect() as connection:
        rows = json.dumps(snapshot.rows_of(connection))
    assert row.sealed_secret.hex() in rows
    assert row.sealed_earlier_secret.hex() in rows
    for secret in (webhook.secret, rotated.secret):
        assert secret not in caplog.text
        assert secret not in rows
        assert secret.encode().hex() not in rows


@on_one_database
def test_only_owners_rotate_and_only_webhooks_of_their_dataset(
    scene: Scene, here: Installation
) -> None:
    webhook = _told(here, scene, "https://hooks.invalid/")
    before = _row(scene).sealed_secret
    other = people.declared(scene.installation, name="another")["id"]
    for by, dataset, webhook_id, refusal in (
        (SECOND, scene.dataset_id, webhook.id, NotFound),
        (OWNER, other, webhook.id, NotFound),
        (OWNER, scene.dataset_id, "wh_none", NotFound),
        (OWNER, scene.dataset_id, "\0", NotFound),
    ):
        with pytest.raises(refusal):
            rotate_webhook(here, by, dataset, webhook_id, WebhookRotationIn())
    grant(scene, "analyst")
    with pytest.raises(RoleMissing):
        rotate_webhook(here, SECOND, scene.dataset_id, webhook.id, WebhookRotationIn())
    assert _row(scene).sealed_secret == before
    delete_webhook(here, OWNER, scene.dataset_id, webhook.id)
    with pytest.raises(NotFound):
        _rotated(here, scene, webhook.id)
    delete_dataset(scene.installation, OWNER, scene.dataset_id)
    with pytest.raises(DatasetDeleted):
        _rotated(here, scene, webhook.id)


@on_one_database
def test_an_owner_of_another_dataset_removes_no_webhook(
    scene: Scene, here: Installation
) -> None:
    webhook = _told(here, scene, "https://hooks.invalid/")
    other = people.declared(scene.installation, name="another")["id"]
    delete_webhook(here, OWNER, other, webhook.id)
    assert _row(scene).id == webhook.id


@pytest.mark.parametrize("accepted", [True, False])
def test_a_rotation_during_a_delivery_counts_from_the_next_attempt(
    scene: Scene,
    here: Installation,
    receiver: Receiver,
    monkeypatch: pytest.MonkeyPatch,
    accepted: bool,
) -> None:
    """The delivery goes on with the secret that it has read, and its end leaves both
    secrets as they are.
    """
    webhook = _told(here, scene, receiver.url, events=["job.queued"])
    sending, rotations = webhook_sender.send, list[WebhookWithSecret]()

    def rotate_and_send(*delivery: Any, **allowed: Any) -> int:
        rotations.append(_rotated(here, scene, webhook.id))
        assert sending(*delivery, **allowed) == 204
        return 204 if accepted else 500

    scene.submit(key="a")
    with monkeypatch.context() as rotating:
        rotating.setattr(webhook_sender, "send", rotate_and_send)
        assert deliver_due(here) == accepted
    secrets = [rotations[0].secret, webhook.secret]
    assert _signers(secrets, *receiver.requests[-1]) == [webhook.secret]
    with scene.installation.database.write() as session:
        (row,) = outbox.of_dataset(session, scene.dataset_id)
        row.next_at = row.created_at
    if accepted:
        scene.submit(key="b")
    assert deliver_due(here) == 1
    assert _signers(secrets, *receiver.requests[-1]) == secrets


def test_of_rotations_at_the_same_time_the_last_two_secrets_stay(
    scene: Scene, here: Installation, receiver: Receiver
) -> None:
    webhook = _told(here, scene, receiver.url, events=["job.queued"])
    with ThreadPoolExecutor(4) as pool:
        shown = list(
            pool.map(lambda _: _rotated(here, scene, webhook.id).secret, range(4))
        )
    assert len({webhook.secret, *shown}) == 5
    headers, body = _delivered(scene, here, receiver, "a")
    signers = [
        secret
        for secret in shown
        if _standard_macs([secret], headers, body)[0] in headers["webhook-signature"]
    ]
    assert len(signers) == 2
    assert len(headers["webhook-signature"].split(" ")) == 2


def test_a_rotation_that_waits_for_the_removal_of_its_webhook_finds_none(
    postgresql_scene: Scene,
) -> None:
    here = postgresql_scene.installation
    webhook = _told(here, postgresql_scene, "https://hooks.invalid/")
    engine = here.database.engine
    with (
        ThreadPoolExecutor(1) as pool,
        engine.connect() as remover,
        engine.connect() as observer,
    ):
        remover.execute(delete(WebhookRow).where(WebhookRow.id == webhook.id))
        pid = remover.execute(text("SELECT pg_backend_pid()")).scalar_one()
        rotating = pool.submit(_rotated, here, postgresql_scene, webhook.id)
        try:
            waits_for(observer, pid, rotating, what="the webhook")
            remover.commit()
        finally:
            remover.rollback()  # lets the rotation end, also when an assertion failed
        with pytest.raises(NotFound):
            rotating.result()


@pytest.mark.long
def test_standardwebhooks_verifies_a_delivery(
    scene: Scene,
    here: Installation,
    receiver: Receiver,
    tmp_path: Path,
    record_property: Callable[[str, object], None],
) -> None:
    python = environment("standardwebhooks", tmp_path / "venv")
    record_property("version", version_in(python, "standardwebhooks"))
    webhook = _told(here, scene, receiver.url, events=["job.queued"])
    rotated = _rotated(here, scene, webhook.id)
    headers, body = _delivered(scene, here, receiver, "a")
    script = (
        Path(__file__).parents[1] / "server" / "foreign" / "with_standardwebhooks.py"
    )

    def verify(secret: str) -> subprocess.CompletedProcess[str]:
        delivery = json.dumps(
            {"secret": secret, "headers": headers, "body": body.decode()}
        )
        return subprocess.run(
            [python, script],
            input=delivery,
            capture_output=True,
            text=True,
            check=False,
        )

    for secret in (webhook.secret, rotated.secret):
        done = verify(secret)
        assert done.returncode == 0, done.stderr
        assert [json.loads(done.stdout)] == receiver.events(secret)
    _end_overlap(scene)
    headers, body = _delivered(scene, here, receiver, "b")
    assert (verify(rotated.secret).returncode, verify(webhook.secret).returncode) == (
        0,
        1,
    )
