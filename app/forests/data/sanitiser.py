"""Sanitises rows by the public schema, record by record, before any mechanism or model reads them.

The sanitiser is *total* (every cell has an image, so no row can make growth or prediction fail) and *record-wise* (the
image of a row depends on that row and the public schema alone). A record-wise map takes neighbouring datasets to
neighbouring datasets (lemma L6 in docs/proofs/lemmas.md), so sanitising costs no budget and changes no sensitivity.

==============================  ===========================================
cell                            image
==============================  ===========================================
number out of bounds, ±∞        the nearer bound
number between two integers     the nearest integer, ties to even (``integer`` features)
empty number                    MISSING (NaN); the lower bound if the feature declares no ``missing``
undeclared category             OTHER
empty category                  MISSING; OTHER if the feature declares no ``missing``
undeclared or empty label       the row is dropped
==============================  ===========================================

Uploads and prediction bodies have stricter rules: they reject errors that the owner or the caller can correct.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import cast

import numpy as np
from numpy.typing import NDArray

from app.core import limits
from app.core.errors import FieldProblem, InvalidRequest
from app.forests.data.rows import SanitisedColumns
from app.forests.data.schema import Feature, Label, Schema

_JSON_NUMBERS: frozenset[type] = frozenset({int, float, type(None)})
_JSON_STRINGS: frozenset[type] = frozenset({str, type(None)})


def sanitise_numbers(feature: Feature, values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Clamps numbers to the declared bounds; total and record-wise.

    Args:
        feature: public; ``numeric`` or ``integer``.
        values: PRIVATE, or a caller's; float64 ``(n_rows,)``; NaN is an empty cell, infinities are legal.

    Returns:
        A new float64 array inside the bounds. NaN remains only where the feature declares ``missing``. A negative zero
        becomes a positive zero, so that equal values have equal bits.
    """
    result = np.clip(values, feature.lower, feature.upper)
    if feature.type == "integer":
        np.rint(result, out=result)
    if not feature.missing:
        np.copyto(result, feature.lower, where=np.isnan(result))
    result += 0.0
    return result


def sanitise_codes(feature: Feature, codes: NDArray[np.int32]) -> NDArray[np.int32]:
    """Maps every undeclared code to OTHER; total and record-wise.

    Args:
        feature: public; ``categorical``.
        codes: PRIVATE, or a caller's; int32 ``(n_rows,)``.

    Returns:
        A new int32 array of declared codes, ``other_code`` and, where the feature declares ``missing``,
        ``missing_code``.
    """
    largest = feature.missing_code if feature.missing else feature.other_code
    return np.where((codes >= 0) & (codes <= largest), codes, np.int32(feature.other_code))


def has_known_label(label: Label, codes: NDArray[np.int32]) -> NDArray[np.bool_]:
    """Whether each row has a declared class, by a test on that row alone; callers drop the other rows.

    Args:
        label: public.
        codes: PRIVATE, int32 ``(n_rows,)``; −1 is an undeclared or empty label.
    """
    return (codes >= 0) & (codes < len(label.classes))


def count_out_of_bounds(feature: Feature, values: NDArray[np.float64]) -> int:
    """The number of cells that clamping changes: an exact PRIVATE count, for the owner's upload report alone."""
    return int(np.count_nonzero((values < feature.lower) | (values > feature.upper)))


def sanitise_prediction_rows(schema: Schema, rows: Sequence[Mapping[str, object]]) -> SanitisedColumns:
    """Encodes the ``rows`` form of a prediction body.

    Args:
        schema: public, from inside the artifact.
        rows: one mapping per row, from feature name to a JSON scalar (``str``, ``int``, ``float``, ``bool``,
            ``None``); an absent name is an empty cell.

    Raises:
        InvalidRequest: ``unknown-column`` at ``/rows`` (without the name, which is a value of the caller), or, once per
            column with the number of its rows, ``missing``, ``not-a-number``, ``not-a-string`` at
            ``/rows/<i>/<feature>`` of the first row. No error repeats a value.
    """
    names = {feature.name: None for feature in schema.features}
    n_unknown = sum(not row.keys() <= names.keys() for row in rows)
    if n_unknown:
        raise InvalidRequest([FieldProblem("/rows", "unknown-column", accepted=tuple(names), count=n_unknown)])
    problems: list[FieldProblem] = []
    columns = []
    for feature in schema.features:
        if len(problems) >= limits.MAX_REPORTED_PROBLEMS:
            break
        name = feature.name
        cells = [row.get(name) for row in rows]
        columns.append(_sanitise_cells(feature, cells, problems=problems, at=partial(_row_pointer, name)))
    return _sanitised(columns, len(rows), problems=problems)


