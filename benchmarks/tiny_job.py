"""Measures a small job from its submission to its end: charge, child process, model.

Run ``python -m benchmarks.tiny_job``. Each round trains two trees on 200 rows, in a new
child that loads its modules (a worker's first job), and in a child that waits with its
modules loaded (every later job). A worker looks for a job every half second when it is
idle; that time is left out.
"""

import os
import statistics
import tempfile
import time
from pathlib import Path

from app.core.processes import Stop
from app.db import migrate
from app.services.execution.run_job import claim_next, run_job
from app.services.installation import Installation
from app.wire.training import TrainIn
from app.worker.supervise import CHILDREN, Supervisor
from tests.support.asking import submit_training
from tests.support.crash_scene import OWNER, open_installation
from tests.support.job_kinds import request
from tests.support.people import SCHEMA, declared, upload

_ROUNDS = 7
_SETTLE_S = 5.0


def _seconds_of_job(installation: Installation, dataset: str) -> float:
    body = TrainIn.model_validate(
        {
            "dataset": dataset,
            "algorithm": "rpf",
            "epsilon": "0.1",
            "parameters": {"n_estimators": 2, "max_depth": 3},
        }
    )
    started = time.perf_counter()
    submit_training(
        installation, OWNER, body, request=request("POST /train", os.urandom(8).hex())
    )
    claim = claim_next(installation)
    assert claim is not None
    run_job(installation, claim, Supervisor(interval_s=0, stop=Stop()).run)
    return time.perf_counter() - started


def main() -> None:
    """Prints one line."""
    with tempfile.TemporaryDirectory() as folder:
        url = f"sqlite:///{folder}/grovekeeper.sqlite3"
        migrate.upgrade(url)
        installation = open_installation(url, Path(folder) / "home", lease_ttl_s=3_600)
        dataset = str(declared(installation, schema=SCHEMA, public_size=200)["id"])
        upload(
            installation,
            dataset,
            b"age,income\n" + b"".join(b"%d,low\n" % (row % 90) for row in range(200)),
        )
        first, later = list[float](), list[float]()
        for _ in range(_ROUNDS):
            first.append(_seconds_of_job(installation, dataset))
            CHILDREN.prepare()
            time.sleep(_SETTLE_S)  # the child loads its modules
            later.append(_seconds_of_job(installation, dataset))
        installation.close()
    ratio = statistics.median(
        after / before for before, after in zip(first, later, strict=True)
    )
    print(
        f"first job {statistics.median(first):.2f} s, later jobs {statistics.median(later):.2f} s, "
        f"median of the paired ratios {ratio:.2f}"
    )


if __name__ == "__main__":
    main()
