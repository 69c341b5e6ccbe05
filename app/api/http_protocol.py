"""Bounds connections and the bytes and time of a request's head, and rejects requests
with an ambiguous head.

Small predictions are answered here, without a task; every other request by the
application.
"""

import asyncio
import secrets
import socket
from asyncio.events import TimerHandle
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NoReturn
from weakref import WeakKeyDictionary

from httptools import HttpParserError, HttpParserUpgrade, HttpRequestParser
from starlette.types import Scope
from uvicorn.protocols.http.httptools_impl import (
    STATUS_LINE,
    HttpToolsProtocol,
    RequestResponseCycle,
)
from uvicorn.server import ServerState

from app.api import problems
from app.api.authentication import Prediction, prediction_of
from app.api.capacity import Client
from app.api.rounds import Rounds
from app.core import limits
from app.core.errors import MalformedRequest, TooManyRequests
from grovekeeper_forests.errors import GrovekeeperError

_PIECE_BYTES = 16 * 1024
"""The parser takes so many bytes at a time: what it has taken of a head is then counted
before it takes more.
"""

_HOST = (
    b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._~!$&'()*+,;=%:[]-"
)
"""The characters of a host and a port (RFC 3986)."""


AtOnce = Callable[
    [Prediction, Scope, bytes], tuple[list[tuple[bytes, bytes]], bytes] | None
]
"""Answers a small prediction, given its scope and its body, with header fields and a
body; ``None``: a task has to.
"""

_UNREADABLE = MalformedRequest("the request cannot be read")


def _too_long(what: str, max_bytes: int) -> MalformedRequest:
    return MalformedRequest(f"{what} has more than {max_bytes} bytes")


class _Ignored(list[tuple[bytes, bytes]]):
    """A list that takes nothing."""

    def append(self, _: tuple[bytes, bytes]) -> None:
        """Ignores a field."""


_IGNORED = _Ignored()


@dataclass(eq=False)
class _Seats:
    """The connections of one server: those of each key, and those that sent no valid
    key yet, the oldest first.

    Attributes:
        rounds: begin the requests on all of them.
    """

    rounds: Rounds
    _without_key: "dict[BoundedHttp, None]" = field(default_factory=dict)
    _of_keys: "dict[BoundedHttp, str]" = field(default_factory=dict)
    _n_of_keys: Counter[str] = field(default_factory=Counter)

    def take(self, connection: "BoundedHttp") -> None:
        """Give a seat to a new connection, if need be that of the oldest without a
        valid key.

        A newcomer may bring a key, so it is refused only if no other connection is
        without one.
        """
        self.rounds.accepted()
        self._without_key[connection] = None
        n_surplus = len(connection.connections) - limits.MAX_CONNECTIONS
        while self._without_key and (
            n_surplus > 0 or len(self._without_key) > limits.MAX_CONNECTIONS_WITHOUT_KEY
        ):
            # A dictionary keeps the order of arrival.
            oldest = next(iter(self._without_key))
            # It may have sent a key since. Looked up here alone, so that requests pay
            # nothing for it.
            key_id = oldest.key_id
            del self._without_key[oldest]
            # A key with many connections protects no more of them, or one client could
            # take all seats.
            if (
                key_id is not None
                and self._n_of_keys[key_id] < limits.MAX_CONNECTIONS_PER_KEY
            ):
                self._of_keys[oldest] = key_id
                self._n_of_keys[key_id] += 1
                continue
            n_surplus -= 1
            if oldest is connection:
                connection.refuse(TooManyRequests())
            else:
                # a close would wait for a client that does not read
                oldest.transport.abort()

    def leave(self, connection: "BoundedHttp") -> None:
        """Free the seat of a connection that ended."""
        self._without_key.pop(connection, None)
        key_id = self._of_keys.pop(connection, None)
        if key_id is not None:
            self._n_of_keys[key_id] -= 1
            # a Counter keeps zeros, and keys come and go
            if not self._n_of_keys[key_id]:
                del self._n_of_keys[key_id]


