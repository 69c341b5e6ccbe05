"""Runs a Dask scheduler, or a Dask worker under its nanny, with the rules of this
service (``grovekeeper dask``).

Before a job that needs a cluster is charged, a third kind of process looks for the
cluster (``look``).

There is no page, no spilling and no plain TCP beyond this machine. A worker has one
thread for tasks, whose sums use all processors, and a limit of its memory: from 90 % on
it takes no task, at 95 % the nanny replaces it.
"""

import asyncio
import contextlib
import json
import logging
import os
import signal
import sys
import tempfile
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import dask
from distributed import Nanny, Scheduler, Worker
from distributed.diagnostics.plugin import WorkerPlugin

from app.core import limits
from app.core.dask_cluster import CONFIG, DaskCluster
from app.core.logging import configure
from app.core.memory import forbid_core_dumps, return_large_blocks
from app.core.settings import PREFIX
from app.services.drawing import shard_tasks
from app.services.drawing.dask_fleet import WorkerUnfit, require_workers, security_of
from app.worker.child import load_modules

_LOOK_S = 0.5
_log = logging.getLogger(__name__)


class QuietScheduler(Scheduler):
    """A scheduler without a page."""

    def start_http_server(self, *_args: object, **_named: object) -> None:
        """Starts nothing."""


class QuietWorker(Worker):
    """A worker without a page, which keeps its memory out of files and has loaded its
    code before it gets a task.
    """

    def __init__(self, *args: Any, **named: Any) -> None:
        forbid_core_dumps()
        return_large_blocks()
        load_modules()
        super().__init__(*args, **named)

    def start_http_server(self, *_args: object, **_named: object) -> None:
        """Starts nothing."""


class RowsKept(WorkerPlugin):
    """Opens the store that machines share, and drops the rows of a shard when Dask
    drops its receipt.

    Args:
        address: of the store; ``None`` if every machine has the rows at the same paths.
    """

    name = "rows-kept"

    def __init__(self, address: str | None = None) -> None:
        self._address = address

    def setup(self, worker: Worker) -> None:
        """Called by Dask in the process that reads rows. Rows are read by range; no
        copy is made.
        """
        if self._address is not None:
            from app.core.object_store import ObjectStore  # an extra

            copies = Path(worker.local_directory, "copies")
            shard_tasks.read_from(
                ObjectStore(self._address, copies, n_attempts=limits.PAID_READ_ATTEMPTS)
            )

    def transition(self, key: Any, start: str, finish: str, **_named: object) -> None:
        """Called by Dask when the state of a task changes. A task that was cancelled is
        forgotten when its thread has ended, and may have read rows until then.
        """
        if finish in ("released", "forgotten"):
            shard_tasks.forget(key)


async def run_scheduler(cluster: DaskCluster) -> bool:
    """Schedules until a signal; returns whether there was one."""
    address = urlsplit(cluster.scheduler)
    with tempfile.TemporaryDirectory() as folder:
        scheduler = QuietScheduler(
            protocol=f"{address.scheme}://",
            host=address.hostname,
            port=address.port or 0,
            local_directory=folder,
            security=security_of(cluster),
            dashboard=False,
        )
        async with scheduler:
            return await _until_stopped(scheduler, lambda: _has_jobs(scheduler))


async def run_worker(
    cluster: DaskCluster, *, host: str | None, memory_limit: str
) -> bool:
    """Reads and counts rows until a signal, in a process that is replaced when it ends
    or takes too much memory.

    ``GROVEKEEPER_STORE`` is the address of the object store that has the rows.

    Args:
        cluster: of this machine.
        host: address to listen on.
        memory_limit: of the process.

    Returns:
        Whether there was a signal; if not, the scheduler is gone.
    """
    with tempfile.TemporaryDirectory() as folder:
        nanny = Nanny(
            cluster.scheduler,
            host=host,
            nthreads=1,
            memory_limit=memory_limit,
            local_directory=folder,
            security=security_of(cluster),
            worker_class=QuietWorker,
            plugins=(RowsKept(os.environ.get(f"{PREFIX}STORE")),),
        )
        async with nanny:
            return await _until_stopped(nanny, lambda: _has_rows(nanny))


def has_workers(cluster: DaskCluster, files: Iterable[str]) -> bool:
    """Waits for workers that can read files, as the child of a job sees them; the log
    says why there are none.
    """
    try:
        require_workers(cluster, files)
    except WorkerUnfit:
        return False
    except Exception:  # noqa: BLE001  (Dask raises more than its own errors; this process has read no task)
        _log.exception("the scheduler of the Dask cluster cannot be reached")
        return False
    return True


async def _has_jobs(scheduler: Scheduler) -> bool:
    """Whether a job is connected: it would fail, charged, without its scheduler."""
    return any(name != "fire-and-forget" for name in scheduler.clients)


async def _has_rows(nanny: Nanny) -> bool:
    """Whether the worker has rows of a job, which another worker would have to read
    again.
    """
    keys = await nanny.scheduler.has_what(workers=[nanny.worker_address])
    return any(keys.values())


async def _until_stopped(server: Any, is_used: Callable[[], Awaitable[bool]]) -> bool:
    """Waits for a signal and then until no job uses the server, for a second signal, or
    for the server's own end.

    Returns:
        Whether there was a signal; if not, the scheduler is gone.
    """
    begun, now = asyncio.Event(), asyncio.Event()

    def stop() -> None:
        if begun.is_set():
            now.set()
        begun.set()

    async def drained() -> None:
        await begun.wait()
        _log.info("a process of the cluster ends when no job uses it")
        while not now.is_set() and await is_used():
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(now.wait(), _LOOK_S)

    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop)
    _log.info("a process of the cluster is ready")
    ends = [asyncio.ensure_future(drained()), asyncio.ensure_future(server.finished())]
    await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
    return begun.is_set()


def main(kind: str, options: dict[str, Any]) -> int:
    """Runs a process of the cluster.

    Args:
        kind: ``scheduler``, ``worker`` or ``look``.
        options: the cluster in JSON form, and of a worker what :func:`run_worker`
            takes. A look reads the files of rows from standard input.

    Returns:
        The exit code: 0 after a signal, or when workers were seen; 1 if the scheduler
        is gone or cannot be reached.
    """
    configure("INFO")
    forbid_core_dumps()
    dask.config.set(CONFIG)
    cluster = DaskCluster.from_json(options["cluster"])
    if kind == "look":
        # Paths come on standard input: they are many, and arguments show in lists of
        # processes.
        return 0 if has_workers(cluster, json.load(sys.stdin)) else 1
    if kind == "scheduler":
        was_stopped = asyncio.run(run_scheduler(cluster))
    else:
        named = {name: options[name] for name in ("host", "memory_limit")}
        was_stopped = asyncio.run(run_worker(cluster, **named))
    return 0 if was_stopped else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], json.loads(sys.argv[2])))
