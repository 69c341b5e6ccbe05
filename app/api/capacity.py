"""Divides the threads of an API process among kinds of work, so that no kind takes the threads of another."""

from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from enum import StrEnum
from typing import TypeVar, cast

from anyio import CapacityLimiter, to_thread
from fastapi import Request

from app.core import limits
from app.services.authenticate import IdentityProvider, is_token

_Result = TypeVar("_Result")


class Work(StrEnum):
    """A kind of work with separate threads."""

    AUTHENTICATION = "authentication"
    PROVIDER = "provider"
    READINESS = "readiness"
    READ = "read"
    WRITE = "write"
    SUBMISSION = "submission"
    UPLOAD = "upload"
    EXPORT = "export"
    CONVERSION = "conversion"
    PREDICTION = "prediction"


THREADS: Mapping[Work, int] = {
    Work.AUTHENTICATION: limits.MAX_AUTHENTICATIONS_AT_ONCE,
    Work.PROVIDER: limits.MAX_TOKENS_AT_ONCE,
    Work.READINESS: 1,
    Work.READ: limits.MAX_READS_AT_ONCE,
    Work.WRITE: limits.MAX_WRITES_AT_ONCE,
    Work.SUBMISSION: limits.MAX_SUBMISSIONS_AT_ONCE,
    Work.UPLOAD: limits.MAX_UPLOADS_AT_ONCE,
    Work.EXPORT: limits.MAX_EXPORTS_AT_ONCE,
    Work.CONVERSION: limits.MAX_CONVERSIONS_AT_ONCE,
    Work.PREDICTION: limits.MAX_PREDICTIONS_AT_ONCE,
}
"""Threads by kind of work. Their sum is the number of database connections: each thread can hold one."""


class Capacities:
    """The free threads of one process, by kind of work. Work beyond them waits in order of arrival."""

    def __init__(self) -> None:
        self._limiters = {work: CapacityLimiter(n_threads) for work, n_threads in THREADS.items()}

    def of(self, work: Work) -> CapacityLimiter:
        """Return the limiter of a kind of work: a context manager, for work that runs in threads of the framework."""
        return self._limiters[work]

    async def run(self, work: Work, call: Callable[[], _Result]) -> _Result:
        """Run a function in a thread of a kind of work."""
        return await to_thread.run_sync(call, limiter=self._limiters[work])

    async def iterate(self, work: Work, items: Iterable[bytes]) -> AsyncIterator[bytes]:
        """Yield the items of an iterable, each computed in a thread of a kind of work."""
        iterator = iter(items)
        while (item := await self.run(work, lambda: next(iterator, None))) is not None:
            yield item


def work_of_authentication(authorization: str | None, *, provider: IdentityProvider | None) -> Work:
    """Return the kind of work that checks a header: a token may wait for the provider, and no key waits for tokens."""
    return Work.PROVIDER if provider is not None and is_token(authorization) else Work.AUTHENTICATION


def capacities(request: Request) -> Capacities:
    """Return the capacities of the process that serves a request."""
    return cast(Capacities, request.app.state.capacities)
