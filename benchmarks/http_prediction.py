"""Measures predictions over HTTP, as ratios to a bare FastAPI route that reads the same bodies and answers the same.

Run ``python -m benchmarks.http_prediction``. The service and the bare route run in processes of their own, on uvicorn
with the same options. One client process sends blocks of requests to both in turn; ratios are medians of paired blocks.
Before each block, requests that are not measured give the service its lease on cached authority (ADR 0038).
CPU seconds are those of the server process. Above 1, the service is slower.

With ``--before <folder>``, a checkout of an earlier commit (``git worktree add <folder> 75ed3f2``), the reference is
the service of that commit with a model of its own.
"""

import argparse
import asyncio
import json
import os
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import uvicorn
from fastapi import FastAPI, Request, Response

from app.cli.serve import bound, server_config

_HERE = Path(__file__).parents[1]
_N_FEATURES = 14
_FEATURES = [
    {"name": f"x{index}", "type": "numeric", "lower": 0, "upper": 1, "bounds": "natural"}
    for index in range(_N_FEATURES)
]
_PAIRS = 9
_WARM_REQUESTS = 64
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


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
        """CPU seconds of the process so far."""
        fields = Path(f"/proc/{self.pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / _TICKS_PER_S


@dataclass(frozen=True)
class Block:
    """A block of requests to one target: seconds of each, seconds in all, and CPU seconds of the server."""

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


async def _exchange(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, request: bytes) -> bytes:
    writer.write(request)
    head = await reader.readuntil(b"\r\n\r\n")
    lines = head.lower().split(b"\r\n")
    length = next(int(line.partition(b":")[2]) for line in lines if line.startswith(b"content-length"))
    body = await reader.readexactly(length)
    assert head.startswith(b"HTTP/1.1 200"), head
    return body


async def _client(target: Target, request: bytes, n_requests: int, latencies_s: list[float]) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", target.port, limit=2**24)
    for _ in range(n_requests):
        began = time.perf_counter()
        await _exchange(reader, writer, request)
        latencies_s.append(time.perf_counter() - began)
    writer.close()
    await writer.wait_closed()


def block(target: Target, body: bytes, *, n_clients: int, n_requests: int) -> Block:
    """Sends requests over some connections at a time."""
    latencies_s: list[float] = []
    request = target.request(body)

    async def clients() -> None:
        await asyncio.gather(
            *(_client(target, request, n_requests // n_clients, latencies_s) for _ in range(n_clients))
        )

    cpu_s, began = target.cpu_s(), time.perf_counter()
    asyncio.run(clients())
    return Block(latencies_s, time.perf_counter() - began, target.cpu_s() - cpu_s)


def warm_block(target: Target, body: bytes, *, n_clients: int, n_requests: int) -> Block:
    """A block after another that is not measured, in which the process reads the caller and the model."""
    block(target, body, n_clients=n_clients, n_requests=_WARM_REQUESTS)
    return block(target, body, n_clients=n_clients, n_requests=n_requests)


def compare(name: str, service: Target, reference: Target, body: bytes, *, n_clients: int, n_requests: int) -> None:
    """Prints the service's figures as ratios to those of the reference."""
    ratios: dict[str, list[float]] = {"rate": [], "cpu": [], "p50": [], "p99": []}
    cpu_us = []
    for _ in range(_PAIRS):
        ours, theirs = (
            warm_block(target, body, n_clients=n_clients, n_requests=n_requests) for target in (service, reference)
        )
        ratios["rate"].append(theirs.wall_s / ours.wall_s)
        ratios["cpu"].append(ours.cpu_s / max(theirs.cpu_s, 1 / _TICKS_PER_S))
        ratios["p50"].append(ours.percentile_s(50) / theirs.percentile_s(50))
        ratios["p99"].append(ours.percentile_s(99) / theirs.percentile_s(99))
        cpu_us.append(ours.cpu_s / n_requests * 1e6)
    shown = "".join(f"{statistics.median(values):9.2f}" for values in ratios.values())
    print(f"{name:<40}{shown}{statistics.median(cpu_us):12.0f}", flush=True)


@contextmanager
def _process(
    arguments: list[str], environ: dict[str, str], *, folder: Path
) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """A server process of a checkout, and the port that its first line of output names."""
    process = subprocess.Popen(  # our own programs
        [sys.executable, "-m", *arguments], env=os.environ | environ, cwd=folder, stdout=subprocess.PIPE, text=True
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
            "schema": {"features": _FEATURES, "label": {"name": "y", "classes": ["no", "yes"]}},
            "budget": {"accountant": "pure", "epsilon": "10"},
            "public_size": 5000,
        },
    ).raise_for_status()
    values = np.random.default_rng(0).random((5_000, _N_FEATURES)).round(4)
    lines = [",".join([*(f"x{index}" for index in range(_N_FEATURES)), "y"])]
    lines += [",".join([*map(str, row), "yes" if row[0] + row[1] > 1 else "no"]) for row in values.tolist()]
    http.post(
        "/datasets/bench/rows", content="\n".join([*lines, ""]), headers={"Content-Type": "text/csv"}
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
        environ = {"GROVEKEEPER_HOME": home, "GROVEKEEPER_LOG_LEVEL": "WARNING"}
        with _process(["app.cli", "serve", "--port", "0"], environ, folder=checkout) as (process, port):
            key = (Path(home) / "admin.key").read_text(encoding="ascii").strip()
            headers = {"Authorization": f"Bearer {key}"}
            with httpx.Client(base_url=f"http://127.0.0.1:{port}", headers=headers, timeout=300) as http:
                yield Target(process.pid, port, f"/models/{_trained(http)}/predict", key), http


@contextmanager
def _bare_route(service: Target, answer: bytes) -> Iterator[Target]:
    """The bare route with a fixed answer."""
    with tempfile.NamedTemporaryFile() as file:
        Path(file.name).write_bytes(answer)
        with _process(["benchmarks.http_prediction", "--bare", file.name], {}, folder=_HERE) as (process, port):
            yield replace(service, pid=process.pid, port=port)


def main(before: Path | None) -> None:
    """Prints all ratios."""
    with ExitStack() as services:
        service, http = services.enter_context(running_service(_HERE))
        earlier = None if before is None else services.enter_context(running_service(before))[0]
        named = f"service / {'bare route' if earlier is None else before}"
        print(f"{named:<40}{'rate':>9}{'cpu':>9}{'p50':>9}{'p99':>9}{'cpu us/req':>12}")
        for n_rows, n_requests in ((1, 640), (1_000, 64)):
            body = json.dumps({"rows": rows_of(n_rows)}).encode("ascii")
            answer = http.post(service.path, content=body, headers={"Content-Type": "application/json"}).content
            with nullcontext(earlier) if earlier is not None else _bare_route(service, answer) as reference:
                for n_clients in (1, 16):
                    name = f"{n_rows:,} rows, {n_clients} clients"
                    compare(name, service, reference, body, n_clients=n_clients, n_requests=n_requests)


def serve_bare(answer: Path) -> None:
    """Serves the bare route until a signal, and prints its address first."""
    with bound("127.0.0.1", 0) as listener:
        print(f"http://127.0.0.1:{listener.getsockname()[1]}", flush=True)
        uvicorn.Server(server_config(bare(answer.read_bytes()))).run([listener])


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--bare", type=Path, help="serve the bare route with the answer in this file")
    parser.add_argument("--before", type=Path, help="a checkout of the commit to compare with")
    given = parser.parse_args()
    main(given.before) if given.bare is None else serve_bare(given.bare)
