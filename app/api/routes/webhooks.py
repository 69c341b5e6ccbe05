"""Defines the routes of ``/datasets/{dataset}/webhooks``: register, list and remove webhooks."""

from fastapi import APIRouter

from app.api import problems
from app.api.requests import BodyRoute, Caller, CurrentInstallation
from app.core.errors import DatasetDeleted, NotFound, RoleMissing
from app.services.webhooks import manage_webhooks
from app.wire.rules import WebhookIn, WebhookList, WebhookWithSecret

router = APIRouter(prefix="/datasets/{dataset}/webhooks", tags=["datasets"], route_class=BodyRoute)


@router.post(
    "",
    operation_id="create_webhook",
    status_code=201,
    responses=problems.documented(NotFound, RoleMissing, DatasetDeleted, *problems.JSON_BODY),
)
def create_webhook(
    installation: CurrentInstallation, caller: Caller, dataset: str, body: WebhookIn
) -> WebhookWithSecret:
    """Register an address that is told about jobs, refusals or a low budget of a dataset. Its secret is shown once."""
    return manage_webhooks.create_webhook(installation, caller, dataset, body)


@router.get("", operation_id="list_webhooks", responses=problems.documented(NotFound, RoleMissing))
def list_webhooks(installation: CurrentInstallation, caller: Caller, dataset: str) -> WebhookList:
    """List the webhooks of a dataset, without their secrets."""
    return manage_webhooks.list_webhooks(installation, caller, dataset)


@router.delete(
    "/{webhook_id}",
    operation_id="delete_webhook",
    status_code=204,
    responses=problems.documented(NotFound, RoleMissing),
)
def delete_webhook(installation: CurrentInstallation, caller: Caller, dataset: str, webhook_id: str) -> None:
    """Remove a webhook with its waiting deliveries."""
    manage_webhooks.delete_webhook(installation, caller, dataset, webhook_id)
