"""Compares two workers with one on independent jobs, with a home for each and one object store.

``python -m benchmarks.machines ADDRESS`` needs PostgreSQL (``TEST_POSTGRES_URL`` or the test dependencies) and prints
the seconds in which one worker and two workers end the same jobs, and their ratio. ``ADDRESS`` is of a store, such as
``s3://bucket/prefix``; a folder of this machine by default. Two workers need two idle processors.
"""

import os
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from app.cli import own_process
from app.core.data_keys import StorageKeys
from app.core.settings import Settings
from app.db import migrate
from app.jobs import queue
from app.ledger.notes import Signer
from app.services.ledger.heads import Heads
from tests.support.crash_scene import Scene, open_with
from tests.support.postgres import fresh_database, running_server

_JOBS = 24
_UPLOADS = 20
_REPEATS = 3


def main(address: str | None) -> None:
    """Prints the seconds and the ratio of every repetition."""
    with ExitStack() as closes:
        folder = Path(closes.enter_context(tempfile.TemporaryDirectory()))
        server = closes.enter_context(running_server())
        for repeat in range(_REPEATS):
            seconds = []
            for n_workers in (1, 2):
                home = folder / f"{repeat}-{n_workers}"
                with fresh_database(server) as url:
                    seconds.append(_seconds(url, home, address or f"file://{home / 'bucket'}", n_workers=n_workers))
            print(f"1 worker: {seconds[0]:.1f} s, 2 workers: {seconds[1]:.1f} s, ratio {seconds[0] / seconds[1]:.2f}")


def _seconds(url: str, folder: Path, address: str, *, n_workers: int) -> float:
    """Seconds from the first claim until all jobs have ended."""
    migrate.upgrade(url)
    settings = Settings(
        home=folder / "api",
        database_url=url,
        store=address,
        storage_key=StorageKeys.new_text(),
        signing_key_file=folder / "signing.key",
        poll_interval_s=0.05,
    )
    settings.home.mkdir(parents=True)
    Signer.open(folder / "signing.key", make=True)
    installation = open_with(settings)
    Heads(installation).confirm()
    scene = Scene.declared(installation)
    for _ in range(_UPLOADS):
        scene.upload()
    with ExitStack() as closes:
        workers = [closes.enter_context(_worker(settings, folder / f"worker-{number}")) for number in range(n_workers)]
        _end(scene, [scene.submit_job(key=f"warm {number}") for number in range(2 * n_workers)])
        began = time.perf_counter()
        _end(scene, [scene.submit_job(key=f"{number}") for number in range(_JOBS)])
        took = time.perf_counter() - began
        for worker in workers:
            worker.terminate()
    installation.close()
    return took


def _worker(settings: Settings, home: Path) -> "subprocess.Popen[bytes]":
    own = replace(settings, home=home)
    environ = own_process.environment(
        dict(os.environ)
        | {
            "GROVEKEEPER_HOME": str(own.home),
            "GROVEKEEPER_DATABASE_URL": own.database_url,
            "GROVEKEEPER_STORE": str(own.store),
            "GROVEKEEPER_STORAGE_KEY": str(own.storage_key),
            "GROVEKEEPER_SIGNING_KEY_FILE": str(own.signing_key_file),
            "GROVEKEEPER_POLL_INTERVAL_S": "0.05",
        }
    )
    return subprocess.Popen([sys.executable, "-m", "app.cli", "worker"], env=environ, stderr=subprocess.DEVNULL)


def _end(scene: Scene, jobs: list[str]) -> None:
    """Waits until jobs have ended."""
    while True:
        with scene.installation.database.read() as session:
            if not any(queue.is_unfinished(session, job) for job in jobs):
                return
        time.sleep(0.02)


if __name__ == "__main__":
    main(*(sys.argv[1:] or [None]))
