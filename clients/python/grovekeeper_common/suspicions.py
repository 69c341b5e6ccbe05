"""Suspects why an upload does not match its declaration, from what spreadsheets, R and
pandas are known to write.

A suspicion is one of the sentences below. It holds no cell and no name, and goes to the
owner with the count of the problem. It converts nothing: the owner mends the file, or
sends the option that reads it (:func:`option_of`).
"""

import codecs
import csv
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from string import ascii_lowercase

from grovekeeper_common.number_text import BLANKS

SAMPLE = 1_000
"""Cells of a column that are looked at for a cause."""

UTF_32 = "not UTF-8: it looks like UTF-32; save the file as UTF-8"
UTF_16 = "not UTF-8: it looks like UTF-16; save the file as UTF-8"
WORKBOOK = "not CSV: it looks like a workbook or a zip archive; export the table as CSV in UTF-8"
PACKED = (
    "not CSV: it looks packed in another way than gzip; unpack it, or pack it with gzip"
)
SPSS = "not CSV: it looks like a file of SPSS; export the table as CSV in UTF-8"
LATIN_1 = "not UTF-8: it looks like Latin-1 or Windows-1252; save the file as UTF-8"
SOME_BYTES = "some bytes are not UTF-8, and others are: the file has several encodings; save it as UTF-8"
UTF_8 = (
    "the file is UTF-8, and another encoding is stated, in which names would be others"
)
CONTROLS = "controls where text in Windows-1252 has letters and signs"
OTHER_ENCODING = "bytes that the stated encoding does not have"
NO_TEXT = "the file is empty"
NUL = "a NUL byte: the file is no text, or an export of fixed width; export the table as CSV in UTF-8"
NUL_CELL = "a NUL in the cell, which no declared value has; remove it"
OPEN_QUOTE = "a quoted name has no end, or text after its quote"
STRAY_QUOTE = (
    r'text after the quote that ends a cell, such as "a \"b\" c"; '
    'a quote inside quotes is written twice: "a ""b"" c"'
)
LONG_LINE = (
    "a quote that is never closed makes one line of many, or line ends are missing"
)
MORE_CELLS = "more cells than the header has: a separator in a cell without quotes, such as a decimal comma"
FEWER_CELLS = (
    "fewer cells than the header has: the file is cut off, has several separators, or a line that is no row, such as "
    "a remark"
)
LINE_BREAK = (
    "a cell has a line break: a quote that is never closed, or a text of several lines"
)
_SEPARATORS = "a line of separators alone, as spreadsheets write it below a table, is a row of empty cells"
NO_MISSING = f"the declaration does not allow empty cells here (missing); {_SEPARATORS}"
NO_LABEL = f"empty, so the row has no label; {_SEPARATORS}"
MARK = "a mark such as NA stands for a missing value; leave the cell empty instead"
FRACTIONS = "the declaration takes whole numbers here"
TYPES = (
    "numbers, booleans and text are read, and dates in a column of dates; times, dates with a zone, bytes and lists "
    "are not, nor are truth values, decimals with a fraction and floats in the unit column: a table with a gap makes "
    "floats of whole numbers"
)
LONG_ROW = "a text of a row is longer than any declared value"
CUT_OFF = "not of the form that its name or media type says, cut off, or several streams in one file"
UNSUPPORTED = (
    "an encoding, a compression or a type, such as integers of 128 bits or lists nested deeply, that is not read; "
    "write the file with the library's defaults and usual types"
)

PARQUET = b"PAR1\x15"
ARROW = b"ARROW1\x00"
ZIP = b"PK\x03\x04"
"""First bytes of files of these forms. Each ends with a control character, because the
letters alone can begin the name of a column.
"""
_BEGINS = {
    codecs.BOM_UTF16_LE: UTF_16,
    codecs.BOM_UTF16_BE: UTF_16,
    ZIP: WORKBOOK,
    b"\xd0\xcf\x11\xe0": WORKBOOK,
    b"\x1f\x8b": "not CSV: it looks like gzip; state it (Content-Encoding: gzip, or a name that ends in .gz)",
    b"BZh": PACKED,
    b"\xfd7zXZ\x00": PACKED,
    b"\x28\xb5\x2f\xfd": PACKED,  # Zstandard
    b"7z\xbc\xaf": PACKED,
    b"$FL2": SPSS,
    PARQUET: "not CSV: it looks like Parquet; state it (media type, or a name that ends in .parquet)",
    ARROW: "not CSV: it looks like Arrow; state it (media type, or a name that ends in .arrow)",
}
"""What a file is by its first bytes."""

