"""Decodes the columns of Parquet and Arrow IPC to numbers and to texts as in a CSV.

A column that is declared as numbers stays numbers, if it has numbers or truth values,
which are 0 and 1. A column that is declared as dates is days from 1970-01-01, if it has
dates or times without a zone. Every other cell becomes the text that it would be in a CSV: a number
as :func:`text_of_number` writes it, a boolean as ``true`` or ``false``, a null as an
empty cell. From there on, the rules for cells of CSV apply
(:mod:`app.datasets.csv_columns`). Columns of other types (nested types, bytes, dates
and times where none are declared, extension types) are refused.

Memory depends on public limits and on the largest page, row group or record batch, not
on the size of the body.
"""

import io
import unicodedata
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from enum import Enum, auto
from types import MappingProxyType
from typing import Any, BinaryIO, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.ipc as pa_ipc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from app.core import limits
from app.core.arrow_arrays import (
    are_valid,
    days,
    elements,
    floats,
    has_dates,
    has_numbers,
    has_text,
    mask,
)
from app.datasets.columnar_stream import (
    MAX_DIFFERENT_TEXTS,
    BodyProblem,
    Piece,
    Texts,
    offsets_and_text,
    packed_block,
    packed_names,
)
from app.datasets.upload_bodies import BodyForm
from grovekeeper_common.number_text import text_of_number
from grovekeeper_forests import limits as forest_limits
from grovekeeper_forests.array_types import Float64Array, Int32Array

Emit = Callable[[Piece], None]
_BATCH_CELLS = 2**20
_BATCH_ROWS = (2**8, 2**15)
"""Fewest and most rows of a batch of Parquet; between them, a batch has
``_BATCH_CELLS`` cells.
"""

_MAGIC = b"PAR1"
_ENCRYPTED_MAGIC = b"PARE"
_TAIL_BYTES = 8
_WORDS = {
    "crypt": BodyProblem.ENCRYPTED,
    "not yet implemented": BodyProblem.ENCODING,
    "not implemented": BodyProblem.ENCODING,
    "unsupported": BodyProblem.ENCODING,
    "too deeply nested": BodyProblem.ENCODING,
}
"""Words in the library's errors about files that it does not read, although they are
valid.
"""

_BUFFER_BYTES = 64 * 1024
_AHEAD_BYTES = 256 * 1024
_CELL_BYTES = 8
"""Bytes of any cell: of a float, or of the offset and the code that the service has
beside a text. A text may be empty, and an index of it takes one byte.
"""
_EXACT_INTEGERS = 2.0**53
_NUMBER_BYTES = 40  # bytes of a number as text, at most

_IN_DICTIONARIES = frozenset(
    {"PLAIN", "RLE", "BIT_PACKED", "PLAIN_DICTIONARY", "RLE_DICTIONARY"}
)
"""Encodings of texts, and of the levels beside them, that the library reads as indices
of texts.
"""

# bytes of the different texts of a column that is sent as indices of texts, at most
_DICTIONARY_BYTES = 64 * 1024


class BodyRefused(Exception):
    """The body is refused. Carries no cell.

    Attributes:
        columns: names of the columns that have the problem, as the body states them.
    """

    def __init__(self, problem: BodyProblem, columns: tuple[str, ...] = ()) -> None:
        super().__init__(problem.value)
        self.problem = problem
        self.columns = columns


def decode(
    file: BinaryIO,
    form: BodyForm,
    numbers: Mapping[str, bool],
    emit: Emit,
    *,
    categories: Mapping[str, Sequence[str]] = MappingProxyType({}),
    unit: str | None = None,
) -> None:
    """Writes the names of the columns and the rows of a body
    (:mod:`app.datasets.columnar_stream`).

    Args:
        file: PRIVATE; the body.
        numbers: by name of a column that is declared as numbers or dates, whether it has
            dates.
        categories: by name of a column that has few different texts if it is as
            declared, the texts of false and of true there, then those of whole numbers
            that are declared with the end ``.0`` alone.
        unit: name of the column that names a row's unit. It is no column of
            floating-point or decimal numbers, which spell one number in several ways,
            and a table with a gap turns whole numbers into them.

    Raises:
        BodyRefused: the body is not of its form, or over a limit. Some rows may have been
            written before.
    """
    problem = None
    try:
        schema, batches = _opened(file, form, categories)
        _check(schema, unit, numbers, emit)
        kinds = [_kind(name, numbers, categories) for name in schema.names]
        _write((_with_declared(batch, categories) for batch in batches), kinds, emit)
    except BodyRefused:
        raise
    except MemoryError:
        problem = BodyProblem.MEMORY
    except (
        pa.ArrowException,
        OSError,
        ValueError,
        TypeError,
        KeyError,
        OverflowError,
        EOFError,
    ) as error:
        # The text of the library's error may quote cells: it is only searched for a
        # word.
        known = (kind for word, kind in _WORDS.items() if word in str(error).lower())
        problem = next(known, BodyProblem.MALFORMED)
    # out of the handler, so that the library's error is not chained
    if problem is not None:
        raise BodyRefused(problem)


