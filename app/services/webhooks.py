"""Registers, lists, tests, rotates and removes webhooks of datasets, and delivers the
events that wait for them.

Events go to webhooks whose dataset lives and whose owner still has the role.
"""

import base64
import json
import logging
import secrets
import threading
import time
from collections.abc import Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field

from sqlalchemy.orm import Session

from app.access import grants
from app.access.grants import MANAGE_DATASET, Principal
from app.core import limits, stamps
from app.core.errors import (
    InvalidRequest,
    NotFound,
    RoleMissing,
    TooLarge,
    Unauthenticated,
    Unavailable,
)
from app.datasets import catalog
from app.db.database import transaction_time
from app.jobs import outbox
from app.jobs.outbox import WebhookRow
from app.ledger import control
from app.ledger.tables import EntryKind
from app.services import webhook_sender
from app.services.authorization import authorized_dataset, managed_dataset, write_as
from app.services.installation import Installation
from app.services.jobs import notices
from app.services.ledger.heads import Heads
from app.wire.webhooks import (
    WebhookIn,
    WebhookList,
    WebhookOut,
    WebhookRotationIn,
    WebhookWithSecret,
)
from grovekeeper_forests import amounts

SECRET = b"webhook-secret/1"
"""The purpose of the key that seals secrets."""

_log = logging.getLogger(__name__)

_ADDRESS = (
    f"a public https address of at most {limits.MAX_WEBHOOK_URL_CHARS} characters of ASCII, without credentials and "
    "without a fragment; the operator of the service may allow others"
)


def create_webhook(
    installation: Installation, principal: Principal, reference: str, body: WebhookIn
) -> WebhookWithSecret:
    """Registers a webhook. Its secret is shown this once.

    Raises:
        InvalidRequest: no delivery may go to the address, or the threshold is missing,
            unused, above 1, or of a public dataset, which has no budget.
    """
    try:
        webhook_sender.read_url(
            body.url, allowed=installation.settings.webhook_networks
        )
    except webhook_sender.AddressRefused as refusal:
        raise InvalidRequest.at("/url", str(refusal), accepted=[_ADDRESS]) from None
    if (body.threshold is not None) != (outbox.BUDGET_LOW in body.events):
        raise InvalidRequest.at("/threshold", "required-for-budget-low-only")
    if body.threshold is not None and body.threshold > 1:
        raise InvalidRequest.at("/threshold", "too-large", accepted=["at most 1"])
    secret = _new_secret()
    with write_as(installation, principal) as (session, principal):
        dataset = managed_dataset(session, principal, reference)
        at = transaction_time(session)
        row = WebhookRow(
            id=stamps.new(stamps.WEBHOOK),
            dataset_id=dataset.id,
            url=body.url,
            events=sorted(set(body.events)),
            threshold=amounts.text_or_none(body.threshold),
            is_low=False,
            sealed_secret=dataset.data_key(installation.storage_keys).seal(
                secret.encode(), purpose=SECRET
            ),
            created_by=principal.key_id,
            created_at=at,
            next_at=at,
            failures=0,
        )
        outbox.add(session, row)
        notices.tell_low(session, [dataset.id])
        control.record(
            session,
            EntryKind.WEBHOOK_MADE,
            actor=principal.key_id,
            dataset=dataset.id,
            webhook=row.id,
        )
        return WebhookWithSecret.model_validate(
            _facts(session, row) | {"secret": secret}
        )


def rotate_webhook(
    installation: Installation,
    principal: Principal,
    reference: str,
    webhook_id: str,
    body: WebhookRotationIn,
) -> WebhookWithSecret:
    """Replaces the secret of a webhook. The new secret is shown this once.

    For the time of the overlap, deliveries carry the signature of the replaced secret,
    too. The webhook's id stays, and with it the deliveries that wait.

    Raises:
        NotFound: no such dataset or webhook.
    """
    secret = _new_secret()
    with write_as(installation, principal) as (session, principal):
        dataset, row = _locked(session, principal, reference, webhook_id)
        sealed = dataset.data_key(installation.storage_keys).seal(
            secret.encode(), purpose=SECRET
        )
        outbox.rotate(
            row, sealed, overlap_s=body.overlap_s, at=transaction_time(session)
        )
        control.record(
            session,
            EntryKind.WEBHOOK_ROTATED,
            actor=principal.key_id,
            dataset=dataset.id,
            webhook=row.id,
        )
        return WebhookWithSecret.model_validate(
            _facts(session, row) | {"secret": secret}
        )


