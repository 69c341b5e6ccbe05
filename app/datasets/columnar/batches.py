"""Packs blocks of columns into the byte stream of the decoding process, and checks everything that it unpacks.

::

    header   length (4 bytes) | JSON: the names of the columns
    block    number of rows (4) | every column, in the order of the names
    column   "N" | a float64 for each row, NaN for an empty cell
             "T" | an offset into the text for each row and one for the end (4 bytes each) | text in UTF-8

All integers are unsigned and little-endian. A column may be numbers in one block and text in the next.
"""

import json
import struct
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import pairwise
from typing import Protocol, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from app.core import limits
from app.core.arrow_arrays import are_valid
from app.core.errors import RowsInvalid, TooLarge
from app.datasets.columnar.frames import Problem
from app.datasets.csv_source import text_of, whole_file_problem

Text: TypeAlias = tuple[NDArray[np.int32], memoryview]
"""Offsets and text of a column."""

_COUNT = struct.Struct("<I")
_NUMBERS, _TEXT = b"N", b"T"
_MAX_BLOCK_BYTES = 16 * 1024 * 1024
_MAX_HEADER_BYTES = 64 * 1024 * 1024
_PIECE_BYTES = 1024 * 1024


class Stream(Protocol):
    """Where the bytes of the decoding process come from."""

    def read(self, size: int) -> bytes:
        """Up to ``size`` bytes; none at the end."""


def packed_names(names: Sequence[str]) -> bytes:
    """The header of a stream."""
    text = json.dumps(list(names)).encode("ascii")
    return _COUNT.pack(len(text)) + text


def packed_block(n_rows: int, columns: Sequence[NDArray[np.float64] | Text]) -> bytes:
    """One block."""
    pieces: list[bytes | memoryview] = [_COUNT.pack(n_rows)]
    for column in columns:
        if isinstance(column, tuple):
            pieces += (_TEXT, column[0].astype("<u4").tobytes(), column[1])
        else:
            pieces += (_NUMBERS, column.astype("<f8").tobytes())
    return b"".join(pieces)


def offsets_and_text(cells: pa.Array) -> Text:
    """The parts of a column of strings; a null is an empty cell."""
    lengths = np.zeros(len(cells), np.int32)
    valid = cells.drop_null() if cells.null_count else cells
    _, ends, text = valid.buffers()
    if not len(valid) or text is None:
        return np.zeros(len(cells) + 1, np.int32), memoryview(b"")
    used = np.frombuffer(ends, np.int32)[valid.offset : valid.offset + len(valid) + 1]
    lengths[are_valid(cells)] = np.diff(used)
    offsets = np.concatenate([[0], lengths.cumsum(dtype=np.int32)], dtype=np.int32)
    return offsets, memoryview(text)[used[0] : used[-1]]


class Blocks:
    """The blocks of a stream, which is believed nothing: text that is not UTF-8 becomes NUL, as in a CSV.

    Args:
        stream: PRIVATE; of the decoding process.
        max_bytes: limit of the bytes of the stream.
    """

    def __init__(self, stream: Stream, *, max_bytes: int) -> None:
        self._stream = stream
        self._max_bytes = max_bytes
        self._n_bytes = 0
        self._order: Sequence[int] = ()

    def read_header(self) -> list[str]:
        """Reads the names of the columns.

        Raises:
            RowsInvalid, TooLarge: the process refused the body, or the stream is broken or too long.
        """
        names: list[str] | None = None
        text = self._exactly(self._count(_MAX_HEADER_BYTES))
        with suppress(ValueError, RecursionError):
            names = json.loads(text)
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            raise _broken()
        if len(names) > limits.MAX_UPLOAD_COLUMNS:
            raise _broken()
        return names

    def place_columns(self, positions: Sequence[int]) -> None:
        """Names the position of each column of the stream in the blocks that :meth:`blocks` returns."""
        self._order = sorted(range(len(positions)), key=positions.__getitem__)

    def blocks(self) -> Iterator[list[pa.Array]]:
        """The blocks, each a list of columns: float64 with NaN for an empty cell, or text.

        Raises:
            RowsInvalid, TooLarge: see :meth:`read_header`.
        """
        while start := self._read(1):
            (n_rows,) = _COUNT.unpack(start + self._exactly(_COUNT.size - 1))
            if n_rows > _MAX_BLOCK_BYTES // 8:
                raise _broken()
            columns = [self._column(n_rows) for _ in self._order]
            yield [columns[index] for index in self._order]

    def _column(self, n_rows: int) -> pa.Array:
        match self._exactly(1):
            case b"N":
                numbers = pa.py_buffer(self._exactly(8 * n_rows))
                return pa.Array.from_buffers(pa.float64(), n_rows, [None, numbers])
            case b"T":
                offsets = np.frombuffer(self._exactly(4 * (n_rows + 1)), "<u4").astype(np.int64)
                if offsets[0] != 0 or np.any(np.diff(offsets) < 0) or offsets[-1] > _MAX_BLOCK_BYTES:
                    raise _broken()
                return _strings(offsets, self._exactly(int(offsets[-1])))
            case _:
                raise _broken()

    def _count(self, most: int) -> int:
        (count,) = _COUNT.unpack(self._exactly(_COUNT.size))
        if count > most:
            raise _broken()
        return int(count)

    def _exactly(self, n_bytes: int) -> bytes:
        pieces, n_missing = list[bytes](), n_bytes
        while n_missing:
            piece = self._read(min(n_missing, _PIECE_BYTES))
            if not piece:
                raise _broken()
            pieces.append(piece)
            n_missing -= len(piece)
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def _read(self, size: int) -> bytes:
        piece = self._stream.read(size)
        self._n_bytes += len(piece)
        if self._n_bytes > self._max_bytes:
            raise TooLarge("the unpacked upload in bytes", self._max_bytes)
        return piece


def _strings(offsets: NDArray[np.int64], text: bytes) -> pa.Array:
    """A column of strings, each of them valid UTF-8."""
    ends = pa.py_buffer(offsets.astype(np.int32).tobytes())
    cells = pa.StringArray.from_buffers(len(offsets) - 1, ends, pa.py_buffer(text))
    if not text.isascii():
        try:
            cells.validate(full=True)
        except pa.ArrowInvalid:
            cells = None
    if cells is None:
        cells = pa.array([text_of(text[start:end]) for start, end in pairwise(offsets)], pa.string())
    return cells


def _broken() -> RowsInvalid:
    return whole_file_problem(Problem.MALFORMED.value)
