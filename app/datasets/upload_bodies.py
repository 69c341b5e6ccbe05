"""Lists the forms in which rows are uploaded, and unpacks, bounds and decodes a CSV
before a parser reads it.

The dialect is RFC 4180 in UTF-8: comma, double quotes, doubled quotes inside quotes, a
header row; the owner may state another separator or encoding (:class:`Dialect`). A byte
order mark is accepted, and so are LF, CRLF and CR as line ends; empty lines are skipped.

The parser gets valid UTF-8 only: other bytes become NUL, which no text contains, and
their cell is counted as a problem of its column. Otherwise the parser would print the
bytes that it cannot decode to stderr.
"""

import codecs
import csv
import zlib
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, BinaryIO, cast

import numpy as np

from app.core.errors import (
    ColumnProblem,
    InvalidRequest,
    MalformedRequest,
    RowsInvalid,
    TooLarge,
)
from grovekeeper_common import suspicions
from grovekeeper_common.number_text import BLANKS
from grovekeeper_common.recoding import BEGIN_BYTES, NOT_TEXT, UNDECODED, Recoded
from grovekeeper_forests.data.schema import missing_values_problem
from grovekeeper_forests.errors import GrovekeeperError

_PIECE_BYTES = 1024 * 1024
# few, because what is left of them is copied at the end of each member
_PACKED_BYTES = 8 * 1024
_QUOTE = ord('"')


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


MEDIA_TYPES = {
    "text/csv": BodyForm.CSV,
    "application/csv": BodyForm.CSV,
    "application/vnd.apache.parquet": BodyForm.PARQUET,
    "application/vnd.apache.arrow.stream": BodyForm.ARROW_STREAM,
    "application/vnd.apache.arrow.file": BodyForm.ARROW_FILE,
}
"""Forms by media type; a CSV may be packed."""


@dataclass(frozen=True)
class Dialect:
    """How the owner's file is written, where it is not as RFC 4180 has it in UTF-8.

    Attributes:
        separator: between cells; a name in ``suspicions.SEPARATORS``.
        decimal: the sign before the fraction of a number, ``.`` or ``,``.
        encoding: of the text; a codec of Python.
        missing: texts that stand for an empty cell, beside those of the declaration.
    """

    separator: str = ","
    decimal: str = "."
    encoding: str = "utf-8"
    missing: tuple[str, ...] = ()

    @property
    def is_of_text(self) -> bool:
        """Whether it states what a file of Parquet or Arrow does not have."""
        return self != Dialect(missing=self.missing)

    @classmethod
    def of(cls, separator: str, decimal: str, encoding: str, missing: str) -> "Dialect":
        """The dialect of an owner's options; ``missing`` has commas between its texts.

        Raises:
            InvalidRequest: with the option and a slug.
        """
        for name, value, known in (
            ("separator", separator, tuple(suspicions.SEPARATORS)),
            ("decimal", decimal, suspicions.DECIMALS),
            ("encoding", encoding, suspicions.ENCODINGS),
        ):
            if value not in known:
                raise InvalidRequest.at(f"/{name}", "unknown-choice", accepted=known)
        texts = [mark.strip(BLANKS) for mark in missing.split(",")]
        marks = tuple(filter(None, texts))
        if problem := missing_values_problem(marks):
            raise InvalidRequest.at("/missing", problem)
        return cls(separator, decimal, encoding, marks)

    def with_options(self, options: Iterable[str]) -> "Dialect":
        """The dialect with suspected options (``suspicions.option_of``)."""
        dialect = self
        for option in options:
            name, _, value = option.partition("=")
            if name == "missing":
                marks = dict.fromkeys((*dialect.missing, *value.split(",")))
                dialect = replace(dialect, missing=tuple(marks))
            else:
                stated: dict[str, Any] = {name: value}
                dialect = replace(dialect, **stated)
        return dialect


RFC_4180 = Dialect()


def text_of(cell: bytes) -> str:
    """Text with NUL for bytes that are not UTF-8."""
    return UNDECODED.sub(NOT_TEXT, cell.decode("utf-8", "surrogateescape"))


