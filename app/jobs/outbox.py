"""Stores webhooks, adds events to the outbox in the transaction that causes them, and
hands out what is due.

An event is delivered at least once and in order: its row is removed after a receiver
has accepted it. A process that delivers holds a webhook until a time in the future;
another process continues if it was killed.
"""

import logging
from collections.abc import Collection, Sequence
from datetime import datetime, timedelta
from typing import Literal

from sqlalchemy import (
    ColumnElement,
    Index,
    Text,
    delete,
    exists,
    func,
    or_,
    select,
    type_coerce,
)
from sqlalchemy.orm import Mapped, Session, mapped_column

from app.core import limits, stamps
from app.core.errors import NotFound, TooLarge
from app.db.base import Base, PrimaryKey
from grovekeeper_common.json_types import JsonMapping, JsonObject

BUDGET_LOW = "budget.low"
TEST = "webhook.test"
"""The event that an owner asks for."""

Unanswered = Literal["unreachable", "no-tls", "no-answer"]
"""Why a receiver gave no answer: no delivery may go to its address or no connection was
made, its certificate is not accepted or it has no TLS, or none of its answers came in
time.
"""

_log = logging.getLogger(__name__)


class WebhookRow(Base):
    """An address that is told about public facts of a dataset.

    Attributes:
        threshold: decimal text; a remaining share of the cap below it is an event.
            ``None``: never.
        is_low: whether the remaining share is below the threshold, and an event of that
            is stored or was delivered: so only the crossing is an event.
        sealed_secret: the secret of its signatures, sealed with the data key of the
            dataset.
        sealed_earlier_secret: the secret that a rotation replaced, sealed so, too;
            deliveries carry both signatures.
        earlier_secret_until: when they stop to.
        created_by: the key whose authority every delivery needs.
        next_at: the earliest time of the next attempt.
        failures: failed attempts since the last delivery.
        recent: the last deliveries with their last attempts, newest first; ``None``
            before the first attempt.
    """

    __tablename__ = "webhooks"

    id: Mapped[PrimaryKey]
    dataset_id: Mapped[str] = mapped_column(index=True)
    url: Mapped[str]
    events: Mapped[list[str]]
    threshold: Mapped[str | None]
    is_low: Mapped[bool]
    sealed_secret: Mapped[bytes]
    created_by: Mapped[str]
    created_at: Mapped[datetime]
    next_at: Mapped[datetime]
    failures: Mapped[int]
    sealed_earlier_secret: Mapped[bytes | None]
    earlier_secret_until: Mapped[datetime | None]
    # deferred: transactions that cause events read webhooks, and none reads this
    recent: Mapped[list[JsonObject] | None] = mapped_column(deferred=True)


class DeliveryRow(Base):
    """An event that a webhook was not told about yet: the transactional outbox."""

    __tablename__ = "webhook_deliveries"

    id: Mapped[PrimaryKey]
    webhook_id: Mapped[str]
    event: Mapped[str]
    body: Mapped[JsonObject]
    created_at: Mapped[datetime]

    __table_args__ = (
        Index(
            "ix_webhook_deliveries_webhook_id_created_at_id",
            "webhook_id",
            "created_at",
            "id",
        ),
    )


def add(session: Session, row: WebhookRow) -> None:
    """Adds a webhook. The caller has locked the dataset.

    Raises:
        TooLarge: the dataset has too many webhooks.
    """
    if len(of_dataset(session, row.dataset_id)) >= limits.MAX_WEBHOOKS:
        raise TooLarge("the number of webhooks", limits.MAX_WEBHOOKS)
    session.add(row)
    session.flush()


def of_dataset(session: Session, dataset_id: str) -> list[WebhookRow]:
    """The webhooks of a dataset, the oldest first."""
    query = select(WebhookRow).where(WebhookRow.dataset_id == dataset_id)
    return list(session.scalars(query.order_by(WebhookRow.created_at, WebhookRow.id)))


def listening(session: Session, dataset_ids: Collection[str]) -> list[WebhookRow]:
    """The webhooks of datasets in a write transaction, which keeps them from being
    removed until it ends.
    """
    return _kept(session, WebhookRow.dataset_id.in_(dataset_ids))


