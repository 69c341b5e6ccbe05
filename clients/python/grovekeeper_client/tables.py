"""Recognises the form of a file of rows to upload, and makes a file of a table of pandas or Arrow."""

import csv
import gzip
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from grovekeeper_client.rows import write_arrow

_FORMS = {
    b"\x1f\x8b": {"Content-Type": "text/csv", "Content-Encoding": "gzip"},
    b"PAR1": {"Content-Type": "application/vnd.apache.parquet"},
    b"PARE": {"Content-Type": "application/vnd.apache.parquet"},
    b"ARROW1": {"Content-Type": "application/vnd.apache.arrow.file"},
    b"\xff\xff\xff\xff": {"Content-Type": "application/vnd.apache.arrow.stream"},
}
"""Headers of an upload by the first bytes of the file; other files are CSV."""

_LONGEST_LINE = 1_048_576


def headers_of(file: Path) -> dict[str, str]:
    """The headers that tell the service the form of a file: CSV, plain or gzip, Parquet, or Arrow IPC (Feather)."""
    with file.open("rb") as stream:
        begin = stream.read(max(map(len, _FORMS)))
    known = (headers for magic, headers in _FORMS.items() if begin.startswith(magic))
    return next(known, {"Content-Type": "text/csv"})


def read_header(file: Path) -> list[str]:
    """The names in the first line of a CSV file; none for files of other forms, or if the line cannot be read."""
    headers = headers_of(file)
    if headers["Content-Type"] != "text/csv":
        return []
    opened: Any = gzip.open if "Content-Encoding" in headers else open
    with (
        suppress(OSError, EOFError, ValueError, csv.Error),
        opened(file, "rt", encoding="utf-8-sig", newline="") as text,
    ):
        return next(csv.reader([text.readline(_LONGEST_LINE)]), [])
    return []


@contextmanager
def as_file(rows: Any) -> Iterator[Path]:
    """A file of rows: the file itself, or a temporary Arrow file of a table, readable by this user only.

    Args:
        rows: a path; or PRIVATE rows, as a DataFrame without its index, a Table or a RecordBatch.

    Raises:
        TypeError: rows of another kind.
        ModuleNotFoundError: a DataFrame, and pyarrow is not installed.
    """
    if isinstance(rows, str | Path):
        yield Path(rows)
        return
    with TemporaryDirectory(prefix="grovekeeper-") as folder:
        file = Path(folder) / "rows.arrow"
        write_arrow(rows, file)
        yield file
