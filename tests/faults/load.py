"""Saturates a deployment with honest analysts beside a hostile one, and measures
processes and answers.

An honest analyst submits a job, waits for its end, and predicts. The hostile analyst
has one key and most of the clients, and sends requests of every costly kind without a
pause.
"""

import asyncio
import bisect
import random
import secrets
import threading
import time
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, TypeAlias

import httpx

from tests.faults.deployment import ADMIN_KEY, Deployment, Part
from tests.support.server import CSV, SCHEMA, csv_rows, new_idempotency_key, training

N_HONEST_KEYS = 4
_ANSWER_WITHIN_S = 240.0
_POLL_S = 0.25
_SAMPLE_S = 1.0
_EPSILON = "0.001"
_ENDED = ("succeeded", "failed", "cancelled")


@dataclass(frozen=True)
class Answer:
    """One answer of the service, with the times on the client's clock."""

    is_hostile: bool
    operation: str
    status: int
    began_at: float
    ended_at: float


@dataclass
class Answers:
    """All answers of a run.

    Attributes:
        all: in order.
        accepted_at: the time at which a client learned that its honest job was
            accepted, by the id of the job.
        wrong: descriptions of answers that nobody may get.
    """

    all: list[Answer] = field(default_factory=list)
    accepted_at: dict[str, datetime] = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)

    def statuses(self, *, is_hostile: bool) -> Counter[int]:
        """Number of answers by status."""
        return Counter(
            answer.status for answer in self.all if answer.is_hostile is is_hostile
        )

    def seconds(self, *, is_hostile: bool) -> list[float]:
        """Durations of the requests, sorted."""
        chosen = (answer for answer in self.all if answer.is_hostile is is_hostile)
        return sorted(answer.ended_at - answer.began_at for answer in chosen)

    def overtaken(self) -> list[int]:
        """For each honest request, the number of hostile answers that were sent while
        it waited; sorted.
        """
        ends = sorted(answer.ended_at for answer in self.all if answer.is_hostile)
        honest = (answer for answer in self.all if not answer.is_hostile)
        return sorted(
            bisect.bisect(ends, answer.ended_at) - bisect.bisect(ends, answer.began_at)
            for answer in honest
        )


Until: TypeAlias = Callable[[Answers], bool]
"""The condition that ends a run."""


@dataclass(frozen=True)
class Keys:
    """Ids and texts of the honest keys and of the hostile key, and the dataset on which
    they are analysts.
    """

    dataset: str
    honest: tuple[tuple[str, str], ...]
    hostile: tuple[str, str]


def prepared(url: str) -> Keys:
    """Declares a dataset with a large budget and grants keys the role of an analyst."""
    with httpx.Client(
        base_url=url,
        headers=_bearer(ADMIN_KEY),
        timeout=_ANSWER_WITHIN_S,
        trust_env=False,
    ) as http:
        budget = {"accountant": "pure", "epsilon": "1000000"}
        body = {
            "name": f"people-{secrets.token_hex(6)}",
            "schema": SCHEMA,
            "budget": budget,
        }
        dataset = _created(http.post("/datasets", json=body))["id"]
        _created(
            http.post(f"/datasets/{dataset}/rows", content=csv_rows(50), headers=CSV)
        )

        def key() -> tuple[str, str]:
            made = _created(http.post("/keys", json={"name": "analyst", "roles": []}))
            granted = http.put(
                f"/datasets/{dataset}/grants/{made['id']}", json={"role": "analyst"}
            )
            assert granted.status_code == 200, granted.text
            return made["id"], made["key"]

        return Keys(dataset, tuple(key() for _ in range(N_HONEST_KEYS)), key())


def saturate(
    urls: Sequence[str], keys: Keys, *, n_clients: int, until: Until
) -> Answers:
    """Runs honest clients, one per honest key, and hostile clients until a condition
    holds.
    """
    answers = Answers()
    asyncio.run(_saturate(urls, keys, answers, n_clients=n_clients, until=until))
    return answers


async def _saturate(
    urls: Sequence[str], keys: Keys, answers: Answers, *, n_clients: int, until: Until
) -> None:
    clients: list[_Client] = []
    for index in range(n_clients):
        is_hostile = index >= len(keys.honest)
        _, text = keys.hostile if is_hostile else keys.honest[index]
        url = urls[index % len(urls)]
        clients.append(
            _Client(url, text, keys.dataset, answers, is_hostile=is_hostile, seed=index)
        )
    await asyncio.gather(*(client.run(lambda: until(answers)) for client in clients))


