"""Sends mixed requests from several clients, repeats those without an answer, and keeps
every acknowledged answer.

A client knows only what it was answered. An answer is an acknowledgement (2xx), a
refusal by a rule, or a temporary refusal (429 or 503 with ``Retry-After``). Any other
answer is recorded as wrong. A request with an idempotency key is repeated, with the
same key and body, until it is acknowledged or refused by a rule.
"""

import hashlib
import random
import secrets
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx

from tests.faults.deployment import ADMIN_KEY
from tests.support.server import SCHEMA, csv_rows

N_CLIENTS = 4
ANSWER_WITHIN_S = 50.0
"""More than any bounded wait of the service, and more than any fault lasts."""

_PAUSE_S = 0.5
_MAX_PENDING = 12
DELTA = "0.000001"
_RULES = frozenset({"budget-exceeded", "job-finished", "no-rows-yet"})
_BUSY = frozenset({"idempotency-in-flight"})
_ROWS = csv_rows(24)
_PATIENTS = (
    "\n".join(
        f"{line},{'patient' if not row else row % 9}"
        for row, line in enumerate(_ROWS.split("\n")[:-1])
    )
    + "\n"
)
_PREDICTION = {"rows": [{"age": 30, "height": 1.7, "sex": "Male"}, {"age": 70}]}


@dataclass(frozen=True)
class Request:
    """A request, with an idempotency key if it has an effect that must happen once."""

    method: str
    path: str
    json: Any = None
    text: str | None = None
    key: str | None = None

    @property
    def options(self) -> dict[str, Any]:
        """Arguments of ``httpx.Client.request`` after method and address."""
        headers = {} if self.key is None else {"Idempotency-Key": self.key}
        if self.text is not None:
            return {
                "content": self.text,
                "headers": headers | {"Content-Type": "text/csv"},
            }
        return {"json": self.json, "headers": headers}


@dataclass(frozen=True)
class Acknowledged:
    """A request with an idempotency key, and the answer that a client got."""

    request: Request
    status: int
    body: bytes
    location: str | None

    def equals(self, answer: httpx.Response) -> bool:
        """Whether another answer has the same status, bytes and location."""
        return (self.status, self.body, self.location) == (
            answer.status_code, answer.content, answer.headers.get("Location"),
        )  # fmt: skip


@dataclass
class Record:
    """Everything that the clients of a round were answered. Lists grow by one item at a
    time, so threads may share it.

    Attributes:
        tally: number of answers by operation and status; 0 stands for no answer.
        acknowledged: the keyed requests.
        pending: keyed requests without a final answer.
        cancelled: jobs whose cancellation was acknowledged.
        predictions: the bytes that each model answered.
        wrong: descriptions of answers that nobody may get.
    """

    tally: Counter[tuple[str, int]] = field(default_factory=Counter)
    acknowledged: list[Acknowledged] = field(default_factory=list)
    pending: list[Request] = field(default_factory=list)
    cancelled: list[str] = field(default_factory=list)
    predictions: dict[str, bytes] = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)

    @property
    def job_ids(self) -> list[str]:
        """The jobs of acknowledged submissions."""
        bodies = (item for item in self.acknowledged if item.status == 202)
        return [
            httpx.Response(202, content=item.body).json()["job_id"] for item in bodies
        ]


@dataclass(frozen=True)
class Objects:
    """The datasets of a round: two members of a population, and one whose privacy unit
    is a column.
    """

    members: tuple[str, ...]
    by_patient: str
    population: str

    @property
    def datasets(self) -> tuple[str, ...]:
        return (*self.members, self.by_patient)


