"""Reads and writes tables of predictions as Arrow IPC streams, and writes released
numbers, in the process of the service.

A stream may be hostile. Five rules bound its cost, each checked before the library acts
on the part in question:

* Messages are counted, and none is compressed.
* What the library builds of names and metadata has no more bytes than a body may have,
  although a schema can refer to one text a million times.
* Columns are numbers or strings, in a dictionary or not.
* The columns of all record batches together refer to no more bytes than a body may
  have, although they can share bytes, and so can the cells of a column of views.
* Every offset, index and text is validated before a cell is read.
"""

import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.ipc as pa_ipc
from numpy.typing import NDArray

from app.core import limits
from app.core.arrow_arrays import (
    Number,
    are_valid,
    days,
    elements,
    floats,
    has_dates,
    has_numbers,
    has_text,
)
from app.core.errors import (
    FieldProblem,
    InvalidRequest,
    MalformedRequest,
    TooLarge,
    pointer,
)
from grovekeeper_common.number_text import BLANKS
from grovekeeper_forests import limits as forest_limits
from grovekeeper_forests.array_types import BoolArray, Float64Array, Int32Array
from grovekeeper_forests.data.days import NO_DAY, day_of
from grovekeeper_forests.data.sanitiser import empty_texts
from grovekeeper_forests.data.schema import Feature, Schema
from grovekeeper_forests.kept import kept_property

_READ_OUT, _COUNTS = b"read_out", b"counts"
_OF_TEXTS = ("string", "dictionary of strings")
_OF_NUMBERS = ("integer", "float")
_OF_DATES = ("date", "timestamp without a zone", *_OF_TEXTS)
_SCHEMA, _DICTIONARY = 1, 2
"""Kinds of messages."""

_BUILT_BYTES = 1024
"""What a field or a pair of metadata takes at most, besides its texts."""


@dataclass(frozen=True)
class ArrowTable:
    """The table of a request.

    Attributes:
        read_out: of the metadata of the stream's schema.
        counts: whether the metadata ask for counts of cells that the model does not see
            as they were sent.
    """

    columns: dict[str, "ArrowCells"]
    read_out: str | None
    counts: bool


@dataclass(frozen=True, eq=False)
class ArrowCells:
    """The cells of a column of a stream; see
    :class:`grovekeeper_forests.data.sanitiser.Cells`.

    Attributes:
        arrays: one per record batch, validated.
    """

    kind: pa.DataType
    arrays: Sequence[pa.Array]

    def __len__(self) -> int:
        return sum(map(len, self.arrays))

    def of_other_types(self, feature: Feature) -> NDArray[np.intp]:
        """Every row with a value, unless the column has the feature's type."""
        if feature.is_date:
            # empty cells, which are NaN, are no problem here
            whole = np.rint(self._days)
            parts = np.abs(self._days - whole)
            return np.flatnonzero(parts > 0)
        fits = has_text if feature.is_categorical else has_numbers
        if fits(self.kind):
            return np.empty(0, dtype=np.intp)
        return np.flatnonzero(self._are_valid)

    def empty(self, feature: Feature) -> NDArray[np.intp]:
        """Rows with a null, with NaN in place of a number, or with an empty text in
        place of a category or a date.
        """
        if feature.is_date:
            return np.flatnonzero(np.isnan(self._days))
        if feature.is_categorical and has_text(self.kind):
            return np.flatnonzero(self.codes(feature) == feature.missing_code)
        if not feature.is_categorical and has_numbers(self.kind):
            return np.flatnonzero(np.isnan(self._floats))
        return np.flatnonzero(~self._are_valid)

    def numbers(self, feature: Feature) -> Float64Array:
        """See :class:`~grovekeeper_forests.data.sanitiser.Cells`."""
        if feature.first_day is not None:
            return self._days - feature.first_day
        return self._floats

    def codes(self, feature: Feature) -> Int32Array:
        """See :class:`~grovekeeper_forests.data.sanitiser.Cells`."""
        if not has_text(self.kind):  # no cell has a value
            return np.full(len(self), feature.missing_code, dtype=np.int32)
        empty = empty_texts(feature)
        texts = pa.array([*feature.categories, *empty], pa.string())
        marks = pa.array(empty[1:], pa.string())
        missing = np.int32(feature.missing_code)
        code_of_text = np.array(
            [
                *range(len(feature.categories)),
                *[missing] * len(empty),
                feature.other_code,
            ],
            dtype=np.int32,
        )

        def of_values(values: pa.Array) -> Int32Array:
            if pa.types.is_string_view(values.type):
                values = values.cast(pa.large_string())
            known = pc.index_in(values, value_set=texts.cast(values.type))
            place = np.where(are_valid(known), elements(known, np.int32), len(texts))
            if feature.marks:
                # with blanks around them, as files have them
                trimmed = pc.ascii_trim(values, characters=BLANKS)
                is_mark = pc.is_in(trimmed, value_set=marks.cast(values.type))
                is_other = place == len(texts)
                place[is_other & np.asarray(is_mark)] = len(texts) - 1
            return np.where(are_valid(values), code_of_text[place], missing)

        return self._joined(of_values, missing)

    @kept_property
    def _floats(self) -> Float64Array:
        if not has_numbers(self.kind):  # no cell has a value
            return np.full(len(self), np.nan)
        return self._joined(floats, np.float64(np.nan))

    @kept_property
    def _days(self) -> Float64Array:
        """Days from 1970-01-01; see :func:`grovekeeper_forests.data.days.day_of`."""
        if has_dates(self.kind):
            return self._joined(days, np.float64(np.nan))
        if not has_text(self.kind):
            return np.where(self._are_valid, NO_DAY, np.nan)
        return self._joined(_days_of_texts, np.float64(np.nan))

    @kept_property
    def _are_valid(self) -> BoolArray:
        return self._joined(are_valid, np.bool_(False))

    def _joined(
        self, of_values: Callable[[pa.Array], NDArray[Number]], of_null: Number
    ) -> NDArray[Number]:
        """What a function makes of the values of all cells; the values of a dictionary
        are not unfolded before.
        """
        parts = [np.empty(0, of_null.dtype)]
        for array in self.arrays:
            if not pa.types.is_dictionary(array.type):
                parts.append(of_values(array))
                continue
            indices = array.indices
            places = elements(indices.cast(pa.int64(), safe=False), np.int64)
            # what a null becomes stands behind the values of the dictionary
            images = np.append(of_values(array.dictionary), of_null)
            is_valid = are_valid(indices)
            parts.append(images[np.where(is_valid, places, len(array.dictionary))])
        # usually one batch, which is not copied
        if len(parts) == 2:
            return parts[1]
        return np.concatenate(parts)


