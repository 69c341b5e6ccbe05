"""Turns a body of Parquet or Arrow IPC into blocks of columns. Runs in a child process: the body may be hostile.

A column that is declared as numbers stays numbers, if it has numbers. Every other cell becomes the text that it would
be in a CSV: a number as its shortest decimal, a boolean as ``true`` or ``false``, a null as an empty cell. From there
on, the rules for cells of CSV apply (:mod:`app.datasets.csv_columns`). Columns of other types (nested types,
bytes, dates and times, extension types) are refused.

Memory depends on public limits and on the largest page, row group or record batch, not on the size of the body.
"""

import io
import unicodedata
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any, BinaryIO, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.ipc as pa_ipc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from app.core import limits
from app.core.arrow_arrays import floats, has_numbers, has_text
from app.datasets.body_forms import BodyForm
from app.datasets.columnar.batches import offsets_and_text, packed_block, packed_names
from app.datasets.columnar.frames import Problem

Emit: TypeAlias = Callable[[bytes], None]

_SLICE_BYTES = 2 * 1024 * 1024
_BATCH_CELLS = 2**20
_BATCH_ROWS = (2**8, 2**15)
"""Fewest and most rows of a batch of Parquet; between them, a batch has ``_BATCH_CELLS`` cells."""

_MAGIC, _ENCRYPTED_MAGIC = b"PAR1", b"PARE"
_TAIL_BYTES = 8
_BUFFER_BYTES = 64 * 1024
_FLOAT_BYTES = 8
_NUMBER_BYTES = 40
"""Bytes of a number as text, at most."""


class Refused(Exception):
    """The body is refused. Carries no cell.

    Attributes:
        problem: why.
        columns: names of the columns that have the problem, as the body states them.
    """

    def __init__(self, problem: Problem, columns: tuple[str, ...] = ()) -> None:
        super().__init__(problem.value)
        self.problem = problem
        self.columns = columns


def decode(file: BinaryIO, form: BodyForm, numbers: Collection[str], emit: Emit) -> None:
    """Writes the names of the columns and the rows of a body (:mod:`app.datasets.columnar.batches`).

    Args:
        file: PRIVATE; the body.
        form: of the body.
        numbers: names of the columns that are declared as numbers.
        emit: called with the bytes of the stream, piece by piece.

    Raises:
        Refused: the body is not of its form, or over a limit. Some rows may have been written before.
    """
    problem = None
    try:
        schema, batches = _opened(file, form)
        _check(schema, emit)
        _write(batches, [_composed(name) in numbers for name in schema.names], emit)
    except Refused:
        raise
    except MemoryError:
        problem = Problem.MEMORY
    except (pa.ArrowException, OSError, ValueError, TypeError, KeyError, OverflowError, EOFError) as error:
        # The text of the library's error may quote cells: it is only searched for a word.
        problem = Problem.ENCRYPTED if "crypt" in str(error) else Problem.MALFORMED
    if problem is not None:  # out of the handler, so that the library's error is not chained
        raise Refused(problem)


def _opened(file: BinaryIO, form: BodyForm) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
    match form:
        case BodyForm.PARQUET:
            return _parquet(file)
        case BodyForm.ARROW_STREAM:
            stream = pa_ipc.open_stream(file, options=_ipc_options())
            return stream.schema, _checked(stream)
        case BodyForm.ARROW_FILE:
            opened = pa_ipc.open_file(file, options=_ipc_options())
            if opened.num_record_batches > limits.MAX_ROW_GROUPS:
                raise Refused(Problem.ROW_GROUPS)
            return opened.schema, _checked(map(opened.get_batch, range(opened.num_record_batches)))
        case _:
            raise ValueError("not a columnar form")


def _ipc_options() -> Any:
    return pa_ipc.IpcReadOptions(use_threads=False)


def _checked(batches: Any) -> Iterator[pa.RecordBatch]:
    """Record batches whose offsets, indices and texts are valid: the format's reader does not look at them."""
    for batch in batches:
        batch.validate(full=True)
        yield batch