def is_used() -> ColumnElement[bool]:
    """A column that states whether there is any webhook; where there is none, a
    transaction has nothing to tell.
    """
    return exists(select(WebhookRow.id)).label("has_webhooks")


def watch_budgets(session: Session) -> bool:
    """Whether any webhook watches a budget; most transactions have no more to ask."""
    return session.execute(
        select(exists().where(WebhookRow.threshold.is_not(None)))
    ).scalar_one()


def audience(
    session: Session, dataset_ids: Collection[str]
) -> tuple[list[WebhookRow], bool]:
    """What :func:`listening` and :func:`watch_budgets` return, in one query, which also
    locks one of the latter.
    """
    watcher = (
        select(func.min(WebhookRow.id))
        .where(WebhookRow.threshold.is_not(None))
        .scalar_subquery()
    )
    is_listening = WebhookRow.dataset_id.in_(dataset_ids)
    rows = _kept(session, or_(is_listening, WebhookRow.id == watcher))
    listeners = [row for row in rows if row.dataset_id in dataset_ids]
    return listeners, any(row.threshold is not None for row in rows)


def with_threshold(session: Session, dataset_ids: Collection[str]) -> list[WebhookRow]:
    """The webhooks of several datasets that watch a budget, in the order in which every
    transaction locks them.
    """
    is_listening = WebhookRow.dataset_id.in_(dataset_ids)
    return _kept(session, is_listening, WebhookRow.threshold.is_not(None))


def _kept(session: Session, *conditions: ColumnElement[bool]) -> list[WebhookRow]:
    """Webhooks that nobody removes until the transaction ends, locked in order of id."""
    query = select(WebhookRow).where(*conditions).order_by(WebhookRow.id)
    return list(session.scalars(query.with_for_update(read=True, key_share=True)))


def has(session: Session, dataset_id: str, webhook_id: str) -> bool:
    """Whether a webhook is one of a dataset's."""
    if not stamps.is_reference(webhook_id):
        return False
    row = session.get(WebhookRow, webhook_id)
    return row is not None and row.dataset_id == dataset_id


def locked(session: Session, dataset_id: str, webhook_id: str) -> WebhookRow:
    """A webhook of a dataset under its row lock, which lets other transactions add
    deliveries.

    Raises:
        NotFound: the dataset has no such webhook.
    """
    row = None
    if stamps.is_reference(webhook_id):
        # not the lock that conflicts with the share locks of transactions with events
        lock = {"key_share": True}
        row = session.get(
            WebhookRow, webhook_id, populate_existing=True, with_for_update=lock
        )
    if row is None or row.dataset_id != dataset_id:
        raise NotFound("webhook")
    return row


def rotate(
    row: WebhookRow, sealed_secret: bytes, *, overlap_s: int, at: datetime
) -> None:
    """Replaces the secret of a webhook that is locked, and keeps the replaced secret
    alone beside it for a time.

    An earlier secret whose overlap has not ended is dropped: a receiver needs the
    secret that it was given last.
    """
    row.sealed_earlier_secret = row.earlier_secret_until = None
    if overlap_s > 0:
        row.sealed_earlier_secret = row.sealed_secret
        row.earlier_secret_until = at + timedelta(seconds=overlap_s)
    row.sealed_secret = sealed_secret


def sealed_secrets(row: WebhookRow, *, at: datetime) -> list[bytes]:
    """The sealed secrets that sign a delivery, the newest first."""
    earlier, until = row.sealed_earlier_secret, row.earlier_secret_until
    if earlier is None or until is None or until <= at:
        return [row.sealed_secret]
    return [row.sealed_secret, earlier]


def has_ended_secrets(session: Session, *, at: datetime) -> bool:
    """Whether any earlier secret is stored whose overlap has ended."""
    return session.execute(
        select(exists().where(WebhookRow.earlier_secret_until <= at))
    ).scalar_one()