class _Client:
    """One client with one connection."""

    def __init__(
        self, url: str, key: str, dataset: str, answers: Answers, *, is_hostile: bool, seed: int
    ) -> None:  # fmt: skip
        self._http = httpx.AsyncClient(
            base_url=url, headers=_bearer(key), timeout=_ANSWER_WITHIN_S, trust_env=False,
            limits=httpx.Limits(max_connections=1),
        )  # fmt: skip
        self._dataset, self._answers, self._is_hostile = dataset, answers, is_hostile
        self._random = random.Random(seed)

    async def run(self, is_over: Callable[[], bool]) -> None:
        """Works until the run is over."""
        async with self._http:
            while not is_over():
                await (self._attack() if self._is_hostile else self._work(is_over))

    async def _work(self, is_over: Callable[[], bool]) -> None:
        """Submits a job, waits for its end, and uses the model."""
        body = training(self._dataset, epsilon=_EPSILON)
        await self._call("POST", "/plans", json=body)
        submitted = await self._call(
            "POST", "/train", json=body, headers=new_idempotency_key()
        )
        if submitted.status_code != 202:
            return
        self._answers.accepted_at[submitted.json()["job_id"]] = datetime.now(UTC)
        job: dict[str, Any] = {"state": "queued"}
        while job["state"] not in _ENDED and not is_over():
            await asyncio.sleep(_POLL_S)
            answer = await self._call("GET", submitted.headers["Location"])
            job = answer.json() if answer.is_success else job
        if job.get("model_id"):
            await self._call(
                "POST",
                f"/models/{job['model_id']}/predict",
                json={"rows": [{"age": 30}]},
            )
        await self._call("GET", f"/ledger/{self._dataset}")

    async def _attack(self) -> None:
        """Sends one costly request. Pages are of a size that the warm-up fills."""
        body = training(self._dataset, epsilon=_EPSILON)
        attacks: tuple[Callable[[], Coroutine[Any, Any, object]], ...] = (
            lambda: self._call(
                "POST", "/train", json=body, headers=new_idempotency_key()
            ),
            lambda: self._call(
                "POST", "/train", json=body, headers={"Idempotency-Key": "the same"}
            ),
            lambda: self._call("POST", "/plans", json=body),
            lambda: self._call(
                "POST", "/plans", content=b'{"dataset": [' + b"0," * 20_000 + b"0]}"
            ),
            lambda: self._call("GET", "/jobs?limit=100"),
            lambda: self._call("GET", f"/ledger/{self._dataset}/export"),
            lambda: self._call("GET", f"/ledger/{self._dataset}"),
            lambda: self._call("GET", "/models?limit=100"),
        )
        await self._random.choice(attacks)()

    async def _call(self, method: str, path: str, **options: Any) -> httpx.Response:
        began_at = time.monotonic()
        answer = await self._http.request(method, path, **options)
        operation = f"{method} {path.split('?')[0].split('/')[-1]}"
        self._answers.all.append(
            Answer(
                self._is_hostile,
                operation,
                answer.status_code,
                began_at,
                time.monotonic(),
            )
        )
        if answer.status_code in (429, 503):
            if not answer.headers.get("Retry-After", "").isdigit():
                self._answers.wrong.append(
                    f"{operation}: {answer.status_code} without Retry-After"
                )
            await asyncio.sleep(0 if self._is_hostile else 1)
        elif answer.status_code >= 500 or (
            answer.is_client_error and not self._is_hostile
        ):
            self._answers.wrong.append(
                f"{operation}: {answer.status_code} {answer.text[:300]}"
            )
        return answer


@dataclass(frozen=True)
class Sample:
    """What one process uses at one time."""

    rss_bytes: int
    n_threads: int
    n_descriptors: int
    n_connections: int


class Meter:
    """Samples every process of a deployment at intervals."""

    def __init__(self, deployment: Deployment) -> None:
        self._parts = deployment.parts
        self.samples: list[list[Sample]] = [[] for _ in self._parts]

    def sample(self) -> None:
        """Takes one sample of each process."""
        for part, samples in zip(self._parts, self.samples, strict=True):
            samples.append(_sample(part))

    @contextmanager
    def running(self) -> Iterator[None]:
        """Samples in a thread until the block ends."""
        stopping = threading.Event()

        def run() -> None:
            while not stopping.wait(_SAMPLE_S):
                self.sample()

        thread = threading.Thread(target=run)
        thread.start()
        try:
            yield
        finally:
            stopping.set()
            thread.join()


def _sample(part: Part) -> Sample:
    process = part.process
    assert process is not None
    with process.oneshot():
        return Sample(
            process.memory_info().rss,
            process.num_threads(),
            process.num_fds(),
            len(process.net_connections("inet")),
        )


def _created(answer: httpx.Response) -> dict[str, Any]:
    assert answer.status_code == 201, answer.text
    return dict(answer.json())


def _bearer(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"}
