"""Reads the cells of an upload by its declaration, and finds all that a file has to be
mended in.

The owner's options (:class:`app.datasets.upload_bodies.Dialect`) act here, where the
file is parsed, and nowhere else: what comes after reads the cells that a CSV of
RFC 4180 would have.

A file that is refused is read once more, as the suspected options would have it and
without the columns that are not declared: so the owner learns of all causes at once.
"""

import math
import os
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from typing import BinaryIO, TypeVar

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv

from app.core import limits
from app.core.errors import (
    ColumnProblem,
    MalformedRequest,
    RowsInvalid,
    TooLarge,
    UnreadColumn,
)
from app.datasets import unit_names
from app.datasets.columnar_source import ColumnarSource
from app.datasets.columnar_stream import Blocks
from app.datasets.csv_columns import (
    Column,
    CountedCells,
    NumberColumn,
    UnitColumn,
    label_column,
    new_column,
)
from app.datasets.headers import declared_names, problems_of_header
from app.datasets.row_layout import as_feature, own_column_partitions
from app.datasets.upload_bodies import RFC_4180, BodyForm, CsvSource, Dialect
from grovekeeper_common import suspicions
from grovekeeper_common.number_text import BLANKS, LIKE_NUMBER
from grovekeeper_forests import limits as forest_limits
from grovekeeper_forests.data.schema import Schema, composed
from grovekeeper_forests.privacy.partitions import Partitions

_WITH_POINT = re.compile(r"-?[0-9]+\.0")
_DECIMAL_COMMA = "decimal=,"
_MOST_LOOKS = 5
"""Times that a refused file is read again, at most."""
_OF_HEADER = frozenset(
    {"missing-column", "duplicate-column", "unknown-column", "separator-line"}
)
"""Problems of a header after which the rest of a CSV can be read."""
_PERCENT = 100
_Counted = TypeVar(
    "_Counted", ColumnProblem, UnreadColumn, ColumnProblem | UnreadColumn
)


@dataclass(frozen=True)
class RowRules:
    """The parts of a declaration that rows are read by, and how they are written.

    Attributes:
        schema: public.
        partitions: public; as declared.
        dataset_key: secret; keys the hash partitions and the ids of units.
        unit_column: public; the column that names a row's unit, or ``None`` where the
            row is the unit.
        unit_form: public; how that column spells a unit
            (:mod:`app.datasets.unit_names`).
        dialect: how the owner's file is written.
    """

    schema: Schema
    partitions: Partitions
    dataset_key: bytes = field(repr=False)
    unit_column: str | None = None
    unit_form: str = unit_names.RAW
    dialect: Dialect = RFC_4180


@contextmanager
def opened(
    source: BinaryIO, form: BodyForm, rules: RowRules
) -> Iterator[CsvSource | Blocks]:
    """Opens the body of an upload, whose rows :class:`Reading` reads."""
    max_bytes = _most_unpacked_bytes(source, form)
    if form.is_columnar:
        numbers = {
            composed(column.name): column.is_date
            for column in rules.schema.columns
            if not column.is_categorical
        }
        unit = None if rules.unit_column is None else composed(rules.unit_column)
        with ColumnarSource(
            source,
            form,
            declared=_declared_columns(rules),
            numbers=numbers,
            unit=unit,
            categories=_texts_of_values(rules),
        ) as stream:
            yield Blocks(stream, max_bytes=max_bytes)
    else:
        csv_source = CsvSource(
            source,
            is_gzip=form is BodyForm.GZIP,
            max_bytes=max_bytes,
            max_line_bytes=limits.MAX_CSV_LINE_BYTES,
            declared=_declared_columns(rules),
            dialect=rules.dialect,
        )
        with closing(csv_source) as text:
            yield text


def _texts_of_values(rules: RowRules) -> dict[str, list[str]]:
    """The declared categories that false and true mean in columns of categories, which
    have texts alone, and those that whole numbers mean with the end ``.0``.
    """
    columns = {}
    for column in rules.schema.columns:
        if column.is_categorical:
            columns[column.name] = column.categories
    for partition in own_column_partitions(rules.partitions):
        columns[partition.column] = partition.categories
    values = {}
    for name, texts in columns.items():
        truths = [_text_of(False, texts), _text_of(True, texts)]
        values[composed(name)] = [*truths, *_with_point(texts)]
    return values


def _with_point(declared: Sequence[str]) -> list[str]:
    return [
        text
        for text in declared
        if _WITH_POINT.fullmatch(text) and text.removesuffix(".0") not in declared
    ]


def _text_of(truth: bool, declared: Sequence[str]) -> str:
    texts = [str(truth), str(truth).lower(), str(truth).upper(), str(int(truth))]
    return next((text for text in texts if text in declared), texts[0])


