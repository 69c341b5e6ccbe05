"""Requests of one kind that block leave threads for every other kind, and those of one
key leave threads for others.
"""

import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any

import httpx
import pyarrow as pa
import pytest

from app.api import predictions, streams
from app.api.capacity import THREADS, Client, Turns, Work
from app.api.routes import datasets, keys, ledger, models
from app.api.routes import training as training_routes
from app.core import limits
from app.core.errors import NotFound
from app.datasets import admission
from app.datasets.upload_bodies import BodyForm
from tests.support.columnar import body_of
from tests.support.databases import on_one_server
from tests.support.server import CSV, Server, csv_rows, training
from tests.support.set_limits import SetLimit

ROWS = pa.table({"age": [1], "height": [1.5], "sex": ["Male"], "income": ["<=50K"]})

N_KEYS = 9
N_REQUESTS_OF_KEY = 4
"""More requests than the process has threads of a kind, each key more than its share."""


@pytest.fixture(scope="module")
def model(server: Server) -> str:
    return str(server.trained(server.uploaded()["id"])["model_id"])


def calls(
    http: httpx.Client, dataset: str, model: str
) -> dict[Work, Callable[[], httpx.Response]]:
    return {
        Work.ADMINISTRATION: lambda: http.post(
            "/keys", json={"name": "x", "roles": []}
        ),
        Work.READ: lambda: http.get("/datasets?limit=1"),
        Work.WRITE: lambda: http.post("/plans", json=training(dataset)),
        Work.UPLOAD: lambda: http.post(
            f"/datasets/{dataset}/rows?again=true", content=csv_rows(3), headers=CSV
        ),
        Work.DECODING: lambda: http.post(
            f"/datasets/{dataset}/rows?again=true",
            content=body_of(ROWS, BodyForm.PARQUET),
            headers={"Content-Type": "application/vnd.apache.parquet"},
        ),
        Work.EXPORT: lambda: http.get(f"/ledger/{dataset}/export"),
        Work.CONVERSION: lambda: http.get(f"/models/{model}/artifact?format=onnx"),
        Work.PREDICTION: lambda: http.post(
            f"/models/{model}/predict", json={"rows": [{"age": 1}]}
        ),
    }


FUNCTIONS: dict[Work, tuple[Any, str]] = {
    Work.ADMINISTRATION: (keys.keys, "create_key"),
    Work.READ: (datasets.show, "list_datasets"),
    Work.WRITE: (training_routes, "quote"),
    Work.UPLOAD: (streams, "upload_rows"),
    Work.DECODING: (admission, "decoder_seat"),
    Work.EXPORT: (ledger.history, "export_json_lines"),
    Work.CONVERSION: (models.models, "take_onnx"),
    Work.PREDICTION: (predictions, "predict"),
}


@on_one_server
@pytest.mark.parametrize("blocked", FUNCTIONS)
def test_work_that_blocks_leaves_threads_for_other_work(
    server: Server, model: str, monkeypatch: pytest.MonkeyPatch, blocked: Work
) -> None:
    dataset = server.uploaded()["id"]
    of_keys = [
        calls(server.caller("admin").http, dataset, model) for _ in range(N_KEYS)
    ]
    release, entered = threading.Event(), threading.Semaphore(0)
    module, name = FUNCTIONS[blocked]
    original = getattr(module, name)

    def wait(*arguments: Any, **options: Any) -> Any:
        entered.release()
        release.wait(timeout=120)
        return original(*arguments, **options)

    def wait_in_the_stream(*arguments: Any, **options: Any) -> Iterator[bytes]:
        lines = original(*arguments, **options)
        return (wait_once(line) for line in lines)

    def wait_once(line: bytes) -> bytes:
        entered.release()
        release.wait(timeout=120)
        return line

    monkeypatch.setattr(
        module, name, wait_in_the_stream if blocked is Work.EXPORT else wait
    )
    with ThreadPoolExecutor(N_KEYS * N_REQUESTS_OF_KEY) as callers:
        share = min(limits.MAX_THREADS_PER_KEY, THREADS[blocked])
        first = [callers.submit(of_keys[0][blocked]) for _ in range(N_REQUESTS_OF_KEY)]
        sent = []
        try:
            for _ in range(share):
                assert entered.acquire(timeout=60)
            sent = [
                callers.submit(requests[blocked])
                for requests in of_keys[1:]
                for _ in range(N_REQUESTS_OF_KEY)
            ]
            for _ in range(THREADS[blocked] - share):
                assert entered.acquire(timeout=60), (
                    "the other keys have the other threads"
                )
            waiting = {blocked}
            # A converted file is sent by the threads that write exports.
            if blocked is Work.EXPORT:
                waiting.add(Work.CONVERSION)
            # one function stores both
            if blocked is Work.UPLOAD:
                waiting.add(Work.DECODING)
            others = [
                request() for work, request in of_keys[0].items() if work not in waiting
            ]
            others += [
                server.client(None).get(path, timeout=100)
                for path in ("/healthz", "/readyz")
            ]
            assert {answer.status_code for answer in others} <= {200, 201}
            assert not entered.acquire(blocking=False), (
                "no further request has a thread"
            )
        finally:
            release.set()
        assert {each.result().status_code for each in first + sent} <= {200, 201}


