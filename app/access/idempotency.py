"""Stores the answer to the first request with an idempotency key, and returns its bytes
to every repetition.

The transaction that does the work writes the key's row. A concurrent request with the
same key therefore waits for that transaction and then reads the stored answer. A
refusal rolls the row back, so the key stays free. A transaction that knows its answer
before it writes anything stores it at once (:func:`put`).
"""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache

from sqlalchemy import Executable
from sqlalchemy.orm import Session

from app.access.tables import AnswerRow
from app.core.errors import IdempotencyInFlight, IdempotencyKeyReused
from app.db.database import DialectName, dialect_of_session, insert_on, transaction_time
from app.wire import base

Identity = tuple[str, str, str]
"""Principal, route and idempotency key: at most one answer is stored for them."""


@dataclass(frozen=True)
class Answer:
    """A serialised answer: the stored bytes are the bytes that are sent."""

    status: int
    body: bytes
    location: str | None = None

    @classmethod
    def of(
        cls, status: int, body: base.Answer, *, location: str | None = None
    ) -> "Answer":
        """Serialises a body once; replays send the same bytes."""
        return cls(
            status, body.model_dump_json(by_alias=True).encode("utf-8"), location
        )


_IN_FLIGHT = 0
_NO_ANSWER = Answer(_IN_FLIGHT, b"")


@dataclass(frozen=True)
class IdempotentRequest:
    """The identity of a request: principal, route, idempotency key, and SHA-256 of the
    canonical body.

    What is stored of an upload is a keyed digest.

    Attributes:
        hidden_by: the key itself where ``key`` is a digest of it, because the answer
            has a secret; see :func:`hiding`.
    """

    principal: str
    route: str
    key: str
    body_sha256: bytes
    hidden_by: str | None = None

    @property
    def identity(self) -> Identity:
        """The fields that name the stored answer."""
        return (self.principal, self.route, self.key)


def hiding(request: IdempotentRequest) -> IdempotentRequest:
    """A request whose stored answer has a secret, which nobody can read who has not the
    request's random key.

    What is stored is the exclusive or of the answer and a stream of the key, and of the
    key a digest.
    """
    digest = hashlib.sha256(request.key.encode("ascii")).hexdigest()
    return replace(request, key=digest, hidden_by=request.key)


def _hidden(body: bytes, request: IdempotentRequest) -> bytes:
    """A body as it is stored, and the reverse."""
    if request.hidden_by is None:
        return body
    # The route is in the seed: one key on two routes would hide two answers by one
    # stream, whose exclusive or is that of the answers.
    seed = f"{request.route}\0{request.hidden_by}".encode()
    stream = hashlib.shake_256(seed).digest(len(body))
    return bytes(byte ^ mask for byte, mask in zip(body, stream, strict=True))


def stored(session: Session, request: IdempotentRequest) -> Answer | None:
    """The stored answer to a request, if any."""
    return answer_of(
        session.get(AnswerRow, request.identity, populate_existing=True), request
    )


def answer_of(row: AnswerRow | None, request: IdempotentRequest) -> Answer | None:
    """The answer in the row of a request's identity; see :func:`stored`."""
    if row is None:
        return None
    if row.request_sha256 != request.body_sha256:
        raise IdempotencyKeyReused
    if row.status == _IN_FLIGHT:
        raise IdempotencyInFlight
    return Answer(row.status, _hidden(row.body, request), row.location)


def answer_again(session: Session, request: IdempotentRequest) -> Answer:
    """The answer to a request whose identity another transaction has taken; see
    :func:`stored`.
    """
    answer = stored(session, request)
    if answer is None:
        raise IdempotencyInFlight
    return answer


def once(
    session: Session,
    request: IdempotentRequest | None,
    work: Callable[[], Answer],
) -> Answer:
    """Does the work of a request and stores the answer in the same transaction, or
    returns the stored answer.

    Args:
        request: ``None`` if the key is optional and was not sent; no answer is stored
            then.
        work: runs on the caller's transaction; if it raises, the caller rolls
            everything back.
    """
    if request is None:
        return work()
    if not put(session, request, _NO_ANSWER):
        return answer_again(session, request)
    answer = work()
    row = session.get_one(AnswerRow, request.identity)
    row.status = answer.status
    row.location = answer.location
    row.body = _hidden(answer.body, request)
    session.flush()
    return answer


def put(session: Session, request: IdempotentRequest, answer: Answer) -> bool:
    """Stores the answer to a request, unless its identity has a row; returns whether it
    had none.

    Waits for another transaction that answers a request of the same identity.
    """
    row = {
        "principal": request.principal,
        "route": request.route,
        "idempotency_key": request.key,
        "request_sha256": request.body_sha256,
        "status": answer.status,
        "location": answer.location,
        "body": _hidden(answer.body, request),
        "answered_at": transaction_time(session),
    }
    insertion = _insertion(dialect_of_session(session))
    return session.execute(insertion, row).first() is not None


@cache
def _insertion(dialect: DialectName) -> Executable:
    # Not rowcount: SQLAlchemy keeps it for an INSERT on SQLite only.
    return (
        insert_on(dialect, AnswerRow)
        .on_conflict_do_nothing()
        .returning(*AnswerRow.__table__.primary_key)
    )
