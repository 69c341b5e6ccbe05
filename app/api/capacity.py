"""Divides the threads of an API process among kinds of work, and those of a kind among
keys, which take turns.
"""

import asyncio
import re
from collections import Counter, deque
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeVar, cast

from anyio import CapacityLimiter, to_thread
from fastapi import Request
from starlette.requests import ClientDisconnect

from app.core import limits
from app.core.errors import TooManyRequests
from app.services.authorization import IdentityProvider, is_token

_Result = TypeVar("_Result")


class Work(StrEnum):
    """A kind of work with separate threads."""

    AUTHENTICATION = "authentication"
    PROVIDER = "provider"
    READINESS = "readiness"
    ADMINISTRATION = "administration"
    READ = "read"
    WRITE = "write"
    SUBMISSION = "submission"
    UPLOAD = "upload"
    DECODING = "decoding"
    EXPORT = "export"
    CONVERSION = "conversion"
    PREDICTION = "prediction"


THREADS: Mapping[Work, int] = {
    Work.AUTHENTICATION: limits.MAX_AUTHENTICATIONS_AT_ONCE,
    Work.PROVIDER: limits.MAX_TOKENS_AT_ONCE,
    Work.READINESS: 1,
    Work.ADMINISTRATION: limits.MAX_ADMINISTRATION_AT_ONCE,
    Work.READ: limits.MAX_READS_AT_ONCE,
    Work.WRITE: limits.MAX_WRITES_AT_ONCE,
    Work.SUBMISSION: limits.MAX_SUBMISSIONS_AT_ONCE,
    Work.UPLOAD: limits.MAX_UPLOADS_AT_ONCE,
    # no more than have a decoder, which uploads would take from others without turns
    Work.DECODING: limits.MAX_DECODERS,
    Work.EXPORT: limits.MAX_EXPORTS_AT_ONCE,
    Work.CONVERSION: limits.MAX_CONVERSIONS_AT_ONCE,
    Work.PREDICTION: limits.MAX_PREDICTIONS_AT_ONCE,
}
"""Threads by kind of work. Their sum is the number of database connections: each thread
can hold one.
"""

_ADMINISTRATION = re.compile(
    r"(/keys|/metrics|/ui/admin|(/ui)?/datasets/[^/]+/grants)(/.*)?"
)


def is_administration(path: str) -> bool:
    """Whether requests to a path have threads and seats of their own: those that take
    authority away, and metrics.
    """
    return _ADMINISTRATION.fullmatch(path) is not None


@dataclass(eq=False)
class Client:
    """The client of one request: whose turns its work takes, and whether anybody waits
    for the answer.

    Attributes:
        key_id: the key of the request, as soon as the process knows it.
        is_gone: whether the connection was closed.
        has_large_body: whether the request has a turn for the rest of a large body,
            until it is answered.
        turn: ends when a thread is free, while the request waits for one.
    """

    key_id: str | None = None
    is_gone: bool = False
    has_large_body: bool = False
    turn: asyncio.Future[None] | None = None

    def leave(self) -> None:
        """The connection was closed: work that waits for its turn does not begin."""
        self.is_gone = True
        if self.turn is not None and not self.turn.done():
            self.turn.set_exception(ClientDisconnect())


CLIENT: ContextVar[Client] = ContextVar("client")
"""The client of the request that a task answers. Work of no request has none, and takes
the turns of no key.
"""


class Turns:
    """Gives the threads of one kind of work to keys in turns; a key uses ``n_of_key``
    at a time.

    Requests whose key is not known yet take turns like one key, and leave ``n_of_key``
    threads to keys that are known.
    """

    def __init__(self, n_threads: int, n_of_key: int) -> None:
        self._n_free = n_threads
        self._n_of_key = n_of_key
        self._n_without_key = max(n_threads - n_of_key, n_of_key)
        self._running: Counter[str | None] = Counter()
        self._waiting: dict[str | None, deque[asyncio.Future[None]]] = {}

    async def begin(self, client: Client) -> None:
        """Wait for a thread.

        Raises:
            ClientDisconnect: the client went away before its turn.
        """
        if client.is_gone:
            raise ClientDisconnect
        # once: the key may become known while the request waits, and the thread is given
        # back to the key that took it
        key_id = client.key_id
        # so no other request of the key waits, and no other key waits for a free thread
        if self._may_run(key_id):
            self._take(key_id)
            return
        queue = self._waiting.setdefault(key_id, deque())
        turn = client.turn = asyncio.get_running_loop().create_future()
        queue.append(turn)
        try:
            await turn
        except BaseException:
            if turn in queue:
                queue.remove(turn)
            elif turn.done() and not turn.cancelled() and turn.exception() is None:
                self.end(key_id)  # the turn came while the request was cancelled
            raise
        finally:
            client.turn = None

    def end(self, key_id: str | None) -> None:
        """Give a thread of a key to the next key."""
        self._running[key_id] -= 1
        if not self._running[key_id]:
            del self._running[key_id]
        self._n_free += 1
        for waiting_key in list(self._waiting):
            if self._may_run(waiting_key):
                self._next_of(waiting_key)

    def _next_of(self, key_id: str | None) -> None:
        """Give a thread to the first waiting request of a key, whose next turn is then
        behind those of other keys.
        """
        queue = self._waiting.pop(key_id)
        while queue:
            turn = queue.popleft()
            if not turn.done():
                self._take(key_id)
                turn.set_result(None)
                break
        if queue:
            self._waiting[key_id] = queue

    def _may_run(self, key_id: str | None) -> bool:
        most = self._n_without_key if key_id is None else self._n_of_key
        return self._n_free > 0 and self._running[key_id] < most

    def _take(self, key_id: str | None) -> None:
        self._n_free -= 1
        self._running[key_id] += 1