def list_webhooks(
    installation: Installation, principal: Principal, reference: str
) -> WebhookList:
    """Lists the webhooks of a dataset, without their secrets."""
    with installation.database.read() as session:
        dataset = authorized_dataset(session, principal, reference, MANAGE_DATASET)
        rows = outbox.of_dataset(session, dataset.id)
        return WebhookList(
            webhooks=[WebhookOut.model_validate(_facts(session, row)) for row in rows]
        )


def send_test(
    installation: Installation, principal: Principal, reference: str, webhook_id: str
) -> WebhookOut:
    """Lets a test event wait for a webhook. It is delivered like every other event,
    after those that wait; a test that waits already stays the only one.

    Raises:
        TooLarge: too many events wait.
    """
    with write_as(installation, principal) as (session, principal):
        dataset, row = _locked(session, principal, reference, webhook_id)
        at = transaction_time(session)
        if not outbox.put(session, row, outbox.TEST, {"dataset": dataset.id}, at=at):
            raise TooLarge(
                "the number of waiting events", limits.MAX_WAITING_DELIVERIES
            )
        return WebhookOut.model_validate(_facts(session, row))


def delete_webhook(
    installation: Installation, principal: Principal, reference: str, webhook_id: str
) -> None:
    """Removes a webhook with its waiting deliveries. Removing a webhook that does not
    exist succeeds.
    """
    with write_as(installation, principal) as (session, principal):
        dataset = authorized_dataset(session, principal, reference, MANAGE_DATASET)
        if outbox.has(session, dataset.id, webhook_id):
            outbox.remove(session, [webhook_id])
            control.record(
                session,
                EntryKind.WEBHOOK_REMOVED,
                actor=principal.key_id,
                dataset=dataset.id,
                webhook=webhook_id,
            )


def _locked(
    session: Session, principal: Principal, reference: str, webhook_id: str
) -> tuple[catalog.Dataset, WebhookRow]:
    """A webhook under its lock, with its dataset. The dataset is not locked: its erasure
    removes the webhook, whose lock is waited for.
    """
    dataset = authorized_dataset(session, principal, reference, MANAGE_DATASET).living()
    return dataset, outbox.locked(session, dataset.id, webhook_id)


def _new_secret() -> str:
    return f"whsec_{base64.b64encode(secrets.token_bytes(32)).decode('ascii')}"


def _facts(session: Session, row: WebhookRow) -> dict[str, object]:
    return {
        **row.fields(
            "id", "url", "events", "threshold", "created_by", "created_at", "failures", "earlier_secret_until",
        ),
        "waiting": outbox.n_waiting(session, row.id),
        "deliveries": row.recent or [],
    }  # fmt: skip


@dataclass(frozen=True)
class _Held:
    webhook_id: str
    delivery_id: str
    url: str
    body: bytes
    event: str
    secrets: tuple[str, ...] = field(repr=False)


def deliver_due(
    installation: Installation,
    *,
    heads: Heads | None = None,
    stopping: threading.Event | None = None,
) -> int:
    """Delivers until nothing is due, one delivery per webhook and turn, and on one
    thread per owner at a time.

    So slow receivers of one owner take one thread, however many they are, and the next
    turn waits for none of them. Earlier secrets whose overlap has ended are removed.

    Args:
        heads: nothing is told on the word of a database that contradicts its heads.

    Returns:
        The number of accepted deliveries.
    """
    stopping = stopping or threading.Event()
    running: dict[Future[bool | None], str] = {}
    began: dict[str, float] = {}
    paused: dict[str, float] = {}
    n_accepted = 0
    with ThreadPoolExecutor(limits.MAX_DELIVERIES_AT_ONCE, "webhook") as threads:
        while not stopping.is_set() and _may_tell(heads):
            now = time.monotonic()
            resting = [owner for owner, until in paused.items() if until > now]
            due = _due(installation, without=[*running.values(), *resting])
            # the owner whose turn was longest ago
            due.sort(key=lambda found: began.get(found[1], 0.0))
            for webhook_id, owner in due[
                : limits.MAX_DELIVERIES_AT_ONCE - len(running)
            ]:
                began[owner] = now
                running[threads.submit(_deliver_oldest, installation, webhook_id)] = (
                    owner
                )
            if not running:
                break
            for ended in wait(running, limits.WEBHOOK_INTERVAL_S, FIRST_COMPLETED).done:
                owner, is_accepted = running.pop(ended), ended.result()
                n_accepted += is_accepted is True
                if is_accepted is None:
                    paused[owner] = time.monotonic() + limits.WEBHOOK_INTERVAL_S
    return n_accepted + sum(ended.result() is True for ended in running)


