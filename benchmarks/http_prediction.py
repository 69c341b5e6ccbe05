"""Measures predictions over HTTP beside a FastAPI route on uvicorn as it comes, that
reads the same bodies.

Run ``python -m benchmarks.http_prediction``. The bare route reads a body and answers
with the bytes of the service's answer; uvicorn has its default options, but no access
log, as the service has none. Both run in processes of their own, and one client process
sends blocks of requests to both in turn: by a raw socket, ``http.client``, httpx and
requests, whose heads differ and which send head and body apart, and by sockets of 16
clients. Before each block, requests that are not measured give the service its lease on
cached authority (ADR 0038). CPU seconds are those of all threads of the server process.
A share is the bare route's figure divided by the service's, a median of paired blocks:
1 is as fast.

The last lines compare ``/v2`` (a row of 20 tensors, and the same as one tensor) with
``/predict``.

With ``--before <folder>``, a checkout of an earlier commit (``git worktree add <folder>
75ed3f2``), the reference is the service of that commit with a model of its own.
"""

import argparse
import asyncio
import http.client
import json
import os
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import requests
import uvicorn
from fastapi import FastAPI, Request, Response

from app.cli.serve import bound

_HERE = Path(__file__).parents[1]
_N_FEATURES = 20
_FEATURES = [
    {
        "name": f"x{index}",
        "type": "numeric",
        "lower": 0,
        "upper": 1,
        "bounds": "natural",
    }
    for index in range(_N_FEATURES)
]
_PAIRS = 9
_WARM_REQUESTS = 64
_JSON = {"Content-Type": "application/json"}


