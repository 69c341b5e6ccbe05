"""Assigns an id to every request and checks load, readiness, key and path, in this
order, before routing.

Predictions are answered before the framework routes them (:mod:`.predictions`). Key,
limits, errors, headers and records are those of every request. Small predictions need
no task either (:meth:`EveryRequest.at_once`), because a task costs more, too.
"""

import asyncio
import errno
import logging
import secrets
import time
from collections import Counter
from collections.abc import Awaitable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

from fastapi import FastAPI
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.access.grants import Principal
from app.api import problems
from app.api.addresses import PATH_PREFIX, base
from app.api.authentication import (
    WITHOUT_SESSION,
    Authentication,
    Prediction,
    is_page,
    prediction_of,
    take_session,
)
from app.api.capacity import CLIENT, Client, is_administration
from app.api.metrics import Metrics
from app.api.pages.rendering import page_of, unexpected
from app.api.predictions import PREDICTION_ROUTES, Parts, Predictions
from app.core import limits, stamps
from app.core.errors import InvalidRequest, NotFound, TooManyRequests, Unavailable
from app.core.logging import about
from app.services.installation import Installation
from grovekeeper_forests.errors import GrovekeeperError

PUBLIC_PATHS = frozenset(
    {
        "/healthz",
        "/readyz",
        "/openapi.json",
        "/.well-known/security.txt",
        "/v2",
        "/v2/health/live",
        "/v2/health/ready",
    }
)
"""Paths that need no key. Of the installation, their answers tell whether it is ready, and
whom its operator names for reports of weaknesses.
"""

_ON_EVERY_ANSWER = (
    (b"x-content-type-options", b"nosniff"),
    (b"cache-control", b"no-store"),
)
_DISK_FULL = (errno.ENOSPC, errno.EDQUOT)
_METHODS = frozenset({"DELETE", "GET", "HEAD", "PATCH", "POST", "PUT"})
_READS = frozenset({"GET", "HEAD"})
_MEASURED_AS = {
    **dict.fromkeys(PREDICTION_ROUTES, "prediction"),
    "/train": "admission",
    "/models/{model_id}/evaluations": "admission",
    "/evaluations": "admission",
    "/datasets/{dataset}/profiles": "admission",
    "/datasets/{dataset}/statistics": "admission",
    "/ledger/{dataset}/reservations": "admission",
}
"""The routes whose durations are measured: they read no stored row."""
_log = logging.getLogger(__name__)


class Spans(Protocol):
    """Exports spans of requests, by an extra of this program
    (:class:`app.api.tracing.RequestSpans`).
    """

    def record(
        self, scope: Scope, *, status: int, began_ns: int, ended_ns: int
    ) -> None:
        """Exports the span of a request that has ended."""


