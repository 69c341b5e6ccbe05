"""Stores the answer to the first request with an idempotency key, and returns its bytes to every repetition.

The transaction that does the work first writes the key's row. A concurrent request with the same key therefore waits
for that transaction and then reads the stored answer. A refusal rolls the row back, so the key stays free.
"""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import select
from sqlalchemy.orm import Session

from app.access.tables import AnswerRow
from app.core.errors import IdempotencyInFlight, IdempotencyKeyReused
from app.db.upsert import insert
from app.wire import base

_IN_FLIGHT = 0


@dataclass(frozen=True)
class Answer:
    """A serialised answer: the stored bytes are the bytes that are sent."""

    status: int
    body: bytes
    location: str | None = None

    @classmethod
    def of(cls, status: int, body: base.Answer, *, location: str | None = None) -> "Answer":
        """Serialises a body once; replays send the same bytes."""
        return cls(status, body.model_dump_json(by_alias=True).encode("utf-8"), location)


@dataclass(frozen=True)
class IdempotentRequest:
    """The identity of a request: principal, route, idempotency key, and SHA-256 of the canonical body.

    What is stored of an upload is a keyed digest.
    """

    principal: str
    route: str
    key: str
    body_sha256: bytes


def stored(session: Session, request: IdempotentRequest) -> Answer | None:
    """The stored answer to a request, if any.

    Raises:
        IdempotencyKeyReused: the key was used with another body.
        IdempotencyInFlight: the first request with the key has not ended.
    """
    row = session.execute(
        select(AnswerRow)
        .where(
            AnswerRow.principal == request.principal,
            AnswerRow.route == request.route,
            AnswerRow.idempotency_key == request.key,
        )
        .execution_options(populate_existing=True)
    ).scalar_one_or_none()
    if row is None:
        return None
    if row.request_sha256 != request.body_sha256:
        raise IdempotencyKeyReused
    if row.status == _IN_FLIGHT:
        raise IdempotencyInFlight
    return Answer(row.status, row.body, row.location)


def once(session: Session, request: IdempotentRequest | None, *, at: datetime, work: Callable[[], Answer]) -> Answer:
    """Does the work of a request and stores the answer in the same transaction, or returns the stored answer.

    Args:
        request: ``None`` if the key is optional and was not sent; no answer is stored then.
        work: runs on the caller's transaction; if it raises, the caller rolls everything back.

    Raises:
        IdempotencyKeyReused: the key was used with another body.
        IdempotencyInFlight: the first request with the key has not committed (only where a database does not wait).
    """
    if request is None:
        return work()
    if not _take(session, request, at=at):
        earlier = stored(session, request)
        if earlier is None:
            raise IdempotencyInFlight
        return earlier
    answer = work()
    row = session.get_one(AnswerRow, (request.principal, request.route, request.key))
    row.status, row.body, row.location = answer.status, answer.body, answer.location
    session.flush()
    return answer


def _take(session: Session, request: IdempotentRequest, *, at: datetime) -> bool:
    taken = session.execute(
        insert(session, AnswerRow)
        .values(
            principal=request.principal,
            route=request.route,
            idempotency_key=request.key,
            request_sha256=request.body_sha256,
            status=_IN_FLIGHT,
            location=None,
            body=b"",
            answered_at=at,
        )
        .on_conflict_do_nothing()
        .returning(AnswerRow.principal)
    )
    # Not rowcount: SQLAlchemy keeps it for an INSERT on SQLite only.
    return taken.scalar_one_or_none() is not None
