"""Reads the files of rows that ``grovekeeper predict`` takes."""

import codecs
import csv
import gzip
import io
import json
import zlib
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from itertools import islice
from pathlib import Path
from typing import Any

from grovekeeper_client.cli import problems
from grovekeeper_client.cli.command import WrongUse, json_value, read_bytes
from grovekeeper_client.cli.written import USUAL, Written, as_option
from grovekeeper_client.rows import rows_of_body
from grovekeeper_common import strict_json, suspicions, text_cells
from grovekeeper_common.json_types import JsonMapping, JsonObject
from grovekeeper_common.number_text import number_of

Rows = list[JsonObject]


def read_rows(file: Path, schema: JsonMapping, written: Written = USUAL) -> Rows:
    """Rows of a file, by its ending: ``.csv``, ``.jsonl``, or JSON (a list of rows,
    ``{"rows": […]}`` or ``{"columns": {…}}``).

    Args:
        file: plain or gzip; the ending ``.gz`` does not count.
        schema: the public schema on the model card, with the types of the columns.
        written: how a file of CSV is written.

    Raises:
        WrongUse: the file cannot be read, has another form or is empty, or a cell of a
            number column is not a number.
    """
    content = _unpacked(read_bytes(file), file)
    form = form_of(file)
    if not written.is_usual:
        check_is_csv(file)
        stream = io.BufferedReader(io.BytesIO(content))
        with written.as_usual(stream, file, schema) as usual:
            content = usual.read()
    check_text(content, file, schema)
    if form in OF_CSV:
        text = content.decode("utf-8-sig")
        check_separator(text, file, schema)
        rows = from_csv(io.StringIO(text, newline=""), schema)
        if not rows:
            header = header_of(csv.reader(io.StringIO(text, newline="")))
            check_columns(header, schema, aside={schema["label"]["name"]})
        return rows
    if form not in (".json", *OF_LINES) and not content.removeprefix(
        codecs.BOM_UTF8
    ).lstrip().startswith((b"[", b"{")):
        raise WrongUse(f"{file} does not say its form: {_FORMS}")
    return _from_json(content, file, is_lines=form in OF_LINES)


_SHOWN_NAMES = 8
_LEAVE_OUT = (
    "leave them out, or write predictions beside them: --output FILE --keep COLUMN"
)
OF_CSV = (".csv", ".tsv", ".txt")
"""Endings of files with a header and separated cells."""
OF_LINES = (".jsonl", ".ndjson")
"""Endings of JSON Lines."""


def form_of(file: Path) -> str:
    """The ending of a file of rows, without that of gzip; standard input is CSV, as
    where rows are uploaded.
    """
    if file == Path("-"):
        return ".csv"
    plain = file.with_suffix("") if file.suffix.lower() == ".gz" else file
    return plain.suffix.lower()


def check_is_csv(file: Path) -> None:
    """Checks that a file can be written in other ways than one."""
    if form_of(file) not in OF_CSV:
        raise WrongUse(
            f"{file} is no CSV by its ending ({' '.join(OF_CSV)}), and CSV alone is written in several ways"
        )


_FORMS = "predict takes .csv with a header, .jsonl and .json, each plain or gzip (.gz)"
_OTHER_FORMS = {
    suspicions.PARQUET: "Parquet",
    suspicions.ARROW: "Arrow",
    b"\xff\xff\xff\xff": "a stream of Arrow, which is no file of Arrow",
    suspicions.ZIP: "a workbook or a zip archive",
    b"\xd0\xcf\x11\xe0": "a workbook",
}
"""Forms of files that are no text, by their first bytes."""


def _unpacked(content: bytes, file: Path) -> bytes:
    if not content.startswith(b"\x1f\x8b"):
        return content
    with unpacking(file):
        return gzip.decompress(content)


@contextmanager
def unpacking(file: Path) -> Iterator[None]:
    """Says of a gzip file that it is damaged."""
    try:
        yield
    except (gzip.BadGzipFile, EOFError, zlib.error):
        raise WrongUse(
            f"{file} looks like gzip and cannot be unpacked: it is cut off or damaged"
        ) from None


def check_text(content: bytes, file: Path, schema: JsonMapping) -> None:
    """Checks that a file is UTF-8 text and not empty; says what it looks like if it is
    not text.
    """
    with suppress(UnicodeDecodeError):
        if not content.decode("utf-8-sig").strip():
            raise WrongUse(f"{file} is empty: {_FORMS}")
    for begin, form in _OTHER_FORMS.items():
        if content.startswith(begin):
            raise WrongUse(
                f"{file} looks like {form}: {_FORMS}; with --output and pyarrow, it takes .parquet and .arrow, too"
            )
    with suppress(UnicodeDecodeError):
        content.decode("utf-8")
        if 0 not in content[:2]:  # as in UTF-16 without its mark
            return
    raise no_text(file, content, schema)


