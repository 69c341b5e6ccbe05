"""Streams the state changes of jobs as server-sent events, with one database poller per process."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextvars import Context
from functools import partial

from app.access.grants import Principal
from app.api.capacity import Capacities, Work
from app.core import limits
from app.core.errors import TooManyRequests, Unavailable
from app.jobs.states import ENDED
from app.services.installation import Installation
from app.services.jobs import show_jobs
from app.services.jobs.show_jobs import Followed
from app.wire.training import JobOut

_log = logging.getLogger(__name__)
POLL_INTERVAL_S = 0.5


class JobEvents:
    """Event streams of jobs for all clients of one event loop, with one look at the database per interval."""

    def __init__(self, capacities: Capacities) -> None:
        self._capacities = capacities
        self._followers: dict[Followed, set[asyncio.Queue[JobOut | None]]] = {}
        self._poller: asyncio.Task[None] | None = None

    async def checked_job(self, installation: Installation, caller: Principal, job_id: str) -> JobOut:
        """Return the job's present state if the caller may see it.

        Raises:
            NotFound: no such job, or the key has no grant on its dataset.
            RoleMissing: the key has another role on the job's dataset.
            TooManyRequests: the process has ``limits.MAX_FOLLOWERS`` streams already, or the key has
                ``limits.MAX_FOLLOWERS_PER_KEY``.
        """
        of_keys = [(follower.key_id, len(queues)) for (follower, _), queues in self._followers.items()]
        n_of_key = sum(n_streams for key_id, n_streams in of_keys if key_id == caller.key_id)
        if n_of_key >= limits.MAX_FOLLOWERS_PER_KEY or sum(n for _, n in of_keys) >= limits.MAX_FOLLOWERS:
            raise TooManyRequests
        return await self._capacities.run(Work.READ, lambda: show_jobs.show_job(installation, caller, job_id))

    async def follow(self, installation: Installation, caller: Principal, first: JobOut) -> AsyncIterator[JobOut]:
        """Yield the job's present state, then every change, until the job has ended or the caller may not see it."""
        yield first
        if first.state in ENDED:
            return
        followed = (caller, first.id)
        queue: asyncio.Queue[JobOut | None] = asyncio.Queue()
        self._followers.setdefault(followed, set()).add(queue)
        if self._poller is None or self._poller.done():
            # The poller of no client, who may go away.
            self._poller = asyncio.create_task(self._poll(installation), context=Context())
        try:
            last = first
            while last.state not in ENDED:
                current = await queue.get()
                if current is None:
                    return
                if current != last:
                    yield current
                last = current
        finally:
            self._followers[followed].discard(queue)
            if not self._followers[followed]:
                del self._followers[followed]

    async def _poll(self, installation: Installation) -> None:
        while self._followers:
            await asyncio.sleep(POLL_INTERVAL_S)
            followed = list(self._followers)
            try:
                visible = await self._capacities.run(Work.READ, partial(show_jobs.look_at, installation, followed))
            except Unavailable:  # the followers wait until the database is back
                continue
            except Exception:  # noqa: BLE001 - otherwise the followers would wait for ever
                _log.exception("followed jobs could not be read")
                continue
            for each in followed:
                for queue in self._followers.get(each, ()):
                    queue.put_nowait(visible.get(each))