_OTHER_FORMS = {"<": "HTML or XML", "{": "JSON", "[": "JSON"}
"""What a text is by its first sign."""

MARKS = frozenset(
    {
        "na",
        "n/a",
        "#n/a",
        "<na>",
        "nan",
        "null",
        "none",
        "nil",
        "nat",
        ".",
        "-",
        "--",
        "?",
        "\\n",
    }
    | {
        "n.a.",
        "#na",
        "#n/a n/a",
        "(null)",
        "[null]",
        "<null>",
        "#null",
        "#null!",
        "missing",
        "undefined",
        "unknown",
    }
    | {"k.a.", "k. a.", "keine angabe", "unbekannt", "inconnu", "desconocido"}
    | {"-nan", "1.#qnan", "-1.#qnan", "1.#ind", "-1.#ind"}  # C
    # spreadsheets export what they show
    | {"#value!", "#ref!", "#div/0!", "#name?", "#num!", "#nv", "#n/d"}
    # a number in a column that is too narrow for it
    | {"#" * width for width in range(1, 256)}
    | {"._", *(f".{letter}" for letter in ascii_lowercase)}  # SAS
)
"""What other programs write where a value is missing, in lower case."""

_UNNAMED = (
    "a column without a name: the row names of R (write.csv with row.names = FALSE leaves them out) or the index of a "
    "data frame (index=False leaves it out)"
)
_EMPTY_ENDS = "columns without a name at the end: spreadsheets write cells that were once used; delete these columns"
_NO_HEADER = (
    "the first line looks like a row: a header with the names of the columns is needed"
)
_FOR_SPREADSHEETS = (
    "this line is for a spreadsheet, which names the separator in it: remove it"
)
_OTHER_LETTERS = "the header has this name in other letters, or with blanks around it"
SEPARATORS = {",": ",", ";": ";", "tab": "\t", "|": "|"}
"""The signs that may separate cells, by the value of the option ``separator``."""
DECIMALS = (".", ",")
ENCODINGS = ("utf-8", "utf-16", "latin-1", "cp1252")
"""Encodings of text that are read; names of codecs of Python."""
_IN_WORDS = {",": "commas", ";": "semicolons", "tab": "tabs", "|": "vertical bars"}

_THOUSANDS = (
    "signs between thousands, or decimal points where decimal commas are stated"
)
_COMMA_AND_THOUSANDS = (
    "a decimal comma and signs between thousands, such as 1.234,56; write the numbers without the signs between "
    "thousands, then decimal=, reads them"
)
_COMMA = "a comma in a number; a decimal point is needed, and no sign between thousands"
_SIGN = (
    "a sign beside the number, such as a percent sign, a currency, quotes, "
    "a long minus or a no-break space"
)
_UNIT = "a unit or a word behind the number, such as kg; write the number alone"
_QUOTES = "single quotes around the declared value; CSV takes double quotes, or none"
_TITLE = "the first line looks like a title: the names of the columns come first"
_TRUTH = "truth values such as TRUE in place of the declared values"
_DATE = "dates in a column of numbers"
_TIME = (
    "times such as 3:00 in a column of numbers; write a number, for instance of minutes"
)
_DAY_FORM = (
    "dates in another form than 2024-02-29 (year, month, day), such as 29.02.2024, 02/29/2024 or 29FEB2024; write them "
    "in that form, because 03/04/2024 has two meanings"
)
DAY_TIME = "a time of the day behind the date; write the date alone"
_ZERO_DAY = "0000-00-00, which MySQL writes for an unknown date; leave the cell empty, or state the text as missing"
_NO_DAY = "a day that its month does not have, such as 2023-02-29"
_DAY_NUMBER = "numbers in a column of dates, such as the days that a spreadsheet counts"
_BLANKS = "blanks around the declared value"
_CASE = "the declared value in other letters (upper or lower case)"
_POINT = "whole numbers written with a point, such as 1.0; pandas writes them so where cells of the column are empty"
_NO_POINT = "whole numbers written without the point of the declared value, such as 1 in place of 1.0"
_SHEET = 'a spreadsheet\'s signs of a text around the declared value (="0123"); write the value alone'
_ZEROS = "leading zeros are absent or superfluous; spreadsheets drop them"

