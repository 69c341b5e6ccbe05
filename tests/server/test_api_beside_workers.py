"""Tests concurrent callers of a server, and two workers, on one SQLite file."""

import json
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.support.crash_scene import CELLS, Scene, open_reservations, opened
from tests.support.server import Server, running_server, wake_workers
from tests.support.waiting import PATIENCE_S, wait_for

N_ROUNDS = 4


def _calls(
    client: httpx.Client, dataset: str, *, caller: int, turn: int
) -> list[tuple[str, int]]:
    """One round of a caller: quotes, submits twice with one key, reads, and cancels in
    every second round.
    """
    statuses = []

    def call(method: str, path: str, **options: Any) -> httpx.Response:
        answer = client.request(method, path, **options)
        statuses.append((f"{method} {path.split('/')[1]}", answer.status_code))
        return answer

    body = {
        "dataset": dataset,
        "algorithm": "rdt-ta",
        "epsilon": "0.5",
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


def _call_from_all_threads(
    server: Server, dataset: str, n_callers: int
) -> tuple[Counter[tuple[str, int]], list[BaseException]]:
    statuses: Counter[tuple[str, int]] = Counter()
    failures: list[BaseException] = []
    gate = threading.Barrier(n_callers)

    def run(caller: int) -> None:
        try:
            headers = {"Authorization": f"Bearer {server.admin.key}"}
            with httpx.Client(
                base_url=server.url, headers=headers, timeout=300, trust_env=False
            ) as client:
                gate.wait(PATIENCE_S)
                for turn in range(N_ROUNDS):
                    statuses.update(_calls(client, dataset, caller=caller, turn=turn))
        except BaseException as failure:  # noqa: BLE001 - reported by the test's assertion
            failures.append(failure)

    threads = [
        threading.Thread(target=run, args=(caller,)) for caller in range(n_callers)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return statuses, failures


def _wait_until_settled(scene: Scene, *, enough: int) -> None:
    """Waits until no reservation is open, or until ``enough`` jobs were charged."""

    def is_settled() -> bool:
        entries = scene.entries()
        n_charged = sum(entry.kind == "charge" for entry in entries)
        return n_charged >= enough or not open_reservations(entries)

    wait_for(f"{enough} jobs are charged, or all are settled", is_settled)


@pytest.mark.parametrize("n_callers", [12, pytest.param(32, marks=pytest.mark.long)])
def test_concurrent_callers_and_workers_cause_no_error(
    sqlite_database_url: str, tmp_path: Path, n_callers: int
) -> None:
    home = tmp_path / "home"
    with (
        opened(sqlite_database_url, home) as scene,
        running_server(sqlite_database_url, home, n_workers=2) as server,
    ):
        statuses, failures = _call_from_all_threads(server, scene.dataset_id, n_callers)
        wake_workers(server.settings)
        _wait_until_settled(scene, enough=8)
        summary = scene.verified()
        log = server.log()
    assert failures == []
    assert {status for _, status in statuses} == {200, 202, 409}, statuses
    n_rounds, n_jobs = n_callers * N_ROUNDS, summary.kinds["reserve"]
    assert statuses["POST train", 202] == 2 * n_jobs, (
        "each accepted request was repeated with the same key"
    )
    assert statuses["POST train", 409] == n_rounds - n_jobs > 0, (
        "some requests were refused"
    )
    assert statuses["POST plans", 200] == n_rounds
    assert statuses["GET ledger", 200] == 2 * n_rounds
    assert statuses["GET jobs", 200] == n_rounds + n_jobs
    logs = [
        log,
        *(
            path.read_text(encoding="utf-8")
            for path in tmp_path.glob("home-worker-*.log")
        ),
    ]
    lines = [json.loads(line) for text in logs for line in text.splitlines()]
    assert [
        line for line in lines if line["level"] in ("WARNING", "ERROR", "CRITICAL")
    ] == []