class Client:
    """One client with a connection of its own."""

    def __init__(
        self, urls: Sequence[str], objects: Objects, record: Record, *, seed: str
    ) -> None:
        self._http = httpx.Client(
            headers={"Authorization": f"Bearer {ADMIN_KEY}"},
            timeout=ANSWER_WITHIN_S,
            trust_env=False,
        )
        self._urls, self._objects, self._record = urls, objects, record
        self._random = random.Random(seed)
        self._models: list[dict[str, Any]] = []

    def run(self, stopping: threading.Event) -> None:
        """Sends requests until it is stopped."""
        acts: dict[Callable[[], object], int] = {
            self._train: 6, self._charge_external: 3, self._upload: 2, self._release_profile: 1, self._evaluate: 1,
            self._quote: 1, self._look: 3, self._predict: 3, self._download: 1, self._cancel: 1, self._repeat: 3,
            self._send_pending: 4, self._show_health: 1,
        }  # fmt: skip
        while not stopping.wait(self._random.uniform(0, _PAUSE_S)):
            if len(self._record.pending) > _MAX_PENDING:
                self._send_pending()
            else:
                self._random.choices([*acts], [*acts.values()])[0]()

    def close(self) -> None:
        self._http.close()

    def send(self, request: Request) -> httpx.Response | None:
        """Sends a request to any API process, records the answer and returns it;
        ``None`` if there was none.
        """
        operation = f"{request.method} {request.path.split('/')[-1] if request.key else request.path.split('/')[1]}"
        url = self._random.choice(self._urls)
        try:
            answer = self._http.request(
                request.method, f"{url}{request.path}", **request.options
            )
        except httpx.ReadTimeout:
            self._record.wrong.append(f"{operation}: no answer in {ANSWER_WITHIN_S} s")
            return None
        except httpx.TransportError:
            self._record.tally[operation, 0] += 1
            return None
        self._record.tally[operation, answer.status_code] += 1
        if not is_expected(answer):
            self._record.wrong.append(
                f"{operation}: {answer.status_code} {answer.text[:300]}"
            )
        return answer

    def submit(self, request: Request) -> None:
        """Sends a keyed request once; without a final answer, the request becomes
        pending.
        """
        answer = self.send(request)
        if answer is None or is_temporary(answer):
            self._record.pending.append(request)
        elif answer.is_success:
            location = answer.headers.get("Location")
            self._record.acknowledged.append(
                Acknowledged(request, answer.status_code, answer.content, location)
            )

    def _post(self, path: str, *, json: Any = None, text: str | None = None) -> None:
        self.submit(Request("POST", path, json, text, key=secrets.token_hex(8)))

    def _train(self) -> None:
        dataset = self._random.choice(self._objects.datasets)
        self._post("/train", json=self._training(dataset))

    def _training(self, dataset: str) -> dict[str, Any]:
        scope = (
            {}
            if self._random.random() < 0.3
            else {"shard": [self._random.randrange(3)]}
        )
        epsilon = self._random.choice(("0.1", "0.4", "1"))
        parameters = {"n_estimators": 2, "max_depth": 2}
        return self._price(dataset, epsilon) | {
            "dataset": dataset, "algorithm": "rdt-ta", "parameters": parameters, "scope": scope,
        }  # fmt: skip

    def _price(self, dataset: str, epsilon: str) -> dict[str, str]:
        delta = {"delta": DELTA} if dataset == self._objects.by_patient else {}
        return {"epsilon": epsilon} | delta

    def _charge_external(self) -> None:
        dataset = self._random.choice(self._objects.members)
        declared = {
            "adjacency": "add_remove",
            "epsilon": self._random.choice(("0.001", "0.2")),
        }
        self._post(
            f"/ledger/{dataset}/reservations",
            json={"description": "a mean", "per": "row", "declared": declared},
        )

    def _upload(self) -> None:
        dataset = self._random.choice(self._objects.datasets)
        self._post(
            f"/datasets/{dataset}/rows?again=true",
            text=rows_for(dataset, self._objects),
        )

    def _release_profile(self) -> None:
        dataset = self._random.choice(self._objects.datasets)
        self._post(f"/datasets/{dataset}/profiles", json=self._price(dataset, "0.1"))

    def _evaluate(self) -> None:
        if self._models:
            model = self._random.choice(self._models)
            self._post(
                f"/models/{model['id']}/evaluations",
                json=self._price(model["dataset"], "0.1"),
            )

    def _quote(self) -> None:
        self.send(
            Request(
                "POST",
                "/plans",
                self._training(self._random.choice(self._objects.datasets)),
            )
        )

    def _look(self) -> None:
        self.send(
            Request("GET", f"/ledger/{self._random.choice(self._objects.datasets)}")
        )
        answer = self.send(Request("GET", "/models?limit=9"))
        if answer is not None and answer.is_success:
            self._models = [
                model
                for model in answer.json()["models"]
                if model["dataset"] in self._objects.datasets
            ]

    def _predict(self) -> None:
        if self._models:
            model_id = self._random.choice(self._models)["id"]
            answer = self.send(
                Request("POST", f"/models/{model_id}/predict", _PREDICTION)
            )
            if answer is not None and answer.is_success:
                before = self._record.predictions.setdefault(model_id, answer.content)
                if before != answer.content:
                    self._record.wrong.append(
                        "a model predicted two things for the same rows"
                    )

    def _download(self) -> None:
        if self._models:
            model = self._random.choice(self._models)
            answer = self.send(Request("GET", f"/models/{model['id']}/artifact"))
            if (
                answer is not None
                and answer.is_success
                and hashlib.sha256(answer.content).hexdigest() != model["digest"]
            ):
                self._record.wrong.append("a downloaded artifact has another digest")

    def _cancel(self) -> None:
        job_ids = self._record.job_ids[-5:]
        if job_ids:
            job_id = self._random.choice(job_ids)
            answer = self.send(Request("DELETE", f"/jobs/{job_id}"))
            if answer is not None and answer.is_success:
                self._record.cancelled.append(job_id)

    def _repeat(self) -> None:
        if self._record.acknowledged:
            item = self._random.choice(self._record.acknowledged)
            answer = self.send(item.request)
            if (
                answer is not None
                and not is_temporary(answer)
                and not item.equals(answer)
            ):
                self._record.wrong.append(
                    f"{item.request.path}: the answer to a repetition differs"
                )

    def _send_pending(self) -> None:
        if self._record.pending:
            try:
                request = self._record.pending.pop(
                    self._random.randrange(len(self._record.pending))
                )
            except (IndexError, ValueError):  # another client took the last request
                return
            self.submit(request)

    def _show_health(self) -> None:
        answer = self.send(Request("GET", "/healthz"))
        if answer is not None and not answer.is_success:
            self._record.wrong.append(
                f"a process that answers is not alive: {answer.status_code}"
            )


