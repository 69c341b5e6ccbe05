"""Serves ``/datasets/{id}/webhooks``: registers, lists and removes webhooks."""

import secrets

from sqlalchemy.orm import Session

from app.access.grants import MANAGE_DATASET, Principal
from app.core import amounts, stamps
from app.core.errors import InvalidRequest
from app.datasets import catalog
from app.ledger import control
from app.ledger.entries import EntryKind
from app.services.authorization import authorized_dataset, write_as
from app.services.installation import Installation
from app.services.jobs import notices
from app.webhooks import outbox
from app.webhooks.addresses import AddressRefused, read_url
from app.webhooks.tables import WebhookRow
from app.wire.rules import WebhookIn, WebhookList, WebhookOut, WebhookWithSecret

SECRET = b"webhook-secret/1"
"""The purpose of the key that seals secrets."""


def create_webhook(
    installation: Installation, principal: Principal, reference: str, body: WebhookIn
) -> WebhookWithSecret:
    """Registers a webhook. Its secret is shown this once.

    Raises:
        NotFound: no such dataset, or it is not visible to this key.
        RoleMissing: only owners register webhooks.
        DatasetDeleted: the dataset's rows are erased.
        InvalidRequest: no delivery may go to the address, or the threshold is missing, unused, above 1, or of a public
            dataset, which has no budget.
        TooLarge: the dataset has too many webhooks.
    """
    try:
        read_url(body.url, allowed=installation.settings.webhook_networks)
    except AddressRefused as refusal:
        raise InvalidRequest.at("/url", str(refusal)) from None
    if (body.threshold is not None) != (notices.BUDGET_LOW in body.events):
        raise InvalidRequest.at("/threshold", "required-for-budget-low-only")
    if body.threshold is not None and body.threshold > 1:
        raise InvalidRequest.at("/threshold", "too-large")
    secret = f"whsec_{secrets.token_urlsafe(32)}"
    with write_as(installation, principal) as (session, principal):
        dataset = authorized_dataset(session, principal, reference, MANAGE_DATASET)
        dataset = catalog.locked(session, dataset.id).living()
        at = installation.database.now(session)
        row = WebhookRow(
            id=stamps.new(stamps.WEBHOOK),
            dataset_id=dataset.id,
            url=body.url,
            events=sorted(set(body.events)),
            threshold=None if body.threshold is None else amounts.to_text(body.threshold),
            is_low=False,
            sealed_secret=dataset.data_key(installation.storage_keys).seal(secret.encode(), purpose=SECRET),
            created_by=principal.key_id,
            created_at=at,
            next_at=at,
            failures=0,
        )
        outbox.add(session, row)
        notices.tell_low(session, [dataset.id], at=at)
        details = {"dataset": dataset.id, "webhook": row.id}
        control.record(session, EntryKind.WEBHOOK_MADE, actor=principal.key_id, **details)
        return WebhookWithSecret.model_validate(_facts(session, row) | {"secret": secret})


def list_webhooks(installation: Installation, principal: Principal, reference: str) -> WebhookList:
    """Lists the webhooks of a dataset, without their secrets.

    Raises:
        NotFound: no such dataset, or it is not visible to this key.
        RoleMissing: only owners see webhooks.
    """
    with installation.database.read() as session:
        dataset = authorized_dataset(session, principal, reference, MANAGE_DATASET)
        rows = outbox.of_dataset(session, dataset.id)
        return WebhookList(webhooks=[WebhookOut.model_validate(_facts(session, row)) for row in rows])


def delete_webhook(installation: Installation, principal: Principal, reference: str, webhook_id: str) -> None:
    """Removes a webhook with its waiting deliveries. Removing a webhook that does not exist succeeds.

    Raises:
        NotFound: no such dataset, or it is not visible to this key.
        RoleMissing: only owners remove webhooks.
    """
    with write_as(installation, principal) as (session, principal):
        dataset = authorized_dataset(session, principal, reference, MANAGE_DATASET)
        if outbox.has(session, dataset.id, webhook_id):
            outbox.remove(session, [webhook_id])
            details = {"dataset": dataset.id, "webhook": webhook_id}
            control.record(session, EntryKind.WEBHOOK_REMOVED, actor=principal.key_id, **details)


def _facts(session: Session, row: WebhookRow) -> dict[str, object]:
    return {
        "id": row.id,
        "url": row.url,
        "events": row.events,
        "threshold": row.threshold,
        "created_by": row.created_by,
        "created_at": stamps.to_text(row.created_at),
        "waiting": outbox.n_waiting(session, row.id),
        "failures": row.failures,
    }