_TRUTHS = frozenset(
    {"true", "false", "t", "f", "yes", "no", "y", "n", "1", "0", "1.0", "0.0"}
    # spreadsheets in German and French
    | {"wahr", "falsch", "vrai", "faux"}
)
_COMMA_NUMBER = re.compile(
    r"[+-]?[0-9][0-9.'’\s]*,[0-9]+([eE][+-]?[0-9]+)?|[+-]?[0-9]+(,[0-9]{3})+(\.[0-9]+)?"
)
_SIGN_NUMBER = re.compile(
    r"[^\w+-]{1,3}[+-]?[0-9.]*[0-9][^\w]{0,3}|[+-]?[0-9][0-9.]*[^\w]{1,3}"
)
_UNIT_NUMBER = re.compile(r"[+-]?[0-9]+([.,][0-9]+)? ?°?[^\W\d_]{1,12}[/.²³0-9]{0,3}")
_DECIMAL_COMMA = re.compile(r"[+-]?[0-9]*,[0-9]+([eE][+-]?[0-9]+)?")
_COMMA_THOUSANDS = re.compile(r"[+-]?[1-9][0-9]{0,2}(,[0-9]{3})+")
_THOUSANDS_NUMBER = re.compile(
    r"[+-]?[0-9]{1,3}(['’\s.][0-9]{3})+([.,][0-9]+)?|[+-]?[0-9]+['’][0-9]+"
)
_DATE_TEXT = re.compile(r"[0-9]{1,4}[-/.][0-9]{1,2}[-/.][0-9]{1,4}([ T].*)?")
_TIME_TEXT = re.compile(
    r"[0-9]{1,5}(:[0-5]?[0-9]){1,2}([.,][0-9]+)?( ?[AaPp]\.?[Mm]\.?)?"
)
_MONTH_NAME = re.compile(
    r"[0-9]{1,2}[-/. ]?[A-Za-z]{3,9}[-/., ]{0,2}[0-9]{2,4}([ T:].*)?|[A-Za-z]{3,9}\.? [0-9]{1,2},? [0-9]{4}"
)
_COMMA_AND_THOUSANDS_NUMBER = re.compile(r"[+-]?[0-9]{1,3}(['’\s.][0-9]{3})+,[0-9]+")
_LIKE_NUMBERS = {
    _COMMA_AND_THOUSANDS_NUMBER: _COMMA_AND_THOUSANDS,
    _COMMA_NUMBER: _COMMA,
    _THOUSANDS_NUMBER: _THOUSANDS,
    _DATE_TEXT: _DATE,
    _MONTH_NAME: _DATE,
    _TIME_TEXT: _TIME,
    _UNIT_NUMBER: _UNIT,
}
_ISO_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_ZERO = "0000-00-00"
_NUMBER = re.compile(r"[+-]?[0-9]+([.,][0-9]+)?")
_UNNAMED_NAMES = re.compile(
    r"|Unnamed: [0-9]+|__index_level_[0-9]+__|index|row\.?names|rowname"
)
_SEPARATOR_LINE = re.compile(r'"?sep=(?P<separator>.?)"?,?', re.IGNORECASE)


def codec_of(encoding: str, begin: bytes) -> str:
    """The codec of an encoding. UTF-16 without its mark has its order of bytes from the
    first letter, which is an ASCII letter in most headers.
    """
    if encoding != "utf-16" or begin in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE):
        return encoding
    return "utf-16-be" if begin[:1] == b"\0" else "utf-16-le"


def of_no_text(begin: bytes) -> str:
    """What a file is whose first line is not UTF-8, by its first bytes."""
    if _begins_with_four_bytes(begin):
        return UTF_32
    if begin[:2].count(0) == 1:  # a letter of two bytes
        return UTF_16
    return next(
        (words for magic, words in _BEGINS.items() if begin.startswith(magic)), LATIN_1
    )


def _begins_with_four_bytes(begin: bytes) -> bool:
    """Whether the first character is a mark or a letter of UTF-32."""
    is_marked = begin.startswith((codecs.BOM_UTF32_LE, codecs.BOM_UTF32_BE))
    return is_marked or begin[:4].count(0) == 3