def _days_of_texts(texts: pa.Array) -> Float64Array:
    found = list(map(day_of, texts.to_pylist()))
    return np.array(found, dtype=np.float64)


def read(body: bytes, declared: Schema) -> ArrowTable:
    """Reads a stream with at most ``Schema.max_request_rows`` rows.

    Args:
        body: of a request, of any content.
        declared: public, of the model; an error may repeat the names of its features.

    Raises:
        MalformedRequest: the body is no stream, or is damaged.
        InvalidRequest: a column has a type that no feature has, a name occurs twice, a
            record batch is compressed, or a dictionary is a delta.
        TooLarge: too many rows or messages, or columns that share bytes.
    """
    try:
        _check_messages(body)
        with pa_ipc.open_stream(
            pa.py_buffer(body), options=pa_ipc.IpcReadOptions(use_threads=False)
        ) as stream:
            schema: pa.Schema = stream.schema
            _check_columns(schema, declared)
            batches = _checked(stream, len(schema), max_rows=declared.max_request_rows)
            columns = [
                ArrowCells(kind, [batch.column(index) for batch in batches])
                for index, kind in enumerate(schema.types)
            ]
            metadata = schema.metadata or {}
            read_out = metadata.get(_READ_OUT, b"").decode("utf-8") or None
            counts = metadata.get(_COUNTS) == b"true"
            return ArrowTable(
                dict(zip(schema.names, columns, strict=True)), read_out, counts
            )
    except (
        pa.ArrowException,
        MemoryError,
        OSError,
        ValueError,
        TypeError,
        LookupError,
        EOFError,
        RecursionError,
        struct.error,
    ):
        pass  # the text of the library's error may quote cells
    raise MalformedRequest("the body is no stream of Arrow")


def write(
    labels: Int32Array | Float64Array,
    classes: Sequence[str],
    probabilities: Float64Array | None,
    *,
    metadata: dict[str, str],
) -> bytes:
    """Writes an answer: the column ``label``, whose dictionary has all classes in
    order, and ``probabilities``; or the column ``label`` of numbers alone.

    The ``metadata`` of the schema have the id of the model, because an alias may have
    moved.
    """
    if probabilities is None:
        numbers = pa.record_batch({"label": _array(pa.float64(), labels)})
        return _stream_of(numbers.replace_schema_metadata(metadata))
    label = pa.DictionaryArray.from_arrays(
        _array(pa.int32(), labels), pa.array(classes, pa.string())
    )
    shares = _array(pa.float64(), np.ascontiguousarray(probabilities).ravel())
    batch = pa.record_batch(
        {
            "label": label,
            "probabilities": pa.FixedSizeListArray.from_arrays(shares, len(classes)),
        }
    )
    return _stream_of(batch.replace_schema_metadata(metadata))