def sanitise_prediction_columns(
    schema: Schema, columns: Mapping[str, Sequence[object]], *, at: str = "/columns"
) -> SanitisedColumns:
    """Encodes the ``columns`` form of a prediction body.

    Args:
        schema: public, from inside the artifact.
        columns: from feature name to cells (JSON scalars), all of equal length. An absent column has only empty cells.
        at: where the request has the columns.

    Raises:
        InvalidRequest: ``unknown-column`` or ``unequal-lengths`` at ``/columns``; ``missing`` at
            ``/columns/<feature>`` for an absent column; once per column with the number of its rows, ``missing``,
            ``not-a-number``, ``not-a-string`` at ``/columns/<feature>/<i>`` of the first row. No error repeats a value.
    """
    names = {feature.name: None for feature in schema.features}
    if not columns.keys() <= names.keys():
        raise InvalidRequest.at(at, "unknown-column", accepted=names)
    lengths = {len(cells) for cells in columns.values()}
    if len(lengths) > 1:
        raise InvalidRequest.at(at, "unequal-lengths")
    n_rows = lengths.pop() if lengths else 0
    problems: list[FieldProblem] = []
    encoded = []
    for feature in schema.features:
        name = feature.name
        if name not in columns and not feature.missing:
            problems.append(_problem(feature, f"{at}/{_pointer_token(name)}", "missing", n_rows))
            continue
        cells = columns.get(name, [None] * n_rows)
        encoded.append(_sanitise_cells(feature, cells, problems=problems, at=partial(_column_pointer, at, name)))
    return _sanitised(encoded, n_rows, problems=problems)


def _sanitised(
    columns: list[NDArray[np.float64] | NDArray[np.int32]], n_rows: int, *, problems: list[FieldProblem]
) -> SanitisedColumns:
    if problems:
        raise InvalidRequest(problems[: limits.MAX_REPORTED_PROBLEMS])
    return SanitisedColumns(tuple(columns), n_rows)


def _sanitise_cells(
    feature: Feature, cells: Sequence[object], *, problems: list[FieldProblem], at: Callable[[int], str]
) -> NDArray[np.float64] | NDArray[np.int32]:
    """Sanitises one column. Appends errors to ``problems``; the array is valid only if no error is appended."""
    # Exact types, not isinstance: in Python a bool is an int, but here it is neither a number nor a category.
    legal = _JSON_STRINGS if feature.is_categorical else _JSON_NUMBERS
    if not legal.issuperset(map(type, cells)) or (not feature.missing and None in cells):
        problems.extend(_cell_problems(feature, cells, legal=legal, at=at))
        return np.empty(0, dtype=np.int32)
    if feature.is_categorical:
        lookup: dict[object, int] = {category: code for code, category in enumerate(feature.categories)}
        lookup[None] = feature.missing_code
        other = feature.other_code
        return np.array([lookup.get(cell, other) for cell in cells], dtype=np.int32)
    return sanitise_numbers(feature, _floats(cast(Sequence[int | float | None], cells)))


def _cell_problems(
    feature: Feature, cells: Sequence[object], *, legal: frozenset[type], at: Callable[[int], str]
) -> Iterator[FieldProblem]:
    """At most two problems of a column, each with its first row and the number of its rows."""
    wrong = [index for index, cell in enumerate(cells) if type(cell) not in legal]
    if wrong:
        yield _problem(feature, at(wrong[0]), "not-a-string" if feature.is_categorical else "not-a-number", len(wrong))
    if not feature.missing and None in cells:
        empty = [index for index, cell in enumerate(cells) if cell is None]
        yield _problem(feature, at(empty[0]), "missing", len(empty))


def _problem(feature: Feature, at: str, problem: str, count: int) -> FieldProblem:
    """A problem of a column, with the declared categories if it has any."""
    return FieldProblem(at, problem, accepted=feature.categories, column=feature.name, count=count)


def _floats(cells: Sequence[int | float | None]) -> NDArray[np.float64]:
    """Cells as floats: ``None`` becomes NaN, an integer beyond the float range an infinity, which is clamped later."""
    try:
        return np.array(cells, dtype=np.float64)
    except OverflowError:
        return np.array([_float(cell) for cell in cells], dtype=np.float64)


def _float(cell: int | float | None) -> float:
    if cell is None:
        return math.nan
    try:
        return float(cell)
    except OverflowError:
        return math.inf if cell > 0 else -math.inf


def _row_pointer(name: str, index: int) -> str:
    return f"/rows/{index}/{_pointer_token(name)}"


def _column_pointer(at: str, name: str, index: int) -> str:
    return f"{at}/{_pointer_token(name)}/{index}"


def _pointer_token(name: str) -> str:
    """A column name inside a JSON pointer (RFC 6901)."""
    return name.replace("~", "~0").replace("/", "~1")
