"""Writes rows to upload as files, and recognises the form of a file: CSV, plain or
gzip, Parquet, or Arrow IPC.
"""

import csv
import gzip
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypedDict

from grovekeeper_client import rows
from grovekeeper_client.rows import cells, write_arrow
from grovekeeper_common import suspicions
from grovekeeper_common.declared_columns import Columns, Feature, Scalar, label_column
from grovekeeper_common.json_types import JsonMapping, JsonObject

_LABEL = "label"
_FORMS = {
    b"\x1f\x8b": {"Content-Type": "text/csv", "Content-Encoding": "gzip"},
    b"PAR1": {"Content-Type": "application/vnd.apache.parquet"},
    b"PARE": {"Content-Type": "application/vnd.apache.parquet"},
    b"ARROW1": {"Content-Type": "application/vnd.apache.arrow.file"},
    b"\xff\xff\xff\xff": {"Content-Type": "application/vnd.apache.arrow.stream"},
}
"""Headers of an upload by the first bytes of the file; other files are CSV."""

_LONGEST_LINE = 1_048_576


class FileOptions(TypedDict, total=False):
    """How a file of CSV is written, where it has no commas, points and UTF-8.

    Attributes:
        separator: the sign between cells: ``,``, ``;``, ``tab`` or ``|``.
        decimal: the sign before a fraction: ``.`` or ``,``.
        encoding: ``utf-8``, ``utf-16``, ``latin-1`` or ``cp1252``.
        missing: texts that stand for an empty cell, with commas between them:
            ``NA,.``; files of Parquet and Arrow may have them, too.
    """

    separator: str
    decimal: str
    encoding: str
    missing: str


class UploadOptions(FileOptions, total=False):
    """How a file is written, and what the service refuses unless the owner insists.

    Attributes:
        again: store the rows of an earlier upload once more.
        accept_unknown: accept columns in which more than 5 % of the cells are
            undeclared or out of bounds, and marks such as ``NA`` in the unit column.
        accept_empty: store a body that has a header and no row.
    """

    again: bool
    accept_unknown: bool
    accept_empty: bool


def of_numbers(
    X: Any,
    y: Sequence[Scalar],
    *,
    names: Sequence[str],
    bounds: Sequence[tuple[float, float]],
    label: JsonMapping,
) -> tuple[JsonObject, Columns]:
    """Schema and columns of rows of numbers.

    Args:
        X: PRIVATE numbers ``(n_rows, n_features)``; NaN is missing.
        y: PRIVATE cells of the label ``(n_rows,)``: texts of classes, or numbers.
        names: of the features; public.
        bounds: of each feature; public.
        label: public, without its name: ``{"classes": […]}``, or ``{"type": "number",
            "lower": …, "upper": …}``.
    """
    features = [
        {
            "name": name,
            "type": "numeric",
            "lower": lower,
            "upper": upper,
            "missing": True,
        }
        for name, (lower, upper) in zip(names, bounds, strict=True)
    ]
    label_name = next(
        name
        for name in (_LABEL, *(f"{_LABEL}{n}" for n in range(len(names))))
        if name not in names
    )
    columns: Columns = {
        name: [None if math.isnan(cell) else cell for cell in column]
        for name, column in zip(names, X.T.astype(float).tolist(), strict=True)
    }
    columns[label_name] = y
    return {"features": features, "label": {"name": label_name, **label}}, columns


def by_schema(X: Any, y: Any, schema: JsonMapping) -> Columns:
    """Columns of rows of any kind by a public schema.

    Raises:
        ValueError: the columns of ``X`` are not those of the schema, or ``y`` has
            another length or is ``None``.
        TypeError: a cell has a type that its feature does not take.
    """
    if "labels" in schema:
        raise ValueError("y is one label, and the schema declares several")
    label = schema["label"]
    if y is None:
        raise ValueError("an upload requires y to be passed, but the target y is None")
    table = rows.read(X, schema)
    labels = cells(label_column(label), list(y))
    if len(labels) != table.n_rows:
        raise ValueError(f"X has {table.n_rows} rows and y has {len(labels)}")
    empty: list[Scalar] = [None] * table.n_rows
    columns = {
        feature["name"]: table.columns.get(feature["name"], empty)
        for feature in schema["features"]
    }
    return {**columns, label["name"]: labels}


def headers_of(file: Path) -> dict[str, str]:
    """The headers that tell the service the form of a file: CSV, plain or gzip,
    Parquet, or Arrow IPC (Feather).
    """
    with file.open("rb") as stream:
        begin = stream.read(max(map(len, _FORMS)))
    known = (headers for magic, headers in _FORMS.items() if begin.startswith(magic))
    return next(known, {"Content-Type": "text/csv"})


def read_header(file: Path, *, separator: str, encoding: str) -> list[str]:
    """The names in the first line of a CSV file; none for files of other forms, or if
    the line cannot be read.
    """
    delimiter = suspicions.SEPARATORS.get(separator, separator)
    if encoding == "utf-8":
        encoding = "utf-8-sig"
    headers = headers_of(file)
    if headers["Content-Type"] != "text/csv":
        return []
    opened: Any = gzip.open if "Content-Encoding" in headers else open
    with (
        suppress(OSError, EOFError, ValueError, LookupError, csv.Error),
        opened(file, "rt", encoding=encoding, newline="") as text,
    ):
        line = text.readline(_LONGEST_LINE)
        return next(csv.reader([line], delimiter=delimiter), [])
    return []


@contextmanager
def as_file(rows: Any, features: Sequence[Feature] = ()) -> Iterator[Path]:
    """A file of rows: the file itself, or a temporary Arrow file of a table, readable
    by this user only.

    Args:
        rows: a path; or PRIVATE rows, as a DataFrame without its index, a Table or a
            RecordBatch.
        features: of the declared schema. A cell of a table means the category that it
            means in a prediction.

    Raises:
        TypeError: rows of another kind.
        ModuleNotFoundError: a DataFrame, and pyarrow is not installed.
    """
    if isinstance(rows, str | Path):
        yield Path(rows)
        return
    with TemporaryDirectory(prefix="grovekeeper-") as folder:
        file = Path(folder) / "rows.arrow"
        write_arrow(rows, file, features)
        yield file
