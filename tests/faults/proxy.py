"""Forwards connections to PostgreSQL and cuts them: at any moment, or exactly where a
transaction commits.
"""

import asyncio
import threading
from asyncio import StreamReader, StreamWriter
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager, suppress
from typing import Literal

Cut = Literal["before", "after"]
"""``before``: PostgreSQL never receives the COMMIT. ``after``: it commits, and its
answer is lost.
"""

_COMMIT = b"COMMIT\0"
_CHUNK_BYTES = 65_536


class Proxy:
    """A loopback port in front of a server. Its methods may be called from any thread."""

    def __init__(self, target_port: int, loop: asyncio.AbstractEventLoop) -> None:
        self.port = 0
        self._target_port = target_port
        self._loop = loop
        self._is_open = True
        self._cut: Cut | None = None
        self._connections: set[_Connection] = set()

    async def listen(self) -> None:
        """Opens the port."""
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]

    async def close(self) -> None:
        """Closes the port and every connection."""
        self._server.close()
        self._disconnect()
        await self._server.wait_closed()

    def disconnect(self) -> None:
        """Ends every connection and accepts none until :meth:`heal`."""
        self._loop.call_soon_threadsafe(self._disconnect)

    def cut_at_commit(self, cut: Cut) -> None:
        """Ends the connection whose transaction commits next."""
        self._cut = cut

    def heal(self) -> None:
        """Accepts connections, and cuts none."""
        self._is_open, self._cut = True, None

    @property
    def has_cut(self) -> bool:
        """Whether a commit has met the cut."""
        return self._cut is None

    def take_cut(self) -> Cut | None:
        """The cut for the present commit, if any; later commits pass."""
        cut, self._cut = self._cut, None
        return cut

    def _disconnect(self) -> None:
        self._is_open = False
        for connection in list(self._connections):
            connection.abort()

    async def _serve(self, reader: StreamReader, writer: StreamWriter) -> None:
        try:
            if not self._is_open:
                raise ConnectionRefusedError
            server_reader, server_writer = await asyncio.open_connection(
                "127.0.0.1", self._target_port
            )
        except OSError:
            writer.transport.abort()
            return
        connection = _Connection(self, client=writer, server=server_writer)
        self._connections.add(connection)
        await connection.forward(requests=reader, answers=server_reader)
        self._connections.remove(connection)


class _Connection:
    """One connection of a client, and its connection to the server."""

    def __init__(
        self, proxy: Proxy, *, client: StreamWriter, server: StreamWriter
    ) -> None:
        self._proxy = proxy
        self._client, self._server = client, server
        self._loses_answers = False

    def abort(self) -> None:
        """Ends both connections without a farewell."""
        self._client.transport.abort()
        self._server.transport.abort()

    async def forward(self, *, requests: StreamReader, answers: StreamReader) -> None:
        """Forwards in both directions until one direction ends."""
        await asyncio.gather(self._requests(requests), self._answers(answers))

    async def _requests(self, requests: StreamReader) -> None:
        with suppress(OSError):
            while chunk := await requests.read(_CHUNK_BYTES):
                cut = self._proxy.take_cut() if _COMMIT in chunk else None
                if cut == "before":
                    break
                self._loses_answers = cut == "after"
                self._server.write(chunk)
                await self._server.drain()
        if not self._loses_answers:
            self.abort()

    async def _answers(self, answers: StreamReader) -> None:
        with suppress(OSError):
            while (
                chunk := await answers.read(_CHUNK_BYTES)
            ) and not self._loses_answers:
                self._client.write(chunk)
                await self._client.drain()
        self.abort()


@contextmanager
def proxies(target_port: int, n_proxies: int) -> Iterator[list[Proxy]]:
    """Runs proxies in front of one port, in a thread."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="proxies", daemon=True)
    thread.start()
    opened = [Proxy(target_port, loop) for _ in range(n_proxies)]

    def wait_for(coroutine: Coroutine[None, None, None]) -> None:
        asyncio.run_coroutine_threadsafe(coroutine, loop).result(timeout=60)

    try:
        for proxy in opened:
            wait_for(proxy.listen())
        yield opened
    finally:
        for proxy in opened:
            wait_for(proxy.close())
        wait_for(_tasks_end())
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


async def _tasks_end() -> None:
    """Waits for the tasks of connections that have ended."""
    await asyncio.wait(
        asyncio.all_tasks() - {asyncio.current_task()}
        or {asyncio.create_task(asyncio.sleep(0))}
    )
