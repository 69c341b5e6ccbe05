"""Measures the memory and the time of training by the number of rows, in the child
process that runs jobs.

Run ``python -m benchmarks.training_size`` (a million rows), or with ``--rows 100000
1000000 10000000``. A generated table of 20 columns (numbers, whole numbers, categories;
two classes) is stored as an upload is. Each job runs in the product's child process, on
one processor. The output has, per job:

* processor time per row, without that of the same job on no row; its slope over the
  number of rows, both logarithmic, from the size before; elapsed time;
* peak memory, in bytes per row and as a ratio to the bytes that the rows need: one byte
  per row and column, and the state that the algorithm's page in docs/proofs states. The
  second ratio is of memory of the process alone, without pages of libraries, which all
  processes share; the third is without the peak of the same job on no row, which is
  what the process itself takes.

Linux only.
"""

import argparse
import json
import math
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path

import numpy as np
import pyarrow as pa

from app.core.files import Directory
from app.core.memory import LARGE_PAGES
from app.core.processes import scrubbed_environment
from app.core.sealed_files import DataKey
from app.datasets import row_files, row_layout
from app.datasets.admission import ROW_ID_BYTES
from app.services.jobs.task import JobTask, PartRows
from grovekeeper_forests.data.schema import Feature, Label, Schema
from grovekeeper_forests.privacy.calibration import Terms
from grovekeeper_forests.privacy.partitions import Partitions
from grovekeeper_forests.privacy.scope import WHOLE
from grovekeeper_forests.releases.forest.price import PlanRequest, plan

N_COLUMNS = 20
_GROUP_ROWS = 2**17
_PARTITIONS = Partitions(())
_HEADINGS = (
    "algorithm",
    "rows",
    "CPU µs/row",
    "slope",
    "elapsed s",
    "peak bytes/row",
    "ratio",
    "ratio of private memory",
    "ratio without process",
)


@dataclass(frozen=True)
class Measured:
    """One job: seconds of processor time and elapsed time, and peak memory in bytes.

    Attributes:
        cpu_s: of all threads.
        main_cpu_s: of the main thread.
        elapsed_s: from the start of the process to its end.
        peak_bytes: resident, pages of libraries included.
        private_bytes: without pages of files; the most that was seen every twentieth of
            a second.
    """

    cpu_s: float
    main_cpu_s: float
    elapsed_s: float
    peak_bytes: int
    private_bytes: int


@dataclass(frozen=True)
class Job:
    """A training request of fixed size, and the bytes of state per row that its
    algorithm needs beside the codes.
    """

    algorithm: str
    parameters: Mapping[str, object]
    state_bytes: int
    terms: Mapping[str, object] = field(default_factory=dict)


JOBS = (
    Job("rpf", {"n_estimators": 4, "max_depth": 6}, 26),
    Job(
        "nbrt",
        {"n_estimators": 100, "max_depth": 6},
        16,
        {"accountant": "gdp", "delta": Fraction(1, 10**6)},
    ),
    Job("mrf", {"n_estimators": 8, "max_depth": 8}, 8),
)


def schema() -> Schema:
    """Eight numbers, six whole numbers, six unordered columns."""
    numbers = [Feature(f"n{i}", "numeric", lower=-8.0, upper=8.0) for i in range(8)]
    wholes = [
        Feature(
            f"w{i}", "integer", lower=0.0, upper=float((9, 99, 99, 999, 999, 99_999)[i])
        )
        for i in range(6)
    ]
    categories = [
        Feature(
            f"c{i}",
            "categorical",
            categories=tuple(f"v{code}" for code in range((2, 3, 5, 8, 12, 20)[i])),
        )
        for i in range(6)
    ]
    return Schema((*numbers, *wholes, *categories), Label("y", ("no", "yes")))


def _groups(declared: Schema, n_rows: int) -> Iterator[pa.Table]:
    form = row_layout.arrow_schema(declared, _PARTITIONS)
    for start in range(0, n_rows, _GROUP_ROWS):
        stream = np.random.default_rng((7, start))
        n_group = min(_GROUP_ROWS, n_rows - start)
        hidden = stream.normal(size=n_group)
        columns: list[pa.Array] = []
        for feature in declared.features:
            signal = hidden * stream.random() + stream.normal(size=n_group)
            if feature.is_categorical:
                n_codes = len(feature.categories)
                codes = np.clip((signal + 3) / 6 * n_codes, 0, n_codes - 1)
                columns.append(pa.array(codes.astype(np.int32)))
            elif feature.type == "integer":
                columns.append(
                    pa.array(np.rint(np.clip((signal + 3) / 6, 0, 1) * feature.upper))
                )
            else:
                columns.append(pa.array(np.clip(signal, feature.lower, feature.upper)))
        columns.append(
            pa.array((hidden + stream.normal(size=n_group) > 0).astype(np.int32))
        )
        ids = pa.py_buffer(stream.bytes(ROW_ID_BYTES * n_group))
        columns.append(
            pa.Array.from_buffers(pa.binary(ROW_ID_BYTES), n_group, [None, ids])
        )
        yield pa.Table.from_arrays(columns, schema=form)


