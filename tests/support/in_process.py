"""Sends requests to the ASGI application in this process, without a socket and without an HTTP library in between."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import unquote

import anyio
import httpx
from anyio.from_thread import start_blocking_portal
from fastapi import FastAPI
from starlette.types import Message


class InProcess:
    """A client of one application. Its event loop runs in a thread, so several threads may send requests."""

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
        """The answer to a request with a key or a token, if any, and with ``json`` in place of ``content``."""
        sent = {"host": "here", **({} if key is None else {"authorization": f"Bearer {key}"}), **(headers or {})}
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

    async def _send(self, scope: dict[str, Any], body: bytes) -> httpx.Response:
        incoming: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]
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
        return httpx.Response(start["status"], headers=start["headers"], content=content)


@contextmanager
def in_process(app: FastAPI) -> Iterator[InProcess]:
    """Runs an application without a server."""
    with start_blocking_portal() as portal:
        yield InProcess(app, portal.call)


def _bytes(value: str | bytes) -> bytes:
    return value if isinstance(value, bytes) else value.encode("latin-1")
