"""Defines the types of rules and webhooks of a dataset, and of ``/approvals``."""

from typing import Annotated, Literal, TypeAlias

from pydantic import Field

from app.core import limits
from app.wire.base import (
    Answer,
    DecimalText,
    Instant,
    JsonObject,
    OfDataset,
    PositiveAmount,
    PublicSentence,
    Reference,
    Request,
)
from app.wire.spending import JobKind, JobState, PriceOut


class QuotaIn(Request):
    """A limit, in the account's unit, of what several keys reserve and charge together."""

    keys: Annotated[list[Reference], Field(min_length=1, max_length=limits.MAX_QUOTA_KEYS)]
    cap: PositiveAmount


class RulesIn(Request):
    """All rules of a dataset; they replace the earlier rules. Amounts are in the account's unit; null: no limit."""

    largest_job: PositiveAmount | None
    approval_above: PositiveAmount | None
    quotas: Annotated[list[QuotaIn], Field(max_length=limits.MAX_QUOTAS)]
    frozen: bool
    erase_rows_at: Instant | None


class QuotaOut(Answer):
    keys: list[str]
    cap: DecimalText


class SpentQuota(QuotaOut):
    """A quota and what its keys have reserved or charged of it."""

    spent: DecimalText


class ProposedRules(Answer):
    """Rules that a second owner can put in force by sending them, too."""

    largest_job: DecimalText | None
    approval_above: DecimalText | None
    quotas: list[QuotaOut]
    frozen: bool
    erase_rows_at: str | None


class ProposalOut(Answer):
    """Looser rules that one owner sent, and when."""

    rules: ProposedRules
    by: str
    at: str


class RulesOut(OfDataset):
    """The rules in force, and a proposal that waits for a second owner, if any.

    ``etag`` names both; the spent amounts are no part of it.
    """

    unit: str
    largest_job: DecimalText | None
    approval_above: DecimalText | None
    quotas: list[SpentQuota]
    frozen: bool
    erase_rows_at: str | None
    changed_by: str | None
    changed_at: str | None
    proposal: ProposalOut | None
    etag: str


class DecisionIn(Request):
    """A decision about a waiting job, and a reason that the control chain keeps."""

    decision: Literal["approve", "reject"]
    reason: PublicSentence


class WaitingPart(OfDataset):
    """A part of a waiting job on a dataset of the caller."""

    scope: JsonObject
    price: PriceOut


class ApprovalOut(Answer):
    """A job that waits for a decision. Shown are its parts on the datasets for which the caller decides.

    ``submitted_by_name`` is the name of the key, if the caller may know it.
    """

    job: str
    kind: JobKind | str
    algorithm: str | None
    name: str | None
    purpose: str | None
    state: JobState
    submitted_by: str
    submitted_by_name: str | None
    submitted_at: str
    expires_at: str
    parts: list[WaitingPart]


class ApprovalList(Answer):
    approvals: list[ApprovalOut]
    next: str | None


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


class WebhookRotationIn(Request):
    """``overlap_s``: seconds for which deliveries carry the signature of the earlier secret, too; 0 ends it at once."""

    overlap_s: Annotated[int, Field(ge=0, le=limits.MAX_WEBHOOK_OVERLAP_S)] = limits.WEBHOOK_OVERLAP_S


class WebhookOut(Answer):
    """A webhook, the number of its waiting deliveries, and of failed attempts since the last accepted delivery.

    ``earlier_secret_until`` is when deliveries stop carrying the signature of the secret before, after a rotation.
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


class WebhookWithSecret(WebhookOut):
    """A webhook with the new secret of its signatures, which is shown this once."""

    secret: str


class WebhookList(Answer):
    webhooks: list[WebhookOut]
