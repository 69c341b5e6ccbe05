"""Defines the types of ``/datasets/{id}/webhooks``."""

from typing import Annotated, Literal, TypeAlias

from pydantic import Field

from app.core import limits
from app.wire.base import Answer, PositiveAmount, Request

WebhookEvent: TypeAlias = Literal["job.queued", "job.started", "job.ended", "request.refused", "budget.low"]


class WebhookIn(Request):
    """An address and what it is told about.

    Attributes:
        url: an https address that is public.
        threshold: with ``budget.low``: a remaining share of the cap, such as ``"0.2"``.
    """

    url: Annotated[str, Field(max_length=limits.MAX_WEBHOOK_URL_CHARS)]
    events: Annotated[list[WebhookEvent], Field(min_length=1, max_length=5)]
    threshold: PositiveAmount | None = None


class WebhookOut(Answer):
    """A webhook, the number of its waiting deliveries, and of failed attempts since the last accepted delivery."""

    id: str
    url: str
    events: list[WebhookEvent]
    threshold: str | None
    created_by: str
    created_at: str
    waiting: int
    failures: int


class WebhookWithSecret(WebhookOut):
    """A registered webhook with the secret of its signatures, which is shown this once."""

    secret: str


class WebhookList(Answer):
    webhooks: list[WebhookOut]