def _most_unpacked_bytes(source: BinaryIO, form: BodyForm) -> int:
    """Returns how many bytes an upload may unpack to: little for a small body, so that
    small bodies are little work.
    """
    size = source.seek(0, os.SEEK_END)
    source.seek(0)
    if form.is_columnar:
        ratio = limits.MAX_COLUMNAR_RATIO
    else:
        ratio = limits.MAX_GZIP_RATIO
    unpacked_bytes = max(size * ratio, limits.FREE_UNPACKED_BYTES)
    return min(unpacked_bytes, limits.MAX_UPLOAD_CSV_BYTES)


def _declared_columns(rules: RowRules) -> list[str]:
    """The columns that an upload has, in the order of the declaration."""
    names = [column.name for column in rules.schema.columns]
    further = [
        partition.column for partition in own_column_partitions(rules.partitions)
    ]
    unit = [] if rules.unit_column is None else [rules.unit_column]
    return [*names, *further, *unit]


class Reading:
    """Reads the cells of one upload, block by block, and counts what is mapped and what
    cannot be read.
    """

    def __init__(self, rules: RowRules) -> None:
        own_partitions = own_column_partitions(rules.partitions)
        self.columns: list[Column] = [
            *map(new_column, rules.schema.features),
            *map(label_column, rules.schema.labels),
            *map(new_column, map(as_feature, own_partitions)),
        ]
        self._rules = rules
        self._unit: UnitColumn | None = None
        if rules.unit_column is not None:
            self._unit = UnitColumn(rules.unit_column, rules.unit_form)
        self._marks = [self._marks_of(column.declared) for column in self.columns]
        self._marks.append(self._marks_of(()))
        self._present: list[int] = []
        self._text: CsvSource | None = None
        self._of_header: list[ColumnProblem] = []
        self._n_parsed_rows = 0
        self._n_ragged_rows = 0
        self._ragged: ColumnProblem | None = None

    def _marks_of(self, declared: Sequence[str]) -> pa.Array:
        """The texts that stand for an empty cell in a column: a declared value never
        does.
        """
        rules = self._rules
        marks = {*rules.schema.missing_values, *rules.dialect.missing}
        return pa.array(sorted(marks.difference(declared)), pa.string())

    def place_columns(
        self, body: CsvSource | Blocks, *, passes_over: bool = False
    ) -> None:
        """Reads the header, and finds each declared column.

        Args:
            passes_over: whether the rest of a CSV is read, although its header is not as
                declared, or a line is before it; :attr:`problems` then has the problems
                of the header.

        Raises:
            RowsInvalid: the header is not as declared.
        """
        declared = _declared_columns(self._rules)
        if passes_over and isinstance(body, CsvSource):
            body.pass_separator_line()
        names = declared_names(body.read_header(), declared)
        self._of_header = problems_of_header(names, declared)
        counts = Counter(names)
        is_other_file = counts.keys().isdisjoint(declared)
        if self._of_header and (is_other_file or not passes_over):
            raise RowsInvalid(self._of_header)
        places = {
            name: place for place, name in enumerate(declared) if counts[name] == 1
        }
        self._present = sorted(places.values())
        body.place_columns(
            [places.get(name, len(declared) + at) for at, name in enumerate(names)]
        )

    def read(
        self, body: CsvSource | Blocks
    ) -> Iterator[tuple[list[CountedCells], pa.Array | None]]:
        """The cells of each block, and the names of its units where the unit is a
        column. Cells of a column with problems must not be stored.
        """
        blocks = body.blocks() if isinstance(body, Blocks) else self._parsed(body)
        for block in blocks:
            placed = {
                place: self._with_points(place, _emptied(cells, self._marks[place]))
                for place, cells in zip(self._present, block, strict=True)
            }
            # the unit column, if there is one, is the last
            names = placed.pop(len(self.columns), None)
            cells = [self.columns[place].read(placed[place]) for place in placed]
            units = None
            if self._unit is not None and names is not None:
                units = self._unit.read(names)
            yield cells, units

    def check(self) -> None:
        """Raises the problems of the upload, if there are any, with all that is mapped.

        Raises:
            RowsInvalid: the declaration cannot read the upload.
        """
        if self.problems:
            raise RowsInvalid(self.problems, self.mapped)

    @property
    def mapped(self) -> list[UnreadColumn]:
        """What was mapped so far: clamped, empty and unknown cells, and marks for missing
        values in the unit column.
        """
        mapped = []
        for column in self.columns:
            report = column.report
            for kind in ("unknown", "clamped", "missing"):
                cells = self._unread(report.name, kind, getattr(report, kind))
                mapped.append(replace(cells, row=column.first_rows.get(kind)))
            suspected = report.suspected
            option = report.option
            mapped[-3] = replace(mapped[-3], suspected=suspected, option=option)
        marks = None
        # a mark that is no integer is a problem already
        if self._unit is not None and not self._unit.problems:
            marks = self._unit.marks
        if marks is not None:
            cells = self._unread(marks.name, marks.problem, marks.count)
            suspected = marks.suspected
            option = marks.option
            mapped.append(
                replace(cells, row=marks.row, suspected=suspected, option=option)
            )
        counted = [cells for cells in mapped if cells.count]
        return counted if self._text is not None else list(map(_in_table, counted))

    def _unread(self, name: str, problem: str, count: int) -> UnreadColumn:
        read = [column.n_read for column in self.columns]
        if self._unit is not None:
            read.append(self._unit.n_read)
        n_read = max(read)
        percent = _PERCENT * count / max(n_read, 1)
        return UnreadColumn(name, problem, count, percent)

    def _parsed(self, text: CsvSource) -> Iterator[list[pa.Array]]:
        """Yields a CSV in blocks of text, columns in schema order. Counts and skips
        rows of the wrong width.
        """
        is_readable = True
        self._text = text
        names = list(map(str, self._present))
        try:
            for block in _reader(
                text, names=names, on_ragged_row=self._skip_ragged_row
            ):
                # a row can be two bytes
                for start in range(0, block.num_rows, limits.MAX_BLOCK_ROWS):
                    yield block.slice(start, limits.MAX_BLOCK_ROWS).columns
                self._n_parsed_rows += block.num_rows
        except pa.ArrowInvalid:
            is_readable = False
        text.check()
        if not is_readable:
            row = self._n_parsed_rows + 1  # or a later row of the same block
            malformed = ColumnProblem(
                "", "malformed-csv", 1, row=row, suspected=suspicions.OPEN_QUOTE
            )
            raise RowsInvalid([*self.problems, malformed], self.mapped)

    def _skip_ragged_row(self, row: pa_csv.InvalidRow) -> str:
        if self._ragged is None:
            has_more = row.actual_columns > row.expected_columns
            suspected = suspicions.MORE_CELLS if has_more else suspicions.FEWER_CELLS
            self._ragged = ColumnProblem(
                "",
                "ragged-row",
                1,
                row=row.number and row.number - 1,
                suspected=suspected,
            )
        self._n_ragged_rows += 1
        return "skip"

    @property
    def problems(self) -> Sequence[ColumnProblem]:
        """The problems so far."""
        problems = list(self._of_header)
        for column in self.columns:
            problems += column.problems
        if self._unit is not None:
            problems += self._unit.problems
        if self._ragged is not None:
            problems.append(replace(self._ragged, count=self._n_ragged_rows))
        # a column knows its cells alone, and not how the file is written
        if self._text is None:
            return list(map(_in_table, problems))
        suspected = self._text.suspected_of_bytes
        option = suspicions.option_of(suspected)
        for place, problem in enumerate(problems):
            if problem.problem == "not-text":
                problems[place] = replace(problem, suspected=suspected, option=option)
        return problems

    def _with_points(self, place: int, cells: pa.Array) -> pa.Array:
        """A column of numbers with decimal commas, with decimal points. A point is then
        a sign between thousands, which no number has.

        Cells that are not like a number stay: marks for missing values have points, too.
        """
        column = None
        if place < len(self.columns):
            column = self.columns[place]
        is_of_numbers = isinstance(column, NumberColumn) and not column.is_date
        if self._rules.dialect.decimal == "." or not is_of_numbers:
            return cells
        without_points = pc.replace_substring(cells, ".", "'")
        with_points = pc.replace_substring(without_points, ",", ".")
        is_like_number = pc.match_substring_regex(cells, LIKE_NUMBER)
        return pc.if_else(is_like_number, with_points, cells)


