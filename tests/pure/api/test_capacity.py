"""Turns of keys: round-robin, with a share for each, and none for a client that went
away.
"""

import asyncio
import threading
from collections.abc import Callable
from inspect import iscoroutinefunction

import pytest
from fastapi.routing import APIRoute
from starlette.requests import ClientDisconnect

from app.api import capacity
from app.api.capacity import CLIENT, Capacities, Client, Turns, Work, is_administration
from app.api.main import ROUTERS
from app.api.pages.routers import PAGES
from app.api.requests import BodyRoute
from app.core import limits


def _client(key_id: str | None) -> Client:
    client = Client()
    client.key_id = key_id
    return client


async def _settled() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


def _order(
    asked: str,
    *,
    n_threads: int = 1,
    act: Callable[[list[Client]], None] = lambda _: None,
) -> str:
    """The order in which requests of keys get a thread, one at a time ended; each
    letter is a request of that key.
    """

    async def run() -> str:
        turns, begun = Turns(n_threads, 2), []
        clients = [_client(key_id) for key_id in asked]

        async def request(client: Client) -> None:
            await turns.begin(client)
            begun.append(client)

        tasks = [asyncio.create_task(request(client)) for client in clients]
        await _settled()
        act(clients)
        for n_ended in range(len(asked)):
            await _settled()
            if n_ended >= len(begun):
                break
            turns.end(begun[n_ended].key_id)
        results = await asyncio.gather(*tasks, return_exceptions=True)
        assert all(isinstance(result, ClientDisconnect | None) for result in results)
        return "".join(str(client.key_id) for client in begun)

    return asyncio.run(run())


def test_keys_take_turns_whatever_the_number_of_their_requests() -> None:
    assert _order("aaaaaabbc") == "aabcabaaa"
    assert _order("aaaaa") == "aaaaa"


def test_a_key_has_its_share_of_the_threads_and_no_more() -> None:
    async def run() -> list[str]:
        turns, begun = Turns(4, 2), []

        async def request(key_id: str) -> None:
            await turns.begin(_client(key_id))
            begun.append(key_id)

        tasks = [asyncio.create_task(request(key_id)) for key_id in "aaaaabbbb"]
        await _settled()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        return begun

    assert asyncio.run(run()) == ["a", "a", "b", "b"]


def test_requests_of_unknown_keys_leave_the_share_of_a_known_key() -> None:
    """Whoever has no key could otherwise occupy every thread."""

    async def run() -> list[str | None]:
        turns, begun = Turns(5, 2), list[str | None]()

        async def request(key_id: str | None) -> None:
            await turns.begin(_client(key_id))
            begun.append(key_id)

        asked = [*[None] * 6, "a", "a"]
        tasks = [asyncio.create_task(request(key_id)) for key_id in asked]
        await _settled()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        return begun

    assert asyncio.run(run()) == [None, None, None, "a", "a"]


def test_work_of_a_client_that_went_away_does_not_begin() -> None:
    assert _order("aaab", act=lambda clients: clients[1].leave()) == "aab"
    with pytest.raises(ClientDisconnect):
        gone = _client("a")
        gone.leave()
        asyncio.run(Turns(1, 1).begin(gone))


def test_a_request_that_is_cancelled_at_its_turn_gives_the_thread_back() -> None:
    async def run() -> None:
        turns = Turns(1, 1)
        await turns.begin(_client("a"))
        waits = asyncio.create_task(turns.begin(_client("b")))
        await _settled()
        turns.end("a")
        waits.cancel()
        await asyncio.gather(waits, return_exceptions=True)
        await asyncio.wait_for(turns.begin(_client("c")), 60)

    asyncio.run(run())


def test_a_thread_goes_back_to_the_key_that_took_it() -> None:
    """A request learns its key while it has a thread, as each that signs in does: its
    thread would be lost to newcomers, and its key would have one more.
    """

    async def run() -> None:
        capacities = Capacities()
        for number in range(2 * limits.MAX_READS_AT_ONCE):
            client = _client(None)
            CLIENT.set(client)
            async with asyncio.timeout(60), capacities.turn(Work.READ):
                client.key_id = f"key {number}"

    asyncio.run(run())


def test_a_queued_function_of_a_client_that_went_away_is_never_called(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(capacity.THREADS, Work.READ, 1)  # type: ignore[arg-type]  # a dict
    called, release, begun = [], threading.Event(), asyncio.Event()

    async def run() -> None:
        capacities, clients, loop = (
            Capacities(),
            [_client("a"), _client("a"), _client("a")],
            asyncio.get_running_loop(),
        )

        def work(name: int) -> None:
            called.append(name)
            loop.call_soon_threadsafe(begun.set)
            release.wait(60)

        async def request(name: int) -> None:
            CLIENT.set(clients[name])
            await capacities.run(Work.READ, lambda: work(name))

        tasks = [asyncio.create_task(request(name)) for name in range(3)]
        await begun.wait()
        clients[1].leave()
        release.set()
        results = await asyncio.gather(*tasks, return_exceptions=True)
        assert [type(result) for result in results] == [
            type(None),
            ClientDisconnect,
            type(None),
        ]

    asyncio.run(run())
    assert called == [0, 2]


def test_large_bodies_of_a_key_arrive_in_turns() -> None:
    async def run() -> list[str | None]:
        capacities, clients, begun = (
            Capacities(),
            [_client(key_id) for key_id in "aab"],
            [],
        )

        async def request(client: Client) -> None:
            CLIENT.set(client)
            await capacities.begin_large_body()
            begun.append(client.key_id)

        tasks = [asyncio.create_task(request(client)) for client in clients]
        await _settled()
        assert begun == ["a", "b"]
        capacities.end_large_body(clients[0])
        capacities.end_large_body(clients[0])  # has none any more
        await asyncio.gather(*tasks)
        return begun

    assert asyncio.run(run()) == ["a", "b", "a"]


@pytest.mark.parametrize(
    "path",
    [
        "/keys",
        "/keys/key_x",
        "/metrics",
        "/datasets/x/grants/key_x",
        "/ui/admin/keys/k/revoke",
    ],
)
def test_what_takes_authority_away_is_administration(path: str) -> None:
    assert is_administration(path)
    assert not is_administration(f"/models{path}")
    assert not is_administration(
        f"{path}x".replace("grants/", "uploads/")
        .replace("/keys", "/key_")
        .replace("admin", "a")
    )


def test_every_endpoint_of_a_thread_waits_for_its_turn() -> None:
    """Otherwise one key could take all threads, and more connections than the
    database's pool has.
    """
    routes = [
        route
        for router in (*ROUTERS, *PAGES)
        for route in router.routes
        if isinstance(route, APIRoute)
    ]
    assert len(routes) > 100
    assert [
        it.path
        for it in routes
        if not isinstance(it, BodyRoute) and not iscoroutinefunction(it.endpoint)
    ] == []
