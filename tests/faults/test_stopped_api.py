"""Tests an API process that is stopped (SIGSTOP) while it predicts by cached authority."""

import signal
import time
from contextlib import ExitStack
from pathlib import Path

import httpx
import pytest

from app.core import limits
from tests.faults import checks, traffic
from tests.faults.deployment import ADMIN_KEY, Fork, replicated
from tests.support.server import new_idempotency_key, training

_ADMIN = {"Authorization": f"Bearer {ADMIN_KEY}"}
_ROWS = {"rows": [{"age": 39, "sex": "Male"}]}
_MARGIN_S = 10.0
"""Much longer than needed, because other processes use the processors."""


@pytest.mark.long
def test_a_revocation_does_not_wait_for_a_stopped_process_that_predicts(
    tmp_path: Path, fork: Fork
) -> None:
    with replicated(tmp_path, fork) as deployment, ExitStack() as clients:
        here, there = (
            clients.enter_context(
                httpx.Client(
                    base_url=api.url or "",
                    headers=_ADMIN,
                    timeout=60,
                    trust_env=False,
                )
            )
            for api in deployment.apis
        )
        dataset = traffic.declared_objects(str(here.base_url)).members[0]
        accepted = here.post(
            "/train", json=training(dataset), headers=new_idempotency_key()
        )
        checks.wait_for_jobs(deployment)
        job = here.get(f"/jobs/{accepted.json()['job_id']}").json()
        key = here.post("/keys", json={"name": "predictor", "roles": ["admin"]}).json()
        headers = {"Authorization": f"Bearer {key['key']}"}
        path = f"/models/{job['model_id']}/predict"
        predicted = [
            there.post(path, json=_ROWS, headers=headers).status_code
            for _ in range(300)
        ]
        assert set(predicted) == {200}
        deployment.apis[1].signal(signal.SIGSTOP)
        began_s = time.monotonic()
        assert here.delete(f"/keys/{key['id']}", timeout=60).status_code == 204
        assert time.monotonic() - began_s < limits.REVOCATION_S + _MARGIN_S
        deployment.apis[1].signal(signal.SIGCONT)
        assert there.post(path, json=_ROWS, headers=headers).status_code == 401
