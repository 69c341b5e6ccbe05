"""Measures requests of honest keys beside the requests of one hostile key, or of
callers without a key.

Run ``python -m benchmarks.neighbours``; ``--before <folder>`` measures a checkout of an
earlier commit, and names of attacks choose among them. The service, the hostile client
and the honest client run in processes of their own. For each attack, quiet and attacked
phases alternate; a figure is the 95th percentile of the attacked phases over that of
the quiet ones. The lines to reach are 3 for predictions, 5 for other requests, and one
second for a revocation, health and metrics.
"""

import argparse
import asyncio
import itertools
import json
import pickle
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pyarrow as pa
import pyarrow.ipc

from benchmarks.http_prediction import Target, running_service

_HERE = Path(__file__).parents[1]
_JSON, _ARROW = "application/json", "application/vnd.apache.arrow.stream"
_N_WIDE = 2_000
_N_PHASES = 4
_PHASE_S = 1.5
_WARM_S = 0.7
_PAUSE_S = 0.01
_ANSWER_WITHIN_S = 30.0
SECONDS = ("revoke", "health", "metrics")
"""Requests whose line is a time; those of the others are ratios."""


@dataclass(frozen=True)
class Attack:
    """Requests that connections send again and again. Each waits for its answer, unless
    it leaves or holds.
    """

    requests: Sequence[bytes]
    n_connections: int
    leaves: bool = False
    holds: bool = False


def request(
    method: str,
    path: str,
    key: str,
    body: bytes = b"",
    media: str = _JSON,
    **fields: str,
) -> bytes:
    """A whole request."""
    lines = [
        f"{method} {path} HTTP/1.1",
        "Host: x",
        f"Authorization: Bearer {key}",
        f"Content-Length: {len(body)}",
    ]
    lines += [f"Content-Type: {media}"] * bool(body) + [
        f"{name.replace('_', '-')}: {it}" for name, it in fields.items()
    ]
    return "\r\n".join([*lines, "", ""]).encode() + body


async def _answer(reader: asyncio.StreamReader) -> None:
    head = await reader.readuntil(b"\r\n\r\n")
    lengths = [
        line
        for line in head.lower().split(b"\r\n")
        if line.startswith(b"content-length")
    ]
    await reader.readexactly(int(lengths[0].partition(b":")[2]) if lengths else 0)


async def _hostile(port: int, attack: Attack, first: int) -> None:
    for number in itertools.count(first):
        with suppress(OSError, asyncio.IncompleteReadError):
            reader, writer = await asyncio.open_connection(
                "127.0.0.1", port, limit=2**24
            )
            while True:
                writer.write(attack.requests[number % len(attack.requests)])
                await writer.drain()
                if attack.holds:
                    await reader.read()
                    break
                if attack.leaves:
                    break
                await _answer(reader)
            writer.close()
        await asyncio.sleep(0.001)


def attack_for_ever(port: int, attack: Attack) -> None:
    """The main function of the hostile process."""

    async def run() -> None:
        async with asyncio.TaskGroup() as clients:
            for first in range(attack.n_connections):
                clients.create_task(_hostile(port, attack, first))
            await asyncio.sleep(_WARM_S)
            print("attacking", flush=True)

    asyncio.run(run())


@contextmanager
def attacked(port: int, attack: Attack) -> Iterator[None]:
    """An attack in a process of its own."""
    with tempfile.NamedTemporaryFile() as file:
        Path(file.name).write_bytes(pickle.dumps((port, attack)))
        program = [sys.executable, "-m", "benchmarks.neighbours", "--attack", file.name]
        process = subprocess.Popen(program, cwd=_HERE, stdout=subprocess.PIPE)
        try:
            assert process.stdout is not None
            process.stdout.readline()
            yield
        finally:
            process.kill()
            process.wait(30)