def is_temporary(answer: httpx.Response) -> bool:
    """Whether the request may be sent again."""
    return answer.status_code in (429, 503) or (
        answer.status_code == 409 and answer.json()["type"] in _BUSY
    )


def is_expected(answer: httpx.Response) -> bool:
    """Whether a valid request may get an answer while parts of the deployment are
    broken.
    """
    if answer.status_code in (429, 503):
        return answer.headers.get("Retry-After", "").isdigit()
    if answer.status_code == 409:
        return answer.json()["type"] in _RULES | _BUSY
    return answer.is_success


def declared_objects(url: str) -> Objects:
    """Declares the datasets of a round, with rows, on a healthy deployment."""
    name = secrets.token_hex(6)
    shard = {"name": "shard", "kind": "hash", "cells": 3}
    sex = {"name": "sex", "kind": "column", "column": "sex"}
    pure = {
        "budget": {"accountant": "pure", "epsilon": "4"},
        "schema": SCHEMA,
        "population": name,
    }
    gdp = {
        "budget": {"accountant": "gdp", "epsilon": "4", "delta": DELTA},
        "schema": SCHEMA,
    }
    by_patient = {"privacy_unit": {"column": "patient", "max_rows": 2}}
    declarations = (
        pure | {"partitions": [shard]},
        pure | {"partitions": [shard, sex]},
        gdp | {"partitions": [shard]} | by_patient,
    )
    with httpx.Client(
        base_url=url,
        headers={"Authorization": f"Bearer {ADMIN_KEY}"},
        timeout=ANSWER_WITHIN_S,
        trust_env=False,
    ) as http:
        made = http.post(
            "/populations",
            json={"name": name, "budget": {"accountant": "pure", "epsilon": "6"}},
        )
        assert made.status_code == 201, made.text
        datasets = []
        for index, declaration in enumerate(declarations):
            answer = http.post(
                "/datasets", json={"name": f"{name}-{index}"} | declaration
            )
            assert answer.status_code == 201, answer.text
            datasets.append(answer.json()["id"])
        objects = Objects(tuple(datasets[:-1]), datasets[-1], made.json()["id"])
        for dataset in datasets:
            headers = {"Content-Type": "text/csv"}
            uploaded = http.post(
                f"/datasets/{dataset}/rows",
                content=rows_for(dataset, objects),
                headers=headers,
            )
            assert uploaded.status_code == 201, uploaded.text
    return objects


def rows_for(dataset: str, objects: Objects) -> str:
    """An upload for a dataset of a round."""
    return _PATIENTS if dataset == objects.by_patient else _ROWS


@contextmanager
def clients(urls: Sequence[str], objects: Objects, *, seed: str) -> Iterator[Record]:
    """Runs clients in threads until the block ends, and yields the record of their
    answers.
    """
    record, stopping = Record(), threading.Event()
    running = [
        Client(urls, objects, record, seed=f"{seed}-{index}")
        for index in range(N_CLIENTS)
    ]
    failures: list[BaseException] = []

    def run(client: Client) -> None:
        try:
            client.run(stopping)
        except BaseException as failure:  # noqa: BLE001 - raised below
            failures.append(failure)
        finally:
            client.close()

    threads = [threading.Thread(target=run, args=(client,)) for client in running]
    for thread in threads:
        thread.start()
    try:
        yield record
    finally:
        stopping.set()
        for thread in threads:
            thread.join()
    if failures:
        raise failures[0]


def send_all_pending(urls: Sequence[str], objects: Objects, record: Record) -> None:
    """Repeats every pending request on a healthy deployment until each has a final
    answer.
    """
    client, deadline = (
        Client(urls, objects, record, seed="pending"),
        time.monotonic() + 120,
    )
    while record.pending:
        assert time.monotonic() < deadline, (
            f"{len(record.pending)} requests get no final answer"
        )
        client.submit(record.pending.pop())
    client.close()
