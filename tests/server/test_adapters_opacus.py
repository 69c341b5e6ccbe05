"""A training with Opacus on accounts of the service, with the real library in an
environment of its own, which takes 5.4 GB with the libraries of graphics cards that
PyTorch does not start without.
"""

import json
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from tests.support.environments import environment, version_in
from tests.support.server import Server

ROOT = Path(__file__).parents[2]
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
    pytest.mark.parametrize("server", ["sqlite"], indirect=True),
]


@pytest.fixture(scope="module")
def python() -> Iterator[Path]:
    # on a disk: temporary files of tests are in memory, which this would fill
    with TemporaryDirectory(dir="/var/tmp") as folder:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("TMPDIR", folder)  # of pip, which downloads 2.6 GB
            python = environment("opacus", Path(folder) / "venv")
        yield python


Run = Callable[..., list[str]]


@pytest.fixture
def run(
    python: Path, server: Server, record_property: Callable[[str, object], None]
) -> Run:
    """Runs a script on a dataset, and returns its lines."""
    record_property("version", version_in(python, "opacus"))

    def run_script(dataset: dict[str, Any], *script: str | Path) -> list[str]:
        command = [python, *script, server.url, server.admin.key, dataset["id"]]
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, env=ENVIRONMENT
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.splitlines()

    return run_script


def test_every_paid_step_is_taken_none_beyond_and_a_refused_training_reads_nothing(
    server: Server, run: Run
) -> None:
    dataset = server.declared(budget=ZCDP)
    example = ROOT / "docs" / "examples" / "with_opacus.py"
    price, *lines = [json.loads(line) for line in run(dataset, example)]
    assert (price["unit"], price["delta"]) == ("rho", "0.0000001")
    paid = ["rows opened", 20, "0 paid steps are left"]
    assert lines == [*paid, *paid, "budget-exceeded"]


def test_what_fails_before_the_charge_is_free_and_other_noise_is_no_step(
    server: Server, run: Run
) -> None:
    lines = run(server.declared(budget=ZCDP), "-c", WRONG)
    free = ["UnsupportedModuleError", "Unpriced", "Refused", "0"]
    assert lines == [*free, "UnpaidStep", "True"]
