"""Defines the types of ``/audit``: acts of people."""

from typing import Literal

from app.wire.base import Answer, DecimalText
from grovekeeper_common.json_types import JsonObject

ActKind = Literal[
    "open",
    "key-made",
    "key-rotated",
    "key-revoked",
    "subject-admitted",
    "subject-roles",
    "grant-made",
    "grant-removed",
    "dataset-declared",
    "dataset-changed",
    "dataset-deleted",
    "unit-erased",
    "upload-erased",
    "cap-changed",
    "population-opened",
    "population-joined",
    "signer-pinned",
    "storage-key-changed",
    "rules-changed",
    "rules-proposed",
    "job-approved",
    "job-rejected",
    "history-lost",
    "alias-moved",
    "alias-removed",
    "model-deleted",
    "webhook-made",
    "webhook-rotated",
    "webhook-removed",
]


class ActOut(Answer):
    """One administrative act; the object whose RFC 8785 form, without ``hash``, was
    hashed.

    ``amount``, ``scope``, ``event`` and ``job_id`` are those of every chain, and are
    zero or empty.
    """

    sequence: int
    kind: ActKind
    amount: DecimalText
    scope: JsonObject
    event: None
    job_id: None
    actor: str
    at: str
    previous_hash: str
    hash: str
    details: JsonObject


class ActList(Answer):
    acts: list[ActOut]
    next: str | None
