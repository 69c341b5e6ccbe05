"""Reads and writes the tables of :mod:`grovekeeper_client.cli.prediction_files` with
pyarrow.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from math import ceil
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv
import pyarrow.parquet as pa_parquet

from grovekeeper_client import rows as row_kinds
from grovekeeper_client.cli.command import WrongUse
from grovekeeper_common import suspicions, text_cells
from grovekeeper_common.json_types import JsonMapping
from grovekeeper_common.number_text import BLANKS, COMPUTED, not_computed

_QUOTED = re.compile(rb'(?<![^,\n])"(?:[^"]|"")*+"(?=,|\r?\n|\Z)')
"""A cell of CSV in quotes that every reader understands in the same way."""

_WRITERS: Mapping[str, Callable[[Any, Any], Any]] = {
    ".csv": pa_csv.CSVWriter,
    ".parquet": pa_parquet.ParquetWriter,
    ".arrow": pa.ipc.new_file,
    ".feather": pa.ipc.new_file,
}


def of_csv(
    block: bytes, names: Sequence[str], schema: JsonMapping
) -> tuple[Any, Any] | None:
    """The features in whole lines of CSV, with the types that the service reads, and
    all cells as texts; ``None`` if the reader of Python has to judge them.
    """
    has_known_ends = block.count(b"\r") == block.count(b"\r\n")
    has_quotes = b'"' in block
    if not has_known_ends or (has_quotes and b'"' in _QUOTED.sub(b"", block)):
        return None
    as_texts = dict.fromkeys(names, pa.string())
    if not block or len(as_texts) < len(names):
        return None
    try:
        texts = pa_csv.read_csv(
            pa.BufferReader(block),
            pa_csv.ReadOptions(
                use_threads=False, block_size=len(block) + 1, column_names=names
            ),
            pa_csv.ParseOptions(
                newlines_in_values=True, ignore_empty_lines=len(names) > 1
            ),
            pa_csv.ConvertOptions(column_types=as_texts, strings_can_be_null=False),
        )
        if has_quotes or b"\0" in block:
            _require_plain_categories(texts, schema)
        return _typed(texts, schema), texts
    except pa.ArrowInvalid:
        return None


def _typed(texts: Any, schema: JsonMapping) -> Any:
    marks = text_cells.marks_of(schema)
    columns = {}
    for feature in schema["features"]:
        name = feature["name"]
        if name not in texts.column_names:
            continue
        cells = texts.column(name)
        if feature["type"] in text_cells.TYPES_OF_TEXT:
            columns[name] = row_kinds.without_marks(cells, marks[name])
            if feature["type"] == "date":
                _require_dates(columns[name])
            continue
        numbers = pc.utf8_trim(cells, BLANKS)
        if pc.any(pc.match_substring(numbers, "(")).as_py():
            raise pa.ArrowInvalid  # pyarrow reads "nan(1)" as a number
        numbers = row_kinds.without_marks(numbers, {"", *marks[name]})
        columns[name] = numbers.cast(pa.float64())
    return pa.table(columns)


def _require_plain_categories(texts: Any, schema: JsonMapping) -> None:
    """Leaves other signs than those of a line to the reader of Python, which refuses
    them unless a category is declared with them.
    """
    for feature in schema["features"]:
        name = feature["name"]
        if feature["type"] != "categorical" or name not in texts.column_names:
            continue
        other = pc.match_substring_regex(texts.column(name), text_cells.NO_CATEGORY)
        if pc.any(other).as_py():
            raise pa.ArrowInvalid


def _require_dates(texts: Any) -> None:
    """Leaves another text to the reader of Python, which says why it is no date."""
    for text in pc.unique(texts).to_pylist():
        trimmed = (text or "").strip(BLANKS)
        if trimmed and not suspicions.is_date(trimmed):
            raise pa.ArrowInvalid


def batches(
    file: BinaryIO, *, is_parquet: bool, n_rows: int
) -> Iterator[tuple[Any, float]]:
    """Tables of at most so many rows of a file of Parquet or Arrow, each with the share
    of the file that ends with it.

    Raises:
        WrongUse: the file is damaged.
    """
    try:
        if is_parquet:
            source = pa_parquet.ParquetFile(file)
            total = source.metadata.num_rows
            done = 0
            for batch in source.iter_batches(n_rows, use_threads=False):
                done += batch.num_rows
                yield pa.Table.from_batches([batch]), done / total
            return
        reader = pa.ipc.open_file(file)
        for place in range(reader.num_record_batches):
            table = pa.Table.from_batches([reader.get_batch(place)])
            for part in ranges(table.num_rows, n_rows):
                yield table.slice(*part), (place + 1) / reader.num_record_batches
    except (pa.ArrowException, OSError):
        raise WrongUse("the file of rows is damaged") from None


def ranges(n_rows: int, largest: int) -> Iterator[tuple[int, int]]:
    """Starts and lengths of parts of rows, each of at most so many."""
    n_parts = max(ceil(n_rows / largest), 1)
    length = max(ceil(n_rows / n_parts), 1)
    return ((start, length) for start in range(0, n_rows, length))


def features_of(table: Any, schema: JsonMapping) -> Any:
    """The features in a table, with types that the service reads; as a list of mappings
    where a number is beyond those of Arrow.

    Raises:
        WrongUse: a column has another type, or occurs twice.
    """
    names = [feature["name"] for feature in schema["features"]]
    present = [name for name in names if name in table.column_names]
    try:
        rows = row_kinds.read(table.select(present), schema)
        if rows.table is not None:
            return rows.table
        cells = zip(*rows.columns.values(), strict=True)
        return [dict(zip(rows.columns, row, strict=True)) for row in cells]
    except (KeyError, TypeError, ValueError) as error:
        raise WrongUse(str(error)) from None


class TableWriter:
    """Writes tables of one form into an open file.

    Args:
        file: open for writing.
        form: its ending.
    """

    def __init__(self, file: BinaryIO, form: str) -> None:
        self._file = file
        self._open = _WRITERS[form]
        self._writer: Any = None
        self._schema: Any = None

    def write(self, kept: Mapping[str, Any], predicted: Mapping[str, Any]) -> None:
        """Writes columns, each a list or an array of Arrow: first those that are kept,
        then labels as texts, then probabilities.

        Raises:
            WrongUse: the form has no place for the type of a kept column.
        """
        label, *classes = predicted
        columns = {name: _array(cells, pa.string()) for name, cells in kept.items()}
        columns[label] = _array(predicted[label], pa.string())
        for name in classes:
            columns[name] = _array(predicted[name], pa.float64())
        table = pa.table(columns)
        if self._open is pa_csv.CSVWriter:
            names = list(map(not_computed, table.column_names))
            table = pa.table(list(map(_not_computed, table.columns)), names)
        try:
            if self._writer is None:
                self._schema = table.schema.remove_metadata()
                self._writer = self._open(self._file, self._schema)
            self._writer.write_table(table.cast(self._schema))
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            raise WrongUse(
                "a kept column has a type that the output cannot hold"
            ) from None

    def close(self) -> None:
        """Writes the end of the file."""
        if self._writer is not None:
            self._writer.close()


def _not_computed(cells: Any) -> Any:
    """As :func:`not_computed`, for a column of any type."""
    has_text = pa.types.is_string(cells.type) or pa.types.is_large_string(cells.type)
    if not has_text or not pc.any(pc.match_substring_regex(cells, COMPUTED)).as_py():
        return cells
    return pa.array(map(not_computed, cells.to_pylist()), cells.type)


def _array(cells: Any, kind: Any) -> Any:
    if isinstance(cells, list):
        return pa.array(cells, kind)
    if pa.types.is_dictionary(cells.type):
        return cells.cast(cells.type.value_type)
    return cells
