"""Streams uploads of rows, files of models, and state changes of jobs, for the API and
for the dashboard.

Changes of jobs are server-sent events, with one poller of the database per process.
"""

import asyncio
import hashlib
import json
import logging
import shutil
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextvars import Context
from dataclasses import asdict, dataclass, field
from functools import partial
from os import fstat
from typing import BinaryIO, Literal

from anyio import to_thread
from fastapi import Request, Response
from fastapi.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from app.access.grants import MANAGE_DATASET, Principal
from app.access.idempotency import Answer, IdempotentRequest
from app.api.capacity import Capacities, Work, capacities
from app.core import limits
from app.core.errors import InvalidRequest, TooManyRequests, Unavailable
from app.core.sealed_files import Spool
from app.datasets.upload_bodies import RFC_4180, Dialect
from app.jobs.states import ENDED
from app.services import models
from app.services.authorization import require_role
from app.services.datasets.upload import SpooledBody, UploadTerms, upload_rows
from app.services.installation import Installation
from app.services.jobs import show_jobs
from app.wire.jobs import JobOut

_PIECE_BYTES = 256 * 1024
# balancers cut connections that are silent for a minute
_COMMENT = b": nothing has changed\n\n"
_log = logging.getLogger(__name__)
POLL_INTERVAL_S = 0.5


async def model_file(
    request: Request,
    installation: Installation,
    caller: Principal,
    address: str,
    *,
    form: Literal["safetensors", "onnx"],
    read_out: str | None = None,
) -> Response:
    """Return a model as a file.

    Raises:
        InvalidRequest: the form takes no read-out.
    """
    threads = capacities(request)
    if form == "onnx":
        file = await threads.run(
            Work.CONVERSION,
            lambda: models.take_onnx(installation, caller, address, read_out=read_out),
        )
    elif read_out is None:
        file = await threads.run(
            Work.EXPORT, lambda: models.take_artifact(installation, caller, address)
        )
    else:
        raise InvalidRequest.at("/read_out", "not-with-safetensors")
    return _OpenFile(file, threads, f"model.{form}")


class _OpenFile(StreamingResponse):
    """Sends a file in pieces, so that a slow client holds one piece in memory, and
    closes the file.
    """

    def __init__(self, file: BinaryIO, threads: Capacities, name: str) -> None:
        headers = {
            "Content-Length": str(fstat(file.fileno()).st_size),
            **_saved_as(name),
        }
        pieces = threads.iterate(
            Work.EXPORT, iter(partial(file.read, _PIECE_BYTES), b"")
        )
        super().__init__(pieces, media_type="application/octet-stream", headers=headers)
        self._file = file

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with self._file:
            await super().__call__(scope, receive, send)


def exported(
    request: Request,
    lines: Iterable[bytes],
    name: str,
    *,
    media_type: str = "application/x-ndjson",
) -> StreamingResponse:
    """Stream lines, each computed in a thread for exports, as a file of a name."""
    pieces = capacities(request).iterate(Work.EXPORT, lines)
    return StreamingResponse(pieces, media_type=media_type, headers=_saved_as(name))


def _saved_as(name: str) -> dict[str, str]:
    """The header by which a browser, or ``curl -OJ``, saves an answer as a file."""
    return {"Content-Disposition": f'attachment; filename="{name}"'}


@dataclass(eq=False)
class JobEvents:
    """Event streams of jobs for all clients of one event loop, with one look at the
    database per interval.
    """

    _capacities: Capacities
    _look_at: Callable[
        [Installation, Sequence[show_jobs.Followed]],
        Mapping[show_jobs.Followed, JobOut],
    ] = show_jobs.look_at
    _interval_s: float = POLL_INTERVAL_S
    _followers: dict[show_jobs.Followed, set[asyncio.Queue[JobOut | None]]] = field(
        default_factory=dict
    )
    _poller: asyncio.Task[None] | None = None

    async def checked_job(
        self, installation: Installation, caller: Principal, job_id: str
    ) -> JobOut:
        """Return the job's present state if the caller may see it.

        Raises:
            TooManyRequests: the process has ``limits.MAX_FOLLOWERS`` streams already,
                or the key has ``limits.MAX_FOLLOWERS_PER_KEY``.
        """
        n_streams = n_of_key = 0
        for (follower, _), queues in self._followers.items():
            n_streams += len(queues)
            if follower.key_id == caller.key_id:
                n_of_key += len(queues)
        is_full = n_streams >= limits.MAX_FOLLOWERS
        if is_full or n_of_key >= limits.MAX_FOLLOWERS_PER_KEY:
            raise TooManyRequests
        return await self._capacities.run(
            Work.READ, lambda: show_jobs.show_job(installation, caller, job_id)
        )

    async def follow(
        self, installation: Installation, caller: Principal, first: JobOut
    ) -> AsyncIterator[JobOut | None]:
        """Yield the job's present state, then every change, until the job has ended or
        the caller may not see it.

        Yield ``None`` when nothing changed for ``limits.EVENT_SILENCE_S`` seconds.
        """
        yield first
        if first.state in ENDED:
            return
        followed = (caller, first.id)
        queue: asyncio.Queue[JobOut | None] = asyncio.Queue()
        self._followers.setdefault(followed, set()).add(queue)
        if self._poller is None or self._poller.done():
            # The poller of no client, who may go away.
            self._poller = asyncio.create_task(
                self._poll(installation), context=Context()
            )
        try:
            last, silent_until = first, _comment_time()
            while last.state not in ENDED:
                try:
                    # Each look of the poller arrives, whether or not it found a change:
                    # the silence outlasts looks.
                    async with asyncio.timeout_at(silent_until):
                        current = await queue.get()
                except TimeoutError:
                    silent_until = _comment_time()
                    yield None
                    continue
                if current is None:
                    return
                if current != last:
                    silent_until = _comment_time()
                    yield current
                last = current
        finally:
            self._followers[followed].discard(queue)
            if not self._followers[followed]:
                del self._followers[followed]

    async def _poll(self, installation: Installation) -> None:
        while self._followers:
            await asyncio.sleep(self._interval_s)
            followed = list(self._followers)
            try:
                visible = await self._capacities.run(
                    Work.READ, partial(self._look_at, installation, followed)
                )
            except Unavailable:  # the followers wait until the database is back
                continue
            except Exception:  # noqa: BLE001 - otherwise the followers would wait for ever
                _log.exception("followed jobs could not be read")
                continue
            for follower in followed:
                # a stream may have ended since the look
                for queue in self._followers.get(follower, ()):
                    # ``None`` ends the stream of a caller who may not see the job
                    queue.put_nowait(visible.get(follower))


