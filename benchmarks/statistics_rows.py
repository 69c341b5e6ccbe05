"""Measures how long the exact sums of statistics take, as ratios to reading the rows of
the same table as codes.

    python -m benchmarks.statistics_rows --rows 10000000 --features 1 8

Rounds of both run one after the other on one table, whose codes are stored before the
first round. The output has, for each number of features and each request, the median of
the ratios, and the median seconds of both sides.
"""

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from app.core.files import Directory
from app.core.sealed_files import DataKey, SealedFile
from app.datasets import private_rows, row_files, row_layout
from app.datasets.private_rows import Selection
from grovekeeper_forests.bins import quantile_bins
from grovekeeper_forests.data.coded_rows import CodeRequest
from grovekeeper_forests.data.schema import Feature, Label, Schema
from grovekeeper_forests.privacy.calibration import Terms
from grovekeeper_forests.privacy.events import Adjacency
from grovekeeper_forests.privacy.partitions import Partitions
from grovekeeper_forests.privacy.scope import WHOLE
from grovekeeper_forests.releases.contract import public_facts
from grovekeeper_forests.releases.statistics import price
from grovekeeper_forests.releases.statistics.sums import StoredRows

GROUP_ROWS = 2**17
TABLES: dict[str, dict[str, Any]] = {
    "count": {"statistic": "count"},
    "histogram": {"statistic": "histogram", "column": "x0"},
    "histogram of 100 bins": {"statistic": "histogram", "column": "x0", "bins": {"x0": 100}},
    "histogram by label": {"statistic": "histogram", "column": "x0", "by": ["y"]},
    "mean": {"statistic": "mean", "column": "x0"},
}  # fmt: skip
_HEADINGS = ("features", "rows", "request", "ratio", "sums s", "codes s")


def stored(home: Path, schema: Schema, n_rows: int, key: DataKey) -> SealedFile:
    """The sealed file of random rows, in row groups as uploads have them."""
    generator, no_partitions = np.random.default_rng(1), Partitions(())
    form = row_layout.arrow_schema(schema, no_partitions)
    file = row_files.sealed_rows(
        Directory(home), "ds_a", f"ep_{len(schema.features)}", key=key
    )
    with (
        file.new(existing="refuse") as written,
        row_layout.writer(written, form) as writer,
    ):
        for start in range(0, n_rows, GROUP_ROWS):
            size = min(GROUP_ROWS, n_rows - start)
            columns = [pa.array(generator.random(size)) for _ in schema.features]
            labels = pa.array(generator.integers(0, 2, size), pa.int32())
            ids = generator.integers(0, 256, size * 16, dtype=np.uint8).tobytes()
            row_ids = pa.FixedSizeBinaryArray.from_buffers(
                pa.binary(16), size, [None, pa.py_buffer(ids)]
            )
            table = pa.Table.from_arrays([*columns, labels, row_ids], schema=form)
            writer.write_table(table)
    return file


def seconds(act: Callable[[], object]) -> float:
    """Elapsed time of a call."""
    began = time.perf_counter()
    act()
    return time.perf_counter() - began


def main() -> None:
    """Prints a Markdown table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--features", type=int, nargs="+", default=[1, 8])
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    print("| " + " | ".join(_HEADINGS) + " |\n" + "|---" * len(_HEADINGS) + "|")
    with tempfile.TemporaryDirectory() as home:
        for n_features in options.features:
            _measure(Path(home), n_features, options.rows, options.rounds)


def _measure(home: Path, n_features: int, n_rows: int, n_rounds: int) -> None:
    features = tuple(
        Feature(f"x{index}", "numeric", lower=0.0, upper=1.0)
        for index in range(n_features)
    )
    schema, key = Schema(features, Label("y", ("a", "b"))), DataKey.random()
    file = stored(home, schema, n_rows, key)
    selection = Selection(schema, Partitions(()), WHOLE, keep_unlabelled=True)
    codes = CodeRequest(quantile_bins.public_grid(schema, quantile_bins.Grid.COARSE))

    def read_codes() -> object:
        return private_rows.read([file], selection, codes=codes)

    read_codes()  # stores the codes
    facts = public_facts(Terms(Fraction(1)), None, schema, Adjacency.ADD_REMOVE_ONE)
    for name, table in TABLES.items():
        plan = price.plan([table], facts)
        read = partial(private_rows.read_columns, [file], selection, plan.columns)
        rows, text = StoredRows(schema, read), json.dumps(plan.to_json())
        sums, reads = list[float](), list[float]()
        for _ in range(n_rounds):
            reads.append(seconds(read_codes))
            sums.append(seconds(partial(rows.measure_sums, text)))
        ratio = statistics.median(
            mine / theirs for mine, theirs in zip(sums, reads, strict=True)
        )
        numbers = [ratio, statistics.median(sums), statistics.median(reads)]
        cells = [n_features, f"{n_rows:,}", name, *(f"{n:.2f}" for n in numbers)]
        print("| " + " | ".join(map(str, cells)) + " |", flush=True)


if __name__ == "__main__":
    main()