def write_columns(columns: Mapping[str, tuple[type, Sequence[Any]]]) -> bytes:
    """Writes columns of integers, floats or texts, each with its type; ``None`` is a
    null.
    """
    kinds = {int: pa.int64(), float: pa.float64(), str: pa.string()}
    batch = pa.record_batch(
        {
            name: pa.array(values, kinds[kind])
            for name, (kind, values) in columns.items()
        }
    )
    return _stream_of(batch)


def _stream_of(batch: pa.RecordBatch) -> bytes:
    sink = pa.BufferOutputStream()
    with pa_ipc.new_stream(sink, batch.schema) as stream:
        stream.write_batch(batch)
    content: bytes = sink.getvalue().to_pybytes()
    return content


def _array(kind: pa.DataType, values: NDArray[Any]) -> pa.Array:
    return pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(values)])


def _check_messages(body: bytes) -> None:
    n_bytes = 0
    for n_messages, metadata in enumerate(_messages(memoryview(body)), start=1):
        if n_messages > limits.MAX_PREDICTION_MESSAGES:
            raise TooLarge(
                "the number of messages of the stream", limits.MAX_PREDICTION_MESSAGES
            )
        for n_built in _built(metadata):
            n_bytes += n_built
            if n_bytes > limits.MAX_PREDICTION_BODY_BYTES:
                raise TooLarge(
                    "the bytes of names and metadata", limits.MAX_PREDICTION_BODY_BYTES
                )


def _messages(body: memoryview) -> Iterator[memoryview]:
    """The metadata of each message, a FlatBuffer that nobody has verified yet.

    Not by the library's reader, which makes texts of metadata at once.
    """
    at = 0
    while at < len(body):
        (n_bytes,) = struct.unpack_from("<i", body, at)
        at += 4
        if n_bytes == -1:  # the mark before every length, in all but old streams
            (n_bytes,) = struct.unpack_from("<i", body, at)
            at += 4
        if n_bytes == 0:
            break
        metadata = body[at : at + n_bytes]
        yield metadata
        n_of_body = _number(metadata, _target(metadata, 0), 3, "<q")
        if min(n_bytes, n_of_body) < 0:
            break
        at += n_bytes + n_of_body
    if at != len(body):
        raise MalformedRequest("bytes follow the end of the stream")


def _built(metadata: memoryview) -> Iterator[int]:
    """The bytes of each thing that the library builds of the metadata of a message.

    Refuses a compressed batch, and a dictionary that continues an earlier one: pyarrow
    says neither of a message.
    """
    message = _target(metadata, 0)
    yield from _tables(metadata, message, 4)
    header = _target(metadata, _member(metadata, message, 2))
    kind = _number(metadata, message, 1)
    if kind == _SCHEMA:
        yield from _tables(metadata, header, 2)
        yield from _tables(metadata, header, 1, level=1)
        return
    if kind == _DICTIONARY:
        if _number(metadata, header, 2):
            raise InvalidRequest.at("", "dictionary-delta")
        header = _target(metadata, _member(metadata, header, 1))
    if _member(metadata, header, 3):
        raise InvalidRequest.at("", "compressed")


def _tables(
    buffer: memoryview, table: int, index: int, *, level: int = 0
) -> Iterator[int]:
    """The bytes of a list of pairs of texts, or of fields, which begin with a name and
    have a level, from 1.
    """
    for place in _list(buffer, table, index):
        # each level passes on the bytes of all levels below it
        if level > limits.MAX_PREDICTION_LEVELS:
            raise TooLarge(
                "the number of levels of columns", limits.MAX_PREDICTION_LEVELS
            )
        item = _target(buffer, place)
        yield _BUILT_BYTES + len(_list(buffer, item, 0))
        if not level:
            yield len(_list(buffer, item, 1))
            continue
        # the second member of a timestamp or a union is a text or a list
        if _number(buffer, item, 2) in (10, 14):
            yield len(_list(buffer, _target(buffer, _member(buffer, item, 3)), 1))
        yield from _tables(buffer, item, 6)
        yield from _tables(buffer, item, 5, level=level + 1)


def _target(buffer: memoryview, at: int) -> int:
    """Where the table begins to which the offset at ``at`` points."""
    return at + int(struct.unpack_from("<I", buffer, at)[0])