def _may_tell(heads: Heads | None) -> bool:
    if heads is not None:
        heads.confirm()
    return heads is None or heads.is_current


def _due(
    installation: Installation, *, without: Sequence[str]
) -> list[tuple[str, str]]:
    with installation.database.read() as session:
        at = transaction_time(session)
        due = outbox.due(session, at=at, without=without)
        has_ended_secrets = outbox.has_ended_secrets(session, at=at)
    if has_ended_secrets:
        with installation.database.write() as session:
            outbox.remove_ended_secrets(session, at=at)
    return due


def _deliver_oldest(installation: Installation, webhook_id: str) -> bool | None:
    """Whether the oldest delivery of a webhook was accepted; ``None`` if it was not
    sent, as while another process holds the webhook.
    """
    try:
        held = _held(installation, webhook_id)
        return None if held is None else _deliver(installation, held)
    except Unavailable:
        _log.warning("a webhook waits for the database", exc_info=True)
        return None


def _held(installation: Installation, webhook_id: str) -> _Held | None:
    """Holds the webhook and reads its oldest delivery; a webhook without authority is
    removed.
    """
    with installation.database.write() as session:
        at = transaction_time(session)
        row = outbox.hold(session, webhook_id, at=at)
        if row is None:
            return None
        dataset = catalog.find(session, row.dataset_id)
        if dataset.is_deleted or not _may_still_listen(session, row):
            outbox.remove(session, [row.id])
            control.record(
                session,
                EntryKind.WEBHOOK_REMOVED,
                actor=control.OPERATOR,
                dataset=row.dataset_id,
                webhook=row.id,
            )
            return None
        delivery = outbox.oldest(session, row, at=at)
        if delivery is None:
            row.next_at = at
            return None
        data_key = dataset.data_key(installation.storage_keys)
        return _Held(
            webhook_id=row.id,
            delivery_id=delivery.id,
            url=row.url,
            body=json.dumps(
                delivery.body, ensure_ascii=False, separators=(",", ":")
            ).encode(),
            event=delivery.event,
            secrets=tuple(
                data_key.open(sealed, purpose=SECRET).decode()
                for sealed in outbox.sealed_secrets(row, at=at)
            ),
        )


def _may_still_listen(session: Session, row: WebhookRow) -> bool:
    try:
        owner = grants.read(session, row.created_by)
        grants.require(session, owner, row.dataset_id, MANAGE_DATASET, kind="dataset")
    except (Unauthenticated, NotFound, RoleMissing):
        return False
    return True


def _headers(held: _Held, *, at_s: int) -> dict[str, str]:
    """The service's own headers, and the three of Standard Webhooks. The id is the same
    in every attempt.
    """
    standard = webhook_sender.standard_signature(
        held.secrets, held.body, delivery_id=held.delivery_id, at_s=at_s
    )
    return {
        "Grovekeeper-Signature": webhook_sender.signature(
            held.secrets, held.body, at_s=at_s
        ),
        "Grovekeeper-Delivery": held.delivery_id,
        "Grovekeeper-Event": held.event,
        "webhook-id": held.delivery_id,
        "webhook-timestamp": str(at_s),
        "webhook-signature": standard,
    }


def _deliver(installation: Installation, held: _Held) -> bool:
    headers = _headers(held, at_s=int(stamps.now().timestamp()))
    outcome = webhook_sender.send(
        held.url, held.body, headers, allowed=installation.settings.webhook_networks
    )
    with installation.database.write() as session:
        row = session.get(
            WebhookRow, held.webhook_id, with_for_update={"key_share": True}
        )
        if row is None:  # removed meanwhile
            return False
        outbox.finish_delivery(
            session,
            row,
            held.delivery_id,
            outcome,
            at=transaction_time(session),
        )
    return outbox.is_accepted(outcome)
