"""Tests a worker that is stopped (SIGSTOP) inside a transaction, where it holds the
write lock of a SQLite file.
"""

import fcntl
import random
import secrets
import signal
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import httpx
import pytest

from tests.faults import checks, traffic
from tests.faults.deployment import ADMIN_KEY, Deployment, Fork, Part, embedded
from tests.support.server import training

_AT_ONCE = 12
_STOPPED_WITHIN_S = 120.0


@pytest.mark.long
@pytest.mark.parametrize("end", [signal.SIGCONT, signal.SIGKILL])
def test_others_are_answered_while_a_stopped_worker_holds_the_write_lock(
    tmp_path: Path, fork: Fork, end: signal.Signals
) -> None:
    with embedded(tmp_path, fork) as deployment, _client(deployment) as http:
        dataset = traffic.declared_objects(str(http.base_url)).members[0]

        def submit(key: str) -> httpx.Response:
            return http.post(
                "/train",
                json=training(dataset, epsilon="0.01"),
                headers={"Idempotency-Key": key},
            )

        keys = [secrets.token_hex(8) for _ in range(_AT_ONCE)]
        worker = _stopped_inside_a_transaction(
            deployment, lambda: submit(secrets.token_hex(8))
        )
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            waiting = [pool.submit(submit, key) for key in keys]
            for path in ("/healthz", "/readyz", f"/ledger/{dataset}", "/jobs"):
                assert http.get(path).status_code == 200, path
            answers = [answer.result() for answer in waiting]
        assert {answer.status_code for answer in answers} == {503}
        assert all(int(answer.headers["Retry-After"]) > 0 for answer in answers)
        worker.signal(end)
        deployment.heal()
        assert [submit(key).status_code for key in keys] == [202] * _AT_ONCE
        checks.wait_for_jobs(deployment)


def _stopped_inside_a_transaction(
    deployment: Deployment, submit: Callable[[], object]
) -> Part:
    """Stops the only worker again and again, until it holds the write lock."""
    worker, other = deployment.workers
    other.kill()
    deadline = time.monotonic() + _STOPPED_WITHIN_S
    while time.monotonic() < deadline:
        submit()
        for _ in range(20):
            worker.signal(signal.SIGSTOP)
            if _is_held(deployment):
                return worker
            worker.signal(signal.SIGCONT)
            time.sleep(random.random() / 50)
    raise AssertionError("the worker was never stopped inside a transaction")


def _is_held(deployment: Deployment) -> bool:
    """Whether the write lock stays held while nobody but a stopped worker uses it."""
    with (deployment.home / "grovekeeper.sqlite3.lock").open("rb") as lock:
        for _ in range(10):
            with suppress(BlockingIOError):
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return False
            time.sleep(0.03)
    return True


def _client(deployment: Deployment) -> httpx.Client:
    headers = {"Authorization": f"Bearer {ADMIN_KEY}"}
    return httpx.Client(
        base_url=deployment.apis[0].url or "",
        headers=headers,
        timeout=120,
        trust_env=False,
    )
