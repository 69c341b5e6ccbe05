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

from collections.abc import Callable, Mapping, Sequence
from functools import partial

import numpy as np
from numpy.typing import NDArray

from app.core import limits
from app.core.errors import FieldProblem, InvalidRequest
from app.forests.data.request_cells import Cells, JsonCells
from app.forests.data.rows import SanitisedColumns
from app.forests.data.schema import Feature, Label, Schema


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
        cells = JsonCells([row.get(name) for row in rows])
        columns.append(_sanitise_cells(feature, cells, problems=problems, at=partial(_row_pointer, name)))
    return _sanitised(columns, len(rows), problems=problems)


def sanitise_prediction_columns(
    schema: Schema, columns: Mapping[str, Cells], *, at: str = "/columns"
) -> SanitisedColumns:
    """Encodes the columns of a prediction body.

    Args:
        schema: public, from inside the artifact.
        columns: from feature name to cells, all of equal length. An absent column has only empty cells.
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
            problems.append(_problem(feature, column_pointer(name, at=at), "missing", n_rows))
            continue
        cells = columns[name] if name in columns else JsonCells([None] * n_rows)
        encoded.append(_sanitise_cells(feature, cells, problems=problems, at=partial(_cell_pointer, at, name)))
    return _sanitised(encoded, n_rows, problems=problems)


def column_pointer(name: str, *, at: str = "/columns") -> str:
    """A JSON pointer to a column of a request."""
    return f"{at}/{_pointer_token(name)}"


def _sanitised(
    columns: list[NDArray[np.float64] | NDArray[np.int32]], n_rows: int, *, problems: list[FieldProblem]
) -> SanitisedColumns:
    if problems:
        raise InvalidRequest(problems[: limits.MAX_REPORTED_PROBLEMS])
    return SanitisedColumns(tuple(columns), n_rows)


def _sanitise_cells(
    feature: Feature, cells: Cells, *, problems: list[FieldProblem], at: Callable[[int], str]
) -> NDArray[np.float64] | NDArray[np.int32]:
    """Sanitises one column. Appends errors to ``problems``; the array is valid only if no error is appended."""
    other_types = cells.of_other_types(feature)
    empty = () if feature.missing else cells.empty(feature)
    for rows, problem in (
        (other_types, "not-a-string" if feature.is_categorical else "not-a-number"),
        (empty, "missing"),
    ):
        if len(rows):
            problems.append(_problem(feature, at(int(rows[0])), problem, len(rows)))
    if len(other_types) or len(empty):
        return np.empty(0, dtype=np.int32)
    return cells.codes(feature) if feature.is_categorical else sanitise_numbers(feature, cells.numbers())


def _problem(feature: Feature, at: str, problem: str, count: int) -> FieldProblem:
    """A problem of a column, with the declared categories if it has any."""
    return FieldProblem(at, problem, accepted=feature.categories, column=feature.name, count=count)


def _row_pointer(name: str, index: int) -> str:
    return f"/rows/{index}/{_pointer_token(name)}"


def _cell_pointer(at: str, name: str, index: int) -> str:
    return f"{column_pointer(name, at=at)}/{index}"


def _pointer_token(name: str) -> str:
    """A column name inside a JSON pointer (RFC 6901)."""
    return name.replace("~", "~0").replace("/", "~1")
