"""Sanitises rows by the public schema, record by record, before any mechanism or model
reads them.

The sanitiser is *total* (every cell has an image, so no row can make growth or
prediction fail) and *record-wise* (the image of a row depends on that row and the
public schema alone). A record-wise map takes neighbouring datasets to neighbouring
datasets (lemma L6 in docs/proofs/lemmas.md), so sanitising costs no budget and changes
no sensitivity.

==============================  ===========================================
cell                            image
==============================  ===========================================
number out of bounds, ±∞        the nearer bound
number between two integers     the nearest integer, ties to even (``integer`` features)
date                            its whole days since the first day, in bounds like a number
empty number                    MISSING (NaN); the lower bound if the feature declares no ``missing``
undeclared category             OTHER
empty category, as a null, as a MISSING; OTHER if the feature declares no ``missing``
text of no characters or as a
declared mark
undeclared or empty label       the row is dropped; statistics keep it (``Axis``)
label cut into classes          the class between the declared points that it lies between
label that is a number          the nearest 2^30th part of its range, after clamping
==============================  ===========================================

Uploads and prediction bodies have stricter rules: they reject errors that the owner or
the caller can correct. The rows of a prediction request are sanitised in one table,
several times as fast as column by column.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from operator import contains
from typing import Any, Protocol, cast

import numpy as np
from numpy.typing import NDArray

from grovekeeper_forests import limits
from grovekeeper_forests.array_types import (
    BoolArray,
    Float64Array,
    Int32Array,
    Int64Array,
    UInt8Array,
)
from grovekeeper_forests.data.days import NO_DAY, day_of
from grovekeeper_forests.data.schema import BLANKS, TARGET_STEPS, Feature, Label, Schema
from grovekeeper_forests.errors import ParameterInvalid, ParameterProblem, Place
from grovekeeper_forests.json_types import JsonMapping
from grovekeeper_forests.kept import kept_property
from grovekeeper_forests.kernels.prediction import bound_cells


@dataclass(frozen=True)
class SanitisedColumns:
    """Sanitised feature values: PRIVATE in training, the caller's in prediction.

    Attributes:
        columns: one array per schema feature, in schema order. Numbers: float64
            ``(n_rows,)``, inside the bounds, NaN = MISSING (only where the schema
            allows it). Categories: int32 ``(n_rows,)`` codes, ``other_code`` for an
            undeclared value and ``missing_code`` for an empty cell.
        n_rows: number of rows, also where the schema has no features.
        changed: of a caller's rows, int64 ``(2, n_features)``: the numbers out of their
            bounds, and the undeclared categories. ``None`` if there are none, and of
            training rows, which nobody counts.
    """

    columns: tuple[Float64Array | Int32Array, ...]
    n_rows: int
    changed: Int64Array | None = None


class SanitisedTable(SanitisedColumns):
    """Sanitised values of a request in one array, from which a small prediction takes
    less time than from columns.

    Attributes:
        table: float64 ``(n_features, n_rows)``, codes of categories as numbers.
    """

    table: Float64Array

    def __init__(
        self,
        table: Float64Array,
        changed: Int64Array | None,
        is_categorical: tuple[bool, ...],
    ) -> None:
        vars(self).update(
            n_rows=table.shape[1],
            table=table,
            changed=changed,
            _is_categorical=is_categorical,
        )

    @kept_property
    def columns(self) -> tuple[Float64Array | Int32Array, ...]:
        """The columns, made of the table when a reader asks for them."""
        pairs = zip(self.table, vars(self)["_is_categorical"], strict=True)
        return tuple(
            values.astype(np.int32) if is_categorical else values
            for values, is_categorical in pairs
        )


@dataclass(frozen=True)
class SanitisedRows:
    """PRIVATE training rows of one job.

    Attributes:
        features: see :class:`SanitisedColumns`.
        y: int32 ``(n_rows,)`` class codes; rows with an undeclared label are already
            dropped, record-wise.
        row_ids: uint8 ``(n_rows, 16)``: the stable random id that ingestion gives to
            each row; never published.
    """

    features: SanitisedColumns
    y: Int32Array
    row_ids: UInt8Array


@dataclass(frozen=True)
class ColumnBlock:
    """PRIVATE values of consecutive rows in some columns.

    Attributes:
        columns: by name; of features as in :class:`SanitisedColumns`; of the label,
            int32 ``(n_rows,)`` class codes, −1 where it is not a declared class.
        n_rows: number of rows, also where no column is read.
    """

    columns: Mapping[str, Float64Array | Int32Array]
    n_rows: int


_JSON_NUMBERS: frozenset[type] = frozenset({int, float, type(None)})
_JSON_STRINGS: frozenset[type] = frozenset({str, type(None)})


def legal_types(feature: Feature) -> frozenset[type]:
    """The types of legal cells, an empty one included.

    Exact types, not their subclasses: in Python a bool is an int, but here it is
    neither a number nor a category.
    """
    has_texts = feature.type in ("date", "categorical")
    return _JSON_STRINGS if has_texts else _JSON_NUMBERS


class _Codes(dict[object, int]):
    """The codes of the cells of a column of categories: of an empty cell, which is a
    null or an empty text, MISSING; of a text that is not declared, OTHER.
    """

    def __init__(self, feature: Feature) -> None:
        super().__init__(
            (category, code) for code, category in enumerate(feature.categories)
        )
        empty, *marks = empty_texts(feature)
        self.update(dict.fromkeys((None, empty, *marks), feature.missing_code))
        self._missing, self._other = feature.missing_code, feature.other_code
        self._marks = frozenset(marks)

    def __missing__(self, cell: object) -> int:
        # files have blanks around a mark, and uploads pass over them
        is_mark = isinstance(cell, str) and cell.strip(BLANKS) in self._marks
        return self._missing if is_mark else self._other


def empty_texts(feature: Feature) -> tuple[str, ...]:
    """The texts that are empty cells in a column of categories; CSV, ONNX and other
    protocols have no null.
    """
    marks = [text for text in feature.marks if text not in feature.categories]
    return ("", *marks)


class Cells(Protocol):
    """The cells of one column."""

    def __len__(self) -> int:
        """Number of cells."""

    def of_other_types(self, feature: Feature) -> Sequence[int] | NDArray[np.intp]:
        """The rows whose cell is not empty and has no type of the feature, ascending."""

    def empty(self, feature: Feature) -> Sequence[int] | NDArray[np.intp]:
        """The rows whose cell is empty, ascending."""

    def numbers(self, feature: Feature) -> Float64Array:
        """The nearest floats, NaN for an empty cell, of a column whose cells are all of
        the feature's type.
        """

    def codes(self, feature: Feature) -> Int32Array:
        """The codes of categories, of a column whose cells are all of a category's
        type.
        """


class JsonCells:
    """Cells that are values of JSON."""

    def __init__(self, values: Sequence[object]) -> None:
        self._values = values

    def __len__(self) -> int:
        return len(self._values)

    def of_other_types(self, feature: Feature) -> Sequence[int] | NDArray[np.intp]:
        """See :class:`Cells`."""
        if feature.type == "date":
            days = list(map(day_of, self._values))
            is_none = np.array(days) == NO_DAY
            return np.flatnonzero(is_none)
        legal = legal_types(feature)
        if legal.issuperset(map(type, self._values)):
            return ()
        return [
            row for row, value in enumerate(self._values) if type(value) not in legal
        ]

    def empty(self, feature: Feature) -> Sequence[int] | NDArray[np.intp]:
        """See :class:`Cells`."""
        if feature.type == "date":
            is_empty = np.isnan(self.numbers(feature))
            return np.flatnonzero(is_empty)
        if feature.is_categorical:
            codes, missing = _Codes(feature), feature.missing_code
            legal = legal_types(feature)
            return [
                row
                for row, value in enumerate(self._values)
                if type(value) in legal and codes[value] == missing
            ]
        if None not in self._values:
            return ()
        return [row for row, value in enumerate(self._values) if value is None]

    def numbers(self, feature: Feature) -> Float64Array:
        """See :class:`Cells`."""
        if feature.first_day is not None:
            days = list(map(day_of, self._values))
            found = np.array(days, dtype=np.float64)
            return found - feature.first_day
        values = cast(Sequence[int | float | None], self._values)
        try:
            return np.array(values, dtype=np.float64)
        except OverflowError:
            # JSON has integers of any length. Cell by cell, they are clamped like others.
            return np.array(list(map(_float, values)), dtype=np.float64)

    def codes(self, feature: Feature) -> Int32Array:
        """See :class:`Cells`."""
        codes = _Codes(feature)
        return np.array([codes[value] for value in self._values], dtype=np.int32)


class NumberCells:
    """Cells that are numbers of one array; NaN is an empty cell."""

    def __init__(self, values: Float64Array) -> None:
        self._values = values

    def __len__(self) -> int:
        return len(self._values)

    def of_other_types(self, feature: Feature) -> NDArray[np.intp]:
        """See :class:`Cells`."""
        if legal_types(feature) is _JSON_NUMBERS:
            return np.empty(0, dtype=np.intp)
        return np.flatnonzero(~np.isnan(self._values))

    def empty(self, _: Feature) -> NDArray[np.intp]:
        """See :class:`Cells`."""
        return np.flatnonzero(np.isnan(self._values))

    def numbers(self, _: Feature) -> Float64Array:
        """See :class:`Cells`."""
        return self._values

    def codes(self, feature: Feature) -> Int32Array:
        """See :class:`Cells`; no cell has a value."""
        return np.full(len(self), feature.missing_code, dtype=np.int32)


def _float(value: int | float | None) -> float:
    """A value as a float: an integer beyond the range of floats becomes an infinity,
    which is clamped later.
    """
    if value is None:
        return math.nan
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def sanitise_numbers(feature: Feature, values: Float64Array) -> Float64Array:
    """Clamps numbers to the declared bounds; total and record-wise.

    Args:
        feature: public; not ``categorical``.
        values: PRIVATE, or a caller's; float64 ``(n_rows,)``; NaN is an empty cell,
            infinities are legal.

    Returns:
        A new float64 array inside the bounds. NaN remains only where the feature
        declares ``missing``. A negative zero becomes a positive zero, so that equal
        values have equal bits.
    """
    # Rounded after clamping: the bounds of an integer feature are integers, so the
    # result stays inside them.
    result = np.clip(values, feature.lower, feature.upper)
    if feature.type != "numeric":
        np.rint(result, out=result)
    if not feature.missing:
        np.copyto(result, feature.lower, where=np.isnan(result))
    result += 0.0  # −0.0 + 0.0 is 0.0
    return result


def sanitise_codes(feature: Feature, codes: Int32Array) -> Int32Array:
    """Maps every undeclared code to OTHER; total and record-wise.

    Args:
        feature: public; ``categorical``.
        codes: PRIVATE, or a caller's; int32 ``(n_rows,)``.

    Returns:
        A new int32 array of declared codes, ``other_code`` and, where the feature
        declares ``missing``, ``missing_code``.
    """
    largest = feature.missing_code if feature.missing else feature.other_code
    return np.where(
        (codes >= 0) & (codes <= largest), codes, np.int32(feature.other_code)
    )


def codes_of_numbers(label: Label, values: Float64Array) -> Int32Array:
    """The code of each number of a label with cuts or with bounds; total and
    record-wise.

    Args:
        label: public; with cuts or with bounds.
        values: PRIVATE, or a caller's; float64 ``(n_rows,)``; NaN is an empty cell,
            infinities are legal.

    Returns:
        int32 ``(n_rows,)``: the number of cuts at or below each number; or the nearest
        2^30th part of the range; −1 for NaN.
    """
    is_empty = np.isnan(values)
    if label.bounds is None:
        codes = np.searchsorted(label.cuts, values, side="right")
    else:
        lower, upper = label.bounds
        # NaN has no code: the lower bound stands for it until the end
        present = np.where(is_empty, lower, values)
        inside = np.clip(present, lower, upper)
        shares = (inside - lower) / (upper - lower)
        codes = np.rint(shares * TARGET_STEPS)
    stored = codes.astype(np.int32)
    stored[is_empty] = -1
    return stored


def numbers_of_codes(label: Label, codes: NDArray[Any]) -> Float64Array:
    """The numbers that codes of a label with bounds stand for, float64 of their shape;
    codes may have fractions.

    Raises:
        ValueError: the label has classes.
    """
    if label.bounds is None:
        raise ValueError("the label has classes")
    lower, upper = label.bounds
    part = (upper - lower) / TARGET_STEPS
    numbers: Float64Array = lower + codes * part
    return numbers


def written_numbers(label: Label, codes: Int32Array) -> Float64Array:
    """The numbers of a label with bounds as they were written, from their codes; NaN for
    −1.

    A code is off by half a part of the range at most. So the nearest decimal is the
    number of the cell, if that has no more digits than are told apart here: 5 is 5 again,
    and not a little less, which would be below a bin that begins at 5.
    """
    numbers = numbers_of_codes(label, codes)
    assert label.bounds is not None
    lower, upper = label.bounds
    part = (upper - lower) / TARGET_STEPS
    digits = math.floor(-math.log10(part))
    if label.is_whole:
        digits = min(digits, 0)
    rounded = np.round(numbers, digits)
    # a bound may have more digits
    inside = np.clip(rounded, lower, upper)
    return np.where(codes < 0, np.nan, inside)


def has_known_label(label: Label, codes: Int32Array) -> BoolArray:
    """Whether each row has a declared class or a number, by a test on that row alone;
    callers drop the other rows.

    Args:
        label: public.
        codes: PRIVATE, int32 ``(n_rows,)``; −1 is an undeclared or empty label.
    """
    return (codes >= 0) & (codes < label.n_codes)


def count_out_of_bounds(feature: Feature, values: Float64Array) -> int:
    """The number of cells that clamping changes: exact, so of stored rows for the
    owner's upload report alone.
    """
    return int(np.count_nonzero((values < feature.lower) | (values > feature.upper)))


def sanitise_prediction_rows(
    schema: Schema, rows: Sequence[JsonMapping]
) -> SanitisedColumns:
    """Encodes the ``rows`` form of a prediction body.

    Args:
        schema: public, from inside the artifact.
        rows: one mapping per row, from feature name to a JSON scalar (``str``, ``int``,
            ``float``, ``bool``, ``None``); an absent name is an empty cell.

    Raises:
        ParameterInvalid: ``unknown-column`` at ``rows``, with the name of the first
            such column; or, once per column with the number of its rows, ``missing``,
            ``not-a-number``, ``not-a-date``, ``not-a-string`` at ``rows[i][feature]`` of the first row.
            No error repeats a value.
    """
    names = {feature.name: None for feature in schema.features}
    unknown = [name for row in rows for name in row.keys() - names.keys()]
    if unknown:
        n_rows = sum(not row.keys() <= names.keys() for row in rows)
        raise ParameterInvalid(
            [unknown_column(unknown[0], names, place=("rows",), count=n_rows)]
        )
    columns = {name: JsonCells([row.get(name) for row in rows]) for name in names}

    def cell_place(name: str, index: int | None) -> Place:
        assert index is not None, "no column is absent"
        return "rows", index, name

    return _sanitised(schema, columns, len(rows), place_of=cell_place)


def sanitise_prediction_columns(
    schema: Schema, columns: Mapping[str, Cells], *, place: Place = ("columns",)
) -> SanitisedColumns:
    """Encodes the columns of a prediction body.

    Args:
        schema: public, from inside the artifact.
        columns: from feature name to cells, all of equal length. An absent column has
            only empty cells.
        place: where the request has the columns.

    Raises:
        ParameterInvalid: ``unknown-column`` at ``columns``; ``unequal-lengths`` at the
            first column whose length is not that of the first one; ``missing`` at
            ``columns[feature]`` for an absent column; once per column with the number
            of its rows, ``missing``, ``not-a-number``, ``not-a-string`` at
            ``columns[feature][i]`` of the first row. No error repeats a value.
    """
    names = {feature.name: None for feature in schema.features}
    unknown = [name for name in columns if name not in names]
    if unknown:
        raise ParameterInvalid([unknown_column(unknown[0], names, place=place)])
    n_rows = len(next(iter(columns.values()), ()))
    for name, cells in columns.items():
        if len(cells) != n_rows:
            raise ParameterInvalid([_other_length(place, columns, name)])

    def cell_place(name: str, index: int | None) -> Place:
        return (*place, name) if index is None else (*place, name, index)

    return _sanitised(schema, columns, n_rows, place_of=cell_place)


def _other_length(
    place: Place, columns: Mapping[str, Cells], name: str
) -> ParameterProblem:
    """The problem of a column whose length is not that of the first one."""
    first = next(iter(columns))
    return ParameterProblem(
        (*place, name),
        "unequal-lengths",
        accepted=(f"{len(columns[first])} cells, as {first} has",),
        column=name,
        count=len(columns[name]),
    )


_OTHER_TYPES: Mapping[str, str] = {
    "numeric": "not-a-number",
    "integer": "not-a-number",
    "date": "not-a-date",
    "categorical": "not-a-string",
}
"""The problem of a cell of another type, by the type of the feature."""


def _sanitised(
    schema: Schema,
    columns: Mapping[str, Cells],
    n_rows: int,
    *,
    place_of: Callable[[str, int | None], Place],
) -> SanitisedColumns:
    """Sanitises columns; ``place_of`` gives the place of the cell of a column in one
    row, or to an absent column.
    """
    problems: list[ParameterProblem] = []
    sanitised: list[Float64Array | Int32Array] = []
    changed = np.zeros((2, len(schema.features)), dtype=np.int64)
    for place, feature in enumerate(schema.features):
        cells = columns.get(feature.name)
        if cells is None and not feature.missing:
            absent = place_of(feature.name, None)
            problems.append(_problem(feature, absent, "missing", n_rows))
            continue
        if cells is None:
            cells = JsonCells([None] * n_rows)
        other_type = _OTHER_TYPES[feature.type]
        empty = () if feature.missing else cells.empty(feature)
        rows_with = ((other_type, cells.of_other_types(feature)), ("missing", empty))
        for problem, rows in rows_with:
            if len(rows):
                first = place_of(feature.name, int(rows[0]))
                problems.append(_problem(feature, first, problem, len(rows)))
        # After a problem, columns are only checked: numbers and codes of cells exist
        # only if all have a legal type.
        if not problems and feature.is_categorical:
            sanitised.append(cells.codes(feature))
            changed[1, place] = np.count_nonzero(sanitised[-1] == feature.other_code)
        elif not problems:
            numbers = cells.numbers(feature)
            sanitised.append(sanitise_numbers(feature, numbers))
            changed[0, place] = count_out_of_bounds(feature, numbers)
        if len(problems) >= limits.MAX_REPORTED_PROBLEMS:
            break
    if problems:
        raise ParameterInvalid(problems[: limits.MAX_REPORTED_PROBLEMS])
    return SanitisedColumns(
        tuple(sanitised), n_rows, changed if changed.any() else None
    )


def unknown_column(
    name: str, accepted: Iterable[str], *, place: Place, count: int | None = None
) -> ParameterProblem:
    """A problem that names a column to the caller, who sent the name; no log shows it."""
    start = name[: limits.MAX_NAME_CHARS]
    return ParameterProblem(
        place, "unknown-column", accepted=tuple(accepted), column=start, count=count
    )


def _problem(
    feature: Feature, place: Place, problem: str, count: int
) -> ParameterProblem:
    accepted = feature.categories
    if problem == "not-a-date":
        accepted = ("a text such as 2024-02-29, without a time of the day",)
    return ParameterProblem(
        place, problem, accepted=accepted, column=feature.name, count=count
    )


class RequestRows:
    """Sanitises the rows of requests for one public schema."""

    def __init__(self, schema: Schema) -> None:
        features = schema.features
        self._schema = schema
        self._names = frozenset(feature.name for feature in features)
        self._is_categorical = tuple(feature.is_categorical for feature in features)
        self._order = [feature.name for feature in features]
        self._types: list[frozenset[type]] = []
        # with the code that no cell may have: MISSING, unless the feature declares it
        self._codes: dict[int, tuple[_Codes, int]] = {}
        self._first_days: dict[int, int] = {}
        rules: list[tuple[float, float, float, bool]] = []
        for place, feature in enumerate(features):
            if feature.first_day is not None:
                self._first_days[place] = feature.first_day
            types = legal_types(feature)
            self._types.append(types if feature.missing else types - {type(None)})
            if feature.is_categorical:
                illegal = -1 if feature.missing else feature.missing_code
                self._codes[place] = _Codes(feature), illegal
                rules.append((-np.inf, np.inf, feature.other_code, False))
            else:
                rules.append(
                    (feature.lower, feature.upper, np.nan, feature.type != "numeric")
                )
        self._rules = np.array(rules, dtype=np.float64).reshape(-1, 4)

    def sanitise(self, rows: Sequence[JsonMapping]) -> SanitisedColumns:
        """Does what :func:`grovekeeper_forests.data.sanitiser.sanitise_prediction_rows`
        does, with its errors.
        """
        table = None
        if len(rows) == 1:
            table = self._row(rows[0])
        elif all(map(self._names.issuperset, rows)):
            table = self._table(lambda name: [row.get(name) for row in rows], len(rows))
        # A cell has no place in a table; the other function reports or accepts it.
        if table is not None:
            return table
        return sanitise_prediction_rows(self._schema, rows)

    def sanitise_columns(
        self, columns: Mapping[str, Sequence[object]], *, place: Place = ("columns",)
    ) -> SanitisedColumns:
        """Does what
        :func:`grovekeeper_forests.data.sanitiser.sanitise_prediction_columns` does,
        with its errors.
        """
        table = None
        lengths = set(map(len, columns.values()))
        if len(lengths) == 1 and self._names.issuperset(columns):
            n_rows = lengths.pop()
            absent = [None] * n_rows
            if n_rows == 1:
                table = self._row({name: cells[0] for name, cells in columns.items()})
            else:
                table = self._table(lambda name: columns.get(name, absent), n_rows)
        if table is not None:
            return table
        cells = {name: JsonCells(values) for name, values in columns.items()}
        return sanitise_prediction_columns(self._schema, cells, place=place)

    def _row(self, row: JsonMapping) -> SanitisedTable | None:
        """Does what :meth:`_table` does, for one row, in half of the time."""
        if not self._names.issuperset(row):
            return None
        cells = list(map(row.get, self._order))
        if not all(map(contains, self._types, map(type, cells))):
            return None
        for place, (codes, illegal) in self._codes.items():
            cells[place] = code = codes[cells[place]]
            if code == illegal:
                return None
        for place, first_day in self._first_days.items():
            day = day_of(cells[place])
            if not day.is_integer():  # empty, or no date
                return None
            cells[place] = day - first_day
        return self._bounded(cells, 1)

    def _table(
        self, cells_of: Callable[[str], Sequence[object]], n_rows: int
    ) -> SanitisedTable | None:
        """The sanitised cells; ``None`` if a type of a cell is not usual."""
        values: list[object] = []
        for place, types in enumerate(self._types):
            cells = cells_of(self._order[place])
            if not types.issuperset(map(type, cells)):
                return None
            if place in self._first_days:
                first_day = self._first_days[place]
                for cell in cells:
                    day = day_of(cell)
                    if not day.is_integer():  # empty, or no date
                        return None
                    values.append(day - first_day)
                continue
            if place not in self._codes:
                values += cells
                continue
            codes, illegal = self._codes[place]
            found = [codes[cell] for cell in cells]
            if illegal in found:
                return None
            values += found
        return self._bounded(values, n_rows)

    def _bounded(self, values: Sequence[object], n_rows: int) -> SanitisedTable | None:
        """A table of numbers and codes, which are here column by column; ``None`` if an
        integer is beyond the range of floats.
        """
        try:
            table = np.array(values, dtype=np.float64)
        except OverflowError:
            return None
        table = table.reshape(len(self._order), n_rows)
        changed = bound_cells(table, self._rules)
        return SanitisedTable(table, changed, self._is_categorical)
