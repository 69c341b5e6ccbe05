"""Defines what passes between the service and the child that decodes an upload, and
checks what the child sends.

The service sends one line of JSON: the form of the body, its size, and the names of the
columns of numbers. The child then sends frames, each a kind, a length and a payload;
the service believes none of them:

=====  =====================================================================================
kind   payload
=====  =====================================================================================
``R``  an offset and a length: the service answers with these bytes of the body, without a frame
``T``  bytes of the rows
``V``  JSON, and the last frame: the problem of the body, or ``null``, and columns that have it
=====  =====================================================================================

The bytes of the rows are blocks of columns::

    header   length (4 bytes) | JSON: the names of the columns
    block    number of rows (4) | kinds of the columns (1 each), in the order of the names | columns in this order
    column   N: a float64 for each row, NaN for an empty cell
             T: texts, one for each row
             D: number of different texts (4) | these texts | an index of a text for
                 each row (1 each)
    texts    an offset into the text for each and one for the end (4 bytes each) | text in UTF-8

All integers are unsigned and little-endian. A column may be numbers in one block and
text in the next.

Two formats that exist would not do. Arrow IPC has metadata that the service would have
to parse, in a process that has the database and the keys, although a hostile body may
have taken over the child. CSV would turn every number into text and be parsed again.
The blocks have nothing but lengths, offsets and cells, each checked by a line below.
"""

import json
import struct
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from enum import StrEnum
from itertools import pairwise
from typing import Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from app.core import limits
from app.core.arrow_arrays import are_valid
from app.core.errors import RowsInvalid, TooLarge
from app.datasets.upload_bodies import text_of, whole_file_problem
from grovekeeper_common import suspicions
from grovekeeper_forests.array_types import Float64Array, Int32Array, UInt8Array

# Frames are headed in big-endian order, blocks in that of the arrays in memory, which
# are then sent without a copy.
HEAD = struct.Struct(">cI")
RANGE = struct.Struct(">QI")
READ = b"R"
TEXT = b"T"
VERDICT = b"V"
MAX_FRAME_BYTES = 1024 * 1024
"""Bytes of a payload, and of a range of the body."""

Piece = bytes | memoryview
MAX_DIFFERENT_TEXTS = 256
"""Most texts of a column that is sent as indices of texts."""

_COUNT = struct.Struct("<I")
_NUMBERS, _TEXT, _DICTIONARY = b"NTD"
# Above what an honest child sends, which counts its longest cells against a quarter.
_MAX_BLOCK_BYTES = 4 * limits.MAX_BLOCK_BYTES
_MAX_HEADER_BYTES = 8 * 1024 * 1024


class BodyProblem(StrEnum):
    """Why a body is refused. Never says anything about a cell."""

    MALFORMED = "malformed-file"
    ENCRYPTED = "encrypted-file"
    ENCODING = "unsupported-encoding"
    TYPE = "unsupported-type"
    LONG_LINE = "line-too-long"
    ROW_GROUPS = "row-groups"
    COLUMNS = "columns"
    METADATA = "metadata"
    ROWS = "rows"
    MEMORY = "memory"


class Stream(Protocol):
    """Where the bytes of the decoding process come from."""

    def readinto(self, buffer: memoryview, /) -> int | None:
        """Fills the start of a buffer; returns the number of bytes, none at the end."""


@dataclass(frozen=True)
class Texts:
    """PRIVATE: texts of the rows of a column.

    Attributes:
        offsets: int32, where each text starts and the last one ends.
        text: UTF-8.
        indices: uint8, which text each row has; ``None`` where there is a text for each
            row.
    """

    offsets: Int32Array = field(repr=False)
    text: memoryview = field(repr=False)
    indices: UInt8Array | None = field(default=None, repr=False)

    @property
    def row_bytes(self) -> Int32Array:
        """The length of the text of each row."""
        lengths = np.diff(self.offsets)
        return lengths if self.indices is None else lengths[self.indices]

    def packed(self) -> list[Piece]:
        """The column in a block."""
        offsets = _bytes_of(self.offsets.astype("<u4", copy=False))
        if self.indices is None:
            return [offsets, self.text]
        n_texts = _COUNT.pack(len(self.offsets) - 1)
        return [n_texts, offsets, self.text, _bytes_of(self.indices)]


