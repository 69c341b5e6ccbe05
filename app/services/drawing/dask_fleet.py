"""Sends queries about the PRIVATE rows of a job to the workers of a Dask cluster. Runs
in the job's child process.

Each shard is a future whose worker read the shard and keeps its rows
(:mod:`app.services.drawing.shard_tasks`). A question is one task for each worker that
has shards, so that one table of sums comes from each. The worker of a task is a
preference: if a worker is lost, Dask runs its tasks on another worker, which reads the
shards from storage. This process reads no rows, so it needs neither their files nor the
address of a store.

Every wait ends at the deadline, also while a scheduler accepts connections and does not
answer.
"""

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import count, cycle
from typing import Any, Final, Self

import dask
from distributed import Client, Future
from distributed.security import Security

from app.core.dask_cluster import CONFIG, DaskCluster
from app.services.drawing import shard_tasks
from app.services.drawing.shard_tasks import Order
from app.services.jobs.task import PartRows
from grovekeeper_forests import remote
from grovekeeper_forests.array_types import Int64Array
from grovekeeper_forests.data.coded_rows import CodeRequest, ColumnRequest, sum_of
from grovekeeper_forests.errors import GrovekeeperError
from grovekeeper_forests.remote import CodedDistributedRows, DistributedParts

_log = logging.getLogger(__name__)

SHARD_ROWS: Final = 2**20
"""Rows of a shard, about: the shards of a lost worker are divided among several others."""


class ClusterFailed(GrovekeeperError):
    """The workers of a cluster did not read their rows or answer in time."""

    sentence = "the Dask cluster failed"


def require_workers(cluster: DaskCluster, files: Iterable[str]) -> None:
    """Connects to the scheduler of a cluster, as a job does, and asks every worker
    whether it can read files.

    Waits until the cluster has a worker. The caller ends this process when that takes
    too long.

    Args:
        files: see :class:`Order`.

    Raises:
        OSError: the scheduler cannot be reached, or refuses this process or is refused
            by it.
        WorkerUnfit: a worker cannot read a file, or is of another version.
    """
    with (
        dask.config.set(CONFIG),
        Client(cluster.scheduler, security=security_of(cluster)) as client,
    ):
        client.wait_for_workers(1)
        answers = client.run(
            shard_tasks.look, remote.dumps(tuple(files)), on_error="return"
        )
    expected = shard_tasks.ANSWER + shard_tasks.VERSION
    unfit = sorted(worker for worker, answer in answers.items() if answer != expected)
    if unfit:
        _log.error(
            "workers of the Dask cluster cannot read the rows or are of another version",
            extra={"dask_workers": unfit},
        )
        raise WorkerUnfit


class WorkerUnfit(GrovekeeperError):
    """A worker of a cluster cannot read the rows of a job, or is of another version.
    Every job uses all workers.
    """

    sentence = (
        "a worker of the Dask cluster cannot read the rows or is of another version"
    )


@dataclass(frozen=True)
class Connection:
    """A connection to a scheduler for one job, which runs once.

    Attributes:
        client: connected. When it closes, workers drop the rows that they read for it.
        deadline_s: seconds in which all workers read their rows, or answer a question.
        numbers: in the keys of tasks, each once in a job: Dask answers a task whose key
            it knows from memory.
    """

    client: Client
    deadline_s: int
    job_id: str
    numbers: "count[int]" = field(default_factory=count)

    @classmethod
    @contextmanager
    def to(cls, cluster: DaskCluster, job_id: str) -> Iterator[Self]:
        """Connects to the scheduler of a cluster."""
        with dask.config.set(CONFIG):
            client = Client(cluster.scheduler, security=security_of(cluster))
            try:
                yield cls(client, cluster.deadline_s, job_id)
            finally:
                # a forest that has grown is not lost with the scheduler
                with suppress(Exception):
                    client.close()

    def rows(
        self, part: PartRows, codes: CodeRequest, *, keep_unlabelled: bool
    ) -> CodedDistributedRows:
        """The PRIVATE rows of a part of the job, read by the workers of the cluster;
        the charge is committed.
        """
        return CodedDistributedRows(self._fleet(part, codes, keep_unlabelled))

    def columns(
        self, part: PartRows, request: ColumnRequest, *, keep_unlabelled: bool
    ) -> DistributedParts:
        """The PRIVATE rows of a part of the job by their values in some columns, which
        workers read for each question; the charge is committed.
        """
        return DistributedParts(self._fleet(part, request, keep_unlabelled))

    def _fleet(
        self,
        part: PartRows,
        asked: CodeRequest | ColumnRequest,
        keep_unlabelled: bool,
    ) -> "DaskFleet":
        rows = shard_tasks.rows_of(part, asked, keep_unlabelled=keep_unlabelled)
        return DaskFleet(self, rows, list(map(str, part.row_files)))


