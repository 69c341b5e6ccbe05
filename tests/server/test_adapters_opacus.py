"""A training with Opacus on accounts of the service, in an environment with PyTorch,
which takes 5.6 GB with the libraries of graphics cards that it does not start without: no
lock installs it, and CI skips this file.

::

    python3 -m venv /tmp/opacus && /tmp/opacus/bin/pip install './clients/python[opacus]'
    OPACUS_PYTHON=/tmp/opacus/bin/python python3 run.py test -m long tests/server/test_adapters_opacus.py
"""

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.support.server import Server

ROOT = Path(__file__).parents[2]
PYTHON = os.environ.get("OPACUS_PYTHON", "")
ENVIRONMENT = {"NO_PROXY": "127.0.0.1", "PYTHONPATH": str(ROOT / "clients" / "python")}
ZCDP = {"accountant": "zcdp", "rho": "1", "delta": "1e-6", "delta_set_aside": "2.5e-7"}
WRONG = """
import sys, torch
from grovekeeper_client import Grovekeeper
from grovekeeper_client.adapters import opacus

dataset = Grovekeeper(*sys.argv[1:3]).dataset(sys.argv[3])

def unread():
    raise AssertionError("a row was read")

def failure(net, **changes):
    plan = opacus.Plan(**{"steps": 10, "noise_multiplier": 20.0, "sample_rate": 0.05,
                          "expected_batch_size": 50, "delta": "1e-8"} | changes)
    descent = torch.optim.SGD(net.parameters(), lr=0.1)
    try:
        training = opacus.Training(dataset, plan, net, descent, description="net")
        with training:
            training.optimizer.noise_multiplier = 0.1
            training.module(torch.randn(4, 2)).sum().backward()
            training.optimizer.step()
    except Exception as error:
        return type(error).__name__

print(failure(torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.BatchNorm1d(2))))
print(failure(torch.nn.Linear(2, 2), delta=None))
print(failure(torch.nn.Linear(2, 2), delta="1e-6"))
print(dataset.balance().charged)
print(failure(torch.nn.Linear(2, 2)))
print(dataset.balance().charged > 0)
"""

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(
        not PYTHON,
        reason="PyTorch takes 5.6 GB: OPACUS_PYTHON names a Python with Opacus",
    ),
    pytest.mark.parametrize("server", ["sqlite"], indirect=True),
]


def run(server: Server, dataset: dict[str, Any], *script: str | Path) -> list[str]:
    command = [PYTHON, *script, server.url, server.admin.key, dataset["id"]]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, env=ENVIRONMENT
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_every_paid_step_is_taken_none_beyond_and_a_refused_training_reads_nothing(
    server: Server,
) -> None:
    dataset = server.declared(budget=ZCDP)
    example = ROOT / "docs" / "examples" / "with_opacus.py"
    price, *lines = [json.loads(line) for line in run(server, dataset, example)]
    assert (price["unit"], price["delta"]) == ("rho", "0.0000001")
    paid = ["rows opened", 20, "0 paid steps are left"]
    assert lines == [*paid, *paid, "budget-exceeded"]


def test_what_fails_before_the_charge_is_free_and_other_noise_is_no_step(
    server: Server,
) -> None:
    lines = run(server, server.declared(budget=ZCDP), "-c", WRONG)
    free = ["UnsupportedModuleError", "Unpriced", "Refused", "0"]
    assert lines == [*free, "UnpaidStep", "True"]
