"""Measures what the encryption of stored rows costs an upload and a job, as ratios to
plain files.

Run ``python -m benchmarks.encryption``. Both sides of a pair run alternately on the
same rows in one process, and the median ratio of their processor times is printed: 1.05
means that encryption costs five percent.
"""

import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from app.core.files import StoredFile
from app.core.sealed_files import DataKey, SealedFile, Spool
from app.datasets import private_rows
from app.datasets.fingerprints import Fingerprints
from app.datasets.ingest import RowRules, ingest_rows
from app.datasets.private_rows import Selection
from app.datasets.upload_bodies import BodyForm
from grovekeeper_forests.data.schema import Feature, Label, Schema
from grovekeeper_forests.privacy.partitions import Partitions
from grovekeeper_forests.privacy.scope import WHOLE

_PAIRS = 7
_ROWS = 200_000
_KEY = DataKey(bytes(32))
_PIECE_BYTES = 65_536
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


class _PlainFile:
    """A file with the methods of an encrypted one."""

    def __init__(self, path: Path) -> None:
        self.file = StoredFile.at(path)

    @contextmanager
    def new(self, *, existing: Any) -> Iterator[BinaryIO]:
        with self.file.new(existing=existing) as file:
            file.finish, file.size_bytes = file.flush, 0  # type: ignore[attr-defined]
            yield file

    def open(self) -> BinaryIO:
        return self.file.open()


def main() -> None:
    """Prints the ratios of an upload and of reading its rows."""
    text = _csv()
    uploads, reads = list[float](), list[float]()
    for _ in range(_PAIRS):
        (plain_upload, plain_read), (upload, read) = (
            _seconds(text, is_sealed=is_sealed) for is_sealed in (False, True)
        )
        uploads.append(upload / plain_upload)
        reads.append(read / plain_read)
    print(f"upload of {_ROWS:,} rows: {statistics.median(uploads):.3f}")
    print(f"reading them for a job: {statistics.median(reads):.3f}")


def _seconds(text: bytes, *, is_sealed: bool) -> tuple[float, float]:
    """Processor time of an upload (spool and ingestion) and of reading its rows."""
    with tempfile.TemporaryDirectory() as name, tempfile.TemporaryFile() as file:
        paths = Path(name) / "rows", Path(name) / "prints"
        rows, prints = (
            SealedFile.at(path, _KEY) if is_sealed else _PlainFile(path)
            for path in paths
        )
        start = time.process_time()
        spool: Any = Spool(file) if is_sealed else file
        for at in range(0, len(text), _PIECE_BYTES):
            spool.write(text[at : at + _PIECE_BYTES])
        ingest_rows(
            spool.reader() if is_sealed else file,
            rows,  # type: ignore[arg-type]  # or what behaves like it
            rules=RowRules(_SCHEMA, Partitions(()), bytes(32)),
            book=None,
            prints=Fingerprints(prints, bytes(32), cells_key=bytes(32)),  # type: ignore[arg-type]
            form=BodyForm.CSV,
        )
        stored = time.process_time()
        private_rows.read([rows], Selection(_SCHEMA, Partitions(()), WHOLE))  # type: ignore[list-item]
        return stored - start, time.process_time() - stored


def _csv() -> bytes:
    random = np.random.default_rng(1)
    numbers, codes = (
        random.random((_ROWS, 7)),
        random.integers(0, len(_CATEGORIES), (_ROWS, 7)),
    )
    header = ",".join([*(feature.name for feature in _SCHEMA.features), "y"])
    rows = (
        ",".join(
            [
                *(f"{value:.6f}" for value in row),
                *(f"c{code}" for code in cells),
                "ab"[index % 2],
            ]
        )
        for index, (row, cells) in enumerate(zip(numbers, codes, strict=True))
    )
    return "\n".join([header, *rows, ""]).encode()


if __name__ == "__main__":
    main()
