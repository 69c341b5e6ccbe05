"""Measures ``grovekeeper predict --output`` against a live service: rows per second and
core, and CPU as a ratio to a program that copies the file with Python's ``csv``.

Run ``python -m benchmarks.prediction_files``. A service with one worker trains ``rpf``
with default parameters on 20,000 random rows of 10 numbers and 4 categories. The command
then predicts a file with a column that it keeps, in a process of its own. CPU seconds
are those of the command and of all processes of the service. Linux only.
"""

import csv
import os
import random
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pyarrow.csv
import pyarrow.parquet

from grovekeeper_client import Grovekeeper

_N_ROWS = 1_000_000
_N_TRAINED = 20_000
_NUMBERS = [f"x{index}" for index in range(10)]
_WORDS = [f"c{index}" for index in range(4)]
_CATEGORIES = "abcdefgh"
_COPY = """
import csv, sys
with open(sys.argv[1], newline="") as source, open(sys.argv[2], "w") as target:
    csv.writer(target).writerows(csv.reader(source))
"""


@contextmanager
def served(home: Path) -> Iterator[tuple[str, int]]:
    """The address of a service, and the id of its session."""
    command = [sys.executable, "-m", "app.cli", "serve", "--port", "0"]
    process = subprocess.Popen(
        command,
        env=os.environ | {"GROVEKEEPER_HOME": str(home)},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
    )
    assert process.stdout is not None
    try:
        line = next(line for line in process.stdout if "ready at" in line)
        yield line.split()[-1], process.pid
    finally:
        process.terminate()
        process.wait()


def cpu_s_of(session: int) -> float:
    """CPU seconds so far of the living processes of a session."""
    ticks = 0
    for status in Path("/proc").glob("[0-9]*/stat"):
        fields = status.read_text().rpartition(")")[2].split()
        if int(fields[3]) == session:
            ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def write_rows(file: Path, n_rows: int, last: str) -> None:
    """Random rows; the last column is an id or the label."""
    rng = random.Random(1)
    with file.open("w", newline="") as stream:
        rows = csv.writer(stream)
        rows.writerow([*_NUMBERS, *_WORDS, last])
        for index in range(n_rows):
            numbers = [f"{rng.random():.6f}" for _ in _NUMBERS]
            end = "ny"[numbers[0] > "0.5"] if last == "y" else f"p{index}"
            rows.writerow([*numbers, *rng.choices(_CATEGORIES, k=len(_WORDS)), end])


def trained(gk: Grovekeeper, file: Path) -> str:
    """The id of a model."""
    numbers = [
        {"name": name, "type": "numeric", "lower": 0, "upper": 1} for name in _NUMBERS
    ]
    words = [
        {"name": name, "type": "categorical", "categories": list(_CATEGORIES)}
        for name in _WORDS
    ]
    label = {"name": "y", "classes": ["n", "y"]}
    dataset = gk.declare(
        {
            "name": "benchmark",
            "schema": {"features": [*numbers, *words], "label": label},
            "budget": {"accountant": "pure", "epsilon": "3"},
            "public_size": _N_TRAINED,
        }
    )
    dataset.upload(file)
    return dataset.train("rpf", epsilon="1").wait(progress=False).id


def used_s(command: Sequence[str]) -> float:
    """CPU seconds of a command."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    """Prints the figures."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        rows, plain = folder / "rows.csv", folder / "rows.parquet"
        write_rows(folder / "train.csv", _N_TRAINED, "y")
        write_rows(rows, _N_ROWS, "patient")
        pyarrow.parquet.write_table(pyarrow.csv.read_csv(rows), plain)
        copy_s = used_s([sys.executable, "-c", _COPY, str(rows), f"{rows}.copy"])
        with served(folder / "home") as (url, session):
            os.environ["GROVEKEEPER_URL"] = url
            os.environ["GROVEKEEPER_HOME"] = str(folder / "home")
            model = trained(Grovekeeper(), folder / "train.csv")
            for source, target in ((rows, "out.csv"), (plain, "out.parquet")):
                output = folder / target
                command = ["predict", model, str(source), "--output", str(output)]
                typed = [sys.executable, "-m", "app.cli", *command, "--keep", "patient"]
                began, served_s = time.perf_counter(), cpu_s_of(session)
                client_s = used_s(typed)
                served_s = cpu_s_of(session) - served_s
                all_s = client_s + served_s
                print(
                    f"{source.suffix[1:]} to {output.suffix[1:]}: "
                    f"{_N_ROWS / all_s:,.0f} rows per second and core "
                    f"(command {client_s:.1f} s, service {served_s:.1f} s, "
                    f"{all_s / copy_s:.2f} of a copy by csv; "
                    f"{time.perf_counter() - began:.1f} s)"
                )
            # before the service ends, whose memory would count
            peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
            print(f"largest memory of a command: {peak / 1024:.0f} MB")


if __name__ == "__main__":
    main()
