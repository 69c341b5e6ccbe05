"""Measures what a question to a Dask cluster on this machine costs beside counting in
one process.

    python -m benchmarks.dask_levels --rows 1000 4000000

For each number of rows, in one process and on one and two workers: seconds to read the
rows, and the median and least seconds of the sums of one level (a class histogram of 20
features in 16 nodes).
"""

import argparse
import tempfile
import time
from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import partial
from pathlib import Path

import numpy as np
import psutil
import pyarrow as pa
from numpy.typing import NDArray

from app.core.files import Directory
from app.datasets import private_rows, row_files, row_layout
from app.datasets.private_rows import Selection
from app.services.drawing.dask_fleet import Connection
from app.services.jobs.task import PartRows
from grovekeeper_forests.data.coded_rows import TrainingRows, parts_of
from grovekeeper_forests.data.encoding import Encoding
from grovekeeper_forests.data.schema import Feature, Label, Schema
from grovekeeper_forests.privacy.calibration import Terms
from grovekeeper_forests.privacy.partitions import Partitions
from grovekeeper_forests.privacy.scope import WHOLE
from grovekeeper_forests.releases.forest.draw import code_request
from grovekeeper_forests.releases.forest.price import PlanRequest, plan
from grovekeeper_forests.trees.tree_histograms import (
    Assignment,
    LocalHistograms,
    PartedTree,
)
from tests.support.dask_cluster import dask_cluster
from tests.support.uploads import DATA_KEY, store_table

N_FEATURES, DEPTH, REPEATS = 20, 4, 15
SCHEMA = Schema(
    tuple(
        Feature(f"x{index}", "numeric", lower=0.0, upper=1.0)
        for index in range(N_FEATURES)
    ),
    Label("y", ("a", "b")),
)


def stored(home: Path, n_rows: int) -> PartRows:
    """A part of a job on random rows."""
    generator = np.random.default_rng(1)
    form = row_layout.arrow_schema(SCHEMA, Partitions(()))
    columns = [pa.array(generator.random(n_rows)) for _ in range(N_FEATURES)]
    ids = pa.array([bytes(16)] * n_rows, form.field("row_id").type)
    table = pa.Table.from_arrays(
        [*columns, pa.array(generator.integers(0, 2, n_rows), pa.int32()), ids],
        schema=form,
    )
    file = row_files.sealed_rows(Directory(home), "ds_a", "ep_a", key=DATA_KEY)
    store_table(table, file, group_rows=2**17)
    return PartRows(
        SCHEMA.to_json(), (file.file.store.local(file.file.name),), [], WHOLE, DATA_KEY
    )


def timed(act: Callable[[], object]) -> float:
    """Seconds of a call."""
    began = time.perf_counter()
    act()
    return time.perf_counter() - began


def processor_s() -> float:
    """Processor seconds of this process and those that it started."""
    this = psutil.Process()
    return sum(
        sum(process.cpu_times()[:2])
        for process in (this, *this.children(recursive=True))
    )


def measure(
    name: str, read: Callable[[], TrainingRows], encoding: Encoding
) -> NDArray[np.int64]:
    """Prints the seconds of one way to count; returns a table of its sums, to compare
    ways.
    """
    began = time.perf_counter()
    tree = PartedTree(parts_of(read(), encoding, LocalHistograms, Assignment()), 0)
    tree.class_histogram(slice(0, N_FEATURES))
    read_s = time.perf_counter() - began
    for level in range(DEPTH):
        nodes = 2**level
        tree.descend(
            feature=np.full(nodes, level, dtype=np.int32),
            threshold=np.full(nodes, 15, dtype=np.uint8),
            equals=np.zeros(nodes, dtype=np.bool_),
        )
    counted = tree.class_histogram(slice(0, N_FEATURES))
    before = processor_s()
    level_s = [
        timed(lambda: tree.class_histogram(slice(0, N_FEATURES)))
        for _ in range(REPEATS)
    ]
    cpu_s = (processor_s() - before) / REPEATS
    seconds = (
        f"{read_s:.2f} | {np.median(level_s):.4f} | {min(level_s):.4f} | {cpu_s:.4f}"
    )
    print(f"| {name} | {seconds} | {counted.nbytes:,} |", flush=True)
    return counted


def compare(sizes: Sequence[int], folder: Path) -> None:
    """Prints a table, and checks that all ways give the same sums."""
    priced = plan(
        PlanRequest(
            "mrf", {"n_estimators": 1, "max_depth": DEPTH}, Terms(Fraction(1)), 10**6
        ),
        SCHEMA,
    )
    codes = code_request(priced, SCHEMA)
    assert codes is not None
    parts = {n_rows: stored(folder / str(n_rows), n_rows) for n_rows in sizes}
    tables: dict[int, list[NDArray[np.int64]]] = {n_rows: [] for n_rows in sizes}
    print(
        "| rows | counted by | read s | level, median s | least s | processor s | bytes of a level |"
    )
    print("|---|---|---|---|---|---|---|")
    for n_rows, part in parts.items():
        read = partial(
            private_rows.read,
            part.files,
            Selection(SCHEMA, Partitions(()), WHOLE),
            codes=codes,
        )
        tables[n_rows].append(measure(f"{n_rows:,} | one process", read, codes.public))
    for n_workers in (1, 2):
        with dask_cluster(folder, n_workers=n_workers) as cluster:
            for n_rows, part in parts.items():
                with Connection.to(cluster.address, f"job-{n_rows}") as job:
                    together = partial(
                        job.rows, part, SCHEMA, priced, keep_unlabelled=False
                    )
                    tables[n_rows].append(
                        measure(
                            f"{n_rows:,} | Dask, workers: {n_workers}",
                            together,
                            codes.public,
                        )
                    )
    assert all(
        np.array_equal(table, first)
        for first, *others in tables.values()
        for table in others
    )


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, nargs="+", default=[1_000, 4_000_000])
    with tempfile.TemporaryDirectory() as folder:
        compare(parser.parse_args().rows, Path(folder))


if __name__ == "__main__":
    main()