class Capacities:
    """The threads of one process by kind of work, and the large bodies and answers in
    its memory.

    Attributes:
        n_unread: bytes of large answers that wait for their clients, by key.
    """

    def __init__(self) -> None:
        self._turns = {
            work: Turns(n_threads, limits.MAX_THREADS_PER_KEY)
            for work, n_threads in THREADS.items()
        }
        self._large_bodies = Turns(
            limits.MAX_LARGE_BODIES, limits.MAX_LARGE_BODIES_PER_KEY
        )
        self._n_uploads: Counter[str | None] = Counter()
        self.n_unread: Counter[str | None] = Counter()
        self._threads = CapacityLimiter(sum(THREADS.values()))

    @asynccontextmanager
    async def turn(self, work: Work) -> AsyncIterator[None]:
        """A turn of the present request, for work that runs in threads of the
        framework.

        Raises:
            TooManyRequests: too many bytes of large answers wait for clients of the key.
        """
        client, turns = CLIENT.get(None) or Client(), self._turns[work]
        key_id = client.key_id
        await turns.begin(client)
        try:
            # other answers are small, or come in pieces
            may_be_large = work in (Work.READ, Work.PREDICTION)
            n_unread = self.n_unread[key_id]
            if key_id and may_be_large and n_unread >= limits.MAX_UNREAD_BYTES_PER_KEY:
                raise TooManyRequests
            yield
        finally:
            turns.end(key_id)

    async def run(self, work: Work, call: Callable[[], _Result]) -> _Result:
        """Run a function in a thread of a kind of work, when the turn of the present
        request comes.
        """
        async with self.turn(work):
            return await to_thread.run_sync(call, limiter=self._threads)

    async def iterate(self, work: Work, items: Iterable[bytes]) -> AsyncIterator[bytes]:
        """Yield the items of an iterable, each computed in a thread of a kind of work."""
        iterator = iter(items)
        while (item := await self.run(work, lambda: next(iterator, None))) is not None:
            yield item

    @contextmanager
    def upload(self) -> Iterator[None]:
        """The time of an upload, whose text takes space on the disk from its first byte
        to its answer.

        Raises:
            TooManyRequests: the key has ``limits.MAX_UNFINISHED_UPLOADS_PER_KEY``
                already.
        """
        key_id = CLIENT.get().key_id
        if self._n_uploads[key_id] >= limits.MAX_UNFINISHED_UPLOADS_PER_KEY:
            raise TooManyRequests("uploads of this key that have not ended")
        self._n_uploads[key_id] += 1
        try:
            yield
        finally:
            self._n_uploads[key_id] -= 1
            if not self._n_uploads[key_id]:
                del self._n_uploads[key_id]

    async def begin_large_body(self) -> None:
        """Wait until the rest of a large body of the request may arrive;
        :meth:`end_large_body` ends the turn.
        """
        client = CLIENT.get()
        await self._large_bodies.begin(client)
        client.has_large_body = True

    def end_large_body(self, client: Client) -> None:
        """End the turn of a request that was answered, if it has one."""
        if client.has_large_body:
            client.has_large_body = False
            self._large_bodies.end(client.key_id)


def work_of_authentication(
    authorization: str | None, *, provider: IdentityProvider | None
) -> Work:
    """Return the kind of work that checks a header: a token may wait for the provider,
    and no key waits for tokens.
    """
    if provider is not None and is_token(authorization):
        return Work.PROVIDER
    return Work.AUTHENTICATION


def capacities(request: Request) -> Capacities:
    """Return the capacities of the process that serves a request."""
    return cast(Capacities, request.app.state.capacities)
