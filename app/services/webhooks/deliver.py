"""Delivers waiting events to webhooks whose dataset lives and whose owner still has the role."""

import json
import logging
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from sqlalchemy.orm import Session

from app.access import grants
from app.access.grants import MANAGE_DATASET
from app.core import limits, stamps
from app.core.errors import NotFound, RoleMissing, Unauthenticated, Unavailable
from app.datasets import catalog
from app.ledger import control
from app.ledger.entries import EntryKind
from app.services.installation import Installation
from app.services.webhooks.manage_webhooks import SECRET
from app.webhooks import outbox, sender
from app.webhooks.tables import WebhookRow

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class _Held:
    """A delivery that this process holds."""

    webhook_id: str
    delivery_id: str
    url: str
    body: bytes
    event: str
    secret: str = field(repr=False)


def deliver_due(installation: Installation, *, stopping: threading.Event | None = None) -> int:
    """Delivers to every webhook that is due until it refuses or nothing waits, several webhooks at a time.

    Returns:
        The number of accepted deliveries.

    Raises:
        Unavailable: the database cannot be reached.
    """
    stopping = stopping or threading.Event()
    with installation.database.read() as session:
        due = outbox.due(session, at=installation.database.now(session))
    if not due:
        return 0
    with ThreadPoolExecutor(min(len(due), limits.MAX_DELIVERIES_AT_ONCE), "webhook") as threads:
        return sum(threads.map(lambda webhook_id: _deliver_all(installation, webhook_id, stopping), due))


def _deliver_all(installation: Installation, webhook_id: str, stopping: threading.Event) -> int:
    n_accepted = 0
    try:
        while not stopping.is_set():
            held = _held(installation, webhook_id)
            if held is None or not _deliver(installation, held):
                break
            n_accepted += 1
    except Unavailable:
        _log.warning("a webhook waits for the database", exc_info=True)
    return n_accepted


def _held(installation: Installation, webhook_id: str) -> _Held | None:
    """Holds the webhook and reads its oldest delivery; a webhook without authority is removed."""
    database = installation.database
    with database.write() as session:
        at = database.now(session)
        row = outbox.hold(session, webhook_id, at=at)
        if row is None:
            return None
        dataset = catalog.find(session, row.dataset_id)
        if dataset.is_deleted or not _may_still_listen(installation, session, row):
            outbox.remove(session, [row.id])
            details = {"dataset": row.dataset_id, "webhook": row.id}
            control.record(session, EntryKind.WEBHOOK_REMOVED, actor=control.OPERATOR, **details)
            return None
        delivery = outbox.oldest(session, row.id, at=at)
        if delivery is None:
            row.next_at = at
            return None
        data_key = dataset.data_key(installation.storage_keys)
        return _Held(
            webhook_id=row.id,
            delivery_id=delivery.id,
            url=row.url,
            body=json.dumps(delivery.body, ensure_ascii=False, separators=(",", ":")).encode(),
            event=delivery.event,
            secret=data_key.open(row.sealed_secret, purpose=SECRET).decode(),
        )


def _may_still_listen(installation: Installation, session: Session, row: WebhookRow) -> bool:
    try:
        owner = grants.read(session, row.created_by, now=installation.database.now)
        grants.require(session, owner, row.dataset_id, MANAGE_DATASET, kind="dataset")
    except (Unauthenticated, NotFound, RoleMissing):
        return False
    return True


def _deliver(installation: Installation, held: _Held) -> bool:
    headers = {
        "Grovekeeper-Signature": sender.signature(held.secret, held.body, at_s=int(stamps.now().timestamp())),
        "Grovekeeper-Delivery": held.delivery_id,
        "Grovekeeper-Event": held.event,
    }
    accepted = sender.send(held.url, held.body, headers, allowed=installation.settings.webhook_networks)
    with installation.database.write() as session:
        row = session.get(WebhookRow, held.webhook_id)
        if row is None:  # removed meanwhile
            return False
        outbox.settle(session, row, held.delivery_id, accepted=accepted, at=installation.database.now(session))
    return accepted
