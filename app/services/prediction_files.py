"""Predicts the rows of a small file of CSV for a browser. ``grovekeeper predict`` takes
files of any size, and other forms.
"""

import csv
import io
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from app.access.grants import Principal
from app.core import csv_text, limits
from app.core.errors import ColumnProblem, RowsInvalid, TooLarge
from app.datasets.headers import declared_names, problems_of_header
from app.datasets.upload_bodies import CsvSource, Dialect, whole_file_problem
from app.services.installation import Installation
from app.services.predict import Predicted, predicting_model
from grovekeeper_common import suspicions
from grovekeeper_common.json_types import JsonMapping, JsonObject
from grovekeeper_common.number_text import with_point
from grovekeeper_common.prediction_columns import PREDICTED, share_column
from grovekeeper_common.text_cells import (
    CellReader,
    WrongCell,
    is_mark,
    marks_of,
    number_columns,
)
from grovekeeper_forests.data.schema import Schema

_GZIP = b"\x1f\x8b"


def predict_file(
    installation: Installation,
    principal: Principal,
    address: str,
    content: bytes,
    dialect: Dialect,
) -> str:
    """All columns of a file of CSV, and beside them the predicted class and the
    probability of each class, or the predicted number.

    Args:
        installation: this installation.
        principal: the caller.
        address: of the model.
        content: the caller's file, plain or gzip.
        dialect: how the file is written.

    Raises:
        RowsInvalid: the file cannot be read, or lacks a column of the model.
        TooLarge: it has more rows or bytes than accepted.
    """
    model = predicting_model(installation, principal, address)
    schema = model.predictor.schema
    source = CsvSource(
        io.BytesIO(content),
        is_gzip=content.startswith(_GZIP),
        max_bytes=limits.MAX_PREDICTION_FILE_BYTES,
        max_line_bytes=limits.MAX_CSV_LINE_BYTES,
        declared=schema.feature_names,
        dialect=dialect,
    )
    header, records = _records(source, schema)
    try:
        rows = _rows(header, records, schema.to_json(), dialect)
    except RowsInvalid as refusal:
        raise _with_cause_of_bytes(refusal, source.suspected_of_bytes) from None
    predicted = model.predict(model.predictor.rows.sanitise(rows), read_out=None)
    installation.cache.recount(model.digest)
    columns = _columns(predicted)
    taken = next(filter(columns.__contains__, header), None)
    if taken is not None:
        suspected = f"predictions stand in a column {taken}; rename that of the file"
        raise RowsInvalid([ColumnProblem(taken, "taken-name", 1, suspected=suspected)])
    lines = [[*header, *columns]]
    for record, *cells in zip(records, *columns.values(), strict=True):
        lines.append([*record, *cells])
    return "".join(map(csv_text.line, lines))


def _records(source: CsvSource, schema: Schema) -> tuple[list[str], list[list[str]]]:
    """The names of the columns, as the model has them, and the cells of each row."""
    header = declared_names(source.read_header(), schema.feature_names)
    # a column that the model does not read stays in the answer
    problems = [
        problem
        for problem in problems_of_header(header, schema.feature_names)
        if problem.problem != "unknown-column"
    ]
    if problems:
        raise RowsInvalid(problems)
    text = source.read().decode("utf-8")
    source.check()
    lines = csv.reader(
        io.StringIO(text, newline=""), delimiter=source.delimiter, strict=True
    )
    next(lines, None)  # the end of the header's line
    records = list(_checked(lines, len(header)))
    if not records:
        raise whole_file_problem("no-rows")
    if len(records) > schema.max_request_rows:
        raise TooLarge("the number of rows of the file", schema.max_request_rows)
    return header, records


def _checked(lines: Iterator[list[str]], width: int) -> Iterator[list[str]]:
    """The rows, each with a cell for each column; an empty line is no row, but where a
    file has one column.
    """
    row = 0
    try:
        for record in lines:
            cells = record or [""]
            if not record and width > 1:
                continue
            row += 1
            if len(cells) != width:
                has_more = len(cells) > width
                why = suspicions.MORE_CELLS if has_more else suspicions.FEWER_CELLS
                ragged = ColumnProblem("", "ragged-row", 1, row=row, suspected=why)
                raise RowsInvalid([ragged])
            yield cells
        return
    except csv.Error as error:
        why = suspicions.of_csv_error(error)
    # out of the handler: the library's error can quote the line
    problem = ColumnProblem("", "malformed-csv", 1, row=row + 1, suspected=why)
    raise RowsInvalid([problem])


def _rows(
    header: Sequence[str],
    records: Sequence[Sequence[str]],
    schema: JsonMapping,
    dialect: Dialect,
) -> list[JsonObject]:
    """The rows as a prediction takes them.

    Raises:
        RowsInvalid: by column, cells that have no value of it.
    """
    reader = CellReader(schema)
    marks = marks_of(schema, dialect.missing)
    may_be_empty = {
        feature["name"] for feature in schema["features"] if feature["missing"]
    }
    with_comma = number_columns(schema) if dialect.decimal == "," else set[str]()
    rows: list[JsonObject] = []
    wrong: dict[str, ColumnProblem] = {}
    for record in records:
        row: JsonObject = {}
        for name, text in zip(header, record, strict=True):
            if name not in marks:
                continue
            cell = "" if is_mark(text, marks[name]) else text
            if name in with_comma:
                cell = with_point(cell)
            try:
                row[name] = reader.cell(name, cell)
                if row[name] is None and name not in may_be_empty:
                    raise WrongCell("empty, and the model needs a value")
            except WrongCell as why:
                found = wrong.get(name) or _problem(name, why, row=len(rows) + 1)
                wrong[name] = replace(found, count=found.count + 1)
        rows.append(row)
    if wrong:
        raise RowsInvalid(list(wrong.values()))
    return rows


def _problem(name: str, why: WrongCell, *, row: int) -> ColumnProblem:
    """A column of whose wrong cells none is counted yet."""
    problem, _, _ = why.problem.partition(" such as")
    slug = problem.replace(" ", "-")
    suspected, option = why.suspected, why.option
    return ColumnProblem(name, slug, 0, row=row, suspected=suspected, option=option)


def _with_cause_of_bytes(refusal: RowsInvalid, suspected: str) -> RowsInvalid:
    """A refusal whose columns that are not text say why: a cell does not know it."""
    option = suspicions.option_of(suspected)
    columns = list(refusal.columns)
    for place, column in enumerate(columns):
        if column.problem == "not-text":
            columns[place] = replace(column, suspected=suspected, option=option)
    return RowsInvalid(columns)


def _columns(predicted: Predicted) -> Mapping[str, Sequence[object]]:
    """The columns of predictions."""
    codes = predicted.codes.tolist()
    if predicted.probabilities is None:
        return {PREDICTED: codes}
    labels = [predicted.classes[code] for code in codes]
    names = map(share_column, predicted.classes)
    shares = predicted.probabilities.T.tolist()
    return {PREDICTED: labels} | dict(zip(names, shares, strict=True))