def whole_file_problem(
    problem: str,
    *,
    line: int | None = None,
    byte: int | None = None,
    suspected: str | None = None,
    option: str | None = None,
) -> RowsInvalid:
    """The refusal of an upload for a reason that belongs to no column."""
    refused = ColumnProblem("", problem, 1, line=line, byte=byte, suspected=suspected)
    return RowsInvalid([replace(refused, option=option)])


def _utf8_problem() -> RowsInvalid:
    suspected = suspicions.UTF_8
    option = suspicions.option_of(suspected)
    return whole_file_problem("not-text", suspected=suspected, option=option)


class _Unpacked:
    """The text of a gzip file. ``zlib`` reads it, because Python's reader takes the name
    of a file byte by byte: 30 MB of a name took a minute.
    """

    def __init__(self, packed: BinaryIO) -> None:
        self._packed = packed
        self._waiting = b""
        self._member: zlib._Decompress | None = None

    def read(self, size: int) -> bytes:
        """Some of the text, none at its end.

        Raises:
            EOFError: the file is cut off.
            zlib.error: it is damaged, or no gzip file.
        """
        text = b""
        while not text:
            packed = self._waiting or self._packed.read(_PACKED_BYTES)
            if self._member is None or self._member.eof:
                if self._member and packed[:1] == b"\0":
                    # zeros fill the last block of a tape
                    self._waiting = packed.lstrip(b"\0")
                    continue
                if not packed:
                    break
                self._member = zlib.decompressobj(wbits=31)
            if not packed:
                raise EOFError
            text = self._member.decompress(packed, size)
            self._waiting = self._member.unused_data or self._member.unconsumed_tail
        return text


