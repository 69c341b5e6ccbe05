"""Requests that a client sends before the answers to those before them: few of them
wait on a connection.
"""

import asyncio
import socket
from typing import Any

import pytest
import uvicorn
from starlette.types import Receive, Scope, Send
from uvicorn.server import ServerState

from app.api.http_protocol import BoundedHttp
from app.core import limits
from tests.support.in_process import KeptTransport

REQUEST = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"


class ReadTransport(KeptTransport):
    """A connection that knows whether it is read."""

    is_read = True

    def pause_reading(self) -> None:
        self.is_read = False

    def resume_reading(self) -> None:
        self.is_read = True


def exchanged(n_requests: int) -> tuple[int, bool, list[bool]]:
    """Sends requests in one piece.

    Returns:
        The number of answers, whether the connection was closed, and before each
        answer, whether it is read.
    """
    read: list[bool] = []

    async def scene() -> tuple[int, bool]:
        with socket.socket() as unconnected:
            transport = ReadTransport(unconnected)

            async def app(_: Scope, __: Receive, send: Send) -> None:
                await asyncio.sleep(0)
                read.append(transport.is_read)
                await send(
                    {
                        "type": "http.response.start",
                        "status": 200,
                        "headers": [(b"content-length", b"0")],
                    }
                )
                await send({"type": "http.response.body", "body": b""})

            config = uvicorn.Config(
                app, http=BoundedHttp, log_config=None, access_log=False
            )
            config.load()
            connection: Any = BoundedHttp(
                config=config, server_state=ServerState(), app_state={}
            )
            connection.connection_made(transport)
            connection.data_received(REQUEST * n_requests)
            for _ in range(20 * n_requests):
                await asyncio.sleep(0)
            is_closed = transport.is_closing()
            connection.connection_lost(None)
            return transport.sent.count(b" 200 "), is_closed

    return *asyncio.run(scene()), read


def test_requests_that_wait_on_a_connection_are_answered_before_more_is_read() -> None:
    n_answers, is_closed, read = exchanged(1 + limits.MAX_PIPELINED_REQUESTS)
    assert (n_answers, is_closed) == (1 + limits.MAX_PIPELINED_REQUESTS, False)
    assert read == [False] * limits.MAX_PIPELINED_REQUESTS + [True]


@pytest.mark.parametrize("n_more", [1, 1_000])
def test_a_connection_with_more_of_them_is_closed(n_more: int) -> None:
    n_answers, is_closed, _ = exchanged(1 + limits.MAX_PIPELINED_REQUESTS + n_more)
    assert (n_answers, is_closed) == (0, True)
