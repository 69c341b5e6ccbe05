"""Defines the routes of the webhooks of a dataset."""

from fastapi import Request, Response

from app.api.requests import SHOWS_SECRET, By, Router, raises
from app.core.errors import DatasetDeleted, TooLarge
from app.services import webhooks
from app.wire.webhooks import (
    WebhookIn,
    WebhookList,
    WebhookOut,
    WebhookRotationIn,
    WebhookWithSecret,
)

webhook_routes = Router(prefix="/datasets/{dataset}/webhooks", tags=["datasets"])


@webhook_routes.post(
    "",
    status_code=201,
    dependencies=SHOWS_SECRET,
)
@raises(DatasetDeleted)
def create_webhook(
    request: Request, response: Response, by: By, dataset: str, body: WebhookIn
) -> WebhookWithSecret:
    """Register an address that is told about jobs, refusals or a low budget of a
    dataset. Its secret is shown once.
    """
    made = webhooks.create_webhook(*by, dataset, body)
    response.headers["Location"] = f"{request.url.path}/{made.id}"
    return made


@webhook_routes.post(
    "/{webhook_id}/secret",
    status_code=201,
    dependencies=SHOWS_SECRET,
)
@raises(DatasetDeleted)
def rotate_webhook(
    by: By, dataset: str, webhook_id: str, body: WebhookRotationIn
) -> WebhookWithSecret:
    """Replace the secret of a webhook, shown once. For a time, deliveries carry the
    earlier secret's signature, too.
    """
    return webhooks.rotate_webhook(*by, dataset, webhook_id, body)


@webhook_routes.post(
    "/{webhook_id}/test",
    status_code=202,
)
@raises(DatasetDeleted, TooLarge)
def test_webhook(
    request: Request, response: Response, by: By, dataset: str, webhook_id: str
) -> WebhookOut:
    """Let a test event wait for a webhook, which is told about it like about every
    other event. While a test waits, another adds nothing.
    """
    tested = webhooks.send_test(*by, dataset, webhook_id)
    # the list shows what became of it
    response.headers["Location"] = request.url.path.removesuffix(f"/{tested.id}/test")
    return tested


@webhook_routes.get("")
def list_webhooks(by: By, dataset: str) -> WebhookList:
    """List the webhooks of a dataset, without their secrets."""
    return webhooks.list_webhooks(*by, dataset)


@webhook_routes.delete("/{webhook_id}", status_code=204)
def delete_webhook(by: By, dataset: str, webhook_id: str) -> None:
    """Remove a webhook with its waiting deliveries."""
    webhooks.delete_webhook(*by, dataset, webhook_id)
