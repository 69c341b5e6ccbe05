"""Sends requests to the ASGI application, or to a server's protocol, in this process:
no library, no connection.
"""

import asyncio
import json
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import unquote

import anyio
import anyio.lowlevel
import httpx
import uvicorn
from anyio.from_thread import start_blocking_portal
from fastapi import FastAPI
from starlette.types import Message
from uvicorn.server import ServerState


class KeptTransport(asyncio.Transport):
    """A connection whose bytes are kept."""

    def __init__(self, unconnected: socket.socket) -> None:
        super().__init__({"socket": unconnected})
        self.sent = b""
        self._is_closing = False

    def write(self, data: Any) -> None:
        assert not self._is_closing, (
            "nothing follows the answer after which the connection is closed"
        )
        self.sent += data

    def is_closing(self) -> bool:
        return self._is_closing

    def close(self) -> None:
        self._is_closing = True

    def pause_reading(self) -> None:
        """Does nothing: the whole input was given to the protocol before it can ask for
        less.
        """

    def resume_reading(self) -> None:
        """Does nothing, as :meth:`pause_reading` does."""


class InProcess:
    """A client of one application. Its event loop runs in a thread, so several threads
    may send requests.
    """

    def __init__(self, app: FastAPI, call: Callable[..., Any]) -> None:
        self._app = app
        self._call = call

    def request(
        self,
        method: str,
        path: str,
        *,
        key: str | None = None,
        headers: dict[str, Any] | None = None,
        content: str = "",
        **options: Any,
    ) -> httpx.Response:
        """The answer to a request with a key or a token, if any, and with ``json`` in
        place of ``content``.
        """
        sent = {
            "host": "here",
            **({} if key is None else {"authorization": f"Bearer {key}"}),
            **(headers or {}),
        }
        body = json.dumps(options.pop("json")) if "json" in options else content
        assert not options, "no other option is supported"
        bare, _, query = path.partition("?")
        scope = {
            "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": method, "scheme": "http",
            "path": unquote(bare), "raw_path": bare.encode("ascii"), "query_string": query.encode("ascii"),
            "root_path": "", "server": ("here", 80), "client": ("127.0.0.1", 1),
            "headers": [(name.lower().encode("ascii"), _bytes(value)) for name, value in sent.items()],
        }  # fmt: skip
        answer: httpx.Response = self._call(self._send, scope, body.encode("utf-8"))
        return answer

    def exchanged(self, config: uvicorn.Config, request: bytes) -> bytes:
        """The answer to a request, by the protocol of a server."""
        answer: bytes = self._call(self._exchange, config, request)
        return answer

    async def _exchange(self, config: uvicorn.Config, request: bytes) -> bytes:
        protocol: Any = config.http_protocol_class(
            config=config, server_state=ServerState(), app_state={}
        )  # type: ignore[call-arg]
        with socket.socket() as unconnected:
            transport = KeptTransport(unconnected)
            protocol.connection_made(transport)
            # the server looks at its connections again before it reads
            await anyio.lowlevel.checkpoint()
            protocol.data_received(request)
            while not protocol.cycle.response_complete:
                await anyio.lowlevel.checkpoint()
            protocol.connection_lost(None)
        return transport.sent

    async def _send(self, scope: dict[str, Any], body: bytes) -> httpx.Response:
        incoming: list[Message] = [
            {"type": "http.request", "body": body, "more_body": False}
        ]
        answered: list[Message] = []

        async def receive() -> Message:
            if not incoming:
                await anyio.sleep_forever()  # the client stays
            return incoming.pop()

        async def send(message: Message) -> None:
            answered.append(message)

        await self._app(scope, receive, send)
        start, *parts = answered
        content = b"".join(part.get("body", b"") for part in parts)
        return httpx.Response(
            start["status"], headers=start["headers"], content=content
        )


@contextmanager
def in_process(app: FastAPI) -> Iterator[InProcess]:
    """Runs an application without a server."""
    with start_blocking_portal() as portal:
        yield InProcess(app, portal.call)


def _bytes(value: str | bytes) -> bytes:
    return value if isinstance(value, bytes) else value.encode("latin-1")