def store(home: Path, n_rows: int, key: DataKey) -> Path:
    """Writes an upload of so many rows; returns its path."""
    declared = schema()
    file = row_files.sealed_rows(Directory(home), "ds_size", f"ep_{n_rows}", key=key)
    with (
        file.new(existing="replace") as written,
        row_layout.writer(
            written, row_layout.arrow_schema(declared, _PARTITIONS)
        ) as writer,
    ):
        for table in _groups(declared, n_rows):
            writer.write_table(table)
    return file.file.local()


def run(
    job: Job, rows: Path, key: DataKey, *, public_size: int, threads: int
) -> Measured:
    """Runs one job in the product's child process, on so many processors."""
    declared = schema()
    terms = Terms(Fraction(1), **job.terms)  # type: ignore[arg-type]
    request = PlanRequest(job.algorithm, job.parameters, terms, public_size)
    planned = plan(request, declared)
    with tempfile.TemporaryDirectory() as folder:
        part = PartRows(declared.to_json(), (rows,), [], WHOLE, key)
        task = JobTask(
            "train",
            "job",
            Path(folder),
            {"plan": planned.to_json()},
            planned.n_trees,
            (part,),
            {},
        )
        processors = sorted(os.sched_getaffinity(0))[:threads]
        started = time.perf_counter()
        child = subprocess.Popen(
            [sys.executable, "-m", "app.worker.child", str(os.getpid())],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            env={**scrubbed_environment(), **LARGE_PAGES},
            preexec_fn=lambda: os.sched_setaffinity(0, processors),
        )
        assert child.stdin is not None
        child.stdin.write(task.to_text().encode() + b"\n")
        child.stdin.flush()
        private_bytes = _watched(child.pid)
        elapsed = time.perf_counter() - started
        main_cpu_s = _main_thread_s(child.pid)
        _, status, usage = os.wait4(child.pid, 0)
        child.stdin.close()
        if status != 0 or not task.output_path.is_file():
            raise SystemExit(f"{job.algorithm} failed on {public_size} rows")
    return Measured(
        usage.ru_utime + usage.ru_stime,
        main_cpu_s,
        elapsed,
        usage.ru_maxrss * 1024,
        private_bytes,
    )


def _watched(process: int) -> int:
    """Waits until a child has ended, without collecting it; returns the most private
    memory that was seen.
    """
    most = 0
    while os.waitid(os.P_PID, process, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
        status = Path(f"/proc/{process}/status").read_text()
        if "RssAnon:" in status:  # absent once the process has ended
            most = max(most, int(status.split("RssAnon:")[1].split()[0]) * 1024)
        time.sleep(0.05)
    return most


def _main_thread_s(process: int) -> float:
    times = (
        Path(f"/proc/{process}/task/{process}/stat")
        .read_text()
        .rpartition(")")[2]
        .split()[11:13]
    )
    return sum(map(int, times)) / os.sysconf("SC_CLK_TCK")


def main() -> None:
    """Prints a Markdown table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", nargs="+", type=int, default=[1_000_000])
    parser.add_argument(
        "--algorithms", nargs="+", default=[job.algorithm for job in JOBS]
    )
    parser.add_argument(
        "--parameters",
        type=json.loads,
        help="JSON, instead of the fixed trees and depth",
    )
    options = parser.parse_args()
    key = DataKey.random()
    print("| " + " | ".join(_HEADINGS) + " |\n" + "|---" * len(_HEADINGS) + "|")
    with tempfile.TemporaryDirectory() as home:
        files = {
            n_rows: store(Path(home), n_rows, key) for n_rows in (0, *options.rows)
        }
        for job in JOBS:
            if job.algorithm not in options.algorithms:
                continue
            if options.parameters is not None:
                job = Job(job.algorithm, options.parameters, job.state_bytes, job.terms)
            # compiles loops
            run(job, files[0], key, public_size=options.rows[0], threads=1)
            idle = run(job, files[0], key, public_size=options.rows[0], threads=1)
            before: tuple[int, float] | None = None
            for n_rows in options.rows:
                measured = run(job, files[n_rows], key, public_size=n_rows, threads=1)
                print(_line(job, n_rows, measured, idle, before), flush=True)
                before = n_rows, measured.cpu_s - idle.cpu_s


def needed_bytes(job: Job, n_rows: int) -> int:
    """The codes of so many rows, and the state that the algorithm keeps of them."""
    return (N_COLUMNS + job.state_bytes) * n_rows


def _line(
    job: Job,
    n_rows: int,
    measured: Measured,
    idle: Measured,
    before: tuple[int, float] | None,
) -> str:
    needed, cpu_s = needed_bytes(job, n_rows), measured.cpu_s - idle.cpu_s
    slope = (
        "–"
        if before is None
        else f"{math.log(cpu_s / before[1]) / math.log(n_rows / before[0]):.2f}"
    )
    cells = (
        f"`{job.algorithm}`",
        f"{n_rows:,}",
        f"{cpu_s * 1e6 / n_rows:.2f}",
        slope,
        f"{measured.elapsed_s:.1f}",
        f"{measured.peak_bytes / n_rows:.0f}",
        f"{measured.peak_bytes / needed:.2f}",
        f"{measured.private_bytes / needed:.2f}",
        f"{(measured.peak_bytes - idle.peak_bytes) / needed:.2f}",
    )
    return "| " + " | ".join(cells) + " |"


if __name__ == "__main__":
    main()