def remove_ended_secrets(session: Session, *, at: datetime) -> None:
    """Removes earlier secrets whose overlap has ended; those of a webhook that is
    locked are left to a later turn.
    """
    ended = (
        select(WebhookRow)
        .where(WebhookRow.earlier_secret_until <= at)
        .order_by(WebhookRow.id)
    )
    for row in session.scalars(ended.with_for_update(skip_locked=True, key_share=True)):
        row.sealed_earlier_secret = row.earlier_secret_until = None


def remove(session: Session, webhook_ids: Sequence[str]) -> None:
    """Removes webhooks with their waiting deliveries. A webhook is locked before its
    deliveries, so none is added.
    """
    of_ids = (
        select(WebhookRow.id)
        .where(WebhookRow.id.in_(webhook_ids))
        .order_by(WebhookRow.id)
    )
    session.execute(of_ids.with_for_update())
    session.execute(delete(DeliveryRow).where(DeliveryRow.webhook_id.in_(webhook_ids)))
    session.execute(delete(WebhookRow).where(WebhookRow.id.in_(webhook_ids)))


def n_waiting(session: Session, webhook_id: str) -> int:
    """The number of deliveries that wait."""
    query = select(func.count()).where(DeliveryRow.webhook_id == webhook_id)
    return session.execute(query).scalar_one()


def _has_place(session: Session, webhook_id: str, event: str, by: str | None) -> bool:
    """Whether one more event may wait.

    A kind of event takes at most as many places as it leaves to others, and so does
    each key among the refusals: a caller makes refusals at will, and jobs that it
    cancels, while a receiver that is down frees no place.
    """
    of_webhook = DeliveryRow.webhook_id == webhook_id
    counted = session.execute(
        select(DeliveryRow.event, func.count().label("n"))
        .where(of_webhook)
        .group_by(DeliveryRow.event)
    )
    waiting: dict[str, int] = {row.event: row.n for row in counted}
    n_left = limits.MAX_WAITING_DELIVERIES - sum(waiting.values())
    n_more = n_left - waiting.get(event, 0)  # of which this kind may take half
    if by is None or n_more <= 0:
        return n_more > 0
    # In canonical JSON, a member has one spelling. Only the name of a key is searched
    # for, and no text of a body contains quotation marks that are not escaped.
    is_of_key = type_coerce(DeliveryRow.body, Text).contains(
        f'"by":"{by}"', autoescape=True
    )
    of_key = select(func.count()).where(
        of_webhook, DeliveryRow.event == event, is_of_key
    )
    return session.execute(of_key).scalar_one() < (n_more + 1) // 2


def put(
    session: Session,
    row: WebhookRow,
    event: str,
    facts: JsonMapping,
    *,
    at: datetime,
) -> bool:
    """Adds an event to the outbox of a webhook, unless too many wait, or a test that
    would tell no more than the test that waits.

    Args:
        facts: of the event; ``by`` is the key that caused a refusal.

    Returns:
        Whether the event waits.
    """
    if event == TEST:
        tests = exists().where(
            DeliveryRow.webhook_id == row.id, DeliveryRow.event == TEST
        )
        if session.execute(select(tests)).scalar_one():
            return True
    if not _has_place(session, row.id, event, facts.get("by")):
        _log.warning("a webhook has too many waiting deliveries; an event was dropped")
        return False
    delivery_id = stamps.new(stamps.DELIVERY)
    body = {"id": delivery_id, "type": event, "at": stamps.to_text(at), **facts}
    session.add(
        DeliveryRow(
            id=delivery_id, webhook_id=row.id, event=event, body=body, created_at=at
        )
    )
    session.flush()
    return True