def _member(buffer: memoryview, table: int, index: int) -> int:
    """Where a member of a table begins; 0 if the table does not have it."""
    places = table - struct.unpack_from("<i", buffer, table)[0]
    (n_bytes,) = struct.unpack_from("<H", buffer, places)
    place = 4 + 2 * index
    # a writer leaves out members of later versions, and those with their default
    if place >= n_bytes:
        return 0
    (offset,) = struct.unpack_from("<H", buffer, places + place)
    return table + int(offset) if offset else 0


def _number(buffer: memoryview, table: int, index: int, form: str = "B") -> int:
    """A member that is a number, or its default."""
    at = _member(buffer, table, index)
    return int(struct.unpack_from(form, buffer, at)[0]) if at else 0


def _list(buffer: memoryview, table: int, index: int) -> range:
    """The places of a list of offsets; of a text, as many as it has bytes."""
    at = _member(buffer, table, index)
    if not at:
        return range(0)
    at = _target(buffer, at)
    (length,) = struct.unpack_from("<I", buffer, at)
    return range(at + 4, at + 4 + 4 * length, 4)


def _check_columns(schema: pa.Schema, declared: Schema) -> None:
    features = {feature.name: feature for feature in declared.features}
    if len(schema) > forest_limits.MAX_FEATURES:
        raise TooLarge("the number of columns", forest_limits.MAX_FEATURES)
    if len(set(schema.names)) < len(schema):
        raise InvalidRequest.at("/columns", "not-distinct")
    problems = []
    for field in schema:
        feature = features.get(field.name)
        is_date = feature is not None and feature.is_date
        if _is_readable(field.type) or (is_date and has_dates(field.type)):
            continue
        # another name came from outside like a value
        place = "/columns"
        accepted: tuple[str, ...] = (*_OF_NUMBERS, *_OF_TEXTS)
        if feature is not None:
            place = pointer(("columns", field.name))
            accepted = _OF_TEXTS if feature.is_categorical else _OF_NUMBERS
        if is_date:
            accepted = _OF_DATES
        problem = FieldProblem(place, "unsupported-type", accepted=accepted)
        if problem not in problems:
            problems.append(problem)
    if problems:
        raise InvalidRequest(problems[: forest_limits.MAX_REPORTED_PROBLEMS])


def _is_readable(kind: pa.DataType) -> bool:
    if isinstance(kind, pa.BaseExtensionType):
        return False
    if pa.types.is_dictionary(kind):
        return not pa.types.is_dictionary(kind.value_type) and _is_readable(
            kind.value_type
        )
    return (
        has_numbers(kind)
        or has_text(kind)
        or pa.types.is_boolean(kind)
        or pa.types.is_null(kind)
    )


def _checked(stream: Any, n_columns: int, *, max_rows: int) -> list[pa.RecordBatch]:
    batches, n_rows, n_bytes = list[pa.RecordBatch](), 0, 0
    for batch in stream:
        n_rows += batch.num_rows
        if n_rows > max_rows:
            raise TooLarge("the number of rows", max_rows)
        if (len(batches) + 1) * n_columns > limits.MAX_PREDICTION_ARRAYS:
            raise TooLarge(
                "the number of record batches times columns",
                limits.MAX_PREDICTION_ARRAYS,
            )
        # the length of a dictionary of nulls stands in the stream and may be negative
        batch.validate()
        n_bytes += sum(map(_n_bytes, batch.columns))
        if n_bytes > limits.MAX_PREDICTION_BODY_BYTES:
            raise TooLarge("the bytes of all columns", limits.MAX_PREDICTION_BODY_BYTES)
        batch.validate(full=True)
        batches.append(batch)
    return batches


def _n_viewed(array: pa.Array) -> int:
    """The bytes of all texts of an array of views. Many may refer to one text, which is
    validated for each of them.
    """
    views = array.buffers()[1]
    if views is None:
        return 0
    # A view has four words; the first is the length of its text.
    lengths = np.frombuffer(
        views, np.int32, count=4 * len(array), offset=16 * array.offset
    )[::4]
    return int(np.maximum(lengths, 0).sum(dtype=np.int64))


def _n_bytes(array: pa.Array) -> int:
    if pa.types.is_dictionary(array.type):
        parts = [array, array.dictionary]
    else:
        parts = [array]
    # they have none before they are read
    n_bytes = sum(len(part) for part in parts[1:] if pa.types.is_null(part.type))
    for part in parts:
        if pa.types.is_string_view(part.type):
            n_bytes += _n_viewed(part)
        n_bytes += sum(
            int(buffer.size) for buffer in part.buffers() if buffer is not None
        )
    return n_bytes
