"""The options that say how a file of CSV is written, for commands that take rows."""

import csv
import io
import shlex
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from gzip import GzipFile
from io import BufferedReader
from pathlib import Path
from typing import Any, TextIO

from grovekeeper_client.cli.command import WrongUse, option
from grovekeeper_common import suspicions, text_cells
from grovekeeper_common.json_types import JsonMapping
from grovekeeper_common.number_text import BLANKS, is_number, with_point
from grovekeeper_common.recoding import NOT_TEXT, Recoded

_PIECE_BYTES = 2**16
_MOST_MARKS = 32
"""As of a declaration."""


@dataclass(frozen=True)
class Written:
    """How a file of CSV is written, where it has no commas, points and UTF-8."""

    separator: str | None = option("The sign between cells: , ; tab |", metavar="SIGN")
    decimal: str | None = option("The sign before a fraction: . or ,", metavar="SIGN")
    encoding: str | None = option("utf-8, utf-16, latin-1 or cp1252.")
    missing: list[str] | None = option(
        "Texts that stand for an empty cell, such as NA,. May be repeated.",
        metavar="TEXTS",
    )

    @property
    def options(self) -> dict[str, Any]:
        """As the options of an upload, where the texts for an empty cell are one."""
        return {**vars(self), "missing": ",".join(self.missing or ()) or None}

    @property
    def is_usual(self) -> bool:
        """Whether no option is given."""
        return not any(self.options.values())

    def _marks(self) -> list[str]:
        texts = [text.strip(BLANKS) for text in ",".join(self.missing or ()).split(",")]
        marks = [text for text in texts if text]
        numbers = [text for text in marks if is_number(text)]
        if numbers:
            raise WrongUse(f"--missing takes texts, and {numbers[0]} is a number")
        if len(marks) > _MOST_MARKS:
            raise WrongUse(f"--missing takes at most {_MOST_MARKS} texts")
        return marks

    @contextmanager
    def as_usual(
        self,
        stream: "BufferedReader[Any] | GzipFile",
        file: Path,
        schema: JsonMapping,
    ) -> "Iterator[BufferedReader[Any]]":
        """The rows as CSV of RFC 4180 in UTF-8, with decimal points, in a temporary
        file. Lines keep their numbers.

        Args:
            stream: text as the options say.
            file: is named by errors.
            schema: public; has the columns of numbers.

        Raises:
            WrongUse: an option has no such value, or the file is written otherwise.
        """
        sign = suspicions.SEPARATORS[
            _one_of(suspicions.SEPARATORS, self.separator or ",", "--separator")
        ]
        encoding = _one_of(suspicions.ENCODINGS, self.encoding or "utf-8", "--encoding")
        decimal = _one_of(suspicions.DECIMALS, self.decimal or ".", "--decimal")
        numbers = text_cells.number_columns(schema) if decimal == "," else set()
        marks = text_cells.marks_of(schema, self._marks())

        def usual(name: str, cell: str) -> str:
            if text_cells.is_mark(cell, marks.get(name, ())):
                return ""
            return with_point(cell) if name in numbers else cell

        with (
            tempfile.TemporaryFile() as file_of_utf8,
            tempfile.TemporaryFile() as file_of_usual,
        ):
            source: Any = stream
            if encoding != "utf-8":
                source = file_of_utf8
                _recode(stream, source, encoding, file)
            lines = io.TextIOWrapper(source, "utf-8-sig", newline="")
            text = io.TextIOWrapper(file_of_usual, "utf-8", newline="")
            reader = csv.reader(lines, delimiter=sign, strict=True)
            try:
                _rewrite(reader, text, usual)
            except UnicodeError:
                raise WrongUse(f"{file} is not {encoding}") from None
            except csv.Error as error:
                why = suspicions.of_csv_error(error)
                line = f"{file}, line {reader.line_num}"
                raise WrongUse(f"{line} is not CSV as stated: {why}") from None
            finally:
                lines.detach()
                text.detach()
            file_of_usual.seek(0)
            with BufferedReader(file_of_usual) as rewritten:
                yield rewritten


def _recode(source: Any, target: Any, encoding: str, file: Path) -> None:
    """Writes text as UTF-8, with what uploads refuse: other bytes, and UTF-8 whose
    letters another encoding reads as others.
    """
    recoded = Recoded(source, encoding)
    while piece := recoded.read(_PIECE_BYTES):
        if NOT_TEXT.encode() in piece:
            is_latin = encoding == "latin-1"
            why = suspicions.CONTROLS if is_latin else suspicions.OTHER_ENCODING
            raise WrongUse(f"{file} is not {encoding}: {why}")
        target.write(piece)
    if recoded.signs.prevail:
        raise WrongUse(f"{file}: {suspicions.UTF_8}")
    target.seek(0)


def _rewrite(
    records: Iterator[list[str]], text: TextIO, usual: Callable[[str, str], str]
) -> None:
    writer = csv.writer(text, lineterminator="\n")
    header: list[str] = []
    for cells in records:
        if not header:
            header = cells
            writer.writerow(cells)
            continue
        # a row of another length is refused where rows are read
        names = header if len(header) == len(cells) else [""] * len(cells)
        writer.writerow(map(usual, names, cells))


USUAL = Written()


def as_option(option: str) -> str:
    """An option of an upload, ``name=value``, as it is typed."""
    name, _, value = option.partition("=")
    return f"--{name} {shlex.quote(value)}"


def _one_of(known: Mapping[str, Any] | tuple[str, ...], value: str, option: str) -> str:
    if value not in known:
        raise WrongUse(f"{option} is one of: {' '.join(known)}")
    return value
