"""Serves the webhooks of a dataset: their last deliveries, and a test event."""

from dataclasses import dataclass

from fastapi import Response

from app.api.pages.datasets import of_every_tab
from app.api.pages.forms import Form, acts
from app.api.pages.rendering import Visit, Visitor, if_permitted
from app.api.requests import Router
from app.services import webhooks
from app.wire.webhooks import DeliveryOut, WebhookOut

webhook_pages = Router(prefix="/ui/datasets/{dataset}/webhooks")


@dataclass(frozen=True)
class ShownWebhook:
    """A webhook with its state in words.

    Attributes:
        tone: the colour of the state, which has an ``icon``.
    """

    webhook: WebhookOut
    state: str
    tone: str
    icon: str
    deliveries: list[tuple[DeliveryOut, str]]


def shown_webhook(webhook: WebhookOut) -> ShownWebhook:
    """A webhook as the page shows it, each delivery with its answer in words."""
    state, tone, icon = "delivers", "calm", "ok"
    if webhook.failures:
        times = "once" if webhook.failures == 1 else f"{webhook.failures} times"
        state = f"failed {times}, will try again"
        tone = "red"
        icon = "failed"
    elif webhook.waiting:
        state, tone, icon = "events wait", "amber", "waiting"
    elif not webhook.deliveries:
        state, tone, icon = "nothing delivered yet", "", "queued"
    deliveries = [(item, _answer(item)) for item in webhook.deliveries]
    return ShownWebhook(webhook, state, tone, icon, deliveries)


def _answer(delivery: DeliveryOut) -> str:
    if delivery.status is not None:
        return str(delivery.status)
    return (delivery.reason or "").replace("-", " ")


@webhook_pages.get("")
def show_webhooks(visit: Visitor, dataset: str) -> Response:
    """Show the webhooks of a dataset and what they were told about last."""
    above = of_every_tab(visit, dataset, "Webhooks")
    id_ = above["dataset"]["id"]
    listed = if_permitted(lambda: webhooks.list_webhooks(*visit.by, id_).webhooks)
    shown = None if listed is None else list(map(shown_webhook, listed))
    return visit.page("dataset_webhooks", **above, webhooks=shown)


@acts(
    webhook_pages,
    "/{webhook}/test",
    lambda refused, dataset, **_: show_webhooks(refused, dataset),
)
def send_test(visit: Visit, form: Form, dataset: str, webhook: str) -> str:
    """Let a test event wait for a webhook, and show the webhooks."""
    webhooks.send_test(*visit.by, dataset, webhook)
    return f"/ui/datasets/{dataset}/webhooks"