@dataclass(frozen=True)
class HeaderProblem:
    """Why a line is no header.

    Attributes:
        problem: stable slug.
        suspected: what most likely caused the problem, in words.
        option: of the upload, which reads the file as it is; ``None`` if none does.
    """

    problem: str
    suspected: str
    option: str | None = None


def of_header_line(
    line: str, declared: Collection[str], *, separator: str = ","
) -> HeaderProblem | None:
    """The problem of a file whose first line is not a header with the separator.

    Args:
        line: the first line that is not empty.
        declared: names of the declared columns.
        separator: one of :data:`SEPARATORS`.
    """
    marked = _SEPARATOR_LINE.fullmatch(line.strip(" "))
    if marked is not None:
        named = [
            name for name, sign in SEPARATORS.items() if sign == marked["separator"]
        ]
        options = [f"separator={name}" for name in named if name != separator]
        return HeaderProblem("separator-line", _FOR_SPREADSHEETS, *options)
    known = set(map(composed, declared))
    as_stated = _names(line, SEPARATORS[separator])
    for other, words in _IN_WORDS.items():
        names = _names(line, SEPARATORS[other])
        n_known = len(known & {*names})
        n_known_as_stated = len(known & {*as_stated})
        is_plain = len(as_stated) == 1 < min(len(names), len(known))
        if is_plain or n_known > n_known_as_stated:
            suspected = f"cells seem to be separated by {words}"
            return HeaderProblem("separator", suspected, f"separator={other}")
    return None


def is_separator_line(line: str) -> bool:
    """Whether a line names the separator for a spreadsheet."""
    return _SEPARATOR_LINE.fullmatch(line.strip(" ")) is not None


def option_of(suspected: str | None, cells: Iterable[str] = ()) -> str | None:
    """The option of an upload that reads a file as it is, as ``name=value``; ``None``
    if none does.

    Args:
        suspected: the cause of a problem.
        cells: some PRIVATE cells with the problem. Of them, marks for missing values
            alone are repeated, and no mark that hides a number.
    """
    if suspected == UTF_16:
        return "encoding=utf-16"
    if suspected in (LATIN_1, CONTROLS):
        return "encoding=cp1252"
    if suspected == UTF_8:
        return "encoding=utf-8"
    if suspected == MARK:
        # the reader takes no other blanks off a cell
        texts = {cell.strip(BLANKS) for cell in cells}
        marks = [text for text in texts if text.casefold() in MARKS and text.strip("#")]
        return f"missing={','.join(sorted(marks))}" if marks else None
    if suspected in (_COMMA, _COMMA_AND_THOUSANDS):
        numbers = [text for cell in cells if "," in (text := cell.strip())]
        numbers = [text for text in numbers if _COMMA_NUMBER.fullmatch(text)]
        has_points = any(0 <= text.find(",") < text.find(".") for text in numbers)
        numbers = [text for text in numbers if not _COMMA_THOUSANDS.fullmatch(text)]
        if not has_points and any(map(_DECIMAL_COMMA.fullmatch, numbers)):
            return "decimal=,"
    return None


def _names(line: str, separator: str) -> list[str]:
    try:
        names = next(csv.reader([line], delimiter=separator), [])
    except csv.Error:  # a name that is longer than the library reads
        return []
    return [composed(name.strip()) for name in names]


def of_csv_error(error: csv.Error) -> str:
    """Why a text is no CSV of Python's strict reader."""
    is_stray = "expected after" in str(error)
    return STRAY_QUOTE if is_stray else LONG_LINE


def of_missing_columns(
    missing: Iterable[str], header: Iterable[str]
) -> dict[str, str | None]:
    """Why declared columns are not in the header, by name."""
    similar = set(map(_folded, header))
    return {
        name: _OTHER_LETTERS if _folded(name) in similar else None for name in missing
    }


