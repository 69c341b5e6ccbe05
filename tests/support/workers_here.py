"""Runs a Dask scheduler and workers in this process, each worker with rows of its own,
as in processes of their own.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import dask
import pytest
from distributed import Client, SpecCluster, Worker, get_worker

from app.core.dask_cluster import CONFIG
from app.services.drawing import shard_tasks
from app.services.drawing.dask_fleet import Connection
from app.worker.dask_process import QuietScheduler, RowsKept
from grovekeeper_forests.remote import ShardStates

_ACTING: ContextVar[Worker] = ContextVar("_ACTING")


class WorkerHere(Worker):
    """A worker without a page."""

    start_http_server = QuietScheduler.start_http_server


@dataclass
class Memories:
    """What each worker has, in the place of the one memory of a worker's process.

    Attributes:
        store: as of a process.
        of: the shards that each worker has read, by its address.
    """

    store: None = None
    of: dict[str, dict[str, ShardStates]] = field(default_factory=dict)

    @property
    def shards(self) -> dict[str, ShardStates]:
        """Those of the worker that runs the task, or whose receipt Dask drops."""
        return self.of.setdefault((_ACTING.get(None) or get_worker()).address, {})


class RowsKeptApart(RowsKept):
    """Drops rows of its own worker alone."""

    def setup(self, worker: Worker) -> None:
        super().setup(worker)
        self._worker = worker

    def transition(self, key: Any, start: str, finish: str, **named: object) -> None:
        token = _ACTING.set(self._worker)
        try:
            super().transition(key, start, finish, **named)
        finally:
            _ACTING.reset(token)


@dataclass(frozen=True)
class WorkersHere:
    """A running scheduler with workers.

    Attributes:
        cluster: of this process.
        memories: of its workers.
    """

    cluster: SpecCluster
    memories: Memories

    @contextmanager
    def connected(self, job_id: str = "job") -> Iterator[Connection]:
        """The connection of a job, as its child makes it."""
        with dask.config.set(CONFIG), Client(self.cluster.scheduler_address) as client:
            yield Connection(client, 60, job_id)

    def lose(self, address: str) -> None:
        """Ends a worker with its rows, as its machine would; the others stay."""
        [worker] = [
            worker
            for worker in self.cluster.workers.values()
            if worker.address == address
        ]
        self.cluster.sync(worker.close, nanny=False, reason="lost")
        self.memories.of.pop(address, None)


@contextmanager
def workers_here(
    folder: Path, *, n_workers: int, is_tcp: bool = False
) -> Iterator[WorkersHere]:
    """Runs a scheduler and workers until the block ends; ``is_tcp``: other processes
    reach them, too.
    """
    inside = {"protocol": "inproc://", "local_directory": str(folder)}
    if is_tcp:
        inside |= {"protocol": "tcp://", "host": "127.0.0.1"}
    workers = {
        number: {
            "cls": WorkerHere,
            "options": {**inside, "nthreads": 1, "plugins": (RowsKeptApart(),)},
        }
        for number in range(n_workers)
    }
    memories = Memories()
    with pytest.MonkeyPatch.context() as patched, dask.config.set(CONFIG):
        patched.setattr(shard_tasks, "_HERE", memories)
        scheduler = {"cls": QuietScheduler, "options": {**inside, "dashboard": False}}
        with SpecCluster(workers, scheduler) as cluster:
            yield WorkersHere(cluster, memories)


def wait_for(is_so: Callable[[], bool]) -> None:
    """Waits until something is so; on a busy machine, too."""
    ends_at = time.monotonic() + 60
    while not is_so():
        assert time.monotonic() < ends_at
        time.sleep(0.01)