class DaskFleet:
    """The workers that have the rows of one dataset of a job.

    Implements :class:`grovekeeper_forests.remote.Fleet`.
    """

    def __init__(
        self, connection: Connection, rows: bytes, files: Sequence[str]
    ) -> None:
        """Lets workers divide the files into shards, and read them.

        Args:
            rows: what is read of every shard, with the data key.
            files: all files in the scope, by path or name; see
                :class:`app.services.drawing.shard_tasks.Order`.

        Raises:
            ClusterFailed: not every shard was read before the deadline.
        """
        self._client = connection.client
        self._deadline_s = connection.deadline_s
        self._job_id = connection.job_id
        self._rows, self._numbers = rows, connection.numbers
        # one deadline for all steps: the setting is the time until all rows are read
        ends_at = self._ends_at()
        workers = cycle(self._workers(ends_at))
        orders = self._divided(files, workers, ends_at)
        self._orders = {order.key: order for order in orders}
        # Dask drops the rows of a shard with the last future of its receipt, so this
        # object holds the futures for as long as questions may come.
        self._receipts: dict[str, Future[bytes]] = {}
        for order in orders:
            self._receipts[order.key] = self._submit(
                shard_tasks.hold,
                remote.dumps(order.to_tuple()),
                rows,
                key=order.key,
                worker=next(workers),
            )
        receipts = self._results(self._receipts.values(), ends_at)
        if any(receipt != shard_tasks.ANSWER for receipt in receipts):
            raise ClusterFailed

    def _divided(
        self, files: Sequence[str], workers: Iterator[str], ends_at: float
    ) -> list[Order]:
        n_rows = remote.dumps(SHARD_ROWS)
        tasks = [
            self._submit(
                shard_tasks.divide,
                remote.dumps(file),
                n_rows,
                self._rows,
                key=f"file-{self._job_id}-{next(self._numbers)}",
                worker=next(workers),
            )
            for file in files
        ]
        answers = self._results(tasks, ends_at)
        if not all(answer.startswith(shard_tasks.ANSWER) for answer in answers):
            raise ClusterFailed
        orders = []
        for file, answer in zip(files, answers, strict=True):
            for shard in remote.loads(answer[1:]):
                orders.append(Order.of(self._job_id, self._rows, file, shard))
        return orders

    def total(self, brief: bytes, full: Callable[[], bytes]) -> Int64Array:
        """See ``Fleet``.

        Raises:
            ClusterFailed: not every worker answered before the deadline, or the
                scheduler is gone.
        """
        ends_at = self._ends_at()
        groups = self._groups(ends_at)
        # Brief first: workers remember the state from the question before. A worker that
        # does not, say because it took over shards of a lost one, gets the full question.
        answers, groups_behind = [], []
        brief_answers = self._ask(groups, b"", brief, ends_at)
        for group, answer in zip(groups, brief_answers, strict=True):
            if answer == shard_tasks.UNKNOWN:
                groups_behind.append(group)
            else:
                answers.append(answer)
        if groups_behind:
            answers += self._ask(groups_behind, self._rows, full(), ends_at)
        if not all(answer.startswith(shard_tasks.ANSWER) for answer in answers):
            raise ClusterFailed
        return sum_of(remote.loads(answer[1:]) for answer in answers)

    def _ask(
        self,
        groups: list[tuple[str, list[str]]],
        rows: bytes,
        question: bytes,
        ends_at: float,
    ) -> list[bytes]:
        tasks = []
        for worker, keys in groups:
            orders = tuple(self._orders[key].to_tuple() for key in keys)
            task = self._submit(
                shard_tasks.count,
                remote.dumps(orders),
                rows,
                question,
                *(self._receipts[key] for key in keys),
                key=f"sums-{self._job_id}-{next(self._numbers)}",
                worker=worker,
            )
            tasks.append(task)
        return self._results(tasks, ends_at)

    def _submit(
        self, task: Callable[..., bytes], *args: object, key: str, worker: str
    ) -> "Future[bytes]":
        # Only a preference: a task that may run on one worker alone would wait for ever
        # for a worker that is lost.
        return self._client.submit(
            task, *args, key=key, workers=[worker], allow_other_workers=True, pure=False
        )

    def _results(self, tasks: Iterable["Future[bytes]"], ends_at: float) -> list[bytes]:
        waiting = list(tasks)
        results: list[bytes] = self._by(ends_at, lambda: self._client.gather(waiting))
        return results

    def _groups(self, ends_at: float) -> list[tuple[str, list[str]]]:
        """The keys of the shards by a worker that has them; of shards that no worker
        has, by any worker.
        """
        receipts = list(self._receipts.values())
        holders = self._by(ends_at, lambda: self._client.who_has(receipts))
        all_workers: list[str] = []
        if not all(map(holders.get, self._orders)):
            all_workers = self._workers(ends_at)
        groups: dict[str, list[str]] = {}
        for key in self._orders:
            # sorted: equal loads choose the same worker in every question, which then
            # knows the state
            workers = sorted(holders.get(key) or all_workers)
            idlest = min(workers, key=lambda worker: len(groups.get(worker, ())))
            groups.setdefault(idlest, []).append(key)
        return list(groups.items())

    def _workers(self, ends_at: float) -> list[str]:
        """The addresses of all workers, at least one."""
        self._by(ends_at, lambda: self._client.wait_for_workers(1))
        workers = sorted(self._by(ends_at, self._client.nthreads))
        if not workers:
            raise ClusterFailed  # the last one has just ended
        return workers

    def _by(self, ends_at: float, ask: Callable[[], Any]) -> Any:
        """What a call of the client returns, if it does before the deadline."""

        async def answer() -> Any:
            # called on the client's loop, where its methods return awaitables
            return await ask()

        try:
            return self._client.sync(
                answer, callback_timeout=max(ends_at - time.monotonic(), 0.001)
            )
        except Exception:  # noqa: BLE001  (late, cancelled, or no scheduler: the job fails in every case)
            raise ClusterFailed from None

    def _ends_at(self) -> float:
        return time.monotonic() + self._deadline_s


def security_of(cluster: DaskCluster) -> Security:
    """Certificates in Dask's form. With TLS, every connection is encrypted, and both
    ends show a certificate.
    """
    if cluster.ca_file is None:
        return Security(require_encryption=False)
    certificate = {}
    for role in ("scheduler", "worker", "client"):
        certificate[f"tls_{role}_cert"] = str(cluster.cert_file)
        certificate[f"tls_{role}_key"] = str(cluster.key_file)
    return Security(
        require_encryption=True, tls_ca_file=str(cluster.ca_file), **certificate
    )