def of_unknown_columns(unknown: Mapping[int, str], n_columns: int) -> str | None:
    """Why some of the names in a header are not declared; ``unknown``: by their places,
    from 1.
    """
    names = unknown.values()
    if not unknown.get(n_columns, " ") and unknown.get(1, " "):
        return _EMPTY_ENDS
    if any(map(_UNNAMED_NAMES.fullmatch, names)):
        return _UNNAMED
    if len(unknown) < n_columns:
        return None
    form = _OTHER_FORMS.get(next(iter(names)).lstrip()[:1])
    if form is not None:
        return f"not CSV: it looks like {form}"
    if any(_NUMBER.fullmatch(name.strip()) for name in names):
        return _NO_HEADER
    if n_columns == 1 and any(" " in name.strip() for name in names):
        return _TITLE
    return None


def without_empty(suspected: str | None) -> str | None:
    """A cause in a column in which an empty cell is a problem, too: to empty the cell is
    no advice there.
    """
    cause, advice, _ = (suspected or "").partition("; leave the cell empty")
    if not advice:
        return suspected
    return f"{cause}; an empty cell would not be read here, either"


def in_table(suspected: str | None) -> str | None:
    """A cause in a table of Parquet or Arrow, which has no separators."""
    return suspected and suspected.removesuffix(f"; {_SEPARATORS}")


def of_no_numbers(cells: Iterable[str]) -> str | None:
    """Why most of some PRIVATE cells of a number column are no numbers."""
    return _most_frequent(map(_why_no_number, cells))


def _why_no_number(cell: str) -> str | None:
    if "\0" in cell:
        return NUL_CELL
    text = cell.strip()
    if text.casefold() in MARKS:
        return MARK
    if text.casefold() in _TRUTHS:
        return _TRUTH
    for pattern, cause in _LIKE_NUMBERS.items():
        if pattern.fullmatch(text):
            return cause
    # signs may be blanks of other kinds
    return _SIGN if _SIGN_NUMBER.fullmatch(cell) else None


def is_date(text: str) -> bool:
    """Whether a text is a date as uploads and predictions read it, 2024-02-29."""
    try:
        return bool(_ISO_DATE.fullmatch(text)) and bool(date.fromisoformat(text))
    except ValueError:  # such as 2023-02-29
        return False


def of_no_dates(cells: Iterable[str]) -> str | None:
    """Why most of some PRIVATE cells of a column of dates are no dates."""
    return _most_frequent(map(_why_no_date, cells))


def _why_no_date(cell: str) -> str | None:
    text = cell.strip()
    if text.casefold() in MARKS:
        return MARK
    if text.startswith(_ZERO):
        return _ZERO_DAY
    if _ISO_DATE.fullmatch(text):
        return _NO_DAY
    if _NUMBER.fullmatch(text):
        return _DAY_NUMBER
    if _MONTH_NAME.fullmatch(text):
        return _DAY_FORM
    found = _DATE_TEXT.fullmatch(text)
    if found is None:
        return None
    if found[1]:
        return DAY_TIME
    return _DAY_FORM


def of_undeclared(cells: Iterable[str], declared: Sequence[str]) -> str | None:
    """Why most of some PRIVATE cells are none of the declared categories or classes."""
    return _most_frequent(map(_why_undeclared(declared), cells))


def _why_undeclared(declared: Sequence[str]) -> Callable[[str], str | None]:
    values = set(declared)
    folded = set(map(_folded, declared))
    without_zeros = {value.lstrip("0") for value in declared if value.isdigit()}
    has_truths = not _TRUTHS.isdisjoint(folded)

    def why(cell: str) -> str | None:
        text = cell.strip()
        if text in values:
            return _BLANKS
        if _folded(text) in folded:
            return _CASE
        if text.casefold() in MARKS:
            return MARK
        if text[:1] == text[-1:] == "'" and text[1:-1] in values:
            return _QUOTES
        if text.removesuffix(".0") in values:
            return _POINT
        if f"{text}.0" in values:
            return _NO_POINT
        if has_truths and text.casefold() in _TRUTHS:
            return _TRUTH
        if text.isdigit() and text.lstrip("0") in without_zeros:
            return _ZEROS
        if text.lstrip("='").strip('"') in values:
            return _SHEET
        return None

    return why


def composed(name: str) -> str:
    """A name in Unicode's composed form, in which the service compares names."""
    return unicodedata.normalize("NFC", name)


def _folded(text: str) -> str:
    return composed(text.strip()).casefold()


def _most_frequent(causes: Iterable[str | None]) -> str | None:
    counts = Counter(causes)
    del counts[None]
    if not counts:
        return None
    return counts.most_common(1)[0][0]