class Honest:
    """The requests of honest keys, one at a time over connections that stay open."""

    def __init__(
        self, url: str, keys: dict[str, str], dataset: str, model: str
    ) -> None:
        self._clients = {
            name: httpx.Client(
                base_url=url,
                headers={"Authorization": f"Bearer {key}"},
                timeout=_ANSWER_WITHIN_S,
            )
            for name, key in keys.items()
        }
        self._dataset, self._model = dataset, model
        self._revocable = self._new_keys()
        self._aliases = itertools.count()
        self.seconds: dict[str, list[float]] = defaultdict(list)
        self.refused = 0

    def measure(self, duration_s: float) -> dict[str, list[float]]:
        """Seconds of each kind of request, sent in turns."""
        self.seconds = defaultdict(list)
        ends = time.perf_counter() + duration_s
        while time.perf_counter() < ends:
            for name in (
                "predict",
                "predict",
                "ledger",
                "alias",
                "jobs",
                "quote",
                "health",
                "metrics",
                "revoke",
            ):
                began = time.perf_counter()
                try:
                    answer = self._send(name)
                    self.refused += answer.status_code >= 400
                except httpx.HTTPError:
                    self.refused += 1
                self.seconds[name].append(time.perf_counter() - began)
                time.sleep(_PAUSE_S)
                if time.perf_counter() > ends + duration_s:
                    break
        return self.seconds

    def _new_keys(self) -> Iterator[str]:
        """Ids of keys that nobody has revoked; made ahead, so that only the revocation
        is measured.
        """
        while True:
            made = [
                self._clients["admin"].post("/keys", json={"name": "x", "roles": []})
                for _ in range(500)
            ]
            yield from (str(answer.json()["id"]) for answer in made)

    def _send(self, name: str) -> httpx.Response:
        admin, dataset = self._clients["admin"], self._dataset
        if name == "predict":
            row = {f"x{index}": 0.5 for index in range(14)}
            return self._clients["predictor"].post(
                f"/models/{self._model}/predict", json={"rows": [row]}
            )
        if name == "ledger":
            return self._clients["auditor"].get(f"/ledger/{dataset}")
        if name == "alias":
            path = f"/datasets/{dataset}/aliases/honest{next(self._aliases) % 2}"
            return self._clients["analyst"].put(path, json={"model": self._model})
        if name == "jobs":
            return self._clients["analyst"].get("/jobs?limit=10")
        if name == "quote":
            body = {"dataset": dataset, "algorithm": "mrf", "epsilon": "1"}
            return self._clients["analyst"].post("/plans", json=body)
        if name == "health":
            return admin.get("/readyz")
        if name == "metrics":
            return admin.get("/metrics")
        return admin.delete(f"/keys/{next(self._revocable)}")


def _created(
    http: httpx.Client, role: str | None, dataset: str, *, roles: Sequence[str] = ()
) -> tuple[str, str]:
    answer = (
        http.post("/keys", json={"name": f"bench {role}", "roles": list(roles)})
        .raise_for_status()
        .json()
    )
    if role:
        http.put(
            f"/datasets/{dataset}/grants/{answer['id']}", json={"role": role}
        ).raise_for_status()
    return str(answer["id"]), str(answer["key"])


def _wide_model(http: httpx.Client) -> str:
    """The id of a model with as many columns as a schema may have."""
    features = [
        {
            "name": f"x{index}",
            "type": "numeric",
            "lower": 0,
            "upper": 1,
            "missing": True,
        }
        for index in range(_N_WIDE)
    ]
    label = {"name": "y", "classes": ["no", "yes"]}
    declared = {
        "name": "wide", "schema": {"features": features, "label": label}, "public_size": 100,
        "budget": {"accountant": "pure", "epsilon": "10"},
    }  # fmt: skip
    http.post("/datasets", json=declared).raise_for_status()
    values = np.random.default_rng(0).random((50, _N_WIDE)).round(2)
    header = ",".join([*(f"x{index}" for index in range(_N_WIDE)), "y"])
    text = "\n".join(
        [header, *(",".join([*map(str, row), "yes"]) for row in values.tolist()), ""]
    )
    http.post(
        "/datasets/wide/rows", content=text, headers={"Content-Type": "text/csv"}
    ).raise_for_status()
    return _model_of(
        http,
        {
            "dataset": "wide",
            "algorithm": "mrf",
            "epsilon": "1",
            "parameters": {"n_estimators": 2, "max_depth": 2},
        },
    )