def no_text(file: Path, content: bytes, schema: JsonMapping | None = None) -> WrongUse:
    """The error for a file whose content is not UTF-8.

    Args:
        schema: if the content begins the file, whose header and first rows may show
            more causes.
    """
    suspected = suspicions.of_no_text(content)
    option = suspicions.option_of(suspected) if form_of(file) in OF_CSV else None
    causes = [f"{file} is {_with_way_out(suspected, option)}"]
    if option is not None and schema is not None:
        codec = suspicions.codec_of(option.partition("=")[2], content[:2])
        text = content.decode(codec, "replace")
        causes += _causes_in_header(text, schema) or _causes_in_cells(text, schema, ",")
    return WrongUse("; ".join(causes))


def check_separator(text: str, file: Path, schema: JsonMapping) -> None:
    """Checks that commas separate the names in the header, as an upload does."""
    causes = _causes_in_header(text, schema)
    if causes:
        raise WrongUse(f"{file}, {'; '.join(causes)}")


def _causes_in_header(text: str, schema: JsonMapping) -> list[str]:
    """Why the first line that is not empty is no header, with its number, and what is
    wrong in the cells below it if another sign separates them.
    """
    columns = [
        *(feature["name"] for feature in schema["features"]),
        schema["label"]["name"],
    ]
    number, line = next(
        (number, line)
        for number, line in enumerate(text.splitlines(), start=1)
        if line.strip()
    )
    problem = suspicions.of_header_line(line, columns)
    if problem is None:
        return []
    causes = [f"line {number}: {_with_way_out(problem.suspected, problem.option)}"]
    _, _, separator = (problem.option or "").partition("=")
    if problem.problem == "separator":
        causes += _causes_in_cells(text, schema, suspicions.SEPARATORS[separator])
    return causes


def _causes_in_cells(text: str, schema: JsonMapping, sign: str) -> list[str]:
    """Why cells of the first rows are no numbers, such as a decimal comma."""
    cells = text_cells.CellReader(schema)
    names = text_cells.number_columns(schema)
    rows = csv.DictReader(io.StringIO(text), delimiter=sign)
    causes: Counter[str | None] = Counter()
    refused: list[str] = []
    with suppress(csv.Error):  # which is said once the file is read
        for row in islice(rows, suspicions.SAMPLE):
            for name in names & row.keys():
                cell = row[name] or ""
                try:
                    cells.cell(name, cell)
                except text_cells.WrongCell as wrong:
                    causes[wrong.suspected] += 1
                    refused.append(cell)
    del causes[None]
    return [
        _with_way_out(suspected, suspicions.option_of(suspected, refused))
        for suspected, _ in causes.most_common(1)
        if suspected is not None
    ]


def _with_way_out(suspected: str, option: str | None) -> str:
    return suspected if option is None else f"{suspected}; add {as_option(option)}"


def _from_json(text: bytes, file: Path, *, is_lines: bool) -> Rows:
    if is_lines:
        return list(from_json_lines(text.splitlines(), file))
    return _objects(rows_of_body(_json(text, str(file))))


def from_json_lines(lines: Iterable[bytes], file: Path) -> Iterator[JsonObject]:
    """The rows of JSON Lines; empty lines do not count."""
    for number, line in enumerate(lines, start=1):
        text = line.removeprefix(codecs.BOM_UTF8) if number == 1 else line
        if text.strip():
            yield from _objects([_json(text, f"{file}, line {number},")])


def _json(text: bytes, what: str) -> Any:
    """The value of a JSON text in which NaN, as pandas and Python write it, is a
    missing value.

    Raises:
        WrongUse: the text is not JSON; or it has an infinity, for which there is no
            JSON.
    """
    with suppress(ValueError, RecursionError):
        return json.loads(
            text,
            parse_constant=_missing,
            parse_float=number_of,
            object_pairs_hook=strict_json.unique,
        )
    return json_value(text, what)


def _missing(constant: str) -> None:
    if constant != "NaN":
        raise ValueError("an infinity")


def from_csv(lines: Iterable[str], schema: JsonMapping) -> Rows:
    """Rows of CSV text with a header. The label's column is left out; an empty cell is
    missing.

    Raises:
        WrongUse: the header names a column twice, a row has more or fewer cells than
            the header, or a cell of a number column is not a number.
    """
    cells = CellReader(schema)
    return [cells.row(texts, line=line) for line, texts in csv_records(lines)]


