"""The rounds of an event loop: of many requests that arrive at once, others wait for
few.
"""

import asyncio
import socket
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from functools import partial
from typing import Any

import pytest
import uvicorn
from starlette.types import Receive, Scope, Send
from uvicorn.server import ServerState

from app.api.http_protocol import BoundedHttp
from app.api.rounds import Rounds
from app.core import limits
from tests.support.in_process import KeptTransport


def in_a_loop(scene: Callable[[], Awaitable[None]]) -> None:
    async def run() -> None:
        await scene()

    asyncio.run(run())


async def to_the_end(began: list[str], n_requests: int) -> None:
    """Lets the loop go on until so many requests began."""
    for _ in range(10_000):
        if len(began) == n_requests:
            return
        await asyncio.sleep(0)
    raise AssertionError(f"{n_requests - len(began)} requests did not begin")


class Server:
    """The requests of a server in the order in which they began."""

    def __init__(
        self, *, has_task: bool = True, round_s: float = limits.ROUND_S
    ) -> None:
        self.rounds = Rounds(lambda key: key, round_s)
        self.began: list[str] = []
        self._has_task = has_task

    def send(self, name: str, key: str | None) -> None:
        self.rounds.begin(key, lambda: self._begin(name))

    def _begin(self, name: str) -> bool:
        self.began.append(name)
        return self._has_task


def test_a_request_alone_begins_where_it_arrives() -> None:
    server = Server()

    async def scene() -> None:
        for number in range(3):
            server.send(str(number), "a")
            assert server.began[number:] == [str(number)]
            await asyncio.sleep(0)

    in_a_loop(scene)


@pytest.mark.parametrize(
    "others", ["another", None], ids=["of another key", "without a key"]
)
@pytest.mark.parametrize("has_task", [True, False])
def test_a_request_waits_for_few_of_many_others(
    others: str | None, has_task: bool
) -> None:
    server = Server(has_task=has_task, round_s=0)

    async def scene() -> None:
        for number in range(50):
            server.send(str(number), others)
        server.send("late", "k")
        await to_the_end(server.began, 51)

    in_a_loop(scene)
    assert server.began.index("late") <= 2
    assert [name for name in server.began if name != "late"] == [
        str(number) for number in range(50)
    ]


def test_a_round_begins_one_task_and_for_a_while_what_has_none() -> None:
    for has_task in (True, False):
        server = Server(has_task=has_task, round_s=60)

        async def scene(
            server: Server = server, expected: int = 2 if has_task else 10
        ) -> None:
            for number in range(10):
                server.send(str(number), "a")
            await asyncio.sleep(0)
            assert len(server.began) == expected

        in_a_loop(scene)


def test_while_connections_are_accepted_keys_begin_and_few_others() -> None:
    """A key may be among the connections behind, of which a round of the loop accepts
    one.
    """
    server, n_rounds = Server(round_s=0), 2 * limits.MAX_ROUNDS_OF_CONNECTIONS

    async def scene() -> None:
        for number in range(n_rounds):
            server.rounds.accepted()
            server.send(str(number), None)
            await asyncio.sleep(0)
        assert len(server.began) == 2, "they go on, at a small share"
        server.rounds.accepted()
        server.send("mine", "k")
        await asyncio.sleep(0)
        assert server.began[2:] == ["mine"]
        await to_the_end(server.began, n_rounds + 1)

    in_a_loop(scene)
    assert [name for name in server.began if name != "mine"] == [
        str(number) for number in range(n_rounds)
    ]


def test_a_key_gets_its_answer_before_those_without_a_key_that_came_first() -> None:
    answered: list[str] = []

    async def app(scope: Scope, _: Receive, send: Send) -> None:
        await send(
            {
                "type": "http.response.start",
                "status": 200,
                "headers": [(b"content-length", b"0")],
            }
        )
        await send({"type": "http.response.body", "body": b""})
        answered.append(scope["path"])

    def key_of(scope: Scope) -> str | None:
        return "k" if scope["path"] == "/mine" else None

    protocol: Any = partial(BoundedHttp, key_of=key_of)
    config = uvicorn.Config(app, http=protocol, log_config=None)
    config.load()

    async def scene() -> None:
        state = ServerState()
        with ExitStack() as opened:
            for path in [*(f"/{number}" for number in range(40)), "/mine"]:
                connection: Any = protocol(
                    config=config, server_state=state, app_state={}
                )
                connection.connection_made(
                    KeptTransport(opened.enter_context(socket.socket()))
                )
                connection.data_received(
                    f"GET {path} HTTP/1.1\r\nHost: here\r\n\r\n".encode()
                )
                opened.callback(connection.connection_lost, None)
            await to_the_end(answered, 41)

    in_a_loop(scene)
    assert answered.index("/mine") <= 2
    assert [path for path in answered if path != "/mine"] == [
        f"/{number}" for number in range(40)
    ]
