"""Measures how well the duration of a job tells two datasets apart: the channel that a
release interval closes.

Run ``python -m benchmarks.job_duration``. The work of a job (read, grow, write) runs
for both datasets in turns. A guess says "the larger dataset" above a threshold that is
chosen on one half of the runs; its advantage on the other half is the rate of right
guesses less the rate of wrong ones. 0 is chance, 1 is certainty. The start of the child
process is left out, so a real observer sees more noise. Processor time stands for an
idle machine.
"""

import random
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from app.db import migrate
from app.services.drawing.perform import perform
from app.services.execution import charge
from app.services.installation import Installation
from app.services.jobs.task import JobTask
from app.wire.training import TrainIn
from tests.support.asking import submit_training
from tests.support.crash_scene import OWNER, open_installation
from tests.support.job_kinds import claimed, request
from tests.support.people import SCHEMA, declared, upload

_RUNS = 400
_N_ROWS = 20_000
_LARGER = {"a row more": _N_ROWS + 1, "100 rows more": _N_ROWS + 100, "1,000 rows more": _N_ROWS + 1_000,
           "twice the rows": 2 * _N_ROWS}  # fmt: skip
CLOCKS: dict[str, Callable[[], float]] = {
    "time": time.perf_counter,
    "processor time": time.process_time,
}


def advantage(smaller: Sequence[float], larger: Sequence[float]) -> float:
    """The advantage of the best threshold of the even runs on the odd runs."""
    thresholds = [*smaller[::2], *larger[::2]]
    threshold = max(
        thresholds, key=lambda at: _advantage_at(at, smaller[::2], larger[::2])
    )
    return _advantage_at(threshold, smaller[1::2], larger[1::2])


def _advantage_at(
    threshold: float, smaller: Sequence[float], larger: Sequence[float]
) -> float:
    return statistics.mean(each > threshold for each in larger) - statistics.mean(
        each > threshold for each in smaller
    )


def _task(installation: Installation, n_rows: int) -> JobTask:
    """A charged job on a new dataset of so many rows."""
    dataset = declared(installation, schema=SCHEMA, public_size=_N_ROWS)["id"]
    stream = random.Random(7)
    rows = (
        f"{stream.randrange(1000)},{('low', 'high')[stream.random() < 0.3]}\n"
        for _ in range(n_rows)
    )
    upload(installation, dataset, ("age,income\n" + "".join(rows)).encode())
    body = TrainIn.model_validate(
        {"dataset": dataset, "algorithm": "rpf", "epsilon": "1"}
    )
    submit_training(installation, OWNER, body, request=request("POST /train", dataset))
    task = charge.charge_claimed(installation, claimed(installation))
    task.folder.mkdir(parents=True)
    return task


def _durations(tasks: Sequence[JobTask]) -> dict[str, list[list[float]]]:
    """The durations of the runs of each task, by clock."""
    durations: dict[str, list[list[float]]] = {
        name: [[] for _ in tasks] for name in CLOCKS
    }
    for _ in range(_RUNS):
        for index, task in enumerate(tasks):
            begun = {name: clock() for name, clock in CLOCKS.items()}
            perform(task, on_tree_done=lambda: None)
            for name, clock in CLOCKS.items():
                durations[name][index].append(clock() - begun[name])
    return durations


def main() -> None:
    """Prints one line per pair of datasets and clock."""
    with tempfile.TemporaryDirectory() as folder:
        url = f"sqlite:///{folder}/grovekeeper.sqlite3"
        migrate.upgrade(url)
        installation = open_installation(url, Path(folder) / "home", lease_ttl_s=3_600)
        smaller = _task(installation, _N_ROWS)
        perform(smaller, on_tree_done=lambda: None)  # compiles kernels
        for name, n_rows in _LARGER.items():
            for clock, measured in _durations(
                [smaller, _task(installation, n_rows)]
            ).items():
                medians = " and ".join(
                    f"{statistics.median(each) * 1e3:.1f} ms" for each in measured
                )
                print(
                    f"{name}, {clock}: advantage {advantage(*measured):.2f}, medians {medians}"
                )
        installation.close()


if __name__ == "__main__":
    main()
