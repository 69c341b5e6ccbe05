"""Lists the forms in which rows are uploaded, and unpacks, bounds and decodes a CSV
before a parser reads it.

The dialect is RFC 4180 in UTF-8: comma, double quotes, doubled quotes inside quotes, a
header row. A byte order mark is accepted, and so are LF, CRLF and CR as line ends;
empty lines are skipped.

The parser gets valid UTF-8 only: other bytes become NUL, which no text contains, and
their cell is counted as a problem of its column. Otherwise the parser would print the
bytes that it cannot decode to stderr.
"""

import codecs
import csv
import gzip
import re
import zlib
from collections.abc import Collection, Sequence
from enum import StrEnum
from typing import BinaryIO, cast

from app.core.errors import ColumnProblem, MalformedRequest, RowsInvalid, TooLarge
from grovekeeper_common import suspicions
from grovekeeper_forests.errors import GrovekeeperError

NOT_TEXT = "\0"
"""Replaces bytes that are not UTF-8. A NUL in the upload is not text, either."""

_PIECE_BYTES = 1024 * 1024
_BEGIN_BYTES = 8
_UNDECODED = re.compile("[\udc80-\udcff]+")


class BodyForm(StrEnum):
    """The form of an upload's body."""

    CSV = "csv"
    GZIP = "gzip"
    """CSV, packed."""
    PARQUET = "parquet"
    ARROW_STREAM = "arrow-stream"
    ARROW_FILE = "arrow-file"

    @property
    def is_columnar(self) -> bool:
        """Whether the body is decoded by a child process."""
        return self not in (BodyForm.CSV, BodyForm.GZIP)


def text_of(cell: bytes) -> str:
    """Text with NUL for bytes that are not UTF-8."""
    return _UNDECODED.sub(NOT_TEXT, cell.decode("utf-8", "surrogateescape"))


def whole_file_problem(
    problem: str,
    *,
    line: int | None = None,
    byte: int | None = None,
    suspected: str | None = None,
) -> RowsInvalid:
    """The refusal of an upload for a reason that belongs to no column."""
    return RowsInvalid(
        [ColumnProblem("", problem, 1, line=line, byte=byte, suspected=suspected)]
    )