def _model_of(http: httpx.Client, training: dict[str, Any]) -> str:
    job = (
        http.post("/train", json=training, headers={"Idempotency-Key": "wide"})
        .raise_for_status()
        .json()["job_id"]
    )
    while (shown := http.get(f"/jobs/{job}").json())["state"] in ("queued", "running"):
        time.sleep(0.5)
    return str(shown["model_id"])


def _cancelled_jobs(http: httpx.Client, n_jobs: int) -> None:
    for number in range(n_jobs):
        body = {"dataset": "bench", "algorithm": "mrf", "epsilon": "0.001"}
        job = (
            http.post("/train", json=body, headers={"Idempotency-Key": f"job {number}"})
            .json()
            .get("job_id")
        )
        http.delete(f"/jobs/{job}")


def attacks(
    http: httpx.Client, model: str, wide: str, dataset: str
) -> dict[str, Attack]:
    """The attacks by name, each by a key with the lowest role that can send its
    requests.
    """
    _, predictor = _created(http, "predictor", dataset)
    http.put(
        f"/datasets/wide/grants/{_}", json={"role": "predictor"}
    ).raise_for_status()
    _, analyst = _created(http, "analyst", dataset)
    _, owner = _created(http, None, dataset, roles=["owner"])
    _, owner_here = _created(http, "owner", dataset)
    granted, _ = _created(http, None, dataset)
    infer, predict = f"/v2/models/{model}/infer", f"/models/{model}/predict"
    tensor = {"name": "a", "datatype": "FP64", "shape": [0], "data": []}
    tensors = json.dumps({"inputs": [tensor] * 240_000}, separators=(",", ":")).encode()
    names = json.dumps(
        {"rows": [{f"n{index}": 1 for index in range(1_200_000)}]},
        separators=(",", ":"),
    ).encode()
    empty_rows = json.dumps({"rows": [{}] * 10_000}).encode()
    rows = [{f"x{index}": 0.5 for index in range(14)}] * 10_000
    sink = pa.BufferOutputStream()
    nulls = pa.table({f"x{index}": pa.nulls(10_000) for index in range(_N_WIDE)})
    with pyarrow.ipc.new_stream(sink, nulls.schema) as stream:
        stream.write_table(nulls)
    features = [
        {
            "name": f"x{index}",
            "type": "categorical",
            "categories": [f"c{number}" for number in range(140)],
        }
        for index in range(_N_WIDE)
    ]
    schema = {"features": features, "label": {"name": "y", "classes": ["a", "b"]}}
    budget = {"accountant": "pure", "epsilon": "1"}
    declared = [
        json.dumps(
            {
                "name": f"many{number}",
                "schema": schema,
                "public_size": 10,
                "budget": budget,
            }
        ).encode()
        for number in range(4)
    ]
    sends_nulls = request(
        "POST",
        f"/models/{wide}/predict",
        predictor,
        sink.getvalue().to_pybytes(),
        _ARROW,
    )
    wasteful = {"dataset": "bench", "algorithm": "mrf", "epsilon": "1000"}
    trainings = [
        request(
            "POST",
            "/train",
            analyst,
            json.dumps(wasteful).encode(),
            Idempotency_Key=f"k{number}",
        )
        for number in range(4_000)
    ]
    alias = json.dumps({"model": model}).encode()
    moves = [
        request("PUT", f"/datasets/{dataset}/aliases/a{it}", analyst, alias)
        for it in range(2)
    ]
    grants = [
        request(
            "PUT",
            f"/datasets/{dataset}/grants/{granted}",
            owner_here,
            json.dumps({"role": role}).encode(),
        )
        for role in ("analyst", "predictor")
    ]
    form = b"POST /ui/sign-in HTTP/1.1\r\nHost: x\r\nOrigin: http://x\r\nContent-Length: 100\r\n\r\n"
    return {
        "tensors": Attack([request("POST", infer, predictor, tensors)], 16),
        "tensors of clients that left": Attack([request("POST", infer, predictor, tensors)], 16, leaves=True),
        "names": Attack([request("POST", predict, predictor, names)], 16),
        "empty rows": Attack([request("POST", f"/models/{wide}/predict", predictor, empty_rows)], 32),
        "nulls": Attack([sends_nulls], 16),
        "large predictions": Attack([request("POST", predict, predictor, json.dumps({"rows": rows}).encode())], 16),
        "jobs": Attack([request("GET", "/jobs?limit=500", analyst)], 16),
        "declarations": Attack([request("POST", "/datasets", owner, body) for body in declared], 16),
        "ledger": Attack([request("GET", f"/ledger/{dataset}", analyst)], 16),
        "train": Attack(trainings, 16),
        "aliases": Attack(moves, 16),
        "grants": Attack(grants, 16),
        "wrong keys": Attack([request("GET", "/ledger", "gk_wrong")], 64),
        "sign-ins": Attack([form], 1_100, holds=True),
        "idle connections": Attack([b"G"], 2_060, holds=True),
    }  # fmt: skip


