"""Measures one process that submits training requests from many threads, for
:mod:`benchmarks.admission`.

Run by file name with a checkout of the project as the working folder, so that an
earlier version can be measured, too. Reads commands from standard input and answers
each with one line of JSON:
``{"n_clients": 32, "n_accounts": 1, "seconds": 2}``.
"""

import argparse
import itertools
import json
import sys
import threading
import time
from pathlib import Path

sys.path.insert(0, str(Path.cwd()))

from sqlalchemy import event

from app.core import limits
from app.db import migrate
from tests.support.crash_scene import Scene, opened
from tests.support.two_datasets import Pair

_SERIAL = itertools.count()


def measure(
    scene: Scene, *, n_clients: int, n_accounts: int, seconds: float
) -> dict[str, float]:
    """Accepted requests per second, and CPU milliseconds and statements of each.
    Clients are dealt to accounts.
    """
    scenes = [
        scene,
        *(
            Pair.beside(scene, name=f"beside-{next(_SERIAL)}").second
            for _ in range(n_accounts - 1)
        ),
    ]
    counts, n_statements = [0] * n_clients, [0]
    gate = threading.Barrier(n_clients)
    engine = scene.installation.database.engine

    def count(*_: object) -> None:
        n_statements[0] += 1

    def run(client: int) -> None:
        gate.wait()
        end = time.perf_counter() + seconds
        while time.perf_counter() < end:
            scenes[client % n_accounts].submit(
                key=f"k{next(_SERIAL)}", epsilon="0.000001"
            )
            counts[client] += 1

    event.listen(engine, "before_cursor_execute", count)
    threads = [
        threading.Thread(target=run, args=(client,)) for client in range(n_clients)
    ]
    wall, cpu = time.perf_counter(), time.process_time()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    event.remove(engine, "before_cursor_execute", count)
    n = sum(counts)
    return {
        "rate": n / wall,
        "cpu_ms": cpu * 1_000 / n,
        "statements": n_statements[0] / n,
    }


def main() -> None:
    """Opens an installation with one dataset, and obeys commands until standard input
    ends.
    """
    parser = argparse.ArgumentParser()
    parser.add_argument("url")
    parser.add_argument("home", type=Path)
    options = parser.parse_args()
    limits.MAX_UNFINISHED_JOBS_PER_KEY = 10**9
    migrate.upgrade(options.url)
    with opened(options.url, options.home, epsilon="1000000000") as scene:
        for number in range(3):
            scene.submit(key=f"first {number}")
        print("ready", flush=True)
        for line in sys.stdin:
            print(json.dumps(measure(scene, **json.loads(line))), flush=True)


if __name__ == "__main__":
    main()