class CsvSource:
    """A file object for the parser: a header that names columns by position, then the
    lines of the upload.

    The parser reads in its own thread. So a refusal is kept in :attr:`refusal` and
    looks like the end of the file to the parser; the caller calls :meth:`check` right
    after parsing.

    Attributes:
        refusal: why reading ended early, or ``None``.
        closed: required of a file object by the parser.
    """

    def __init__(
        self,
        source: BinaryIO,
        *,
        is_gzip: bool,
        max_bytes: int,
        max_line_bytes: int,
        declared: Collection[str] = (),
    ) -> None:
        """Reads nothing yet.

        Args:
            source: PRIVATE; the upload's body. Stays open.
            declared: names of the declared columns, by which another separator is
                recognised.
            max_bytes: limit of the unpacked bytes.
            max_line_bytes: limit of the bytes of a line, without its end.
        """
        self.refusal: GrovekeeperError | None = None
        self.closed = False
        self._source = source
        if is_gzip:
            self._source = cast(BinaryIO, gzip.GzipFile(fileobj=source, mode="rb"))
        self._decoder = codecs.getincrementaldecoder("utf-8-sig")("surrogateescape")
        self._max_bytes = max_bytes
        self._max_line_bytes = max_line_bytes
        self._n_bytes = 0
        self._n_line_bytes = 0
        self._declared = declared
        self._begin = b""
        self._n_empty_lines = 0
        self._waiting = b""
        self._ended = False

    def check(self) -> None:
        """Raises the refusal, if there is one.

        Raises:
            MalformedRequest: the body is not gzip, or is cut off.
            TooLarge: more bytes than accepted.
            RowsInvalid: a line is too long.
        """
        if self.refusal is not None:
            raise self.refusal

    def read_header(self) -> list[str]:
        """Reads and removes the header: the column names of the upload.

        Raises:
            RowsInvalid: ``no-header``, ``not-text``, ``separator``, ``separator-line``
                or ``malformed-header``.
            MalformedRequest, TooLarge: see :meth:`check`.
        """
        line = self._first_line().decode("utf-8")
        self.check()
        number = self._n_empty_lines + 1
        if NOT_TEXT in line:
            raise whole_file_problem(
                "not-text", line=number, suspected=suspicions.of_no_text(self._begin)
            )
        problem = suspicions.of_header_line(line, self._declared)
        if problem is not None:
            raise whole_file_problem(
                problem.problem, line=number, suspected=problem.suspected
            )
        try:
            return next(csv.reader([line], strict=True))
        except csv.Error:
            # raised out of the handler: an error of the library can quote the line
            pass
        raise whole_file_problem(
            "malformed-header", line=number, suspected=suspicions.OPEN_QUOTE
        )

    def place_columns(self, positions: Sequence[int]) -> None:
        """Puts a header before the remaining lines that names each column by its
        position in the declaration.
        """
        header = ",".join(map(str, positions)).encode("ascii")
        self._waiting = header + b"\n" + self._waiting

    def read(self, size: int = -1) -> bytes:
        """Up to ``size`` bytes: fewer only at the end, so that the parser's blocks have
        their full size.
        """
        pieces = [self._waiting]
        n_bytes = len(self._waiting)
        while n_bytes < size or size < 0:
            piece = self._next_piece(size - n_bytes if size >= 0 else _PIECE_BYTES)
            if not piece:
                break
            pieces.append(piece)
            n_bytes += len(piece)
        text = b"".join(pieces)
        # A piece can be longer than requested, by the start of a character that waited
        # for its last byte.
        end = len(text) if size < 0 else size
        self._waiting = text[end:]
        return text[:end]

    def close(self) -> None:
        """Ends reading: a parser thread that reads ahead gets no more bytes."""
        self.closed = self._ended = True

    def _first_line(self) -> bytes:
        """The first line that is not empty, without its end. Bytes read beyond it wait
        for the next read.
        """
        text = b""
        while True:
            stripped = text.lstrip(b"\r\n")
            ends = text[: len(text) - len(stripped)]
            self._n_empty_lines += ends.count(b"\n") or ends.count(b"\r")
            text = stripped
            end = _first_line_end(text)
            if end >= 0:
                self._waiting = text[end:]
                return text[:end]
            piece = self._next_piece(_PIECE_BYTES)
            if not piece:
                break
            text += piece
        if not text and self.refusal is None:
            self._refuse(
                whole_file_problem("no-header", line=1, suspected=suspicions.NO_TEXT)
            )
        return text

    def _next_piece(self, size: int) -> bytes:
        """Unpacks, counts and checks a few more bytes; none at the end and after a
        refusal.
        """
        text = ""
        while not text and not self._ended:
            try:
                piece = self._source.read(min(size, self._max_line_bytes, _PIECE_BYTES))
            except (EOFError, gzip.BadGzipFile, zlib.error):
                return self._refuse(
                    MalformedRequest("the body is not gzip, or is cut off")
                )
            self._ended = not piece
            if not self._n_bytes:
                self._begin = piece[:_BEGIN_BYTES]
            self._n_bytes += len(piece)
            if self._n_bytes > self._max_bytes:
                return self._refuse(
                    TooLarge("the unpacked upload in bytes", self._max_bytes)
                )
            if self._ends_long_line(piece):
                # where the line begins, from 1
                byte = self._n_bytes - self._n_line_bytes + 1
                too_long = whole_file_problem(
                    "line-too-long", byte=byte, suspected=suspicions.LONG_LINE
                )
                return self._refuse(too_long)
            text = self._decoder.decode(piece, final=self._ended)
        # The usual text is encoded without a search for bytes that were not decoded.
        try:
            return text.encode("utf-8")
        except UnicodeEncodeError:
            return _UNDECODED.sub(NOT_TEXT, text).encode("utf-8")

    def _ends_long_line(self, piece: bytes) -> bool:
        """Whether a line became too long. A piece fits into the limit, so only a line
        that began before it can be.
        """
        end = _first_line_end(piece)
        if end < 0:
            self._n_line_bytes += len(piece)
            return self._n_line_bytes > self._max_line_bytes
        if self._n_line_bytes + end > self._max_line_bytes:
            self._n_line_bytes += len(piece)
            return True
        last_end = max(piece.rfind(b"\n"), piece.rfind(b"\r"))
        self._n_line_bytes = len(piece) - 1 - last_end
        return False

    def _refuse(self, refusal: GrovekeeperError) -> bytes:
        self.refusal = refusal
        self._ended = True
        return b""


def _first_line_end(text: bytes) -> int:
    """Where the first CR or LF is, or −1."""
    ends = [end for end in (text.find(b"\n"), text.find(b"\r")) if end >= 0]
    return min(ends, default=-1)
