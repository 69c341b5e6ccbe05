"""Requests of one kind that block leave threads for every other kind, and health needs no thread at all."""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest

from app.api import predictions, uploads
from app.api.capacity import THREADS, Work
from app.api.routes import datasets, keys, ledger, models
from tests.support.databases import on_one_server
from tests.support.server import CSV, Server, csv_rows

N_REQUESTS = 44
"""More requests than the process has threads."""


@pytest.fixture(scope="module")
def model(server: Server) -> str:
    return str(server.trained(server.uploaded()["id"])["model_id"])


def calls(server: Server, model: str) -> dict[Work, Callable[[], httpx.Response]]:
    http = server.admin.http
    dataset = server.uploaded()["id"]
    return {
        Work.READ: lambda: http.get("/datasets?limit=1"),
        Work.WRITE: lambda: http.post("/keys", json={"name": "x", "roles": []}),
        Work.UPLOAD: lambda: http.post(f"/datasets/{dataset}/rows", content=csv_rows(3), headers=CSV),
        Work.EXPORT: lambda: http.get(f"/ledger/{dataset}/export"),
        Work.CONVERSION: lambda: http.get(f"/models/{model}/artifact?format=onnx"),
        Work.PREDICTION: lambda: http.post(f"/models/{model}/predict", json={"rows": [{"age": 1}]}),
    }


FUNCTIONS: dict[Work, tuple[Any, str]] = {
    Work.READ: (datasets.show_datasets, "list_datasets"),
    Work.WRITE: (keys.keys, "create_key"),
    Work.UPLOAD: (uploads, "upload_rows"),
    Work.EXPORT: (ledger.history, "export_json_lines"),
    Work.CONVERSION: (models.models, "take_onnx"),
    Work.PREDICTION: (predictions, "predict"),
}


@on_one_server
@pytest.mark.parametrize("blocked", FUNCTIONS)
def test_work_that_blocks_leaves_threads_for_other_work(
    server: Server, model: str, monkeypatch: pytest.MonkeyPatch, blocked: Work
) -> None:
    requests = calls(server, model)
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

    monkeypatch.setattr(module, name, wait_in_the_stream if blocked is Work.EXPORT else wait)
    with ThreadPoolExecutor(N_REQUESTS) as callers:
        sent = [callers.submit(requests[blocked]) for _ in range(N_REQUESTS)]
        try:
            for _ in range(THREADS[blocked]):
                assert entered.acquire(timeout=60)
            # A converted file is sent by the threads that write exports.
            waiting = {blocked, Work.CONVERSION} if blocked is Work.EXPORT else {blocked}
            others = [request() for work, request in requests.items() if work not in waiting]
            others += [server.client(None).get(path, timeout=30) for path in ("/healthz", "/readyz")]
            assert {answer.status_code for answer in others} <= {200, 201}
            assert not entered.acquire(blocking=False), "no further request has a thread"
        finally:
            release.set()
        assert {each.result().status_code for each in sent} <= {200, 201}
