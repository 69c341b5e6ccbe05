"""Defines the entries of an account: immutable lines, each with the hash of the line before.

An entry is one JSON object. Its ``hash`` is the lower-case hexadecimal SHA-256 of the object's RFC 8785 form without
``hash``; the first ``previous_hash`` is 64 zeros; ``sequence`` counts from 1 without gaps. The same object is what
``/entries`` shows and what an export carries, so anyone can recompute the chain.
"""

import hashlib
import sys
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

import rfc8785

from app.core import amounts
from app.privacy.composition import Scope

FIRST_PREVIOUS_HASH = "0" * 64
CONTROL_CHAIN = "control"
"""Id of the chain of administrative acts. No dataset and no population has it: their ids begin with a prefix."""
OPENING_LOAD_SEQUENCE = 2
"""The place of an opening load in the chain of a dataset: it follows the opening."""


class EntryKind(StrEnum):
    """The kind of an entry. No kind lowers what was spent.

    Only populations have entries of the kind ``join``. An entry of the kind ``load`` states the load of a member in the
    chain of a population; in the chain of a dataset, as its second entry, the opening load
    (:mod:`app.ledger.continuations`). An entry of the kind ``state`` states the state of the account, so that a process
    need not read the entries before it (:mod:`app.ledger.state`). The kinds after them are administrative acts, in the
    control chain alone (:mod:`app.ledger.control`).
    """

    OPEN = "open"
    RESERVE = "reserve"
    CHARGE = "charge"
    VOID = "void"
    EXPIRE = "expire"
    CAP = "cap"
    JOIN = "join"
    LOAD = "load"
    STATE = "state"
    KEY_MADE = "key-made"
    KEY_ROTATED = "key-rotated"
    KEY_REVOKED = "key-revoked"
    SUBJECT_ADMITTED = "subject-admitted"
    SUBJECT_ROLES = "subject-roles"
    GRANT_MADE = "grant-made"
    GRANT_REMOVED = "grant-removed"
    DATASET_DECLARED = "dataset-declared"
    DATASET_DELETED = "dataset-deleted"
    UNIT_ERASED = "unit-erased"
    UPLOAD_ERASED = "upload-erased"
    CAP_CHANGED = "cap-changed"
    POPULATION_OPENED = "population-opened"
    POPULATION_JOINED = "population-joined"
    SIGNER_PINNED = "signer-pinned"
    STORAGE_KEY_CHANGED = "storage-key-changed"
    RULES_CHANGED = "rules-changed"
    RULES_PROPOSED = "rules-proposed"
    JOB_APPROVED = "job-approved"
    JOB_REJECTED = "job-rejected"
    HISTORY_LOST = "history-lost"
    ALIAS_MOVED = "alias-moved"
    ALIAS_REMOVED = "alias-removed"
    MODEL_DELETED = "model-deleted"
    WEBHOOK_MADE = "webhook-made"
    WEBHOOK_REMOVED = "webhook-removed"


@dataclass(frozen=True)
class Entry:
    """One immutable line of an account.

    Attributes:
        sequence: from 1, without gaps.
        kind: see :class:`EntryKind`.
        amount: whole steps of the account's unit; of ``open`` and ``cap`` the cap itself, of ``join`` and ``load`` the
            load of the member's or the erased dataset's tightest joint cell.
        scope: the cells it covers, by partition; empty = the whole dataset.
        event: the privacy event's JSON form; only entries of reservations have one.
        job_id: the job it belongs to.
        actor: the key that caused it, or ``worker``.
        at: RFC 3339 time, never earlier than the entry before.
        previous_hash: hash of the entry before.
        details: public facts that only some entries have: of ``open`` the facts of the account, of ``cap`` the reason,
            of a charge for an external mechanism the attester, of ``join`` and ``load`` the member and its entry, of an
            opening load the erased dataset and its entry, of ``state``
            the state. Without details the public object has no such member.
        places: a step is 10^−places of the unit; known from the account, not part of the object.
        hash: hash of this entry.
    """

    sequence: int
    kind: EntryKind
    amount: int
    scope: dict[str, Any]
    event: dict[str, Any] | None
    job_id: str | None
    actor: str
    at: str
    previous_hash: str
    places: int
    hash: str = ""
    details: dict[str, Any] | None = None

    def to_json(self) -> dict[str, Any]:
        """The public JSON form, with ``amount`` as shortest exact decimal text."""
        fields = {
            "sequence": self.sequence,
            "kind": self.kind.value,
            "amount": amounts.from_steps(self.amount, self.places),
            "scope": self.scope,
            "event": self.event,
            "job_id": self.job_id,
            "actor": self.actor,
            "at": self.at,
            "previous_hash": self.previous_hash,
            "hash": self.hash,
        }
        return {**fields, "details": self.details} if self.details else fields

    def sealed(self) -> "Entry":
        """This entry with its hash."""
        body = self.to_json()
        del body["hash"]
        return replace(self, hash=hashlib.sha256(rfc8785.dumps(body)).hexdigest())


def digest_of(scope: Scope) -> str:
    """SHA-256 of a scope's canonical JSON, in lower-case hexadecimal.

    Equal digests are one object, because sets of thousands of them are compared at every admission.
    """
    canonical = rfc8785.dumps({name: list(cells) for name, cells in scope.items()})
    return sys.intern(hashlib.sha256(canonical).hexdigest())
