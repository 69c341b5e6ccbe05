"""Tests kill -9 of a process that delivers to a webhook: the event arrives at least
once, with one id.
"""

import pytest

from app.jobs import outbox
from app.services.webhooks import create_webhook, deliver_due
from app.wire.webhooks import WebhookIn
from tests.crash.conftest import KillRequest, Launcher
from tests.support.crash_scene import OWNER, Scene
from tests.support.receiver import Receiver, listening, may_reach_loopback


def _end_hold(scene: Scene) -> None:
    """Lets the minute pass for which the killed process holds the webhook."""
    with scene.installation.database.write() as session:
        (row,) = outbox.of_dataset(session, scene.dataset_id)
        row.next_at = row.created_at


@pytest.mark.parametrize(
    ("point", "n_received"),
    [("accepted", 0), ("delivery-not-sent", 0), ("delivery-accepted", 1)],
)
def test_an_event_outlives_the_process_and_keeps_its_id(
    own_launcher: Launcher, kill_request: KillRequest, point: str, n_received: int
) -> None:
    scene = own_launcher.scene
    restarted = may_reach_loopback(scene.installation)
    with listening(Receiver()) as receiver:
        body = WebhookIn.model_validate({"url": receiver.url, "events": ["job.queued"]})
        secret = create_webhook(restarted, OWNER, scene.dataset_id, body).secret
        kill_request(point, scene)
        assert len(receiver.requests) == n_received
        if point != "accepted":
            assert deliver_due(restarted) == 0, (
                "the killed process still holds the webhook"
            )
        _end_hold(scene)
        assert (deliver_due(restarted), deliver_due(restarted)) == (1, 0)
        events = receiver.events(secret)
    assert len(events) == n_received + 1
    assert {event["type"] for event in events} == {"job.queued"}
    assert len({event["id"] for event in events}) == 1