# By the state that uvicorn shares among the connections of a server: tests run several
# servers in a process.
_SEATS: WeakKeyDictionary[ServerState, _Seats] = WeakKeyDictionary()


class BoundedHttp(HttpToolsProtocol):
    """HTTP/1.1 whose clients cannot hold connections or memory without sending
    requests.

    The application bounds the bodies. What the application never sees is refused here,
    as problems, too. A request that a proxy may read in another way is refused and its
    connection closed, so that no part becomes the next request.
    """

    def __init__(
        self,
        *arguments: Any,
        at_once: AtOnce | None = None,
        key_of: Callable[[Scope], str | None] = lambda _: None,
        **options: Any,
    ) -> None:
        super().__init__(*arguments, **options)
        self._at_once = at_once
        self._held: tuple[RequestResponseCycle, Prediction] | None = None
        self._hold_ends_s = 0.0
        self._hold: TimerHandle | None = None
        self._n_head_bytes = 0
        self._is_in_head = False
        self._head_again = b""
        self._deadline: TimerHandle | None = None
        self._ends_s: float | None = None
        self._running: RequestResponseCycle | None = None
        self._client = Client()
        self._refusal = _UNREADABLE
        self._key_id: str | None = None
        self._seats = _SEATS.setdefault(self.server_state, _Seats(Rounds(key_of)))

    @property
    def key_id(self) -> str | None:
        """The key of the last request on this connection whose key was valid."""
        self._key_id = self._client.key_id or self._key_id
        return self._key_id

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as in uvicorn
        super().connection_made(transport)
        self._start_deadline()
        # a client that reads nothing ends its connection: a close would wait
        if hasattr(socket, "TCP_USER_TIMEOUT"):
            wait_ms = int(limits.ANSWER_WAIT_S * 1000)
            transport.get_extra_info("socket").setsockopt(
                socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, wait_ms
            )
        self._seats.take(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._ends_s = None
        if self._deadline is not None:  # it would keep the connection in memory
            self._deadline.cancel()
        self._seats.leave(self)
        self._client.leave()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        for start in range(0, len(data), _PIECE_BYTES):
            piece = data[start : start + _PIECE_BYTES]
            self._parse(piece)
            # refused: what follows is no request
            if self.transport.is_closing():
                return
            if self._is_in_head:
                self._n_head_bytes += len(piece)
            if self._n_head_bytes > limits.MAX_REQUEST_HEAD_BYTES:
                self.refuse(
                    _too_long("the head of the request", limits.MAX_REQUEST_HEAD_BYTES)
                )
                return
        if self._held is not None:
            cycle, addressed = self._held
            if not cycle.more_body or len(cycle.body) > limits.MAX_BYTES_AT_ONCE:
                self._held = None
                self._seats.rounds.begin(
                    cycle.scope, partial(self._answered_at_once, cycle, addressed)
                )
        if self._waits_for_client():
            self._start_deadline()

    def _parse(self, piece: bytes) -> None:
        """Parse bytes, as uvicorn does, except for a request that offers another
        protocol.

        A server may ignore the offer (RFC 9110, section 7.8), which Java's client makes
        with every request. The parser ends at such a head, and takes a body for bytes
        of the other protocol. Another one reads it without the offer.
        """
        self._unset_keepalive_if_required()
        try:
            while piece:
                try:
                    self.parser.feed_data(piece)
                    return
                except HttpParserUpgrade as offer:
                    self.parser = HttpRequestParser(self)
                    # as uvicorn does
                    self.parser.set_dangerous_leniencies(lenient_data_after_close=True)
                    # The exception says how many bytes of the piece were the head.
                    rest = piece[offer.args[0] :]
                    piece, self._head_again = self._head_again + rest, b""
        except HttpParserError:
            self.send_400_response("")

    def _head_without_offer(self) -> bytes:
        """The head of the request, after whose answer the connection closes.

        What follows is then no request, whoever believes that the connection has become
        another protocol.
        """
        method = self.parser.get_method()
        version = self.parser.get_http_version().encode()
        head = [b"%s %s HTTP/%s\r\n" % (method, self.url, version)]
        for name, value in self.headers:
            if name not in (b"connection", b"upgrade"):
                head.append(b"%s: %s\r\n" % (name, value))
        head.append(b"connection: close\r\n\r\n")
        return b"".join(head)

    def _answered_at_once(
        self, cycle: RequestResponseCycle, addressed: Prediction
    ) -> bool:
        """Answers a prediction whose body is there, or starts its task; returns whether
        it has one.
        """
        # Of several requests, each waits for the task of the one before; and a client
        # that does not read has to wait.
        is_alone = cycle is self.cycle and not (
            cycle.more_body or cycle.disconnected or self.flow.write_paused
        )
        scope: Any = cycle.scope
        answer = None
        if is_alone and self._at_once is not None:
            answer = self._at_once(addressed, scope, bytes(cycle.body))
        if answer is None:
            return self._has_task(cycle)
        fields, body = answer
        if not cycle.keep_alive:
            fields.append((b"connection", b"close"))
        # what uvicorn would do at the end of the task
        cycle.response_started = cycle.response_complete = True
        self.server_state.total_requests += 1
        # one write, so that head and body leave in one packet
        self.transport.write(
            _head(200, [*self.server_state.default_headers, *fields]) + body
        )
        if not cycle.keep_alive:
            self.transport.close()
        return False

    def _has_task(self, cycle: RequestResponseCycle) -> bool:
        """Starts the task of a request, unless its client went away."""
        if not cycle.disconnected:
            super()._start_asgi_task(cycle, self.app)
        return not cycle.disconnected

    def _end_hold(self) -> None:
        self._hold = None
        if self._held is None:
            return
        # of a later request than that of the timer
        if self.loop.time() < self._hold_ends_s:
            self._hold = self.loop.call_at(self._hold_ends_s, self._end_hold)
        else:
            cycle, _ = self._held
            self._held = None
            self._seats.rounds.begin(cycle.scope, partial(self._has_task, cycle))

    def on_message_complete(self) -> None:
        # The parser took a request without a body; the next one reads the same head.
        if self._head_again:
            return
        super().on_message_complete()
        if not self.pipeline:
            # only a connection that is read shows that its client went away
            self.flow.resume_reading()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self.pipeline:
            # a part of what arrives can be thousands of requests
            self.flow.pause_reading()

    def on_message_begin(self) -> None:
        self._is_in_head = True
        # the head has its own time, however long the connection was idle
        self._ends_s = None
        super().on_message_begin()

    def on_header(self, name: bytes, value: bytes) -> None:
        if len(self.headers) >= limits.MAX_REQUEST_FIELDS:
            self._stop_parser(
                MalformedRequest(
                    f"the request has more than {limits.MAX_REQUEST_FIELDS} header fields"
                )
            )
        if len(value) > limits.MAX_REQUEST_FIELD_BYTES:
            self._stop_parser(
                _too_long("a header field", limits.MAX_REQUEST_FIELD_BYTES)
            )
        # from here as uvicorn does, without a second call for each field
        name = name.lower()
        if name == b"expect" and value.lower() == b"100-continue":
            self.expect_100_continue = True
        self.headers.append((name, value))

    def on_headers_complete(self) -> None:
        if self.parser.should_upgrade() and self.parser.get_method() != b"CONNECT":
            self._head_again = self._head_without_offer()
            return
        self._is_in_head = False
        self._n_head_bytes = 0
        self._ends_s = None
        self._check_head()
        if len(self.pipeline) >= limits.MAX_PIPELINED_REQUESTS:
            n_waiting = limits.MAX_PIPELINED_REQUESTS
            self._stop_parser(
                MalformedRequest(
                    f"more than {n_waiting} requests wait on the connection"
                )
            )
        super().on_headers_complete()
        # fields after a body: a proxy checked the fields before the body
        self.headers = _IGNORED

    def _check_head(self) -> None:
        """Reject a head that a proxy may read in another way: its version, its host, or
        the length of its body.

        Raises:
            ValueError: the parser stops, and the connection is refused.
        """
        # Before its percent signs are decoded: a decoded path is shorter, and a proxy
        # counts what is sent.
        if len(self.url.partition(b"?")[0]) > limits.MAX_PATH_BYTES:
            self._stop_parser(_too_long("the path", limits.MAX_PATH_BYTES))
        version = self.parser.get_http_version()
        hosts, codings = [], []
        for name, value in self.headers:
            if name == b"host":
                hosts.append(value)
            elif name == b"transfer-encoding":
                codings.append(value.lower())
        if version not in ("1.0", "1.1") or (version == "1.0" and codings):
            raise ValueError("a version of HTTP that is not served")
        is_absent = version == "1.1" and not hosts
        if is_absent or len(hosts) > 1 or b"".join(hosts).translate(None, _HOST):
            raise ValueError("not one host")
        # Where a proxy and this server disagree about the end of a body, its rest is
        # taken for the request of another client.
        if codings and codings != [b"chunked"]:
            raise ValueError("an encoding of the body that is not read")
        if self.parser.should_upgrade():
            raise ValueError("a tunnel")

    def _stop_parser(self, refusal: MalformedRequest) -> NoReturn:
        """Ends the parsing of a request that is then refused; the parser tells no
        reason.
        """
        self._refusal = refusal
        raise ValueError

    def send_400_response(self, msg: str) -> None:
        self.refuse(self._refusal)

    def _waits_for_client(self) -> bool:
        """Whether only the client can go on: with the head of a request, or with the
        rest of an answered body.
        """
        # at first there is no cycle
        return self._is_in_head or getattr(self.cycle, "response_complete", True)

    def _start_deadline(self) -> None:
        """Gives the client its time. One timer serves many requests: it takes longer to
        make than to keep.
        """
        if self._ends_s is None:
            self._ends_s = self.loop.time() + limits.REQUEST_HEAD_S
        if self._deadline is None:
            self._deadline = self.loop.call_at(self._ends_s, self._end_deadline)

    def _end_deadline(self) -> None:
        self._deadline = None
        if self._ends_s is None:
            return
        if self.loop.time() < self._ends_s:  # of a later request than that of the timer
            self._deadline = self.loop.call_at(self._ends_s, self._end_deadline)
        elif self._waits_for_client():
            self.transport.close()

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        self._running = cycle
        self._key_id = self._client.key_id or self._key_id
        scope: Any = cycle.scope
        self._client = scope["state"]["client"] = Client()
        # A client that waits for 100 sends its body only after the application reads.
        waits_for_body = cycle.more_body and not cycle.waiting_for_100_continue
        addressed = None
        if waits_for_body and self._at_once is not None:
            addressed = prediction_of(scope)
        if addressed is None:
            self._seats.rounds.begin(cycle.scope, partial(self._has_task, cycle))
            return
        self._held = cycle, addressed
        self._hold_ends_s = self.loop.time() + limits.BODY_AFTER_HEAD_S
        # one timer serves many requests, as that of the head does
        if self._hold is None:
            self._hold = self.loop.call_at(self._hold_ends_s, self._end_hold)

    def refuse(self, error: GrovekeeperError) -> None:
        """Answer and close, or only close where the answer would look like that of an
        earlier request.
        """
        running = self._running
        if running is not None and not running.response_complete:
            running.disconnected = True  # it sends nothing behind the refusal
            # wakes a task that waits for the rest of its body
            running.message_event.set()
            if running.response_started or not running.more_body:
                self.transport.close()
                return
        answer = problems.response_to(error)
        answer.headers["X-Request-Id"] = secrets.token_hex(8)
        answer.headers["Connection"] = "close"
        self.transport.write(
            _head(answer.status_code, answer.raw_headers) + bytes(answer.body)
        )
        self.transport.close()


def _head(status: int, fields: Iterable[tuple[bytes, bytes]]) -> bytes:
    """The head of an answer."""
    lines = [b"%b: %b\r\n" % field for field in fields]
    return b"".join([STATUS_LINE[status], *lines, b"\r\n"])