def due(
    session: Session, *, at: datetime, without: Collection[str]
) -> list[tuple[str, str]]:
    """Webhooks with a delivery that may be attempted now, of each owner the one that
    waits longest.

    Args:
        without: owners whose webhooks are left out.

    Returns:
        Ids of webhooks, each with its owner.
    """
    waits = exists().where(DeliveryRow.webhook_id == WebhookRow.id)
    by_wait = (WebhookRow.next_at, WebhookRow.id)
    place = (
        func.row_number()
        .over(partition_by=WebhookRow.created_by, order_by=by_wait)
        .label("place")
    )
    ranked = select(WebhookRow.id, WebhookRow.created_by, WebhookRow.next_at, place)
    first = ranked.where(
        WebhookRow.next_at <= at, waits, WebhookRow.created_by.not_in(without)
    ).subquery()
    query = (
        select(first.c.id, first.c.created_by)
        .where(first.c.place == 1)
        .order_by(first.c.next_at, first.c.id)
    )
    return [(row.id, row.created_by) for row in session.execute(query)]


def hold(session: Session, webhook_id: str, *, at: datetime) -> WebhookRow | None:
    """Holds a webhook that is due, so that no other process delivers to it; ``None`` if
    another one holds it.
    """
    query = select(WebhookRow).where(
        WebhookRow.id == webhook_id, WebhookRow.next_at <= at
    )
    row = session.execute(
        query.with_for_update(skip_locked=True, key_share=True)
    ).scalar_one_or_none()
    if row is not None:
        row.next_at = at + timedelta(seconds=limits.WEBHOOK_HOLD_S)
    return row


def oldest(session: Session, row: WebhookRow, *, at: datetime) -> DeliveryRow | None:
    """The oldest delivery of a webhook. Deliveries that are too old are removed; a low
    budget is then not told yet.
    """
    too_old = at - timedelta(seconds=limits.MAX_DELIVERY_AGE_S)
    of_webhook = DeliveryRow.webhook_id == row.id
    removed = (
        delete(DeliveryRow)
        .where(of_webhook, DeliveryRow.created_at < too_old)
        .returning(DeliveryRow.event)
    )
    if BUDGET_LOW in session.scalars(removed).all():
        row.is_low = False
    query = (
        select(DeliveryRow)
        .where(of_webhook)
        .order_by(DeliveryRow.created_at, DeliveryRow.id)
    )
    return session.execute(query.limit(1)).scalar_one_or_none()


def n_waiting_in_all(session: Session) -> int:
    """The number of deliveries that wait, for all webhooks."""
    return session.execute(select(func.count()).select_from(DeliveryRow)).scalar_one()


def is_accepted(outcome: int | Unanswered) -> bool:
    """Whether the outcome of an attempt is a status of 200 to 299."""
    return isinstance(outcome, int) and 200 <= outcome < 300


def finish_delivery(
    session: Session,
    row: WebhookRow,
    delivery_id: str,
    outcome: int | Unanswered,
    *,
    at: datetime,
) -> None:
    """Remembers an attempt. Removes a delivery that was accepted, or lets the webhook
    wait twice as long as after the failure before.

    Args:
        outcome: the status of the receiver's answer, or why there was none.
    """
    delivery = session.get(DeliveryRow, delivery_id)
    if delivery is not None:
        _remember(row, delivery, outcome, at=at)
    if is_accepted(outcome):
        session.execute(delete(DeliveryRow).where(DeliveryRow.id == delivery_id))
        row.failures, row.next_at = 0, at
        return
    row.failures += 1
    pause = min(
        limits.WEBHOOK_RETRY_S * 2 ** min(row.failures - 1, 20),
        limits.MAX_WEBHOOK_RETRY_S,
    )
    row.next_at = at + timedelta(seconds=pause)


def _remember(
    row: WebhookRow, delivery: DeliveryRow, outcome: int | Unanswered, *, at: datetime
) -> None:
    recent = list(row.recent or ())
    attempts = 1
    # deliveries are attempted in order, so a repeated one is the newest
    if recent and recent[0]["id"] == delivery.id:
        attempts += recent.pop(0)["attempts"]
    is_status = isinstance(outcome, int)
    last = {
        "id": delivery.id,
        "event": delivery.event,
        "created_at": stamps.to_text(delivery.created_at),
        "attempted_at": stamps.to_text(at),
        "attempts": attempts,
        "status": outcome if is_status else None,
        "reason": None if is_status else outcome,
    }
    row.recent = [last, *recent][: limits.MAX_RECENT_DELIVERIES]