def _in_table(problem: _Counted) -> _Counted:
    return replace(problem, suspected=suspicions.in_table(problem.suspected))


def with_all_problems(
    refusal: RowsInvalid, source: BinaryIO, form: BodyForm, rules: RowRules
) -> RowsInvalid:
    """A refusal with all problems of the file: also those that show when the file is
    read as its suspected options would have it.
    """
    problems = list(refusal.columns)
    latest = refusal.columns
    mapped = refusal.mapped
    dialect = rules.dialect
    # after a problem of its columns, the rows of a file have not been read
    is_read = not any(problem.problem in _OF_HEADER for problem in problems)
    seen = {dialect} if is_read else set()
    withdrawn = None
    for _ in range(_MOST_LOOKS):
        options = [problem.option for problem in latest if problem.option]
        dialect = dialect.with_options(options)
        if dialect in seen or form.is_columnar:
            break
        seen.add(dialect)
        look = _looked(source, form, replace(rules, dialect=dialect))
        commas = [problem for problem in latest if problem.option == _DECIMAL_COMMA]
        if look is not None and commas and _has_texts(look, commas):
            with_points = replace(dialect, decimal=rules.dialect.decimal)
            other = _looked(source, form, replace(rules, dialect=with_points))
            if other is not None and _has_texts(look, other.columns):
                # numbers of other columns have points
                withdrawn = _DECIMAL_COMMA
                dialect = with_points
                look = other
                seen.add(dialect)
        if look is None:
            break
        latest = look.columns
        mapped = look.mapped
        stated = set(map(_cause, problems))
        problems += [
            problem
            for problem in latest
            # a second count of one cause would contradict the first
            if problem not in problems and _cause(problem) not in stated
        ]
        problems = [_without(withdrawn, problem) for problem in problems]
        latest = [_without(withdrawn, problem) for problem in latest]
    marks = rules.dialect.missing
    return RowsInvalid(*with_all_marks(problems, mapped, stated=marks))


