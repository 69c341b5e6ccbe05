"""Defines the types of ``/approvals``: jobs that wait for an owner."""

from typing import Literal

from app.wire.base import Answer, OfDataset, PublicSentence, Request
from app.wire.jobs import JobKind, JobState
from app.wire.spending import PriceOut
from grovekeeper_common.json_types import JsonObject


class DecisionIn(Request):
    """A decision about a waiting job, and a reason that the control chain keeps."""

    decision: Literal["approve", "reject"]
    reason: PublicSentence


class WaitingPart(OfDataset):
    """A part of a waiting job on a dataset of the caller."""

    scope: JsonObject
    price: PriceOut


class ApprovalOut(Answer):
    """A job that waits for a decision. Shown are its parts on the datasets for which
    the caller decides.

    ``submitted_by_name`` is the name of the key, if the caller may know it.
    """

    job: str
    kind: JobKind | str
    algorithm: str | None
    what: str
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