def _comment_time() -> float:
    """The time of the event loop at which a stream that begins to be silent now sends a
    comment.
    """
    return asyncio.get_running_loop().time() + limits.EVENT_SILENCE_S


async def job_events(
    request: Request,
    installation: Installation,
    caller: Principal,
    job_id: str,
    event: Callable[[JobOut], bytes],
) -> StreamingResponse:
    """Stream an event for the present state of a job and for every change, until
    :meth:`JobEvents.follow` ends.
    """
    events: JobEvents = request.app.state.job_events
    first = await events.checked_job(installation, caller, job_id)

    async def stream() -> AsyncIterator[bytes]:
        async for job in events.follow(installation, caller, first):
            yield _COMMENT if job is None else event(job)

    # nginx, and proxies that follow it, would hold events back
    at_once = {"X-Accel-Buffering": "no"}
    return StreamingResponse(stream(), media_type="text/event-stream", headers=at_once)


async def receive_upload(
    request: Request,
    caller: Principal,
    dataset: str,
    chunks: AsyncIterator[bytes],
    *,
    terms: UploadTerms,
    key: str | None,
) -> Answer:
    """Write a file to a spool as it arrives, then sanitise and store its rows as an
    epoch.

    The caller has to be the owner: no byte is received for another key.

    Raises:
        TooManyRequests: the key has as many unfinished uploads as it may have.
        OSError: the disk has too few free bytes.
    """
    installation: Installation = request.app.state.installation
    run = capacities(request).run
    dataset_id = await run(
        Work.AUTHENTICATION,
        lambda: require_role(installation, caller, dataset, MANAGE_DATASET),
    )
    # To a file and not to a thread of uploads: a slow client would occupy the thread for
    # as long as it sends.
    with capacities(request).upload(), installation.spool() as file:
        spool = Spool(file)
        digest = hashlib.sha256()
        async for chunk in chunks:
            digest.update(chunk)
            await to_thread.run_sync(_append, installation, spool, chunk)
        reader = await to_thread.run_sync(spool.reader)
        body = SpooledBody(reader, terms, digest.digest())
        # By id, so that an idempotency key does not depend on whether the URL names the
        # dataset by id or by name.
        route = f"POST /datasets/{dataset_id}/rows"
        identity = None
        if key is not None:
            compared = _compared(digest.digest(), terms.dialect)
            identity = IdempotentRequest(caller.key_id, route, key, compared)
        store = partial(
            upload_rows, installation, caller, dataset_id, body, request=identity
        )
        work = Work.DECODING if terms.form.is_columnar else Work.UPLOAD
        return await run(work, store)


def _compared(body_sha256: bytes, dialect: Dialect) -> bytes:
    """What a repetition of an upload has in common with it: the body, and how it is
    read where that is not the usual way.
    """
    if dialect == RFC_4180:
        return body_sha256
    stated = json.dumps(asdict(dialect), sort_keys=True).encode()
    return hashlib.sha256(body_sha256 + stated).digest()


def _append(installation: Installation, spool: Spool, part: bytes) -> None:
    """Writes a part of an upload, unless the disk would be too full for anything else.

    Raises:
        Unavailable: names the space that an upload needs, and not what is free, which
            depends on the rows of others.
    """
    needed_bytes = limits.MIN_FREE_UPLOAD_BYTES
    if shutil.disk_usage(installation.home).free < needed_bytes:
        _log.error("an upload was refused: the disk of the home is too full")
        raise Unavailable(
            f"the disk is full: an upload needs {needed_bytes // 2**20} MiB free in the "
            "home of the service",
            limits.DISK_RETRY_S,
        )
    spool.write(part)