def packed_names(names: Sequence[str]) -> bytes:
    """The header of a stream."""
    text = json.dumps(list(names)).encode("ascii")
    return _COUNT.pack(len(text)) + text


def packed_block(n_rows: int, columns: Sequence[Float64Array | Texts]) -> list[Piece]:
    """One block, in pieces."""
    kinds = bytes(map(_kind, columns))
    pieces: list[Piece] = [_COUNT.pack(n_rows) + kinds]
    for column in columns:
        if isinstance(column, Texts):
            pieces += column.packed()
        else:
            pieces.append(_bytes_of(column.astype("<f8", copy=False)))
    return pieces


def _kind(column: Float64Array | Texts) -> int:
    if not isinstance(column, Texts):
        return _NUMBERS
    return _TEXT if column.indices is None else _DICTIONARY


def _bytes_of(array: NDArray[np.generic]) -> memoryview:
    return np.ascontiguousarray(array).view(np.uint8).data


def offsets_and_text(cells: pa.Array) -> tuple[Int32Array, memoryview]:
    """The parts of a column of strings; a null is an empty cell."""
    valid = cells.drop_null() if cells.null_count else cells
    _, ends, text = valid.buffers()
    if not len(valid) or text is None:
        return np.zeros(len(cells) + 1, np.int32), memoryview(b"")
    # A slice shares its buffers with the whole column: only its part may be sent.
    used = np.frombuffer(ends, np.int32)[valid.offset : valid.offset + len(valid) + 1]
    offsets = used - used[0]
    if cells.null_count:
        lengths = np.zeros(len(cells), np.int32)
        lengths[are_valid(cells)] = np.diff(used)
        offsets = np.concatenate([[0], lengths.cumsum(dtype=np.int32)], dtype=np.int32)
    return offsets, memoryview(text)[used[0] : used[-1]]


