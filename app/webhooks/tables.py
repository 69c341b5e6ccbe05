"""Defines the tables of webhooks and of deliveries that wait."""

from datetime import datetime
from typing import Any

from sqlalchemy import Index, LargeBinary
from sqlalchemy.orm import Mapped, mapped_column

from app.db.base import Base, CanonicalJson


class WebhookRow(Base):
    """An address that is told about public facts of a dataset.

    Attributes:
        events: names of the events that it is told about.
        threshold: decimal text; a remaining share of the cap below it is an event. ``None``: never.
        is_low: whether the remaining share is below the threshold, so that only the crossing is an event.
        sealed_secret: the secret of its signatures, sealed with the data key of the dataset.
        created_by: the key whose authority every delivery needs.
        next_at: the earliest time of the next attempt.
        failures: failed attempts since the last delivery.
    """

    __tablename__ = "webhooks"

    id: Mapped[str] = mapped_column(primary_key=True)
    dataset_id: Mapped[str] = mapped_column(index=True)
    url: Mapped[str]
    events: Mapped[list[str]] = mapped_column(CanonicalJson)
    threshold: Mapped[str | None]
    is_low: Mapped[bool]
    sealed_secret: Mapped[bytes] = mapped_column(LargeBinary)
    created_by: Mapped[str]
    created_at: Mapped[datetime]
    next_at: Mapped[datetime]
    failures: Mapped[int]


class DeliveryRow(Base):
    """An event that a webhook was not told about yet: the transactional outbox."""

    __tablename__ = "webhook_deliveries"

    id: Mapped[str] = mapped_column(primary_key=True)
    webhook_id: Mapped[str]
    event: Mapped[str]
    body: Mapped[dict[str, Any]] = mapped_column(CanonicalJson)
    created_at: Mapped[datetime]

    __table_args__ = (Index("ix_webhook_deliveries_webhook_id_created_at_id", "webhook_id", "created_at", "id"),)
