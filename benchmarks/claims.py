"""Measures the duration of a worker's claim by the number of queued jobs, of jobs that ended today, and of keys.

Run ``python -m benchmarks.claims``. Jobs are written into the table in bulk; the measured code is
``services.execution.run_job.claim_next``, as in the worker: it looks for a queued job, then claims it in a committed
transaction. The output is the median time, and in brackets the CPU of this process. SQLite works inside the process,
PostgreSQL does not.
"""

import statistics
import tempfile
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from sqlalchemy import insert

from app.jobs.states import EndReason, JobState
from app.jobs.tables import JobRow
from app.services.execution.run_job import claim_next
from app.services.installation import Installation
from benchmarks.ledger import databases
from tests.support.crash_scene import open_installation

_REPEATS = 20
_BULK = 10_000
_SIZES = ((1_000, 0, 20), (10_000, 0, 20), (100_000, 0, 20), (100_000, 100_000, 20), (100_000, 100_000, 1_000))
"""Numbers of queued jobs, of jobs that ended today, and of keys that submitted them in turn."""


def fill(installation: Installation, *, n_queued: int, n_ended: int, n_keys: int) -> None:
    """Adds jobs until the table has these numbers of them."""
    begun = datetime.now(UTC) - timedelta(hours=12)
    failed = {"state": JobState.FAILED.value, "reason": EndReason.FAILED.value}
    rows: list[dict[str, Any]] = []
    for number in range(n_queued + n_ended):
        at = begun + timedelta(milliseconds=number)
        ended = {**failed, "charged_at": at, "finished_at": at} if number < n_ended else {}
        rows.append(_row(f"jb_{n_queued}_{n_ended}_{n_keys}_{number}", f"key_{number % n_keys}", at) | ended)
    for first in range(0, len(rows), _BULK):
        with installation.database.write() as session:
            session.execute(insert(JobRow), rows[first : first + _BULK])


def _row(job_id: str, key_id: str, at: datetime) -> dict[str, Any]:
    return {column.name: None for column in JobRow.__table__.columns} | {
        "id": job_id,
        "dataset_id": "ds_any",
        "dataset_name": "any",
        "kind": "profile",
        "task": {"work": {}, "parts": []},
        "submitted_by": key_id,
        "submitted_at": at,
        "waits_since": at,
        "state": JobState.QUEUED.value,
        "trees_done": 0,
        "n_trees": 0,
    }


def measure(installation: Installation) -> str:
    """Medians of claims in milliseconds: wall-clock time, and CPU of this process."""
    times, cpu = [], []
    for _ in range(_REPEATS):
        start, started = time.perf_counter(), time.process_time()
        claim = claim_next(installation)
        times.append(time.perf_counter() - start)
        cpu.append(time.process_time() - started)
        assert claim is not None, "jobs are queued"
    return f"{statistics.median(times) * 1_000:.1f} ({statistics.median(cpu) * 1_000:.1f})"


def main() -> None:
    """Prints the medians on both databases."""
    print(f"{'database':<11} {'queued':>9} {'ended':>9} {'keys':>7} {'claim ms':>16}")
    with databases() as urls, tempfile.TemporaryDirectory() as folder:
        for name, url in urls:
            installation = open_installation(url, Path(folder) / name, pool_size=2)
            for n_queued, n_ended, n_keys in _SIZES:
                with installation.database.write() as session:
                    session.query(JobRow).delete()
                fill(installation, n_queued=n_queued, n_ended=n_ended, n_keys=n_keys)
                print(f"{name:<11} {n_queued:>9} {n_ended:>9} {n_keys:>7} {measure(installation):>16}", flush=True)
            installation.close()


if __name__ == "__main__":
    main()
