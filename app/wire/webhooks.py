"""Defines the types of the webhooks of a dataset."""

from typing import Annotated, Literal

from pydantic import Field

from app.core import limits
from app.wire.base import Answer, PositiveAmount, Request

WebhookEvent = Literal[
    "job.queued", "job.started", "job.ended", "request.refused", "budget.low"
]


class WebhookIn(Request):
    """An address and what it is told about.

    Attributes:
        url: an https address that is public.
        threshold: with ``budget.low``: a remaining share of the cap, such as ``"0.2"``.
    """

    url: Annotated[str, Field(max_length=limits.MAX_WEBHOOK_URL_CHARS)]
    events: Annotated[list[WebhookEvent], Field(min_length=1, max_length=5)]
    threshold: PositiveAmount | None = None


class WebhookRotationIn(Request):
    """``overlap_s``: seconds for which deliveries carry the signature of the earlier
    secret, too; 0 ends it at once.
    """

    overlap_s: Annotated[int, Field(ge=0, le=limits.MAX_WEBHOOK_OVERLAP_S)] = (
        limits.WEBHOOK_OVERLAP_S
    )


class DeliveryOut(Answer):
    """The last attempt to tell a webhook about an event: the ``status`` of the
    receiver's answer, or the ``reason`` why there was none.
    """

    id: str
    event: WebhookEvent | Literal["webhook.test"]
    created_at: str
    attempted_at: str
    attempts: int
    status: int | None
    reason: Literal["unreachable", "no-tls", "no-answer"] | None


class WebhookOut(Answer):
    """A webhook, the number of its waiting deliveries, and of failed attempts since the
    last accepted delivery.

    ``earlier_secret_until`` is when deliveries stop carrying the signature of the
    secret before, after a rotation. ``deliveries`` are the last 20 events that it was
    told about, or could not be told about, newest first.
    """

    id: str
    url: str
    events: list[WebhookEvent]
    threshold: str | None
    created_by: str
    created_at: str
    waiting: int
    failures: int
    earlier_secret_until: str | None
    deliveries: list[DeliveryOut]


class WebhookWithSecret(WebhookOut):
    """A webhook with the new secret of its signatures, which is shown this once."""

    secret: str


class WebhookList(Answer):
    webhooks: list[WebhookOut]