def _opened(
    file: BinaryIO, form: BodyForm, categories: Collection[str]
) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
    options = pa_ipc.IpcReadOptions(use_threads=False)
    match form:
        case BodyForm.PARQUET:
            return _parquet(file, categories)
        case BodyForm.ARROW_STREAM:
            body = _Ahead(file)
            stream = pa_ipc.open_stream(body, options=options)
            return stream.schema, _checked(_whole(stream, body))
        case BodyForm.ARROW_FILE:
            reader = pa_ipc.open_file(_Ahead(file), options=options)
            if reader.num_record_batches > limits.MAX_ROW_GROUPS:
                raise BodyRefused(BodyProblem.ROW_GROUPS)
            batches = map(reader.get_batch, range(reader.num_record_batches))
            return reader.schema, _checked(batches)
        case _:
            raise ValueError("not a columnar form")


_END_OF_STREAM = bytes(4)
"""The length of the next message: none follows."""


class _Ahead(io.BufferedReader):
    """The body, read in advance: a record batch takes three reads, each of which asks
    the service.
    """

    def __init__(self, file: BinaryIO) -> None:
        super().__init__(cast(io.RawIOBase, file), _AHEAD_BYTES)
        self._end = self.seek(0, io.SEEK_END)
        self._last = b""
        self.seek(0)

    def read(self, size: int | None = -1, /) -> bytes:
        """Never more than there is: memory for a length that a hostile body claims is
        not taken.
        """
        left = max(self._end - self.tell(), 0)
        if size is None or size < 0:
            size = left
        self._last = super().read(min(size, left))
        return self._last

    def has_ended(self) -> bool:
        """Whether the last that was read is the mark of the end of a stream, and the
        end of the body.
        """
        return self._last == _END_OF_STREAM and self.tell() == self._end


def _whole(batches: Iterable[pa.RecordBatch], body: _Ahead) -> Iterator[pa.RecordBatch]:
    """The record batches of a stream that says where it ends, and is all of the body.

    The format's reader takes the end of a body for the end of its stream, and does not
    look behind the end of a stream: rows would be lost without a word.
    """
    yield from batches
    if not body.has_ended():
        raise BodyRefused(BodyProblem.MALFORMED)


def _checked(batches: Any) -> Iterator[pa.RecordBatch]:
    """Record batches whose offsets, indices and texts are valid: the format's reader
    does not look at them.

    Empty ones are left out: each would take as long as thousands of rows.
    """
    for number, batch in enumerate(batches):
        # a stream does not say in advance how many there are
        if number >= limits.MAX_ROW_GROUPS:
            raise BodyRefused(BodyProblem.ROW_GROUPS)
        if not batch.num_rows:
            continue
        batch.validate()
        for column in batch.columns:
            if not _is_plain_text(column):
                column.validate(full=True)
        yield batch


def _is_plain_text(column: pa.Array) -> bool:
    """Whether a column is strings of ASCII alone with offsets in order: valid if its
    first and last offset are. The library looks at each string instead, which takes
    longer.
    """
    if not pa.types.is_string(column.type) or not len(column):
        return False
    _, ends, text = column.buffers()
    used = np.frombuffer(ends, np.int32)[
        column.offset : column.offset + len(column) + 1
    ]
    if text is None or np.any(used[1:] < used[:-1]):
        return False
    # as signed bytes, those beyond ASCII are negative
    characters = np.frombuffer(text, np.int8)[used[0] : used[-1]]
    return bool(characters.min(initial=0) >= 0)