def csv_records(
    lines: Iterable[str], header: Sequence[str] = (), *, n_before: int = 0
) -> Iterator[tuple[int, dict[str, str]]]:
    """The line and the cells by column of every row of CSV text.

    Args:
        lines: of the text.
        header: names of the columns, if the lines do not begin with it.
        n_before: lines of the file before these.

    Raises:
        WrongUse: as :func:`from_csv`, but for numbers.
    """
    reader = csv.reader(lines, strict=True)
    try:
        names = list(header) or header_of(reader)
        check_distinct(names)
        for cells in reader:
            line = n_before + reader.line_num
            if not cells:
                if len(names) > 1:
                    continue
                # an empty line of a file of one column is its empty cell, as R and
                # spreadsheets write it
                cells = [""]
            if len(cells) != len(names):
                has_more = len(cells) > len(names)
                why = suspicions.MORE_CELLS if has_more else suspicions.FEWER_CELLS
                raise WrongUse(f"line {line} has {why}")
            yield line, dict(zip(names, cells, strict=True))
    except csv.Error as error:
        line = n_before + reader.line_num
        raise WrongUse(
            f"line {line} is not CSV: {suspicions.of_csv_error(error)}"
        ) from error


def header_of(reader: Iterator[list[str]]) -> list[str]:
    """The names in the header of CSV, composed as the service compares names.

    Args:
        reader: at the begin; lines without a cell stand before some headers.
    """
    names = next(filter(None, reader), [])
    return list(map(suspicions.composed, names))


def check_distinct(names: Sequence[str]) -> None:
    """Checks that no column of a file has the name of another.

    Raises:
        WrongUse: names the column.
    """
    twice = next((name for name, n in Counter(names).items() if n > 1), None)
    if twice is not None:
        raise WrongUse(f"the file names a column twice: {twice!r}")


class CellReader:
    """Reads cells of text by the schema of a model.

    Args:
        schema: on the model card.
        aside: columns that no row has.
    """

    def __init__(self, schema: JsonMapping, *, aside: Collection[str] = ()) -> None:
        self._cells = text_cells.CellReader(schema)
        self._aside = {schema["label"]["name"], *aside}

    def row(self, texts: Mapping[str, str], *, line: int) -> JsonObject:
        """A row, from its cells by column.

        Raises:
            WrongUse: a cell has no value of its column.
        """
        row: JsonObject = {}
        for name, text in texts.items():
            if name in self._aside:
                continue
            try:
                row[name] = self._cells.cell(name, text)
            except text_cells.WrongCell as wrong:
                why = _with_way_out(str(wrong), wrong.option)
                raise WrongUse(f"line {line}: the cell of {name} is {why}") from None
        return row


def check_columns(
    names: Collection[str], schema: JsonMapping, *, aside: Collection[str] = ()
) -> None:
    """Checks that the model reads every column of rows, and that no column is absent
    whose values must not be.

    Args:
        names: of the columns.
        schema: on the model card.
        aside: columns that the model need not read.

    Raises:
        WrongUse: names the column, and the features that resemble it; or the absent
            columns.
    """
    known = [feature["name"] for feature in schema["features"]]
    unknown = {
        place: name
        for place, name in enumerate(names, start=1)
        if name not in known and name not in aside
    }
    if unknown:
        others = list(unknown.values())
        suspected = suspicions.of_unknown_columns(unknown, len(names))
        if suspected is None:
            of_missing = suspicions.of_missing_columns(known, others)
            suspected = next(filter(None, of_missing.values()), None)
        why = "" if suspected is None else f": {suspected}"
        meant = problems.question(problems.similar(others, known))
        way_out = "" if why or meant else f"; {_LEAVE_OUT}"
        listed = _columns(others)
        raise WrongUse(
            f"the model does not read {listed} of the rows{why}{meant}{way_out}"
        )
    required = [
        feature["name"] for feature in schema["features"] if not feature["missing"]
    ]
    absent = [name for name in required if name not in names]
    if absent:
        raise WrongUse(
            f"the rows lack columns that the model needs: {', '.join(absent)}"
        )


def _columns(names: Sequence[str]) -> str:
    listed = ", ".join(map(repr, names[:_SHOWN_NAMES]))
    if len(names) > _SHOWN_NAMES:
        listed = f"{listed} and {len(names) - _SHOWN_NAMES} more"
    return f"the column {listed}" if len(names) == 1 else f"the columns {listed}"


def _objects(value: object) -> Rows:
    if not isinstance(value, list) or not all(isinstance(row, dict) for row in value):
        raise WrongUse(
            'the file holds no list of rows: a list of objects is needed, or {"rows": […]}, or {"columns": {…}}'
        )
    return value
