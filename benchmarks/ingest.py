"""Compares the ingestion of an upload with pyarrow's own reader and its conversion to
Parquet.

Run ``python -m benchmarks.ingest``. The reference reads the same file with pyarrow's
reader and its inferred types and writes Parquet with the same compression; ingestion
also applies the declaration, makes fingerprints and encrypts. Each side runs in a
process of its own, alternately; printed are the median ratio of processor times, those
of processes that decode an upload included, and the largest memory of the ingesting
process for two sizes. Linux only.
"""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.ipc as pa_ipc
import pyarrow.parquet as pq

from app.core.sealed_files import DataKey, SealedFile
from app.datasets.fingerprints import Fingerprints
from app.datasets.ingest import RowRules, ingest_rows
from app.datasets.upload_bodies import BodyForm
from grovekeeper_forests.data.schema import Feature, Label, Schema
from grovekeeper_forests.privacy.partitions import Partitions

_PAIRS = 3
_ROWS = (250_000, 1_000_000)
_FORMS = (BodyForm.CSV, BodyForm.PARQUET, BodyForm.ARROW_STREAM)
_CATEGORIES = tuple(f"c{index}" for index in range(12))
_SCHEMA = Schema(
    (
        *(Feature(f"n{index}", "numeric", lower=0, upper=1) for index in range(7)),
        *(
            Feature(f"k{index}", "categorical", categories=_CATEGORIES)
            for index in range(7)
        ),
    ),
    Label("y", ("a", "b")),
)


def main() -> None:
    """Prints ratios and memory by form and size; with arguments, runs one side of one
    pair.
    """
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument(
        "--side", choices=("service", "pyarrow"), help="run this side once"
    )
    parser.add_argument("--form", type=BodyForm)
    parser.add_argument("--file", type=Path)
    options = parser.parse_args()
    if options.side is not None:
        # imports pandas if it is installed, which it is not where the service runs
        pa.array([""])
        cpu_s = _cpu_s(
            _ingest if options.side == "service" else _convert,
            options.file,
            options.form,
        )
        print(cpu_s, _peak_bytes())
        return
    for n_rows in _ROWS:
        table = _table(n_rows)
        for form in _FORMS:
            with tempfile.TemporaryDirectory() as folder:
                file = Path(folder) / "upload"
                _WRITERS[form](table, file)
                pairs = [
                    (_measured("service", form, file), _measured("pyarrow", form, file))
                    for _ in range(_PAIRS)
                ]
            ratio = statistics.median(
                ours[0] / reference[0] for ours, reference in pairs
            )
            memory = [
                statistics.median(pair[side][1] for pair in pairs) / 1e6
                for side in (0, 1)
            ]
            print(
                f"{form.name} of {n_rows:,} rows: {ratio:.2f}; {memory[0]:.0f} MB, pyarrow {memory[1]:.0f} MB"
            )


def _measured(side: str, form: BodyForm, file: Path) -> tuple[float, float]:
    arguments = ["--side", side, "--form", form.value, "--file", str(file)]
    answer = subprocess.run(
        [sys.executable, "-m", "benchmarks.ingest", *arguments],
        check=True,
        capture_output=True,
        text=True,
    )
    cpu_s, peak_bytes = answer.stdout.split()
    return float(cpu_s), float(peak_bytes)


def _cpu_s(
    side: Callable[[Path, BodyForm, Path], None], file: Path, form: BodyForm
) -> float:
    """Processor time of one side and of its children. The imports of this process are
    not counted.
    """
    before = os.times()
    with tempfile.TemporaryDirectory() as folder:
        side(file, form, Path(folder))
    after = os.times()
    return sum(after[:4]) - sum(before[:4])


def _ingest(file: Path, form: BodyForm, folder: Path) -> None:
    rows, prints = (
        SealedFile.at(folder / name / "epoch", DataKey(bytes(32)))
        for name in ("rows", "prints")
    )
    with file.open("rb") as body:
        ingest_rows(
            body,
            rows,
            rules=RowRules(_SCHEMA, Partitions(()), bytes(32)),
            book=None,
            prints=Fingerprints(prints, bytes(32), cells_key=bytes(32)),
            form=form,
        )


def _convert(file: Path, form: BodyForm, folder: Path) -> None:
    match form:
        case BodyForm.CSV:
            batches = pa_csv.open_csv(file)
        case BodyForm.PARQUET:
            batches = pq.ParquetFile(file).iter_batches()
        case _:
            batches = pa_ipc.open_stream(file.open("rb"))
    first = next(iter(batches))
    with pq.ParquetWriter(
        folder / "rows.parquet", first.schema, compression="zstd", compression_level=1
    ) as writer:
        writer.write_batch(first)
        for batch in batches:
            writer.write_batch(batch)


def _peak_bytes() -> int:
    return (
        int(Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0]) * 1024
    )


def _table(n_rows: int) -> pa.Table:
    random = np.random.default_rng(1)
    columns = {f"n{index}": random.random(n_rows).round(6) for index in range(7)}
    for index in range(7):
        columns[f"k{index}"] = pa.array(_CATEGORIES).take(
            pa.array(random.integers(0, len(_CATEGORIES), n_rows))
        )
    columns["y"] = pa.array(["a", "b"]).take(pa.array(random.integers(0, 2, n_rows)))
    return pa.table(columns)


def _write_arrow(table: pa.Table, file: Path) -> None:
    with pa_ipc.new_stream(str(file), table.schema) as writer:
        writer.write_table(table, max_chunksize=2**16)


_WRITERS: dict[BodyForm, Callable[[pa.Table, Path], None]] = {
    BodyForm.CSV: lambda table, file: pa_csv.write_csv(table, file),
    BodyForm.PARQUET: lambda table, file: pq.write_table(table, file),
    BodyForm.ARROW_STREAM: _write_arrow,
}


if __name__ == "__main__":
    main()