def main(checkout: Path, chosen: Sequence[str]) -> None:
    """Prints a row for each attack."""
    with running_service(checkout) as (target, http):
        model, dataset = (
            target.path.split("/")[2],
            str(http.get("/datasets/bench").json()["id"]),
        )
        wide = _wide_model(http)
        _cancelled_jobs(http, 500)
        table = attacks(http, model, wide, dataset)
        keys = {
            name: _created(http, name, dataset)
            for name in ("predictor", "analyst", "auditor")
        }
        honest = Honest(
            str(http.base_url),
            {name: key for name, (_, key) in keys.items()} | {"admin": target.key},
            dataset,
            model,
        )
        names = ("predict", "ledger", "alias", "jobs", "quote", *SECONDS)
        print(
            f"{'attack':<32}"
            + "".join(f"{name:>9}" for name in names)
            + f"{'refused':>9}",
            flush=True,
        )
        honest.measure(_PHASE_S)
        for name in chosen or table:
            print(
                f"{name:<32}{compare(target, table[name], honest, names)}", flush=True
            )


def compare(
    target: Target, attack: Attack, honest: Honest, names: Sequence[str]
) -> str:
    """The row of an attack."""
    quiet, beside = (
        defaultdict[str, list[float]](list),
        defaultdict[str, list[float]](list),
    )
    n_refused = 0
    for _ in range(_N_PHASES):
        for name, seconds in honest.measure(_PHASE_S).items():
            quiet[name] += seconds
        honest.refused = 0
        with attacked(target.port, attack):
            for name, seconds in honest.measure(_PHASE_S).items():
                beside[name] += seconds
        n_refused += honest.refused
        time.sleep(_WARM_S)
    shown = ""
    for name in names:
        after = float(np.percentile(beside[name] or [np.inf], 95))
        ratio = after / float(np.percentile(quiet[name], 95))
        shown += f"{after:8.2f}s" if name in SECONDS else f"{ratio:9.1f}"
    return f"{shown}{n_refused:9}"


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument(
        "--attack",
        type=Path,
        help="attack as this file says, until the process is killed",
    )
    parser.add_argument(
        "--before",
        type=Path,
        default=_HERE,
        help="a checkout to measure in place of this one",
    )
    parser.add_argument("attacks", nargs="*", help="names of attacks; all by default")
    given = parser.parse_args()
    if given.attack is None:
        main(given.before, given.attacks)
    else:
        attack_for_ever(*pickle.loads(given.attack.read_bytes()))  # noqa: S301  # written by this program