class EveryRequest:
    """ASGI middleware around the whole application.

    * ``X-Request-Id`` on every answer; an unexpected error becomes a 500 with this id
      and nothing else, or a 503 if the system refused an operation on a file.
    * At most ``limits.MAX_REQUESTS_IN_FLIGHT`` requests of keys at once,
      ``limits.MAX_REQUESTS_PER_KEY`` of one key; then 429. Callers whose key is not
      known to be valid wait for a thread in the order of their requests: a limit on
      them would refuse valid keys because of other people's wrong ones. Their
      connections have a limit.
    * 503 until the database is at this program's revision and agrees with every head
      outside it, and to requests that a stop does not wait for.
    * 401 without a valid key, before the body is read; a page without a session sends
      the caller to sign in.
    * The path prefix of the service in every ``Location``, which no route adds.
    * Counts, logs and traces every answer.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        installation: Installation,
        authentication: Authentication,
        predictions: Predictions,
        metrics: Metrics,
        spans: Spans | None,
    ) -> None:
        self._app = app
        self._metrics = metrics
        self._spans = spans
        self._authentication = authentication
        self._installation = installation
        self._predictions = predictions
        self._in_flight: Counter[str] = Counter()
        self._n_in_flight = 0
        self._path_prefix = installation.settings.path_prefix or ""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        PATH_PREFIX.set(self._path_prefix)
        request_id = secrets.token_hex(8)
        scope.setdefault("state", {})["request_id"] = request_id
        # wherever GET is; the server sends no body to such a request
        if scope["method"] == "HEAD":
            scope, send = {**scope, "method": "GET"}, _head_of(send)
        answered = _Answered(send, scope)
        began_at_ns, began_ns = time.time_ns(), time.monotonic_ns()
        with about(request_id=request_id):
            try:
                await self._answer(scope, receive, answered)
            finally:
                took_ns = time.monotonic_ns() - began_ns
                self._record(
                    scope,
                    status=answered.status,
                    began_at_ns=began_at_ns,
                    took_ns=took_ns,
                )

    def _record(
        self, scope: Scope, *, status: int, began_at_ns: int, took_ns: int
    ) -> None:
        """Counts, logs and traces a request that has ended, by public facts alone.

        Args:
            scope: of the request.
            status: 0 if the client went away before the answer.
            began_at_ns: time of the system's clock, which may be set while a request
                runs.
            took_ns: by a clock that is never set.
        """
        route = getattr(scope.get("route"), "path", "")
        method = scope["method"] if scope["method"] in _METHODS else "OTHER"
        self._metrics.requests.add((method, route, str(status)))
        is_answered = 200 <= status < 400  # the library's names of them are slow calls
        # quick refusals would hide slow answers
        if method == "POST" and is_answered and route in _MEASURED_AS:
            self._metrics.durations.add(_MEASURED_AS[route], took_ns / 1e9)
        principal: Principal | None = scope["state"].get("principal")
        key_id = None if principal is None else principal.key_id
        if method in _READS or route in PREDICTION_ROUTES:
            level = logging.DEBUG
        else:
            level = logging.INFO
        if _log.isEnabledFor(level):
            request_id = scope["state"]["request_id"]
            fields = {
                "request_id": request_id,
                "method": method,
                "route": route,
                "status": status,
                "key_id": key_id,
            }
            _log.log(level, "a request was answered", extra=fields)
        if self._spans is not None:
            self._spans.record(
                scope,
                status=status,
                began_ns=began_at_ns,
                ended_ns=began_at_ns + took_ns,
            )

    def key_of(self, scope: Scope) -> str | None:
        """The key of a request that waits for its turn on the event loop, if this
        process has seen it.
        """
        PATH_PREFIX.set(self._path_prefix)
        scope["state"]["session"] = take_session(scope)
        return self._authentication.seen(scope)

    def at_once(self, addressed: Prediction, scope: Scope, body: bytes) -> Parts | None:
        """Answers a small prediction on the event loop, because nothing waits or takes
        long.

        Returns:
            Header fields and body; ``None`` if :meth:`__call__` has to answer, which
            also says what is wrong.
        """
        began_at_ns, began_ns = time.time_ns(), time.monotonic_ns()
        principal = self._authentication.known(scope)
        # no other request takes it meanwhile
        if principal is None or not self._is_seat_free(principal.key_id):
            return None
        try:
            answer = self._predictions.at_once(addressed, principal, scope, body)
        except Exception:  # noqa: BLE001  # the task that answers instead meets it again, and answers and logs it
            return None
        if answer is None:
            return None
        request_id = secrets.token_hex(8)
        scope["state"]["client"].key_id = principal.key_id
        scope["state"] |= {"request_id": request_id, "principal": principal}
        scope["route"] = self._predictions.routes[addressed.route]
        self._installation.last_uses.note(principal.key_id, at=stamps.now())
        self._record(
            scope,
            status=200,
            began_at_ns=began_at_ns,
            took_ns=time.monotonic_ns() - began_ns,
        )
        fields, content = answer
        return [
            *fields,
            (b"x-request-id", request_id.encode("ascii")),
            *_ON_EVERY_ANSWER,
        ], content

    async def _answer(
        self, scope: Scope, receive: Receive, answered: "_Answered"
    ) -> None:
        client: Client = scope["state"].setdefault("client", Client())
        CLIENT.set(client)
        if "session" not in scope["state"]:
            scope["state"]["session"] = take_session(scope)
        try:
            await self._serve(client, scope, receive, answered)
        except GrovekeeperError as error:
            if answered.has_started:
                raise
            answer = _answer_to(error, Request(scope))
            # A frame of the traceback refers to the error. The cycle would keep the
            # body of the request in memory.
            error.__traceback__ = error.__context__ = None
            await answer(scope, receive, answered)
        except ClientDisconnect:
            # No client is left to answer; the route closed the file of the body, which
            # frees it.
            _log.info("a client went away")
        except asyncio.CancelledError:
            # The server stops and waits no longer. What the request does in a thread
            # may still take effect.
            if answered.has_started:
                raise
            await _answer_to(Unavailable("the service is stopping"), Request(scope))(
                scope, receive, answered
            )
        except Exception as error:
            _log.exception("a request failed")
            if answered.has_started:
                raise
            await _answer_to_unexpected(error, Request(scope))(scope, receive, answered)
        finally:
            scope["app"].state.capacities.end_large_body(client)

    async def _serve(
        self, client: Client, scope: Scope, receive: Receive, answered: "_Answered"
    ) -> None:
        path = scope["path"]
        if path in PUBLIC_PATHS or path in WITHOUT_SESSION:
            _check_length_of_query(
                scope, limits.MAX_OPEN_QUERY_BYTES, limits.MAX_OPEN_QUERY_FIELDS
            )
            await self._app(scope, receive, answered)
            return
        prediction = prediction_of(scope)
        principal = None if prediction is None else self._authentication.known(scope)
        if principal is None:
            client.key_id = self._authentication.seen(scope)
        else:
            client.key_id = principal.key_id
        if client.key_id is None:
            principal = await self._authentication.principal(scope)
            client.key_id = principal.key_id
        with self._seat(
            client.key_id,
            is_administration=prediction is None and is_administration(path),
        ):
            if principal is None:
                principal = await self._authentication.principal(scope)
            scope["state"]["principal"] = principal
            self._installation.last_uses.note(principal.key_id, at=stamps.now())
            # ids and names are printable, and PostgreSQL rejects a NUL in a query
            if not path.isprintable():
                raise NotFound("path")
            _check_length_of_query(
                scope, limits.MAX_QUERY_BYTES, limits.MAX_QUERY_FIELDS
            )
            if b"%00" in scope["query_string"]:
                raise InvalidRequest.at("", "nul-in-the-query")
            if prediction is None:
                await self._app(scope, receive, answered)
            else:
                await self._predictions.answer(prediction, scope, receive, answered)

    def _is_seat_free(self, key_id: str, *, is_administration: bool = False) -> bool:
        is_free = self._n_in_flight < limits.MAX_REQUESTS_IN_FLIGHT or is_administration
        return is_free and self._in_flight.get(key_id, 0) < limits.MAX_REQUESTS_PER_KEY

    @contextmanager
    def _seat(self, key_id: str, *, is_administration: bool) -> Iterator[None]:
        """A seat for a request, which counts until its answer: in all, and for its key.

        Raises:
            TooManyRequests: too many requests in flight.
        """
        if not self._is_seat_free(key_id, is_administration=is_administration):
            raise TooManyRequests
        self._in_flight[key_id] += 1
        self._n_in_flight += 1
        try:
            yield
        finally:
            self._n_in_flight -= 1
            self._in_flight[key_id] -= 1
            if not self._in_flight[key_id]:
                del self._in_flight[key_id]


def _check_length_of_query(scope: Scope, max_bytes: int, max_fields: int) -> None:
    """Checks the size of a query string before the event loop parses it, which takes a
    millisecond for 1,500 fields.

    Raises:
        InvalidRequest: the query string has too many bytes or fields.
    """
    query: bytes = scope["query_string"]
    if len(query) > max_bytes or query.count(b"&") >= max_fields:
        scope["query_string"] = b""  # what answers does not parse it either
        accepted = f"at most {max_bytes} bytes and {max_fields} parameters"
        raise InvalidRequest.at("", "query-too-long", accepted=[accepted])


def _head_of(send: Send) -> Send:
    """Sends the status and the headers of an answer, and ends a stream at its first
    piece.
    """
    is_ended = False

    async def send_head(message: Message) -> None:
        nonlocal is_ended
        if message["type"] == "http.response.start":
            await send(message)
        elif not is_ended:
            is_ended = True
            await send({"type": "http.response.body"})
        if message.get("more_body", False):
            # what makes the stream ends, as it does when a client goes away
            raise ClientDisconnect

    return send_head


class Application(FastAPI):
    """The framework's application without its layers around :class:`EveryRequest`,
    which answers every error itself.
    """

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        scope["app"] = self
        await self.every_request(scope, receive, send)

    @cached_property
    def every_request(self) -> EveryRequest:
        """The layer that answers every request, without those of the framework around
        it.
        """
        layer: Any = self.build_middleware_stack()
        while not isinstance(layer, EveryRequest):
            layer = layer.app
        return layer


def _answer_to(error: GrovekeeperError, request: Request) -> Response:
    if is_page(request.url.path):
        return page_of(request, error)
    return problems.answer_to(error, request)


def _answer_to_unexpected(error: Exception, request: Request) -> Response:
    if isinstance(error, OSError):
        # the text of the error has the path of a file
        why = "a file of the service cannot be read or written"
        if error.errno in _DISK_FULL:
            why = "the disk is full"
        return _answer_to(Unavailable(why, limits.DISK_RETRY_S), request)
    if is_page(request.url.path):
        return unexpected(request)
    return problems.internal_error(request)


def _below_the_prefix(
    headers: Iterable[tuple[bytes, bytes]],
) -> Iterator[tuple[bytes, bytes]]:
    """The headers of an answer as they leave. Every ``Location`` of this service is a
    path.
    """
    for name, value in headers:
        yield name, base().encode("ascii") + value if name == b"location" else value


@dataclass(eq=False)
class _Answered:
    """Adds headers to an answer, and records its status; 0 until the answer has begun.

    A large answer lasts until its client has read it, so that its request counts for as
    long as it takes memory.
    """

    _send: Send
    _scope: Scope
    has_started: bool = False
    status: int = 0

    def __call__(self, message: Message) -> Awaitable[None]:
        if message["type"] == "http.response.start":
            self.has_started = True
            self.status = message["status"]
            headers = message.get("headers", ())
            if base():
                headers = _below_the_prefix(headers)
            request_id = self._scope["state"]["request_id"].encode("ascii")
            fields = [*headers, (b"x-request-id", request_id), *_ON_EVERY_ANSWER]
            return self._send({**message, "headers": fields})
        is_large = len(message.get("body", b"")) > limits.LARGE_ANSWER_BYTES
        # the pieces of a stream wait for their client one by one
        if is_large and not message.get("more_body", False):
            return self._until_read(message)
        return self._send(message)

    async def _until_read(self, message: Message) -> None:
        n_unread = self._scope["app"].state.capacities.n_unread
        key_id = CLIENT.get().key_id
        n_unread[key_id] += len(message["body"])
        try:
            await self._send({**message, "more_body": True})
            # waits until the rest of the answer is small
            await self._send({"type": "http.response.body"})
        finally:
            n_unread[key_id] -= len(message["body"])