def _parquet(file: BinaryIO) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
    _check_footer(file)
    opened = pq.ParquetFile(
        file,
        buffer_size=_BUFFER_BYTES,
        pre_buffer=False,
        thrift_string_size_limit=limits.MAX_PARQUET_METADATA_BYTES,
        thrift_container_size_limit=limits.MAX_PARQUET_METADATA_BYTES,
    )
    facts = opened.metadata
    if facts.num_row_groups > limits.MAX_ROW_GROUPS:
        raise Refused(Problem.ROW_GROUPS)
    if facts.num_rows > limits.MAX_ROWS_PER_DATASET:
        raise Refused(Problem.ROWS)
    fewest, most = _BATCH_ROWS
    n_rows = min(max(_BATCH_CELLS // max(facts.num_columns, 1), fewest), most)
    return opened.schema_arrow, _counted(opened.iter_batches(batch_size=n_rows, use_threads=False), facts.num_rows)


def _check_footer(file: BinaryIO) -> None:
    """Checks the size of the metadata before anything reads them."""
    size = file.seek(0, io.SEEK_END)
    file.seek(max(size - _TAIL_BYTES, 0))
    tail = file.read(_TAIL_BYTES)
    if tail[-4:] == _ENCRYPTED_MAGIC:
        raise Refused(Problem.ENCRYPTED)
    if len(tail) < _TAIL_BYTES or tail[-4:] != _MAGIC:
        raise Refused(Problem.MALFORMED)
    if int.from_bytes(tail[:4], "little") > limits.MAX_PARQUET_METADATA_BYTES:
        raise Refused(Problem.METADATA)
    file.seek(0)


def _counted(batches: Iterator[pa.RecordBatch], n_rows: int) -> Iterator[pa.RecordBatch]:
    """The batches of a file whose footer tells the number of rows."""
    n_read = 0
    for batch in batches:
        n_read += batch.num_rows
        yield batch
    if n_read != n_rows:
        raise Refused(Problem.MALFORMED)


def _check(schema: pa.Schema, emit: Emit) -> None:
    """Writes the header and checks the types. An unknown column is refused by its name before a type is."""
    if len(schema) > limits.MAX_UPLOAD_COLUMNS:
        raise Refused(Problem.COLUMNS)
    emit(packed_names([_header(name) for name in schema.names]))
    unreadable = tuple(field.name for field in schema if not _is_readable(field.type))
    if unreadable:
        raise Refused(Problem.TYPE, unreadable)


def _header(name: str) -> str:
    """The name of a column, or no name where no declared column can have that name."""
    is_legal = len(name) <= limits.MAX_NAME_CHARS and all(unicodedata.category(sign) != "Cc" for sign in name)
    return name if is_legal else ""


def _is_readable(kind: pa.DataType) -> bool:
    if pa.types.is_dictionary(kind):
        return not pa.types.is_dictionary(kind.value_type) and _is_readable(kind.value_type)
    tests = (
        pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal, pa.types.is_boolean, pa.types.is_null, has_text
    )  # fmt: skip
    return not isinstance(kind, pa.BaseExtensionType) and any(test(kind) for test in tests)


def _composed(name: str) -> str:
    return unicodedata.normalize("NFC", name)


def _write(batches: Iterator[pa.RecordBatch], are_numbers: Sequence[bool], emit: Emit) -> None:
    for batch in batches:
        cells = zip(batch.columns, are_numbers, strict=True)
        most = _SLICE_BYTES // max(sum(_most_bytes(column, is_number=is_number) for column, is_number in cells), 1)
        n_rows = min(max(most, 1), max(batch.num_rows, 1))
        for start in range(0, batch.num_rows, n_rows):
            emit(_packed(batch.slice(start, n_rows), are_numbers))


def _most_bytes(column: pa.Array, *, is_number: bool) -> int:
    """The bytes of the longest cell of a column, computed before a dictionary is unfolded."""
    if is_number and has_numbers(column.type):
        return _FLOAT_BYTES
    cells = column.dictionary if pa.types.is_dictionary(column.type) else column
    if not has_text(cells.type):
        return _NUMBER_BYTES
    longest = pc.max(pc.binary_length(cells.cast(pa.large_string()))).as_py() or 0
    if longest > limits.MAX_CSV_LINE_BYTES:
        raise Refused(Problem.LONG_LINE)
    return int(longest)


def _packed(batch: pa.RecordBatch, are_numbers: Sequence[bool]) -> bytes:
    columns = [
        _numbers(column) if is_number and has_numbers(column.type) else offsets_and_text(_cells(column))
        for column, is_number in zip(batch.columns, are_numbers, strict=True)
    ]
    texts = [column for column in columns if isinstance(column, tuple)]
    if sum(len(text) for _, text in texts) > limits.MAX_CSV_LINE_BYTES:
        row_bytes = sum((np.diff(offsets) for offsets, _ in texts), np.zeros(batch.num_rows, np.int64))
        if row_bytes.max() > limits.MAX_CSV_LINE_BYTES:
            raise Refused(Problem.LONG_LINE)
    return packed_block(batch.num_rows, columns)


def _numbers(column: pa.Array) -> NDArray[np.float64]:
    """The numbers of a column, NaN for a null."""
    return floats(column.dictionary_decode() if pa.types.is_dictionary(column.type) else column)


def _cells(column: pa.Array) -> pa.Array:
    """The cells of a column as text."""
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if pa.types.is_floating(column.type):
        column = column.cast(pa.float64())
    return column.cast(pa.string())