def _cause(problem: ColumnProblem | UnreadColumn) -> tuple[str | None, ...]:
    return problem.name, problem.problem, problem.suspected, problem.option


def _looked(source: BinaryIO, form: BodyForm, rules: RowRules) -> RowsInvalid | None:
    """The problems of a file, if any, and what is mapped of it; ``None`` if the file
    cannot be looked at. Nothing is stored.
    """
    reading = Reading(rules)
    try:
        with opened(source, form, rules) as body:
            reading.place_columns(body, passes_over=True)
            for _ in reading.read(body):
                pass  # the reading counts problems, and nothing is stored
    except RowsInvalid as error:
        return RowsInvalid(error.columns, error.mapped)
    except (MalformedRequest, TooLarge):
        return None
    return RowsInvalid(reading.problems, reading.mapped)


def _has_texts(
    look: RowsInvalid, before: Sequence[ColumnProblem | UnreadColumn]
) -> bool:
    """Whether a look finds more cells that are no numbers in columns to which their
    own cells do not suggest decimal commas.
    """
    counts = {
        column.name: math.inf if column.option == _DECIMAL_COMMA else column.count
        for column in before
        if column.problem == "not-a-number"
    }
    return any(
        column.count > counts.get(column.name, 0)
        for column in look.columns
        if column.problem == "not-a-number"
    )


def _without(option: str | None, problem: _Counted) -> _Counted:
    return replace(problem, option=None) if problem.option == option else problem


def with_all_marks(
    problems: Sequence[ColumnProblem | UnreadColumn],
    mapped: Sequence[UnreadColumn],
    *,
    stated: Sequence[str],
) -> tuple[list[ColumnProblem | UnreadColumn], list[UnreadColumn]]:
    """The same columns, where each option ``missing`` has the marks of all of them and
    those that the owner stated: an upload has the option once.
    """
    options = [column.option for column in (*problems, *mapped) if column.option]
    suspected = [option for option in options if option.startswith("missing=")]
    marks = Dialect(missing=tuple(stated)).with_options(suspected).missing
    option = f"missing={','.join(marks[: forest_limits.MAX_MISSING_VALUES])}"
    return (
        [_with_marks(column, option) for column in problems],
        [_with_marks(column, option) for column in mapped],
    )


def _with_marks(column: _Counted, option: str) -> _Counted:
    is_of_marks = column.option is not None and column.option.startswith("missing=")
    return replace(column, option=option) if is_of_marks else column


def _emptied(cells: pa.Array, marks: pa.Array) -> pa.Array:
    """Cells of which those with a mark for a missing value are empty."""
    if not len(marks):
        return cells
    if pa.types.is_dictionary(cells.type):
        texts = _emptied(cells.dictionary, marks)
        return pa.DictionaryArray.from_arrays(cells.indices, texts)
    if not pa.types.is_string(cells.type):  # numbers
        return cells
    is_mark = pc.is_in(pc.ascii_trim(cells, characters=BLANKS), value_set=marks)
    if is_mark.true_count:
        return pc.if_else(is_mark, "", cells)
    return cells


def _reader(
    text: CsvSource,
    *,
    names: Sequence[str],
    on_ragged_row: Callable[[pa_csv.InvalidRow], str],
) -> pa_csv.CSVStreamingReader:
    """A parser that infers no type and no null: every cell stays text until its column
    reads it.
    """
    return pa_csv.open_csv(
        text,
        # A record that is longer than a block stops the parser; every legal line with
        # its end fits.
        read_options=pa_csv.ReadOptions(
            use_threads=False, block_size=limits.MAX_CSV_LINE_BYTES + 2
        ),
        parse_options=pa_csv.ParseOptions(
            delimiter=text.delimiter,
            newlines_in_values=True,
            invalid_row_handler=on_ragged_row,
        ),
        convert_options=pa_csv.ConvertOptions(
            check_utf8=False,  # CsvSource checks it.
            column_types=dict.fromkeys(names, pa.string()),
            include_columns=list(names),
        ),
    )