def _parquet(
    file: BinaryIO, categories: Collection[str]
) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
    _check_footer(file)
    limited = {
        "buffer_size": _BUFFER_BYTES,
        "pre_buffer": False,
        "thrift_string_size_limit": limits.MAX_PARQUET_METADATA_BYTES,
        "thrift_container_size_limit": limits.MAX_PARQUET_METADATA_BYTES,
    }
    parquet = pq.ParquetFile(file, **limited)
    facts = parquet.metadata
    if facts.num_row_groups > limits.MAX_ROW_GROUPS:
        raise BodyRefused(BodyProblem.ROW_GROUPS)
    if facts.num_rows > forest_limits.MAX_ROWS_PER_DATASET:
        raise BodyRefused(BodyProblem.ROWS)
    texts = _texts_in_dictionaries(parquet, categories)
    if texts:
        # Opened again, because the library is told at the opening.
        parquet = pq.ParquetFile(file, metadata=facts, read_dictionary=texts, **limited)
    fewest, most = _BATCH_ROWS
    n_rows = min(max(_BATCH_CELLS // max(facts.num_columns, 1), fewest), most)
    batches = parquet.iter_batches(batch_size=n_rows, use_threads=False)
    return parquet.schema_arrow, _counted(_with_legal_indices(batches), facts.num_rows)


def _texts_in_dictionaries(
    parquet: pq.ParquetFile, categories: Collection[str]
) -> list[str]:
    """Columns of texts that the library can read as indices of texts.

    It cannot read the DELTA encodings so, with which DuckDB and others write format
    version 2; those are read plainly.
    """
    facts = parquet.metadata
    categorical = {
        field.name
        for field in parquet.schema_arrow
        if has_text(field.type) and _composed(field.name) in categories
    }
    groups = list(map(facts.row_group, range(facts.num_row_groups)))
    names = []
    for leaf in range(facts.num_columns):
        name = facts.schema.column(leaf).path
        if name not in categorical:
            continue
        # in every row group, because the library reads a column in one way
        encodings = {code for group in groups for code in group.column(leaf).encodings}
        if encodings <= _IN_DICTIONARIES:
            names.append(name)
    return names


def _with_legal_indices(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Batches whose dictionaries have every text that a row refers to: the format's
    reader need not look.
    """
    for batch in batches:
        for column in batch.columns:
            if pa.types.is_dictionary(column.type) and len(column) > column.null_count:
                least, most = pc.min_max(column.indices).as_py().values()
                if least < 0 or most >= len(column.dictionary):
                    raise BodyRefused(BodyProblem.MALFORMED)
        yield batch


def _check_footer(file: BinaryIO) -> None:
    """Checks the size of the metadata before anything reads them."""
    size = file.seek(0, io.SEEK_END)
    file.seek(max(size - _TAIL_BYTES, 0))
    tail = file.read(_TAIL_BYTES)
    if tail[-4:] == _ENCRYPTED_MAGIC:
        raise BodyRefused(BodyProblem.ENCRYPTED)
    if len(tail) < _TAIL_BYTES or tail[-4:] != _MAGIC:
        raise BodyRefused(BodyProblem.MALFORMED)
    if int.from_bytes(tail[:4], "little") > limits.MAX_PARQUET_METADATA_BYTES:
        raise BodyRefused(BodyProblem.METADATA)
    file.seek(0)


def _counted(
    batches: Iterator[pa.RecordBatch], n_rows: int
) -> Iterator[pa.RecordBatch]:
    """The batches of a file whose footer tells the number of rows."""
    n_read = 0
    for batch in batches:
        n_read += batch.num_rows
        yield batch
    if n_read != n_rows:
        raise BodyRefused(BodyProblem.MALFORMED)


def _check(
    schema: pa.Schema, unit: str | None, numbers: Mapping[str, bool], emit: Emit
) -> None:
    """Writes the header and checks the types. An unknown column is refused by its name
    before a type is.
    """
    if len(schema) > limits.MAX_UPLOAD_COLUMNS:
        raise BodyRefused(BodyProblem.COLUMNS)
    emit(packed_names([_header(name) for name in schema.names]))
    unreadable = []
    for field in schema:
        name = _composed(field.name)
        is_date = numbers.get(name, False)
        if is_date and has_dates(field.type):
            continue
        is_unit = name == unit
        if not _is_readable(field.type, is_unit=is_unit):
            unreadable.append(field.name)
    if unreadable:
        raise BodyRefused(BodyProblem.TYPE, tuple(unreadable))


def _header(name: str) -> str:
    """The name of a column, or no name where no declared column can have that name."""
    is_legal = len(name) <= forest_limits.MAX_NAME_CHARS and all(
        unicodedata.category(sign) != "Cc" for sign in name
    )
    return name if is_legal else ""


def _is_readable(kind: pa.DataType, *, is_unit: bool) -> bool:
    if pa.types.is_dictionary(kind):
        # dictionaries of dictionaries could be nested without end
        if pa.types.is_dictionary(kind.value_type):
            return False
        return _is_readable(kind.value_type, is_unit=is_unit)
    # an extension type passes the tests of the type that stores it
    if isinstance(kind, pa.BaseExtensionType):
        return False
    tests = [pa.types.is_integer, pa.types.is_null, has_text]
    if is_unit:
        tests += [_is_decimal_of_integers]
    else:
        tests += [pa.types.is_boolean, pa.types.is_floating, pa.types.is_decimal]
    return any(test(kind) for test in tests)


def _is_decimal_of_integers(kind: pa.DataType) -> bool:
    """Whether a column holds integers as databases export them, which have one spelling
    each.
    """
    return bool(pa.types.is_decimal(kind) and kind.scale == 0)


def _composed(name: str) -> str:
    return unicodedata.normalize("NFC", name)


class _Kind(Enum):
    """How the cells of a column are declared."""

    NUMBER = auto()
    CATEGORY = auto()
    OTHER = auto()


def _kind(name: str, numbers: Mapping[str, bool], categories: Collection[str]) -> _Kind:
    if numbers.get(_composed(name)) is False:
        return _Kind.NUMBER
    if _composed(name) in categories:
        return _Kind.CATEGORY
    return _Kind.OTHER


def _write(
    batches: Iterator[pa.RecordBatch], kinds: Sequence[_Kind], emit: Emit
) -> None:
    # a table without columns can claim billions of rows in a few bytes
    for batch in batches if kinds else ():
        cells = zip(batch.columns, kinds, strict=True)
        most = limits.MAX_BLOCK_BYTES // sum(_most_bytes(*column) for column in cells)
        n_rows = min(max(most, 1), limits.MAX_BLOCK_ROWS)
        for start in range(0, batch.num_rows, n_rows):
            for piece in _packed(batch.slice(start, n_rows), kinds):
                emit(piece)


def _most_bytes(column: pa.Array, kind: _Kind) -> int:
    """What is built from the longest cell of a column, in bytes, computed before a
    dictionary is unfolded.
    """
    if (kind is _Kind.NUMBER and has_numbers(column.type)) or has_dates(column.type):
        return _CELL_BYTES
    cells = column.dictionary if pa.types.is_dictionary(column.type) else column
    if not has_text(cells.type):
        return _CELL_BYTES + _NUMBER_BYTES
    longest = pc.max(pc.binary_length(cells.cast(pa.large_string()))).as_py() or 0
    if longest > limits.MAX_CSV_LINE_BYTES:
        raise BodyRefused(BodyProblem.LONG_LINE)
    return _CELL_BYTES + int(longest)


def _packed(batch: pa.RecordBatch, kinds: Sequence[_Kind]) -> list[Piece]:
    columns = [*map(_column, batch.columns, kinds)]
    texts = [column for column in columns if isinstance(column, Texts)]
    # Rows are measured only if together they are longer than a row may be.
    if sum(len(column.text) for column in texts) > limits.MAX_CSV_LINE_BYTES:
        row_bytes = np.zeros(batch.num_rows, np.int64)
        for column in texts:
            row_bytes += column.row_bytes
        if row_bytes.max() > limits.MAX_CSV_LINE_BYTES:
            raise BodyRefused(BodyProblem.LONG_LINE)
    return packed_block(batch.num_rows, columns)


def _column(column: pa.Array, kind: _Kind) -> Float64Array | Texts:
    is_numeric = has_numbers(column.type) or pa.types.is_boolean(column.type)
    if kind is _Kind.NUMBER and is_numeric:
        return _numbers(column)
    has_dictionary = pa.types.is_dictionary(column.type)
    if has_dates(column.type):
        if has_dictionary:
            column = column.dictionary_decode()
        return days(column)
    if kind is _Kind.CATEGORY and has_dictionary and _is_sent_once(column):
        offsets, text = offsets_and_text(_cells(column.dictionary))
        if len(text) <= _DICTIONARY_BYTES:
            return _in_dictionary(column, offsets, text)
    return Texts(*offsets_and_text(_cells(column)))


def _is_sent_once(column: pa.DictionaryArray) -> bool:
    """Whether a dictionary is sent itself: it has few texts, and no more of them than
    the column has rows.
    """
    # less one, which is the empty text of a null
    return len(column.dictionary) <= min(MAX_DIFFERENT_TEXTS - 1, len(column))


def _in_dictionary(column: pa.Array, offsets: Int32Array, text: memoryview) -> Texts:
    """A column as indices of texts; a null has the index of an empty text, the last."""
    indices = elements(column.indices.cast(pa.uint8(), safe=False), np.uint8)
    if column.null_count:
        indices = np.where(are_valid(column), indices, np.uint8(len(column.dictionary)))
    return Texts(np.append(offsets, offsets[-1]), text, indices)


def _numbers(column: pa.Array) -> Float64Array:
    if pa.types.is_boolean(column.type):
        column = column.cast(pa.uint8())
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    return floats(column)


def _with_declared(
    batch: pa.RecordBatch, declared: Mapping[str, Sequence[str]]
) -> pa.RecordBatch:
    """A batch in which truth values and numbers in columns of categories have the texts
    of declared categories.
    """
    for place, field in enumerate(batch.schema):
        of_false, of_true, *with_point = declared.get(_composed(field.name)) or ("", "")
        if of_true and pa.types.is_boolean(field.type):
            texts = pc.if_else(batch.column(place), _scalar(of_true), _scalar(of_false))
            batch = batch.set_column(place, field.name, texts)
        elif with_point and _are_numbers(field.type):
            texts = _declared(_cells(batch.column(place)), with_point)
            batch = batch.set_column(place, field.name, texts)
    return batch


def _are_numbers(kind: pa.DataType) -> bool:
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    return has_numbers(kind) or pa.types.is_decimal(kind)


def _declared(texts: pa.Array, with_point: Sequence[str]) -> pa.Array:
    """Texts of numbers, with the end ``.0`` where that is declared."""
    pointed = pc.binary_join_element_wise(texts, _scalar("0"), _scalar("."))
    return pc.if_else(pc.is_in(pointed, value_set=_array(with_point)), pointed, texts)


def _cells(column: pa.Array) -> pa.Array:
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if pa.types.is_floating(column.type):
        return _texts_of_floats(floats(column))
    if pa.types.is_decimal(column.type):
        # "f" writes no exponent, as no database does
        cells = column.to_pylist()
        return _array(["" if cell is None else format(cell, "f") for cell in cells])
    return column.cast(pa.string())


def _texts_of_floats(numbers: Float64Array) -> pa.Array:
    """Texts of floats; a null for NaN, which is an empty cell, as in a column of
    numbers.
    """
    # Whole numbers are written by Arrow, all at once; the others one by one in Python.
    is_plain = (np.rint(numbers) == numbers) & (np.abs(numbers) < _EXACT_INTEGERS)
    texts = _integers(np.where(is_plain, numbers, 0)).cast(pa.string())
    texts = pc.if_else(mask(is_plain), texts, pa.nulls(1, pa.string())[0])
    is_other = ~is_plain & ~np.isnan(numbers)
    if is_other.any():
        different, places = np.unique(numbers[is_other], return_inverse=True)
        others = _array(list(map(text_of_number, different.tolist())))
        texts = pc.replace_with_mask(
            texts, mask(is_other), others.take(_integers(places))
        )
    return texts


def _scalar(text: str) -> pa.Scalar:
    return _array([text])[0]


def _array(texts: Sequence[str]) -> pa.Array:
    """Texts. Where pandas is installed, ``pa.array`` and ``pa.scalar`` open its files,
    which this process may not.
    """
    cells = [text.encode("utf-8") for text in texts]
    ends = np.cumsum([0, *map(len, cells)], dtype=np.int32)
    return pa.Array.from_buffers(
        pa.string(),
        len(cells),
        [None, pa.py_buffer(ends), pa.py_buffer(b"".join(cells))],
    )


def _integers(values: NDArray[Any]) -> pa.Array:
    return pa.Array.from_buffers(
        pa.int64(), len(values), [None, pa.py_buffer(values.astype(np.int64))]
    )
