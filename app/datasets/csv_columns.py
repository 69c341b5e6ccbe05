"""Parses, sanitises and counts the columns of an upload, one block at a time.

A block of a column is text, in a dictionary or not, or numbers where the upload has
numbers (null = empty).

How cells are read:

* A cell of no characters is empty, quoted or not. In a number column, spaces and tabs
  alone are empty, too, and so is ``nan`` in any case.
* A number is a decimal with an optional exponent, or ``inf``; spaces and tabs around it
  do not matter. A comma, an underscore, a hexadecimal or a digit outside ASCII makes it
  text. A number beyond the range of a float is an infinity, hence clamped.
* A date is written as 2024-02-29; spaces and tabs around it do not matter.
* A category and a class are compared character by character: space and case matter.
  A label of numbers is read as a number column, and an empty cell has no class or
  number.
* A line break inside quotes is refused: no declared value can hold one, and a stray
  quote would otherwise hide the rows after it. A NUL and bytes that are not UTF-8 are
  refused, too.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from app.core.errors import ColumnProblem
from app.datasets import unit_names
from app.datasets.row_layout import UNKNOWN_LABEL
from grovekeeper_common import suspicions
from grovekeeper_common.number_text import BLANKS, NAN, NUMBER
from grovekeeper_common.recoding import NOT_TEXT
from grovekeeper_forests.array_types import BoolArray, Float64Array
from grovekeeper_forests.data.days import NO_DAY, day_of
from grovekeeper_forests.data.sanitiser import (
    codes_of_numbers,
    count_out_of_bounds,
    sanitise_numbers,
)
from grovekeeper_forests.data.schema import Feature, Label

_LINE_BREAK = "[\r\n]"
_DELETE = 0x7F
_MARKS = pa.array(sorted(suspicions.MARKS), pa.string())

PROBLEMS = (
    "not-text",
    "empty",
    "not-a-number",
    "not-an-integer",
    "not-a-date",
    "not-a-plain-integer",
    "line-break",
)
"""Slugs of the reasons for which a cell cannot be read; ``count`` is the number of such
cells.
"""

_SUSPECTED = {
    "not-text": suspicions.NUL_CELL,
    "line-break": suspicions.LINE_BREAK,
    "empty": suspicions.NO_MISSING,
    "not-an-integer": suspicions.FRACTIONS,
}
"""What most likely causes a problem, whatever the cells are."""


@dataclass
class ReadColumn:
    """How the cells of one column were mapped. The counts are exact and PRIVATE: shown
    to the owner, never logged.

    Attributes:
        clamped: numbers that were out of bounds.
        missing: empty cells of a feature that allows them.
        unknown: undeclared categories; for the label, undeclared and empty ones, whose
            rows training drops.
        suspected: what most likely made them unknown (:mod:`grovekeeper_common.suspicions`);
            of a label until an undeclared cell is read, that cells are empty.
        option: of the upload, with which they are not.
    """

    name: str
    clamped: int = field(default=0, repr=False)
    missing: int = field(default=0, repr=False)
    unknown: int = field(default=0, repr=False)
    suspected: str | None = field(default=None, repr=False, compare=False)
    option: str | None = field(default=None, repr=False, compare=False)


@dataclass(frozen=True)
class CountedCells:
    """PRIVATE: one block of a column.

    Attributes:
        stored: the sanitised cells: float64 inside the bounds with null = MISSING, or
            int32 codes.
        parsed: the cells before numbers are clamped: float64 with NaN for an empty
            cell (dates in days from 1970-01-01), or the same codes.
    """

    stored: pa.Array = field(repr=False)
    parsed: pa.Array = field(repr=False)


class _Texts:
    """PRIVATE: different texts of a block of a column, or all."""

    def __init__(self, cells: pa.Array) -> None:
        self._indices: pa.Array | None = None
        self.values = cells
        if pa.types.is_dictionary(cells.type):
            self.values, self._indices = cells.dictionary, cells.indices

    def of_cells(self, images: pa.Array) -> pa.Array:
        """The image of each cell; ``images``: of each value."""
        if self._indices is None:
            return images
        return images.take(self._indices)


class _Column:
    """The counts of one column over all blocks.

    Args:
        declared: the texts that cells may have; none for numbers and units.
    """

    def __init__(self, name: str, declared: Sequence[str] = ()) -> None:
        self.declared = declared
        self.report = ReadColumn(name)
        self._problems: Counter[str] = Counter()
        self.first_rows: dict[str, int] = {}
        """The first row with each problem, and with each kind of mapped cell; PRIVATE."""
        self._suspected: dict[str, str | None] = dict(_SUSPECTED)
        self._options: dict[str, str | None] = {}
        self.n_read = 0
        """Rows of the blocks before the present one."""

    @property
    def problems(self) -> list[ColumnProblem]:
        """The problems so far. The arrays of a column with problems must not be stored."""
        problems = []
        for slug in PROBLEMS:
            count = self._problems[slug]
            if count:
                row = self.first_rows.get(slug)
                suspected = self._suspected.get(slug)
                name = self.report.name
                refused = ColumnProblem(name, slug, count, row, suspected=suspected)
                problems.append(replace(refused, option=self._options.get(slug)))
        return problems

    def _refuse_rows(self, problem: str, is_refused: BoolArray) -> None:
        self._problems[problem] += self._count_rows(problem, is_refused)

    def _count_rows(self, kind: str, is_of_kind: BoolArray) -> int:
        """The number of rows of a block that are of a kind; keeps the first of all."""
        count = int(np.count_nonzero(is_of_kind))
        if count:
            first_row = self.n_read + int(is_of_kind.argmax()) + 1
            self.first_rows.setdefault(kind, first_row)
        return count

    def _look_at_undeclared(
        self, texts: _Texts, is_undeclared: pa.Array | None = None
    ) -> None:
        """Refuses bytes and line breaks that no declared value contains, in cells that
        are no declared value.
        """
        values = texts.values
        if is_undeclared is not None:
            values = values.filter(is_undeclared)
        for problem, is_refused in (
            ("not-text", pc.match_substring(values, NOT_TEXT)),
            ("line-break", pc.match_substring_regex(values, _LINE_BREAK)),
        ):
            if is_refused.true_count:
                refused = values.filter(is_refused)
                rows = texts.of_cells(pc.is_in(texts.values, refused))
                self._refuse_rows(problem, rows.to_numpy(zero_copy_only=False))

    def _suspect(self, undeclared: pa.Array, *, takes_empty: bool) -> None:
        """Looks for the cause of undeclared values, once for the column.

        Args:
            takes_empty: whether an empty cell is neither a problem nor unknown.
        """
        has_no_cause = self.report.suspected in (None, suspicions.NO_LABEL)
        if has_no_cause and len(undeclared):
            sample = undeclared.slice(0, suspicions.SAMPLE).to_pylist()
            suspected = suspicions.of_undeclared(sample, self.declared)
            if not takes_empty:
                suspected = suspicions.without_empty(suspected)
            self.report.suspected = suspected
            self.report.option = suspicions.option_of(suspected, sample)

    def _empty(self, is_empty: BoolArray, *, is_legal: bool) -> None:
        if is_legal:
            self.report.missing += self._count_rows("missing", is_empty)
        else:
            self._refuse_rows("empty", is_empty)


class NumberColumn(_Column):
    """A ``numeric``, ``integer`` or ``date`` feature."""

    def __init__(self, feature: Feature) -> None:
        super().__init__(feature.name)
        self._feature = feature
        self.is_date = feature.is_date

    def read(self, cells: pa.Array) -> CountedCells:
        """Reads one block of text or numbers. In a block with problems, refused cells
        are in bounds.
        """
        if pa.types.is_dictionary(cells.type):
            cells = cells.dictionary_decode()
        values: Float64Array
        if not pa.types.is_string(cells.type):
            values = cells.to_numpy(zero_copy_only=False)
            # of days, as numbers, those of tables alone have parts
            self._suspected["not-a-date"] = suspicions.DAY_TIME
        elif self._feature.is_date:
            values = self._parse_dates(cells)
        else:
            values = self._parse(cells)
        is_empty = np.isnan(values)
        self._empty(is_empty, is_legal=self._feature.missing)
        if self._feature.type != "numeric":
            problem = "not-an-integer"
            if self._feature.is_date:
                problem = "not-a-date"
            is_part = np.rint(values) != values
            self._refuse_rows(problem, is_part & ~is_empty)
            if self._feature.is_date:
                # what is no date is not out of bounds besides
                values = np.where(is_part, np.nan, values)
        first_day = self._feature.first_day or 0
        own_values = values - first_day
        if count_out_of_bounds(self._feature, own_values):
            lower = self._feature.lower
            upper = self._feature.upper
            is_out = (own_values < lower) | (own_values > upper)
            self.report.clamped += self._count_rows("clamped", is_out)
        self.n_read += len(values)
        sanitised = sanitise_numbers(self._feature, own_values)
        mask = is_empty if is_empty.any() else None
        return CountedCells(
            pa.array(sanitised, pa.float64(), mask=mask), pa.array(values, pa.float64())
        )

    def _parse(self, text: pa.Array) -> Float64Array:
        """The cells as floats, NaN for empty cells and a bound for refused ones, which are
        no numbers.
        """
        # Three attempts: in most blocks the first one succeeds, without expressions.
        parsed = _cast(text, pa.float64())
        if parsed is None:  # a cell is empty, or has spaces, or is no number
            text = pc.ascii_trim(text, characters=BLANKS)
            text = pc.if_else(pc.equal(text, ""), pa.scalar(None, pa.string()), text)
            parsed = _cast(text, pa.float64())
        if parsed is None:
            is_text = pc.invert(pc.match_substring(text, NOT_TEXT))
            text = self._refused(text, is_text, problem="not-text")
            is_number = pc.match_substring_regex(text, NUMBER)
            text = self._refused(text, is_number, problem="not-a-number")
            parsed = text.cast(pa.float64())
        # The parser reads "nan(anything)" as NaN; only the plain word is an empty cell
        # here.
        is_nan = pc.is_nan(parsed)
        if is_nan.true_count:
            is_legal = pc.or_(pc.invert(is_nan), pc.match_substring_regex(text, NAN))
            parsed = self._refused(parsed, is_legal, problem="not-a-number")
        values: Float64Array = parsed.to_numpy(zero_copy_only=False)
        return values

    def _parse_dates(self, text: pa.Array) -> Float64Array:
        """The cells as days from 1970-01-01; see :func:`day_of`."""
        texts = text.dictionary_encode()
        values = texts.dictionary.to_pylist()
        days = list(map(day_of, values))
        if NO_DAY in days and "not-a-date" not in self._suspected:
            pairs = zip(values, days, strict=True)
            refused = [text for text, day in pairs if day == NO_DAY]
            sample = refused[: suspicions.SAMPLE]
            suspected = self._cause(suspicions.of_no_dates(sample))
            option = suspicions.option_of(suspected, sample)
            self._suspected["not-a-date"] = suspected
            self._options["not-a-date"] = option
        of_values = np.array(days, dtype=np.float64)
        found: Float64Array = of_values[texts.indices.to_numpy()]
        return found

    def _cause(self, suspected: str | None) -> str | None:
        if self._feature.missing:
            return suspected
        return suspicions.without_empty(suspected)

    def _refused(
        self, cells: pa.Array, is_legal: pa.Array, *, problem: str
    ) -> pa.Array:
        """The cells with the lower bound in place of those that are neither legal nor
        empty, which are a problem.
        """
        is_legal = pc.fill_null(is_legal, True)
        has_no_cause = problem == "not-a-number" and problem not in self._suspected
        if has_no_cause and is_legal.false_count:
            refused = cells.filter(pc.invert(is_legal))
            sample = list(map(str, refused.slice(0, suspicions.SAMPLE).to_pylist()))
            suspected = self._cause(suspicions.of_no_numbers(sample))
            self._suspected[problem] = suspected
            self._options[problem] = suspicions.option_of(suspected, sample)
        self._refuse_rows(problem, ~is_legal.to_numpy(zero_copy_only=False))
        in_bounds = pa.scalar(repr(self._feature.lower))
        return pc.if_else(is_legal, cells, in_bounds.cast(cells.type))


class CategoryColumn(_Column):
    """A ``categorical`` feature."""

    def __init__(self, feature: Feature) -> None:
        super().__init__(feature.name, feature.categories)
        self._feature = feature
        self._categories = pa.array(feature.categories, pa.string())

    def read(self, cells: pa.Array) -> CountedCells:
        """Reads one block of text into codes with OTHER and MISSING."""
        texts = _Texts(cells)
        codes = pc.index_in(texts.values, self._categories)
        if codes.null_count:  # no category is empty
            is_empty = pc.equal(texts.values, "")
            is_undeclared = codes.is_null()
            empty_cells = texts.of_cells(is_empty).to_numpy(zero_copy_only=False)
            self._empty(empty_cells, is_legal=self._feature.missing)
            is_other = texts.of_cells(pc.and_not(is_undeclared, is_empty))
            other_cells = is_other.to_numpy(zero_copy_only=False)
            self.report.unknown += self._count_rows("unknown", other_cells)
            self._look_at_undeclared(texts, is_undeclared)
            undeclared = texts.values.filter(pc.and_not(is_undeclared, is_empty))
            self._suspect(undeclared, takes_empty=self._feature.missing)
            other = pa.scalar(self._feature.other_code, pa.int32())
            missing = pa.scalar(self._feature.missing_code, pa.int32())
            codes = pc.if_else(is_empty, missing, pc.fill_null(codes, other))
        self.n_read += len(cells)
        of_cells = texts.of_cells(codes)
        return CountedCells(of_cells, of_cells)


class LabelColumn(_Column):
    """The label. An undeclared or empty class is stored as unknown; training drops its
    row.
    """

    def __init__(self, label: Label) -> None:
        super().__init__(label.name, label.classes)
        self.report.suspected = suspicions.NO_LABEL
        self._classes = pa.array(label.classes, pa.string())

    def read(self, cells: pa.Array) -> CountedCells:
        """Reads one block of text into class codes, −1 where unknown."""
        texts = _Texts(cells)
        codes = pc.index_in(texts.values, self._classes)
        if codes.null_count:
            is_unknown = codes.is_null()
            unknown_cells = texts.of_cells(is_unknown).to_numpy(zero_copy_only=False)
            self.report.unknown += self._count_rows("unknown", unknown_cells)
            self._look_at_undeclared(texts, is_unknown)
            is_empty = pc.equal(texts.values, "")
            undeclared = texts.values.filter(pc.and_not(is_unknown, is_empty))
            self._suspect(undeclared, takes_empty=False)
            codes = pc.fill_null(codes, pa.scalar(UNKNOWN_LABEL, pa.int32()))
        self.n_read += len(cells)
        of_cells = texts.of_cells(codes)
        return CountedCells(of_cells, of_cells)


class NumberLabelColumn(NumberColumn):
    """A label of numbers, stored as the classes that its points cut, or as parts of its
    range. An empty cell is stored as unknown; training drops its row.
    """

    def __init__(self, label: Label) -> None:
        super().__init__(label.column)
        self.report.suspected = suspicions.NO_LABEL
        self._label = label

    def read(self, cells: pa.Array) -> CountedCells:
        """Reads one block of text or numbers into codes, −1 where empty."""
        parsed = super().read(cells).parsed
        values = parsed.to_numpy()
        codes = codes_of_numbers(self._label, values)
        return CountedCells(pa.array(codes, pa.int32()), parsed)

    def _empty(self, is_empty: BoolArray, *, is_legal: bool) -> None:
        self.report.unknown += self._count_rows("unknown", is_empty)


class UnitColumn(_Column):
    """The unit column. Its values are never stored; a row with an empty cell has no
    unit.

    A mark that stands for a missing value would be one person, in whose place other
    people's rows are dropped.

    Args:
        form: public; of the declaration (:mod:`app.datasets.unit_names`).
    """

    def __init__(self, name: str, form: str) -> None:
        super().__init__(name)
        self._form = form
        self.marks: ColumnProblem | None = None
        """The cells so far that hold such a mark."""

    def read(self, cells: pa.Array) -> pa.Array:
        """One block: PRIVATE text in, the canonical text out."""
        if pa.types.is_dictionary(cells.type):
            cells = cells.dictionary_decode()
        self._look_at_undeclared(_Texts(cells))
        if self._form == unit_names.INTEGER:
            self._refuse_rows("not-a-plain-integer", _other_spellings(cells))
        names = _canonical_texts(cells) if self._form == unit_names.TEXT else cells
        self._count_marks(cells, names)
        self.n_read += len(cells)
        return names

    def _count_marks(self, cells: pa.Array, names: pa.Array) -> None:
        plain_names = pc.ascii_lower(pc.ascii_trim_whitespace(names))
        is_mark = pc.is_in(plain_names, value_set=_MARKS)
        if is_mark.true_count:
            index = int(is_mark.to_numpy(zero_copy_only=False).argmax())
            first = self.n_read + index + 1
            sample = cells.filter(is_mark).slice(0, suspicions.SAMPLE).to_pylist()
            option = suspicions.option_of(suspicions.MARK, sample)
            before = self.marks or ColumnProblem(
                self.report.name, "missing-mark", 0, first, suspected=suspicions.MARK
            )
            self.marks = replace(
                before, count=before.count + is_mark.true_count, option=option
            )
            self._options.setdefault("not-a-plain-integer", option)
            self._suspected.setdefault("not-a-plain-integer", suspicions.MARK)


def _canonical_texts(cells: pa.Array) -> pa.Array:
    """The canonical form of PRIVATE names of units."""
    characters = np.frombuffer(cells.buffers()[2] or b"", np.uint8)
    if not characters.size:
        return cells
    if characters.min() > ord(" ") and characters.max() < _DELETE:
        # neither white space, nor a control, nor a sign beyond ASCII: every text is
        # canonical
        return cells
    return pa.array(map(unit_names.canonical_text, cells.to_pylist()), pa.string())


def _other_spellings(cells: pa.Array) -> BoolArray:
    """The PRIVATE names of units that are not the plain spelling of an integer."""
    is_plain = pc.or_(
        pc.match_substring_regex(cells, unit_names.PLAIN_INTEGER), pc.equal(cells, "")
    )
    refused: BoolArray = ~is_plain.to_numpy(zero_copy_only=False)
    return refused


Column = NumberColumn | CategoryColumn | LabelColumn


def new_column(feature: Feature) -> NumberColumn | CategoryColumn:
    """The reader that a declared feature needs."""
    if feature.is_categorical:
        return CategoryColumn(feature)
    return NumberColumn(feature)


def label_column(label: Label) -> LabelColumn | NumberLabelColumn:
    """The reader that a label needs."""
    if label.has_numbers:
        return NumberLabelColumn(label)
    return LabelColumn(label)


def _cast(cells: pa.Array, target: pa.DataType) -> pa.Array | None:
    """Casts cells; ``None`` if one does not fit. The library's error quotes that cell,
    so it is dropped here.
    """
    try:
        return cells.cast(target)
    except pa.ArrowInvalid:
        return None
