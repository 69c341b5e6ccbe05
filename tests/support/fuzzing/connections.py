"""The target that reads the bytes of a connection: two readers of HTTP must not see
different requests.
"""

import asyncio
import socket
from dataclasses import dataclass, field
from functools import cache
from typing import Any
from urllib.parse import urlsplit

import h11
import uvicorn
from starlette.types import Receive, Scope, Send
from uvicorn.server import ServerState

from app.api.http_protocol import BoundedHttp
from tests.support.in_process import KeptTransport
from tests.support.raw_requests import ACCEPTED, FOLLOWING, REFUSED

Seen = tuple[bytes, bytes, bytes, tuple[bytes, ...]]
"""Method, path, body and keys of a request."""


@dataclass
class _Service:
    """An application that answers every request when its body is complete, and keeps
    the request.
    """

    seen: list[Seen] = field(default_factory=list)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        body, more = b"", True
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                return
            body += message.get("body", b"")
            more = message.get("more_body", False)
        self.seen.append(
            (scope["method"].encode(), scope["raw_path"], body, _keys(scope["headers"]))
        )
        await send(
            {
                "type": "http.response.start",
                "status": 200,
                "headers": [(b"content-length", b"0")],
            }
        )
        await send({"type": "http.response.body", "body": b""})


def _keys(headers: Any) -> tuple[bytes, ...]:
    return tuple(
        bytes(value)
        for name, value in headers
        if bytes(name).lower() == b"authorization"
    )


@cache
def _loop() -> asyncio.AbstractEventLoop:
    return asyncio.new_event_loop()


def seeds() -> tuple[bytes, ...]:
    raw = [*REFUSED.values(), *(request for request, _ in ACCEPTED.values())]
    return tuple(
        request.replace(b"{key}", b"Authorization: x\r\n") + FOLLOWING
        for request in raw
    )


def run(data: bytes) -> bool:
    """What this service reads from a connection, a strict other reader reads in the
    same way, or refuses.
    """
    mine, theirs = _loop().run_until_complete(_served(data)), _read_by_h11(data)
    for request, other in zip(mine, theirs, strict=False):
        assert request == other, (request, other)
    return bool(mine)


async def _served(data: bytes) -> list[Seen]:
    service = _Service()
    config = uvicorn.Config(
        service,
        log_config=None,
        access_log=False,
        http=BoundedHttp,
        ws="none",
        lifespan="off",
    )
    config.load()
    protocol = BoundedHttp(
        config=config,
        server_state=ServerState(),
        app_state={},
        _loop=asyncio.get_running_loop(),
    )
    with socket.socket() as unconnected:
        transport = KeptTransport(unconnected)
        protocol.connection_made(transport)
        half = len(data) // 2
        for piece in (data[:half], data[half:]):
            if not transport.is_closing():
                protocol.data_received(piece)
            await _settled(service)
        protocol.connection_lost(None)
        await asyncio.sleep(0)
        assert transport.sent.count(b"HTTP/1.1 200 ") == len(service.seen)
    return service.seen


async def _settled(service: _Service) -> None:
    """Waits until the service answers nothing any more."""
    n_before = -1
    while n_before < len(service.seen):
        n_before = len(service.seen)
        for _ in range(20):
            await asyncio.sleep(0)


def _read_by_h11(data: bytes) -> list[Seen]:
    """Requests of a connection until the first that h11 refuses or that ends it."""
    connection = h11.Connection(h11.SERVER)
    connection.receive_data(data)
    requests: list[Seen] = []
    head, body = None, b""
    try:
        while True:
            event = connection.next_event()
            if isinstance(event, h11.Request):
                head, body = event, b""
            elif isinstance(event, h11.Data):
                body += bytes(event.data)
            elif isinstance(event, h11.EndOfMessage) and head is not None:
                requests.append(
                    (head.method, _path(head.target), body, _keys(head.headers))
                )
                connection.send(
                    h11.Response(status_code=200, headers=[("Content-Length", "0")])
                )
                connection.send(h11.EndOfMessage())
                connection.start_next_cycle()
            else:
                return requests
    except (h11.RemoteProtocolError, h11.LocalProtocolError):
        return requests


def _path(target: bytes) -> bytes:
    text = target.decode("latin-1")
    return (
        urlsplit(text).path
        if "://" in text
        else text.partition("?")[0].partition("#")[0]
    ).encode("latin-1")
