"""Measures the duration of a worker's claim by the number of jobs, of ended jobs, of
keys, and of frozen jobs.

Run ``python -m benchmarks.claims``. Jobs are written into the table in bulk; the
measured code is ``services.execution.run_job.claim_next``, as in the worker: it looks
for a queued job, then claims it in a committed transaction. The output is the median
time, and in brackets the CPU of this process. SQLite works inside the process,
PostgreSQL does not.
"""

import statistics
import tempfile
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from sqlalchemy import delete, insert

from app.jobs.states import EndReason, JobState
from app.jobs.tables import JobDatasetRow, JobRow
from app.ledger.tables import RulesRow
from app.services.execution.run_job import claim_next
from app.services.installation import Installation
from benchmarks.ledger import databases
from tests.support.crash_scene import open_installation

_REPEATS = 20
_BULK = 10_000
_SIZES = (
    (1_000, 0, 20, 0),
    (10_000, 0, 20, 0),
    (100_000, 0, 20, 0),
    (100_000, 100_000, 20, 0),
    (100_000, 100_000, 1_000, 0),
    (1_000, 0, 20, 100_000),
    (1_000, 0, 1_000, 100_000),
)
"""Numbers of queued jobs, of jobs that ended today, of keys that submitted them in
turn, and of earlier queued jobs of a frozen dataset.
"""
_OPEN, _FROZEN = "ds_open", "ds_frozen"


def fill(
    installation: Installation,
    *,
    n_queued: int,
    n_ended: int,
    n_keys: int,
    n_frozen: int,
) -> None:
    """Fills the tables of jobs and of rules with these numbers of jobs."""
    begun = datetime.now(UTC) - timedelta(hours=12)
    failed = {"state": JobState.FAILED.value, "reason": EndReason.FAILED.value}
    rows: list[dict[str, Any]] = []
    for number in range(n_frozen + n_queued + n_ended):
        at = begun + timedelta(milliseconds=number)
        ended = (
            {**failed, "charged_at": at, "finished_at": at}
            if number >= n_frozen + n_queued
            else {}
        )
        rows.append(
            _row(
                f"jb_{number}",
                f"key_{number % n_keys}",
                _FROZEN if number < n_frozen else _OPEN,
                at,
            )
            | ended
        )
    with installation.database.write() as session:
        for table in (JobRow, JobDatasetRow, RulesRow):
            session.execute(delete(table))
        if n_frozen:
            session.add(
                RulesRow(
                    account_id=_FROZEN,
                    quotas=[],
                    is_frozen=True,
                    changed_by="key_0",
                    changed_at=begun,
                )
            )
    for first in range(0, len(rows), _BULK):
        part = rows[first : first + _BULK]
        with installation.database.write() as session:
            session.execute(insert(JobRow), part)
            session.execute(
                insert(JobDatasetRow),
                [
                    {"job_id": row["id"], "dataset_id": row["dataset_id"]}
                    for row in part
                ],
            )


def _row(job_id: str, key_id: str, dataset_id: str, at: datetime) -> dict[str, Any]:
    return {column.name: None for column in JobRow.__table__.columns} | {
        "id": job_id,
        "dataset_id": dataset_id,
        "dataset_name": dataset_id,
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
    return (
        f"{statistics.median(times) * 1_000:.1f} ({statistics.median(cpu) * 1_000:.1f})"
    )


def main() -> None:
    """Prints the medians on both databases."""
    print(
        f"{'database':<11} {'queued':>9} {'ended':>9} {'keys':>7} {'frozen':>9} {'claim ms':>16}"
    )
    with databases() as urls, tempfile.TemporaryDirectory() as folder:
        for name, url in urls:
            installation = open_installation(url, Path(folder) / name, pool_size=2)
            for n_queued, n_ended, n_keys, n_frozen in _SIZES:
                fill(
                    installation,
                    n_queued=n_queued,
                    n_ended=n_ended,
                    n_keys=n_keys,
                    n_frozen=n_frozen,
                )
                sizes = f"{n_queued:>9} {n_ended:>9} {n_keys:>7} {n_frozen:>9}"
                print(f"{name:<11} {sizes} {measure(installation):>16}", flush=True)
            installation.close()


if __name__ == "__main__":
    main()