@dataclass(frozen=True)
class Target:
    """A server process and the head of a request to it."""

    pid: int
    port: int
    path: str
    key: str

    def request(self, body: bytes) -> bytes:
        """A whole request."""
        head = (
            f"POST {self.path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {self.key}\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        return head.encode("ascii") + body

    def cpu_s(self) -> float:
        """CPU seconds of the threads of the process so far."""
        threads = Path(f"/proc/{self.pid}/task").glob("*/schedstat")
        return (
            sum(
                int(thread.read_text(encoding="ascii").split()[0]) for thread in threads
            )
            / 1e9
        )

    @property
    def headers(self) -> dict[str, str]:
        """What a request needs besides the headers that clients add."""
        return {"Authorization": f"Bearer {self.key}", **_JSON}


@dataclass(frozen=True)
class Block:
    """A block of requests to one target: seconds of each, seconds in all, and CPU
    seconds of the server.
    """

    latencies_s: list[float]
    wall_s: float
    cpu_s: float

    def percentile_s(self, percent: float) -> float:
        """A percentile of the seconds of a request."""
        return float(np.percentile(self.latencies_s, percent))


def bare(answer: bytes) -> FastAPI:
    """A route that reads a body and answers with fixed bytes."""
    app = FastAPI(openapi_url=None)

    @app.post("/models/{model_id}/predict")
    async def predict(request: Request, model_id: str) -> Response:  # noqa: ARG001 - a part of the path
        await request.body()
        return Response(answer, media_type="application/json")

    return app


def rows_of(n_rows: int) -> list[dict[str, float]]:
    """Rows of a prediction request."""
    values = np.random.default_rng(2).random((n_rows, _N_FEATURES)).round(4).tolist()
    return [{f"x{index}": value for index, value in enumerate(row)} for row in values]


async def _exchange(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, request: bytes
) -> bytes:
    writer.write(request)
    head = await reader.readuntil(b"\r\n\r\n")
    lines = head.lower().split(b"\r\n")
    length = next(
        int(line.partition(b":")[2])
        for line in lines
        if line.startswith(b"content-length")
    )
    body = await reader.readexactly(length)
    assert head.startswith(b"HTTP/1.1 200"), head
    return body


async def _client(
    target: Target, request: bytes, n_requests: int, latencies_s: list[float]
) -> None:
    reader, writer = await asyncio.open_connection(
        "127.0.0.1", target.port, limit=2**24
    )
    for _ in range(n_requests):
        began = time.perf_counter()
        await _exchange(reader, writer, request)
        latencies_s.append(time.perf_counter() - began)
    writer.close()
    await writer.wait_closed()


def block(target: Target, body: bytes, *, n_clients: int, n_requests: int) -> Block:
    """Sends requests over some connections at a time, by raw sockets."""
    latencies_s: list[float] = []
    request = target.request(body)

    async def clients() -> None:
        await asyncio.gather(
            *(
                _client(target, request, n_requests // n_clients, latencies_s)
                for _ in range(n_clients)
            )
        )

    cpu_s, began = target.cpu_s(), time.perf_counter()
    asyncio.run(clients())
    return Block(latencies_s, time.perf_counter() - began, target.cpu_s() - cpu_s)


def _by_http_client(target: Target, body: bytes) -> Callable[[], int]:
    connection = http.client.HTTPConnection("127.0.0.1", target.port)

    def send() -> int:
        connection.request("POST", target.path, body, target.headers)
        answer = connection.getresponse()
        answer.read()
        return answer.status

    return send


def _by_httpx(target: Target, body: bytes) -> Callable[[], int]:
    client = httpx.Client(
        base_url=f"http://127.0.0.1:{target.port}",
        headers=target.headers,
        trust_env=False,
    )
    return lambda: client.post(target.path, content=body).status_code


def _by_requests(target: Target, body: bytes) -> Callable[[], int]:
    session = requests.Session()
    session.trust_env = False
    session.headers.update(target.headers)
    return lambda: (
        session.post(
            f"http://127.0.0.1:{target.port}{target.path}", data=body
        ).status_code
    )


_LIBRARIES: dict[str, Callable[[Target, bytes], Callable[[], int]]] = {
    "http.client": _by_http_client,
    "httpx": _by_httpx,
    "requests": _by_requests,
}


def block_of(library: str, target: Target, body: bytes, *, n_requests: int) -> Block:
    """Sends requests over one connection of a library."""
    send = _LIBRARIES[library](target, body)
    assert send() == 200
    latencies_s = []
    cpu_s, begun = target.cpu_s(), time.perf_counter()
    for _ in range(n_requests):
        began = time.perf_counter()
        assert send() == 200
        latencies_s.append(time.perf_counter() - began)
    return Block(latencies_s, time.perf_counter() - begun, target.cpu_s() - cpu_s)


Sent = Callable[[Target, bytes], Block]


def warm_block(target: Target, body: bytes, sent: Sent) -> Block:
    """A block after another that is not measured, in which the process reads the caller
    and the model.
    """
    block(target, body, n_clients=1, n_requests=_WARM_REQUESTS)
    return sent(target, body)


def compare(
    name: str,
    service: tuple[Target, bytes],
    reference: tuple[Target, bytes],
    sent: Sent,
) -> None:
    """Prints the reference's figures as shares of the service's."""
    shares: dict[str, list[float]] = {"cpu": [], "wall": [], "p50": [], "p99": []}
    cpu_us: dict[str, list[float]] = {"service": [], "reference": []}
    for _ in range(_PAIRS):
        ours, theirs = (warm_block(*target, sent) for target in (service, reference))
        shares["cpu"].append(theirs.cpu_s / ours.cpu_s)
        shares["wall"].append(theirs.wall_s / ours.wall_s)
        shares["p50"].append(theirs.percentile_s(50) / ours.percentile_s(50))
        shares["p99"].append(theirs.percentile_s(99) / ours.percentile_s(99))
        for whose, measured in (("service", ours), ("reference", theirs)):
            cpu_us[whose].append(measured.cpu_s / len(measured.latencies_s) * 1e6)
    figures = "".join(f"{statistics.median(values):9.2f}" for values in shares.values())
    print(
        f"{name:<40}{figures}"
        + "".join(f"{statistics.median(values):11.0f}" for values in cpu_us.values()),
        flush=True,
    )


@contextmanager
def _process(
    arguments: list[str], environ: dict[str, str], *, folder: Path
) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """A server process of a checkout, and the port that its first line of output names."""
    process = subprocess.Popen(  # our own programs
        [sys.executable, "-m", *arguments],
        env=os.environ | environ,
        cwd=folder,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        port = int(process.stdout.readline().strip().rpartition(":")[2])
        while socket.socket().connect_ex(("127.0.0.1", port)):
            time.sleep(0.1)
        yield process, port
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(30)


def _trained(http: httpx.Client) -> str:
    """The id of a model of the default algorithm."""
    http.post(
        "/datasets",
        json={
            "name": "bench",
            "schema": {
                "features": _FEATURES,
                "label": {"name": "y", "classes": ["no", "yes"]},
            },
            "budget": {"accountant": "pure", "epsilon": "10"},
            "public_size": 5000,
        },
    ).raise_for_status()
    values = np.random.default_rng(0).random((5_000, _N_FEATURES)).round(4)
    lines = [",".join([*(f"x{index}" for index in range(_N_FEATURES)), "y"])]
    lines += [
        ",".join([*map(str, row), "yes" if row[0] + row[1] > 1 else "no"])
        for row in values.tolist()
    ]
    http.post(
        "/datasets/bench/rows",
        content="\n".join([*lines, ""]),
        headers={"Content-Type": "text/csv"},
    ).raise_for_status()
    accepted = http.post(
        "/train",
        json={"dataset": "bench", "algorithm": "rpf", "epsilon": "1"},
        headers={"Idempotency-Key": "one"},
    )
    accepted.raise_for_status()
    while True:
        job: dict[str, Any] = http.get(f"/jobs/{accepted.json()['job_id']}").json()
        if job["state"] not in ("queued", "running"):
            return str(job["model_id"])
        time.sleep(0.5)


@contextmanager
def running_service(checkout: Path) -> Iterator[tuple[Target, httpx.Client]]:
    """A service with a model, on an empty home."""
    with tempfile.TemporaryDirectory() as home:
        # before the packages of the checkout that this environment has installed
        packages = ("", "clients/python", "packages/forests", "packages/verifier")
        environ = {
            "GROVEKEEPER_HOME": home,
            "GROVEKEEPER_LOG_LEVEL": "WARNING",
            "PYTHONPATH": os.pathsep.join(str(checkout / path) for path in packages),
        }
        with _process(
            ["app.cli", "serve", "--port", "0"], environ, folder=checkout
        ) as (process, port):
            key = (Path(home) / "admin.key").read_text(encoding="ascii").strip()
            headers = {"Authorization": f"Bearer {key}"}
            with httpx.Client(
                base_url=f"http://127.0.0.1:{port}", headers=headers, timeout=300
            ) as http:
                yield (
                    Target(process.pid, port, f"/models/{_trained(http)}/predict", key),
                    http,
                )


@contextmanager
def _bare_route(service: Target, answer: bytes) -> Iterator[Target]:
    """The bare route with a fixed answer."""
    with tempfile.NamedTemporaryFile() as file:
        Path(file.name).write_bytes(answer)
        with _process(
            ["benchmarks.http_prediction", "--bare", file.name], {}, folder=_HERE
        ) as (process, port):
            yield replace(service, pid=process.pid, port=port)


def main(before: Path | None) -> None:
    """Prints all shares."""
    with ExitStack() as services:
        service, http = services.enter_context(running_service(_HERE))
        earlier = (
            None
            if before is None
            else services.enter_context(running_service(before))[0]
        )
        named = f"{'bare route' if earlier is None else before} / service"
        print(
            f"{named:<40}{'cpu':>9}{'wall':>9}{'p50':>9}{'p99':>9}{'us of CPU':>11}{'reference':>11}"
        )
        for n_rows, n_requests in ((1, 2_000), (1_000, 64)):
            body = json.dumps({"rows": rows_of(n_rows)}).encode("ascii")
            answer = http.post(service.path, content=body, headers=_JSON).content
            with (
                nullcontext(earlier)
                if earlier is not None
                else _bare_route(service, answer) as reference
            ):
                for name, sent in _senders(n_requests).items():
                    compare(
                        f"{n_rows:,} rows, {name}",
                        (service, body),
                        (reference, body),
                        sent,
                    )
        _compare_protocols(service)


def _senders(n_requests: int) -> dict[str, Sent]:
    raw = {
        f"{n} sockets": partial(block, n_clients=n, n_requests=n_requests)
        for n in (1, 16)
    }
    return raw | {
        name: partial(block_of, name, n_requests=n_requests) for name in _LIBRARIES
    }


def _compare_protocols(service: Target) -> None:
    """Compares a row as ``/v2`` takes it with the row of ``/predict``."""
    (row,) = rows_of(1)
    columns = [
        {"name": name, "datatype": "FP64", "shape": [1], "data": [cell]}
        for name, cell in row.items()
    ]
    whole = [
        {
            "name": "row",
            "datatype": "FP64",
            "shape": [1, _N_FEATURES],
            "data": list(row.values()),
        }
    ]
    plain = json.dumps({"rows": [row]}).encode("ascii")
    by_v2 = replace(service, path=f"/v2{service.path.removesuffix('predict')}infer")
    for name, inputs in (
        ("/predict / /v2, a tensor per column", columns),
        ("/predict / /v2, one tensor", whole),
    ):
        body = json.dumps({"inputs": inputs}).encode("ascii")
        compare(
            name,
            (by_v2, body),
            (service, plain),
            partial(block, n_clients=1, n_requests=1_000),
        )


def serve_bare(answer: Path) -> None:
    """Serves the bare route until a signal, and prints its address first."""
    with bound("127.0.0.1", 0) as listener:
        print(f"http://127.0.0.1:{listener.getsockname()[1]}", flush=True)
        uvicorn.Server(
            uvicorn.Config(
                bare(answer.read_bytes()), access_log=False, log_level="warning"
            )
        ).run([listener])


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument(
        "--bare", type=Path, help="serve the bare route with the answer in this file"
    )
    parser.add_argument(
        "--before", type=Path, help="a checkout of the commit to compare with"
    )
    given = parser.parse_args()
    main(given.before) if given.bare is None else serve_bare(given.bare)
