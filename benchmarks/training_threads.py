"""Measures how much faster two threads train than one. Elapsed times mean something on
an idle machine only.

Run ``python -m benchmarks.training_threads``, or with ``--rows 1000000 --pairs 5``. The
table and the jobs are those of ``benchmarks.training_size``; codes of the rows are
stored before the first pair. The output has, per job, medians of pairs that run one
after the other:

* elapsed time with one thread over that with two, both without the time of the same job
  on no row;
* processor time of two threads over that of one;
* processor time of one thread over that of the busier of two: what the speed would be
  if neither had to wait for the other or for a processor;
* peak of private memory with one thread and with two, as a ratio to the bytes that the
  rows need.

Linux only.
"""

import argparse
import statistics
import tempfile
from pathlib import Path

from app.core.sealed_files import DataKey
from benchmarks.training_size import JOBS, Job, Measured, needed_bytes, run, store

_HEADINGS = (
    "algorithm",
    "rows",
    "one thread s",
    "speed of two",
    "CPU of two / one",
    "speed without waits",
    "private memory",
    "of two threads",
)


def main() -> None:
    """Prints a Markdown table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument(
        "--algorithms", nargs="+", default=[job.algorithm for job in JOBS]
    )
    parser.add_argument("--pairs", type=int, default=3)
    options = parser.parse_args()
    key = DataKey.random()
    print("| " + " | ".join(_HEADINGS) + " |\n" + "|---" * len(_HEADINGS) + "|")
    with tempfile.TemporaryDirectory() as home:
        empty, rows = (store(Path(home), n_rows, key) for n_rows in (0, options.rows))
        for job in JOBS:
            if job.algorithm in options.algorithms:
                # compiles loops and stores codes
                run(job, rows, key, public_size=options.rows, threads=1)
                idle = run(job, empty, key, public_size=options.rows, threads=1)
                pairs = [
                    tuple(
                        run(job, rows, key, public_size=options.rows, threads=threads)
                        for threads in (1, 2)
                    )
                    for _ in range(options.pairs)
                ]
                print(_line(job, options.rows, pairs, idle), flush=True)


def _line(
    job: Job, n_rows: int, pairs: list[tuple[Measured, ...]], idle: Measured
) -> str:
    one_s = statistics.median(one.elapsed_s - idle.elapsed_s for one, _ in pairs)
    speed = statistics.median(
        (one.elapsed_s - idle.elapsed_s) / (two.elapsed_s - idle.elapsed_s)
        for one, two in pairs
    )
    cpu = statistics.median(
        (two.cpu_s - idle.cpu_s) / (one.cpu_s - idle.cpu_s) for one, two in pairs
    )
    busier = statistics.median(
        (one.cpu_s - idle.cpu_s) / _busier_s(two, idle) for one, two in pairs
    )
    memory = [
        max(measured.private_bytes for measured in side)
        for side in zip(*pairs, strict=True)
    ]
    cells = (
        f"`{job.algorithm}`",
        f"{n_rows:,}",
        f"{one_s:.1f}",
        f"{speed:.2f}",
        f"{cpu:.2f}",
        f"{busier:.2f}",
        *(
            f"{private_bytes / needed_bytes(job, n_rows):.2f}"
            for private_bytes in memory
        ),
    )
    return "| " + " | ".join(cells) + " |"


def _busier_s(two: Measured, idle: Measured) -> float:
    main_s = two.main_cpu_s - idle.main_cpu_s
    return max(main_s, two.cpu_s - idle.cpu_s - main_s)


if __name__ == "__main__":
    main()