class _Quotes:
    """Looks for text behind the quote that ends a cell, as in ``"Ann \\"A\\" B"``: some
    readers refuse it, and each of the others reads another text.

    Nothing is looked for after the first quote inside a cell that begins with none:
    from there on, the number of quotes does not say which of them ends a cell.

    Attributes:
        line: the line of the text that was found, from 1.
    """

    def __init__(self, delimiter: str, *, line: int) -> None:
        self.line = line
        self._may_surround = np.zeros(256, dtype=np.bool_)
        self._may_surround[list(f'{delimiter}\r\n"'.encode("ascii"))] = True
        self._is_inside = False
        self._before = b"\n"

    def are_read_alike(self, piece: bytes) -> bool:
        """Whether no text stands behind a quote that ends a cell.

        Args:
            piece: PRIVATE; the next part of the file, as UTF-8.
        """
        text = self._before + piece
        # the sign after the last quote is in the next piece
        is_known_after = not text.endswith(b'"')
        self._before = text[-1:] if is_known_after else text[-2:]
        if b'"' in text and self._may_surround.any():
            signs = np.frombuffer(text, np.uint8)
            end = len(text) if is_known_after else len(text) - 1
            quotes = np.flatnonzero(signs[1:end] == _QUOTE)
            begins = quotes[int(self._is_inside) :: 2]
            ends = quotes[int(not self._is_inside) :: 2]
            # of the sign before the one, and behind the other
            literal = begins[~self._may_surround[signs[begins]]]
            stray = ends[~self._may_surround[signs[ends + 2]]]
            if len(stray) and not (len(literal) and literal[0] < stray[0]):
                self.line += text.count(b"\n", 1, stray[0] + 1)
                return False
            if len(literal):
                self._may_surround[:] = False
            self._is_inside ^= len(quotes) % 2 == 1
        self.line += piece.count(b"\n")
        return True


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
        dialect: Dialect = RFC_4180,
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
            self._source = cast(BinaryIO, _Unpacked(source))
        self._recoded: Recoded | None = None
        if dialect.encoding != RFC_4180.encoding:
            self._recoded = Recoded(self._source, dialect.encoding)
            self._source = cast(BinaryIO, self._recoded)
        self._has_utf8 = False
        self._has_nul = False
        self._dialect = dialect
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
        self._quotes: _Quotes | None = None

    @property
    def delimiter(self) -> str:
        """The sign between cells."""
        return suspicions.SEPARATORS[self._dialect.separator]

    @property
    def suspected_of_bytes(self) -> str:
        """Why bytes are not text, after what has been read of the file."""
        if self._dialect.encoding == "latin-1":
            return suspicions.CONTROLS
        if self._dialect.encoding != RFC_4180.encoding:
            return suspicions.OTHER_ENCODING
        if self._has_nul:
            return suspicions.NUL
        if self._has_utf8 or self._begin.startswith(codecs.BOM_UTF8):
            return suspicions.SOME_BYTES
        return suspicions.LATIN_1

    def check(self) -> None:
        """Raises the refusal, if there is one.

        Raises:
            MalformedRequest: the body is not gzip, or is cut off.
            TooLarge: more bytes than accepted.
            RowsInvalid: a line is too long, or the file is UTF-8 and its owner states
                another encoding.
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
            suspected = self._suspected_of_header()
            option = suspicions.option_of(suspected)
            raise whole_file_problem(
                "not-text", line=number, suspected=suspected, option=option
            )
        separator = self._dialect.separator
        problem = suspicions.of_header_line(line, self._declared, separator=separator)
        if problem is not None:
            suspected = problem.suspected
            option = problem.option
            raise whole_file_problem(
                problem.problem, line=number, suspected=suspected, option=option
            )
        try:
            return next(csv.reader([line], strict=True, delimiter=self.delimiter))
        except csv.Error:
            pass  # raised below, out of the handler: the library's error can quote the line
        raise whole_file_problem(
            "malformed-header", line=number, suspected=suspicions.OPEN_QUOTE
        )

    def _suspected_of_header(self) -> str:
        """Why the header is not text: its first bytes say what the file is, or the rest
        says in which encoding it is.
        """
        begin = self._begin if self._recoded is None else self._recoded.begin
        suspected = suspicions.of_no_text(begin)
        is_stated = (
            suspicions.option_of(suspected) == f"encoding={self._dialect.encoding}"
        )
        if suspected != suspicions.LATIN_1 and not is_stated:
            return suspected
        while self._next_piece(_PIECE_BYTES):
            pass  # the bytes are counted by encoding as they are read
        if self._recoded is not None and self._recoded.signs.prevail:
            return suspicions.UTF_8
        return self.suspected_of_bytes

    def pass_separator_line(self) -> None:
        """Reads a line for a spreadsheet before the header, if the file has one."""
        line = self._first_line()
        if not suspicions.is_separator_line(line.decode("utf-8")):
            self._waiting = line + self._waiting

    def place_columns(self, positions: Sequence[int]) -> None:
        """Puts a header before the remaining lines that names each column by its
        position in the declaration.
        """
        # not before: quotes of a file with another separator would be taken for strays
        self._quotes = _Quotes(self.delimiter, line=self._n_empty_lines + 1)
        self._are_quotes_read_alike(self._waiting)
        header = self.delimiter.join(map(str, positions)).encode("ascii")
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
        text, self._waiting = self._waiting, b""
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
            except (EOFError, zlib.error):
                return self._refuse(
                    MalformedRequest("the body is not gzip, or is cut off")
                )
            self._ended = not piece
            if not self._n_bytes:
                self._begin = piece[:BEGIN_BYTES]
            self._has_nul = self._has_nul or b"\0" in piece
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
        is_utf8 = self._recoded is not None and self._recoded.signs.prevail
        if self._ended and is_utf8 and self.refusal is None:
            return self._refuse(_utf8_problem())
        # The usual text is encoded without a search for bytes that were not decoded.
        try:
            utf8 = text.encode("utf-8")
        except UnicodeEncodeError:
            utf8 = UNDECODED.sub(NOT_TEXT, text).encode("utf-8")
        self._has_utf8 = self._has_utf8 or not utf8.isascii()
        return utf8 if self._are_quotes_read_alike(utf8) else b""

    def _are_quotes_read_alike(self, utf8: bytes) -> bool:
        if self._quotes is None or self._quotes.are_read_alike(utf8):
            return True
        line = self._quotes.line
        suspected = suspicions.STRAY_QUOTE
        self._refuse(
            whole_file_problem("malformed-csv", line=line, suspected=suspected)
        )
        return False

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
