"""Bounds the connections of the API: their number, and the bytes and the time that the head of a request may take."""

import asyncio
import secrets
from asyncio.events import TimerHandle
from typing import Any

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from app.api import problems
from app.core import limits
from app.core.errors import GrovekeeperError, MalformedRequest, TooManyRequests


class BoundedHttp(HttpToolsProtocol):
    """HTTP/1.1 whose clients cannot hold connections or memory without sending requests.

    The application bounds the bodies. What the application never sees is refused here, as problems, too.
    """

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._n_head_bytes = 0
        self._is_in_head = False
        self._deadline: TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as in uvicorn
        super().connection_made(transport)
        self._start_deadline()
        if len(self.connections) > limits.MAX_CONNECTIONS:
            self._refuse(TooManyRequests())

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_deadline()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        was_in_head = self._is_in_head
        super().data_received(data)
        if self.transport.is_closing():
            return
        self._n_head_bytes += len(data) if was_in_head else 0
        if self._n_head_bytes > limits.MAX_REQUEST_HEAD_BYTES:
            self._refuse(MalformedRequest("the head of the request is too long"))
        elif self._waits_for_client():
            self._start_deadline()

    def on_message_begin(self) -> None:
        self._is_in_head = True
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        self._is_in_head = False
        self._n_head_bytes = 0
        self._stop_deadline()
        super().on_headers_complete()

    def send_400_response(self, msg: str) -> None:
        self._refuse(MalformedRequest("the request cannot be read"))

    def _waits_for_client(self) -> bool:
        """Whether only the client can go on: with the head of a request, or with the rest of an answered body."""
        return self._is_in_head or getattr(self.cycle, "response_complete", True)  # at first there is no cycle

    def _start_deadline(self) -> None:
        if self._deadline is None:
            self._deadline = self.loop.call_later(limits.REQUEST_HEAD_S, self._end_deadline)

    def _stop_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _end_deadline(self) -> None:
        self._deadline = None
        if self._waits_for_client():
            self.transport.close()

    def _refuse(self, error: GrovekeeperError) -> None:
        answer = problems.response_to(error)
        answer.headers["X-Request-Id"] = secrets.token_hex(8)
        answer.headers["Connection"] = "close"
        head = b"".join(name + b": " + value + b"\r\n" for name, value in answer.raw_headers)
        self.transport.write(STATUS_LINE[answer.status_code] + head + b"\r\n" + bytes(answer.body))
        self.transport.close()
