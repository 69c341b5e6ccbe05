"""Tests thirty-two concurrent callers of a server, and two workers, on one SQLite file."""

import json
import os
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import httpx

from tests.support.crash_scene import CELLS, Scene, open_reservations, opened
from tests.support.processes import running, stop

_ROOT = Path(__file__).parents[2]
_KEY = "key_callers." + "k" * 43
_READY = "Grovekeeper is ready at "
N_CALLERS, N_ROUNDS = 32, 4
_SETTLED_WITHIN_S = 600


def _calls(client: httpx.Client, dataset: str, *, caller: int, turn: int) -> list[tuple[str, int]]:
    """One round of a caller: quotes, submits twice with one key, reads, and cancels in every second round."""
    statuses = []

    def call(method: str, path: str, **options: Any) -> httpx.Response:
        answer = client.request(method, path, **options)
        statuses.append((f"{method} {path.split('/')[1]}", answer.status_code))
        return answer

    body = {
        "dataset": dataset,
        "algorithm": "rdt-ta",
        "epsilon": "0.2",
        "parameters": {"n_estimators": 2, "max_depth": 2},
        "scope": {"shard": [(caller + turn) % CELLS]},
    }
    key = {"Idempotency-Key": f"{caller}-{turn}"}
    call("POST", "/plans", json=body)
    answer = call("POST", "/train", json=body, headers=key)
    call("GET", f"/ledger/{dataset}")
    call("GET", "/jobs", params={"limit": 5})
    call("GET", f"/ledger/{dataset}/entries", params={"limit": 5})
    if answer.status_code == 202:
        assert call("POST", "/train", json=body, headers=key).content == answer.content
        call("GET", answer.headers["Location"])
        if turn % 2:
            call("DELETE", answer.headers["Location"])
    return statuses


def _call_from_all_threads(url: str, dataset: str) -> tuple[Counter[tuple[str, int]], list[BaseException]]:
    statuses: Counter[tuple[str, int]] = Counter()
    failures: list[BaseException] = []
    gate = threading.Barrier(N_CALLERS)

    def run(caller: int) -> None:
        try:
            headers = {"Authorization": f"Bearer {_KEY}"}
            with httpx.Client(base_url=url, headers=headers, timeout=300, trust_env=False) as client:
                gate.wait(timeout=300)
                for turn in range(N_ROUNDS):
                    statuses.update(_calls(client, dataset, caller=caller, turn=turn))
        except BaseException as failure:  # noqa: BLE001 - reported by the test's assertion
            failures.append(failure)

    threads = [threading.Thread(target=run, args=(caller,)) for caller in range(N_CALLERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return statuses, failures


def _wait_until_settled(scene: Scene, *, enough: int) -> None:
    """Waits until no reservation is open, or until ``enough`` jobs were charged."""
    deadline = time.monotonic() + _SETTLED_WITHIN_S
    while time.monotonic() < deadline:
        entries = scene.entries()
        n_charged = sum(entry.kind == "charge" for entry in entries)
        if n_charged >= enough or not open_reservations(entries):
            return
        time.sleep(0.2)
    raise TimeoutError("the workers settled too little")


def test_concurrent_callers_and_workers_cause_no_error(sqlite_database_url: str, tmp_path: Path) -> None:
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("GROVEKEEPER_")}
    environ = inherited | {
        "PYTHONPATH": str(_ROOT),
        "GROVEKEEPER_HOME": str(tmp_path / "home"),
        "GROVEKEEPER_DATABASE_URL": sqlite_database_url,
        "GROVEKEEPER_ADMIN_KEY": _KEY,
        "GROVEKEEPER_POLL_INTERVAL_S": "0.05",
    }
    command = [sys.executable, "-m", "app.cli", "serve", "--port", "0", "--workers", "2"]
    log = tmp_path / "log"
    with (
        opened(sqlite_database_url, tmp_path / "home") as scene,
        running(command, cwd=tmp_path, environ=environ, log=log) as server,
    ):
        assert server.stdout is not None
        url = server.stdout.readline().removeprefix(_READY).strip()
        statuses, failures = _call_from_all_threads(url, scene.dataset_id)
        _wait_until_settled(scene, enough=8)
        assert stop(server) == 0
        summary = scene.verified()
    assert failures == []
    assert {status for _, status in statuses} == {200, 202, 409}, statuses
    n_rounds, n_jobs = N_CALLERS * N_ROUNDS, summary.kinds["reserve"]
    assert statuses["POST train", 202] == 2 * n_jobs, "each accepted request was repeated with the same key"
    assert statuses["POST train", 409] == n_rounds - n_jobs > 0, "some requests were refused"
    assert statuses["POST plans", 200] == n_rounds
    assert statuses["GET ledger", 200] == 2 * n_rounds
    assert statuses["GET jobs", 200] == n_rounds + n_jobs
    troubles = [line for line in map(json.loads, _lines(log)) if line["level"] in ("WARNING", "ERROR", "CRITICAL")]
    assert troubles == []


def _lines(log: Path) -> list[str]:
    return log.read_text(encoding="utf-8").splitlines()
