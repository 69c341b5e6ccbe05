"""Compares two workers with one on independent jobs, with a home for each and one
object store.

``python -m benchmarks.machines`` takes about four minutes on an idle machine with two
processors, and prints for each repetition the seconds from the first charge to the last
end of the same jobs by one worker and by two, and their ratio; then the median.
``--jobs 4 --repeats 1`` only shows that it runs. Needs PostgreSQL
(``TEST_POSTGRES_URL`` or the test dependencies).

Each worker and its children have one processor of their own, as on a machine of its
own. PostgreSQL shares the processors with them, as it would not there. Busy processors
are those of the whole machine: with one worker, more than 1.5 mean that other work
disturbs the comparison.
"""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import psutil
from sqlalchemy import select

from app.core import processes
from app.core.sealed_files import StorageKeys
from app.core.settings import Settings
from app.db import migrate
from app.jobs.states import JobState
from app.jobs.tables import JobRow
from app.ledger.checkpoints import Signer
from app.services.ledger.heads import Heads
from tests.support.crash_scene import Scene, open_with
from tests.support.postgres import fresh_database, running_server

_UPLOADS = 20
_LOOK_S = 0.25
_GIVE_UP_S = 600


@dataclass(frozen=True)
class _Measured:
    """Seconds of the jobs, and processors that were busy meanwhile."""

    seconds: float
    busy: float


def main() -> None:
    """Prints the seconds and the ratio of every repetition, and the median ratio."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument(
        "address", nargs="?", help="of a store, s3://bucket/prefix; a folder by default"
    )
    arguments.add_argument("--jobs", type=int, default=24)
    arguments.add_argument("--repeats", type=int, default=3)
    asked = arguments.parse_args()
    processors = sorted(os.sched_getaffinity(0))[:2]
    if len(processors) < 2:
        sys.exit("two workers need two processors")
    ratios = []
    with tempfile.TemporaryDirectory() as folder, running_server() as server:
        for repeat in range(asked.repeats):
            measured = {}
            # a slow drift of the machine favours neither
            for n_workers in (1, 2) if repeat % 2 == 0 else (2, 1):
                home = Path(folder, f"{repeat}-{n_workers}")
                address = (
                    asked.address
                    and f"{asked.address.rstrip('/')}/{home.name}-{os.getpid()}"
                )
                with fresh_database(server) as url:
                    measured[n_workers] = _measured(
                        url,
                        home,
                        address or f"file://{home / 'bucket'}",
                        processors[:n_workers],
                        n_jobs=asked.jobs,
                    )
            one, two = measured[1], measured[2]
            ratios.append(one.seconds / two.seconds)
            print(
                f"1 worker {one.seconds:.1f} s ({one.busy:.1f} busy), 2 workers {two.seconds:.1f} s ({two.busy:.1f} "
                f"busy), ratio {ratios[-1]:.2f}{', NOT IDLE' if one.busy > 1.5 else ''}",
                flush=True,
            )
    print(
        f"median ratio {statistics.median(ratios):.2f} of {len(ratios)}, least {min(ratios):.2f}"
    )


def _measured(
    url: str, folder: Path, address: str, processors: list[int], *, n_jobs: int
) -> _Measured:
    """Runs the jobs by a worker on each of some processors."""
    migrate.upgrade(url)
    settings = Settings(
        home=folder / "api",
        database_url=url,
        store=address,
        storage_key=StorageKeys.new_text(),
        signing_key_file=folder / "signing.key",
    )
    settings.home.mkdir(parents=True)
    Signer.open(folder / "signing.key", make=True)
    with ExitStack() as closes:
        installation = closes.enter_context(closing(open_with(settings)))
        Heads(installation).confirm()
        scene = Scene.declared(installation)
        for _ in range(_UPLOADS):
            scene.upload()
        workers = [
            closes.enter_context(
                _worker(settings, folder / f"worker-{processor}", processor)
            )
            for processor in processors
        ]
        warm = [
            scene.submit_job(key=f"warm {number}", epsilon="0.001")
            for number in range(2 * len(workers))
        ]
        _end(scene, warm, workers)
        busy, began = _busy_s(), time.perf_counter()
        rows = _end(
            scene,
            [scene.submit_job(key=f"{n}", epsilon="0.001") for n in range(n_jobs)],
            workers,
        )
        busy = (_busy_s() - busy) / (time.perf_counter() - began)
    first = min(row.charged_at for row in rows if row.charged_at is not None)
    last = max(row.finished_at for row in rows if row.finished_at is not None)
    return _Measured((last - first).total_seconds(), busy)


@contextmanager
def _worker(
    settings: Settings, home: Path, processor: int
) -> "Iterator[subprocess.Popen[bytes]]":
    own = replace(settings, home=home)
    environ = processes.module_environment(
        dict(os.environ)
        | {
            "GROVEKEEPER_HOME": str(own.home),
            "GROVEKEEPER_DATABASE_URL": own.database_url,
            "GROVEKEEPER_STORE": str(own.store),
            "GROVEKEEPER_STORAGE_KEY": str(own.storage_key),
            "GROVEKEEPER_SIGNING_KEY_FILE": str(own.signing_key_file),
            "GROVEKEEPER_POLL_INTERVAL_S": "0.05",
            "GROVEKEEPER_LOG_LEVEL": "WARNING",
        }
    )
    with subprocess.Popen(
        processes.module_command("app.cli", "worker"),
        env=environ,
        preexec_fn=partial(os.sched_setaffinity, 0, {processor}),
    ) as worker:
        try:
            yield worker
        finally:
            worker.terminate()


def _end(
    scene: Scene, jobs: list[str], workers: "list[subprocess.Popen[bytes]]"
) -> list[JobRow]:
    """Waits until jobs have succeeded; returns their rows."""
    gives_up_at = time.monotonic() + _GIVE_UP_S
    while True:
        with scene.installation.database.read() as session:
            rows = list(
                session.execute(select(JobRow).where(JobRow.id.in_(jobs))).scalars()
            )
        if all(row.state == JobState.SUCCEEDED for row in rows):
            return rows
        if any(row.state in (JobState.FAILED, JobState.CANCELLED) for row in rows):
            sys.exit("a job failed")
        if (
            any(worker.poll() is not None for worker in workers)
            or time.monotonic() > gives_up_at
        ):
            sys.exit("a worker ended, or the jobs take too long")
        time.sleep(_LOOK_S)


def _busy_s() -> float:
    """Seconds of processor time that the machine has spent on anything."""
    spent = psutil.cpu_times()
    return float(
        sum(spent) - spent.idle - spent.iowait - spent.guest - spent.guest_nice
    )


if __name__ == "__main__":
    main()
