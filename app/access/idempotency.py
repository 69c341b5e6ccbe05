"""Stores the answer to the first request with an idempotency key, and returns its bytes to every repetition.

The transaction that does the work first writes the key's row. A concurrent request with the same key therefore waits
for that transaction and then reads the stored answer. A refusal rolls the row back, so the key stays free.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Self, TypeAlias

from sqlalchemy import ColumnElement, delete, select, tuple_, update
from sqlalchemy.orm import Session

from app.access.tables import AnswerRow
from app.core.errors import IdempotencyInFlight, IdempotencyKeyReused
from app.db.upsert import ALL_COLUMNS, insert
from app.wire import base

_IN_FLIGHT = 0

Identity: TypeAlias = tuple[str, str, str]
"""Principal, route and idempotency key: at most one answer is stored for them."""


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

    def require_repeats(self, first: "IdempotentRequest") -> None:
        """Checks that this request has the body of the first one of its identity.

        Raises:
            IdempotencyKeyReused: it has another body.
        """
        if first.body_sha256 != self.body_sha256:
            raise IdempotencyKeyReused

    @property
    def identity(self) -> Identity:
        """The fields that name the stored answer."""
        return (self.principal, self.route, self.key)


def stored(session: Session, request: IdempotentRequest) -> Answer | None:
    """The stored answer to a request, if any.

    Raises:
        IdempotencyKeyReused: the key was used with another body.
        IdempotencyInFlight: the first request with the key has not ended.
    """
    return Stored.read(session, [request]).answer_to(request)


class Stored:
    """The stored answers to several requests."""

    def __init__(self, rows: Mapping[Identity, AnswerRow]) -> None:
        self._rows = rows

    @classmethod
    def read(cls, session: Session, requests: Collection[IdempotentRequest]) -> Self:
        """Reads the answers in one query."""
        if not requests:
            return cls({})
        query = select(AnswerRow).where(_is_one_of({request.identity for request in requests}))
        rows = session.execute(query.execution_options(populate_existing=True)).scalars()
        return cls({(row.principal, row.route, row.idempotency_key): row for row in rows})

    def answer_to(self, request: IdempotentRequest) -> Answer | None:
        """The answer to a request; see :func:`stored`."""
        row = self._rows.get(request.identity)
        if row is None:
            return None
        if row.request_sha256 != request.body_sha256:
            raise IdempotencyKeyReused
        if row.status == _IN_FLIGHT:
            raise IdempotencyInFlight
        return Answer(row.status, row.body, row.location)

    def answer_again(self, request: IdempotentRequest) -> Answer:
        """The answer to a request whose identity another transaction has taken; see :func:`stored`."""
        answer = self.answer_to(request)
        if answer is None:
            raise IdempotencyInFlight
        return answer


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
    if not take(session, [request], at=at):
        return Stored.read(session, [request]).answer_again(request)
    answer = work()
    store(session, [(request, answer)])
    return answer


def take(session: Session, requests: Collection[IdempotentRequest], *, at: datetime) -> set[Identity]:
    """Writes the rows of requests without an answer, and returns the identities of those that had no row.

    Waits for other transactions that answer one of the requests. The rows are written in the order of the identities,
    so that two transactions never wait for each other.

    Args:
        requests: of different identities.
        at: the present time.
    """
    rows = [
        {
            "principal": request.principal,
            "route": request.route,
            "idempotency_key": request.key,
            "request_sha256": request.body_sha256,
            "status": _IN_FLIGHT,
            "location": None,
            "body": b"",
            "answered_at": at,
        }
        for request in sorted(requests, key=lambda request: request.identity)
    ]
    identity = (AnswerRow.principal, AnswerRow.route, AnswerRow.idempotency_key)
    written = insert(session, AnswerRow).on_conflict_do_nothing().returning(*identity)
    # Not rowcount: SQLAlchemy keeps it for an INSERT on SQLite only.
    return {
        (principal, route, key)
        for principal, route, key in session.execute(written, rows, execution_options=ALL_COLUMNS)
    }


def store(session: Session, answers: Sequence[tuple[IdempotentRequest, Answer]]) -> None:
    """Stores the answers to requests whose identities were taken."""
    rows = [
        {
            "principal": request.principal,
            "route": request.route,
            "idempotency_key": request.key,
            "request_sha256": request.body_sha256,
            "status": answer.status,
            "location": answer.location,
            "body": answer.body,
        }
        for request, answer in answers
    ]
    session.execute(update(AnswerRow), rows)


def release(session: Session, identities: Collection[Identity]) -> None:
    """Removes the rows of identities that were taken for requests that were refused: their keys stay unused."""
    if identities:
        session.execute(delete(AnswerRow).where(_is_one_of(identities)).execution_options(synchronize_session=False))


def _is_one_of(identities: Collection[Identity]) -> ColumnElement[bool]:
    return tuple_(AnswerRow.principal, AnswerRow.route, AnswerRow.idempotency_key).in_(identities)