class Blocks:
    """The blocks of a stream, which is believed nothing: text that is not UTF-8 becomes
    NUL, as in a CSV.

    Args:
        stream: PRIVATE; of the decoding process.
        max_bytes: limit of the bytes of the stream, with each text counted as often as
            it occurs.
    """

    def __init__(self, stream: Stream, *, max_bytes: int) -> None:
        self._stream = stream
        self._max_bytes = max_bytes
        self._n_bytes = self._n_block_bytes = 0
        self._order: Sequence[int] = ()

    def read_header(self) -> list[str]:
        """Reads the names of the columns.

        Raises:
            RowsInvalid, TooLarge: the process refused the body, or the stream is broken
                or too long.
        """
        names: list[str] | None = None
        text = self._exactly(self._count(_MAX_HEADER_BYTES))
        # nested lists, a few bytes each, exhaust the parser's stack
        with suppress(ValueError, RecursionError):
            names = json.loads(bytes(text))
        if not isinstance(names, list) or len(names) > limits.MAX_UPLOAD_COLUMNS:
            raise _broken()
        if not all(isinstance(name, str) for name in names):
            raise _broken()
        return names

    def place_columns(self, positions: Sequence[int]) -> None:
        """Names the position of each column of the stream in the blocks that
        :meth:`blocks` returns.
        """
        self._order = sorted(range(len(positions)), key=positions.__getitem__)

    def blocks(self) -> Iterator[list[pa.Array]]:
        """The blocks, each a list of columns: float64 with NaN for an empty cell, or
        text, in a dictionary or not.

        Raises:
            RowsInvalid, TooLarge: see :meth:`read_header`.
        """
        n_read = 0
        while (block := self._block(n_read)) is not None:
            yield [block[index] for index in self._order]
            n_read += len(block[0])

    def _block(self, n_read: int) -> list[pa.Array] | None:
        """The next block; ``None`` at the end. A refusal names the first row that did
        not arrive.
        """
        try:
            self._n_block_bytes = 0
            start = self._first_byte()
            if start is None:
                return None
            (n_rows,) = _COUNT.unpack(start + self._exactly(_COUNT.size - 1).tobytes())
            # before memory is taken for the rows
            if n_rows > limits.MAX_BLOCK_ROWS:
                raise _broken()
            kinds = self._exactly(len(self._order)).tobytes()
            return [self._column(kind, n_rows) for kind in kinds]
        except RowsInvalid as refusal:
            refusal.columns = [
                replace(problem, row=n_read + 1) for problem in refusal.columns
            ]
            raise

    def _column(self, kind: int, n_rows: int) -> pa.Array:
        if kind == _NUMBERS:
            return pa.Array.from_buffers(
                pa.float64(), n_rows, [None, pa.py_buffer(self._exactly(8 * n_rows))]
            )
        if kind == _TEXT:
            return self._texts(n_rows)
        if kind == _DICTIONARY:
            texts = self._texts(self._count(MAX_DIFFERENT_TEXTS))
            indices = self._exactly(n_rows)
            # Arrow believes indices, and would read beyond the texts.
            if n_rows and indices.max() >= len(texts):
                raise _broken()
            self._count_unfolded(texts, indices)
            return pa.DictionaryArray.from_arrays(pa.array(indices), texts)
        raise _broken()

    def _count_unfolded(self, texts: pa.Array, indices: UInt8Array) -> None:
        """Counts the bytes that the texts of the rows have, as if they had been sent
        for each row.
        """
        self._count_bytes(
            int(pc.binary_length(texts).to_numpy().take(indices).sum(dtype=np.int64))
        )

    def _texts(self, n_texts: int) -> pa.Array:
        offsets = self._exactly(4 * (n_texts + 1)).view("<u4")
        # Arrow believes offsets, too. The comparison is of unsigned numbers: a
        # difference would wrap.
        is_ascending = not np.any(offsets[1:] < offsets[:-1])
        if offsets[0] != 0 or not is_ascending or offsets[-1] > _MAX_BLOCK_BYTES:
            raise _broken()
        text = self._exactly(int(offsets[-1])).tobytes()
        return _strings(offsets.astype(np.int32, copy=False), text)

    def _count(self, most: int) -> int:
        (count,) = _COUNT.unpack(self._exactly(_COUNT.size).data)
        if count > most:
            raise _broken()
        return int(count)

    def _first_byte(self) -> bytes | None:
        """The next byte; ``None`` at the end."""
        byte = bytearray(1)
        return bytes(byte) if self._read(memoryview(byte)) else None

    def _exactly(self, n_bytes: int) -> UInt8Array:
        received = np.empty(n_bytes, np.uint8)
        missing = received.data
        while missing:
            n_read = self._read(missing)
            if not n_read:
                raise _broken()
            missing = missing[n_read:]
        return received

    def _read(self, buffer: memoryview) -> int:
        n_read = self._stream.readinto(buffer) or 0
        self._count_bytes(n_read)
        return n_read

    def _count_bytes(self, n_bytes: int) -> None:
        self._n_bytes += n_bytes
        self._n_block_bytes += n_bytes
        # An index of one byte may stand for a long text in every row, so what is counted
        # is more than what arrives.
        if self._n_bytes > self._max_bytes:
            raise TooLarge("the unpacked upload in bytes", self._max_bytes)
        if self._n_block_bytes > _MAX_BLOCK_BYTES:
            raise _broken()


def _strings(offsets: Int32Array, text: bytes) -> pa.Array:
    """A column of strings, each of them valid UTF-8."""
    cells = pa.StringArray.from_buffers(
        len(offsets) - 1, pa.py_buffer(offsets), pa.py_buffer(text)
    )
    if not text.isascii():
        try:
            cells.validate(full=True)
        except pa.ArrowInvalid:
            cells = None
    if cells is None:
        cells = pa.array(
            [text_of(text[start:end]) for start, end in pairwise(offsets)], pa.string()
        )
    return cells


def _broken() -> RowsInvalid:
    return whole_file_problem(BodyProblem.MALFORMED.value, suspected=suspicions.CUT_OFF)