@on_one_server
def test_a_hostile_key_does_not_delay_its_revocation(
    server: Server, monkeypatch: pytest.MonkeyPatch, set_limit: SetLimit
) -> None:
    """Its requests have every seat and its share of all threads, and other requests of
    an administrator are refused.
    """
    dataset = server.uploaded()["id"]
    hostile, granted = (
        server.granted(dataset, "analyst"),
        server.granted(dataset, "predictor"),
    )
    release, entered = threading.Event(), threading.Semaphore(0)

    def wait(*_: Any, **__: Any) -> Any:
        entered.release()
        release.wait(timeout=120)
        raise NotFound("dataset")

    for module, name in (
        FUNCTIONS[Work.READ],
        FUNCTIONS[Work.WRITE],
        (keys.keys, "list_keys"),
    ):
        monkeypatch.setattr(module, name, wait)
    set_limit("MAX_REQUESTS_IN_FLIGHT", 12)
    requests = [
        lambda: hostile.http.get("/datasets"),
        lambda: hostile.http.post("/plans", json=training(dataset)),
    ]
    with ThreadPoolExecutor(16) as callers:
        list_keys = lambda: hostile.http.get("/keys")  # noqa: E731
        sent = [
            callers.submit(request)
            for request in (list_keys, *requests)
            for _ in range(4)
        ]
        try:
            for _ in range(3 * limits.MAX_THREADS_PER_KEY):
                assert entered.acquire(timeout=60)
            # the administrator may have taken a seat meanwhile
            sent += [callers.submit(list_keys) for _ in range(4)]
            http = server.admin.http
            while http.get("/ledger").status_code != 429:
                time.sleep(0.01)
            assert (
                http.delete(f"/datasets/{dataset}/grants/{granted.id}").status_code
                == 204
            )
            assert http.delete(f"/keys/{hostile.id}").status_code == 204
            assert http.get("/metrics").status_code == 200
            assert {
                server.client(None).get(path).status_code
                for path in ("/healthz", "/readyz")
            } == {200}
        finally:
            release.set()
        assert {each.result().status_code for each in sent} <= {401, 404, 429}


@on_one_server
def test_queued_requests_of_clients_that_went_away_do_not_begin(
    server: Server, model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also one whose body is large: its connection is read on, so that the service sees
    its end.
    """
    release, entered, begun = threading.Event(), threading.Semaphore(0), list[int]()
    original = predictions.predict

    def wait(*arguments: Any, **options: Any) -> Any:
        begun.append(len(arguments[3]))
        entered.release()
        release.wait(timeout=120)
        return original(*arguments, **options)

    waiting = list[object]()
    begin = Turns.begin

    async def counted(turns: Turns, client: Client) -> None:
        waiting.append(client)
        try:
            await begin(turns, client)
        finally:
            waiting.remove(client)

    monkeypatch.setattr(Turns, "begin", counted)
    monkeypatch.setattr(predictions, "predict", wait)
    key = server.caller("admin").key
    bodies = [
        json.dumps({"rows": [{"age": 1}] * n_rows}).encode()
        for n_rows in (1_000, 1_100, 10_000, 400, 2_000)
    ]
    heads = (
        f"POST /models/{model}/predict HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {key}\r\n"
        f"Content-Type: application/json\r\nConnection: close\r\nContent-Length: {len(body)}\r\n\r\n".encode()
        for body in bodies
    )
    with ExitStack() as held:
        port = httpx.URL(server.url).port or 0
        sockets = [
            held.enter_context(
                socket.create_connection(("127.0.0.1", port), timeout=60)
            )
            for _ in bodies
        ]
        for connection, head, body in zip(sockets, heads, bodies, strict=True):
            connection.sendall(head)
            time.sleep(0.1)  # the service waits for the body, and then gets it at once
            connection.sendall(body)
            if connection in sockets[: limits.MAX_THREADS_PER_KEY]:
                assert entered.acquire(timeout=60)
        n_waiting_at_first = len(bodies) - limits.MAX_THREADS_PER_KEY
        for n_waiting, leaving in (
            (n_waiting_at_first, sockets[2:4]),
            (n_waiting_at_first - 2, []),
        ):
            while len(waiting) != n_waiting:
                time.sleep(0.01)
            for connection in leaving:
                connection.close()
        release.set()
        for connection in (*sockets[:2], sockets[4]):
            assert connection.recv(13) == b"HTTP/1.1 200 "
    assert begun == [len(bodies[index]) for index in (0, 1, 4)]
