"""A spelling of a cell has one meaning on every way in, or a way refuses it: rows that
train, and rows that predict.
"""

import datetime
import io
import json
import math
import struct
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from app.datasets.upload_bodies import BodyForm, Dialect
from app.services import arrow_tables, prediction_files
from app.services.inference_requests import read_request
from grovekeeper_client import rows as client_rows
from grovekeeper_client.cli.command import WrongUse
from grovekeeper_client.cli.prediction_rows import read_rows
from grovekeeper_client.cli.written import Written
from grovekeeper_client.rows import write_arrow
from grovekeeper_common.text_cells import CellReader, WrongCell
from grovekeeper_forests.data.sanitiser import (
    RequestRows,
    SanitisedColumns,
    sanitise_prediction_columns,
)
from grovekeeper_forests.data.schema import Feature, Label, Schema
from grovekeeper_forests.errors import GrovekeeperError, ParameterInvalid
from tests.support.uploads import Ingestion

CATEGORIES = ("A", "\u00e9", "39", "True", "1")
WARD = Feature("cell", "categorical", categories=CATEGORIES, missing=True)
MARKED = replace(WARD, marks=("NA", "null", "39.0"))
AGE = Feature("cell", "numeric", lower=-100.0, upper=100.0, missing=True)
DAY = Feature("cell", "date", upper=3652.0, missing=True, first_day=16436)
CARDS = {
    "date": {
        "name": "cell",
        "type": "date",
        "lower": "2015-01-01",
        "upper": "2024-12-31",
        "missing": True,
    },
    "categorical": {
        "name": "cell",
        "type": "categorical",
        "categories": list(CATEGORIES),
        "missing": True,
    },
    "numeric": {
        "name": "cell",
        "type": "numeric",
        "lower": -100.0,
        "upper": 100.0,
        "missing": True,
    },
}
LABEL = Label("y", ("0", "1"))
REFUSALS = (
    GrovekeeperError,
    WrongCell,
    WrongUse,
    TypeError,
    ValueError,
    OverflowError,
    pa.ArrowException,
    struct.error,
)
_folders = count()

CATEGORY_CELLS: list[Any] = [
    None, "", " ", "\t", "A", " A", "A ", "a", "\u00e9", "e\u0301", "nan", "NaN", "NA", "null", "None", "39", "39.0",
    39, 39.0, math.nan, math.inf, "True", "true", True, False, "1", "\u200bA", "\uff21", datetime.date(2026, 1, 2),
    " NA", "null\t",
]  # fmt: skip
NUMBER_CELLS: list[Any] = [
    None, "", " ", "39", "39.0", " 39 ", 39, 39.0, -0.0, 0, 101, math.nan, math.inf, -math.inf, "nan", "NaN", "inf",
    "NA", "3,9", "1e1", "0x10", True, "true", 10**400, datetime.date(2026, 1, 2),
]  # fmt: skip


MIDNIGHT = datetime.datetime.fromisoformat("2024-02-29")
DATE_CELLS: list[Any] = [
    None, "", " ", "\t", "2024-02-29", " 2024-02-29\t", "2023-02-29", "2024-2-29", "20240229", "2024-W09-4",
    "29.02.2024", "02/29/2024", "2024-02-29 00:00:00", "2024-02-29T00:00:00", "\uff12024-02-29", "2014-12-31",
    "2025-01-01", "0001-01-01", "9999-12-31", "NaT", "nan", "NA", "19782", 19782, 19782.0, math.nan, True,
    datetime.date(2024, 2, 29), datetime.date(1900, 1, 1), MIDNIGHT, MIDNIGHT.replace(hour=12),
    MIDNIGHT.replace(microsecond=1), MIDNIGHT.replace(tzinfo=datetime.UTC), pd.Timestamp("2024-02-29"), pd.NaT,
    np.datetime64("2024-02-29"), np.datetime64("2024-02-29", "ns"), np.datetime64("2024-02-29T00:00:00.000000001"),
    np.int64(0), np.int64(19782), np.str_("2024-02-29"),
]  # fmt: skip


def schema_of(feature: Feature) -> Schema:
    return Schema((feature,), LABEL, feature.marks)


def card_of(feature: Feature) -> dict[str, Any]:
    """The schema as the card of a model has it."""
    return {
        "features": [CARDS[feature.type]],
        "label": {"name": "y"},
        "missing_values": list(feature.marks),
    }


def meaning(feature: Feature, columns: SanitisedColumns) -> Any:
    """What a model sees: a number, a category, MISSING or OTHER."""
    (value,) = columns.columns[0].tolist()
    if feature.is_categorical:
        return {feature.other_code: "OTHER", feature.missing_code: "MISSING"}.get(
            value
        ) or CATEGORIES[value]
    return "MISSING" if math.isnan(value) else (math.copysign(1, value), value)


def uploaded(
    feature: Feature, folder: Path, body: bytes, form: BodyForm = BodyForm.CSV
) -> Any:
    ingest = Ingestion(folder / str(next(_folders)), schema_of(feature))
    ingest(body, form=form)
    return meaning(feature, ingest.read().features)


def text_of(cell: Any) -> str:
    """A cell of a CSV, which has nothing but text."""
    if cell is not None and not isinstance(cell, str):
        raise TypeError("not a text")
    return '""' if cell is None else '"' + cell + '"'


def by_csv(feature: Feature, folder: Path, cell: Any) -> Any:
    return uploaded(feature, folder, f"cell,y\n{text_of(cell)},0\n".encode())


def by_parquet(feature: Feature, folder: Path, cell: Any) -> Any:
    file = io.BytesIO()
    pq.write_table(pa.table({"cell": pa.array([cell]), "y": ["0"]}), file)
    return uploaded(feature, folder, file.getvalue(), BodyForm.PARQUET)


def by_arrow(feature: Feature, folder: Path, cell: Any) -> Any:
    return uploaded(
        feature,
        folder,
        streamed(pa.table({"cell": pa.array([cell]), "y": ["0"]})),
        BodyForm.ARROW_STREAM,
    )


def by_frame(feature: Feature, folder: Path, cell: Any) -> Any:
    file = folder / f"frame-{next(_folders)}.arrow"
    write_arrow(pd.DataFrame({"cell": [cell], "y": ["0"]}), file, [CARDS[feature.type]])
    return uploaded(feature, folder, file.read_bytes(), BodyForm.ARROW_FILE)


def streamed(table: pa.Table) -> bytes:
    file = io.BytesIO()
    with pa.ipc.new_stream(file, table.schema) as stream:
        stream.write_table(table)
    return file.getvalue()


def predicted(feature: Feature, rows: list[dict[str, Any]]) -> Any:
    return meaning(
        feature,
        RequestRows(schema_of(feature)).sanitise(
            json.loads(json.dumps(rows, allow_nan=False))
        ),
    )


def by_rows(feature: Feature, _: Path, cell: Any) -> Any:
    return predicted(feature, [{"cell": cell}])


def by_columns(feature: Feature, _: Path, cell: Any) -> Any:
    columns = json.loads(json.dumps({"cell": [cell]}, allow_nan=False))
    return meaning(
        feature,
        RequestRows(schema_of(feature)).sanitise_columns(columns, place=("columns",)),
    )


def by_stream(feature: Feature, _: Path, cell: Any) -> Any:
    table = arrow_tables.read(
        streamed(pa.table({"cell": pa.array([cell])})), schema_of(feature)
    )
    return meaning(
        feature, sanitise_prediction_columns(schema_of(feature), table.columns)
    )


def by_open_inference(feature: Feature, _: Path, cell: Any) -> Any:
    datatype = (
        "BYTES"
        if isinstance(cell, str) or cell is None
        else "BOOL"
        if isinstance(cell, bool)
        else "FP64"
    )
    tensor = {"name": "cell", "shape": [1], "datatype": datatype, "data": [cell]}
    return inferred(
        feature, json.dumps({"inputs": [tensor]}, allow_nan=False).encode(), []
    )


def by_bytes(feature: Feature, _: Path, cell: Any) -> Any:
    if isinstance(cell, str):
        datatype, content = (
            "BYTES",
            struct.pack("<I", len(cell.encode())) + cell.encode(),
        )
    else:
        datatype, content = "FP64", struct.pack("<d", cell)
    tensor = {
        "name": "cell",
        "shape": [1],
        "datatype": datatype,
        "parameters": {"binary_data_size": len(content)},
    }
    head = json.dumps({"inputs": [tensor]}).encode()
    return inferred(feature, head + content, [str(len(head))])


def inferred(feature: Feature, body: bytes, lengths: list[str]) -> Any:
    _, columns = read_request(body, lengths, schema_of(feature))
    values = {
        name: list(cells) if isinstance(cells, list) else cells
        for name, cells in columns.items()
    }
    if all(isinstance(cells, list) for cells in values.values()):
        return meaning(
            feature,
            RequestRows(schema_of(feature)).sanitise_columns(values, place=("inputs",)),
        )
    pytest.skip("not a list")


def by_cli(feature: Feature, folder: Path, cell: Any) -> Any:
    file = folder / "rows.csv"
    file.write_text(f"cell\n{text_of(cell)}\n", encoding="utf-8")
    return predicted(
        feature,
        read_rows(file, card_of(feature)),
    )


def by_cli_lines(feature: Feature, folder: Path, cell: Any) -> Any:
    file = folder / "rows.jsonl"
    file.write_text(json.dumps({"cell": cell}) + "\n", encoding="utf-8")
    return predicted(
        feature,
        read_rows(file, card_of(feature)),
    )


def by_client(feature: Feature, source: Any) -> Any:
    read = client_rows.read(source, card_of(feature))
    columns = json.loads(json.dumps(read.columns, allow_nan=False))
    answer = meaning(
        feature,
        RequestRows(schema_of(feature)).sanitise_columns(columns, place=("columns",)),
    )
    if read.table is not None:
        table = arrow_tables.read(
            client_rows.write_stream(read.table, 0, 1, read_out=None),
            schema_of(feature),
        )
        assert (
            meaning(
                feature, sanitise_prediction_columns(schema_of(feature), table.columns)
            )
            == answer
        )
    return answer


def by_lists(feature: Feature, _: Path, cell: Any) -> Any:
    return by_client(feature, [[cell]])


def by_mappings(feature: Feature, _: Path, cell: Any) -> Any:
    return by_client(feature, [{"cell": cell}])


def by_pandas(feature: Feature, _: Path, cell: Any) -> Any:
    return by_client(feature, pd.DataFrame({"cell": [cell]}))


def by_objects_of_pandas(feature: Feature, _: Path, cell: Any) -> Any:
    return by_client(feature, pd.DataFrame({"cell": pd.Series([cell], dtype=object)}))


def by_table(feature: Feature, _: Path, cell: Any) -> Any:
    return by_client(feature, pa.table({"cell": pa.array([cell])}))


def by_form(feature: Feature, _: Path, cell: Any) -> Any:
    cells = CellReader(card_of(feature))
    return predicted(feature, [{"cell": cells.cell("cell", text_of(cell)[1:-1])}])


class Read(Exception):
    """The rows that the page of a model read from a file."""


def rows_of_page(schema: Schema, content: bytes, *dialect: str) -> Any:
    """The rows that a model gets from a file in a browser."""

    def sanitise(rows: Any) -> None:
        raise Read(rows)

    predictor = SimpleNamespace(schema=schema, rows=SimpleNamespace(sanitise=sanitise))
    model: Any = SimpleNamespace(predictor=predictor, predict=None)
    nothing: Any = None
    with pytest.MonkeyPatch.context() as patch, pytest.raises(Read) as read:
        patch.setattr(prediction_files, "predicting_model", lambda *_: model)
        how = Dialect.of(*dialect)
        prediction_files.predict_file(nothing, nothing, "", content, how)
    return read.value.args[0]


def by_page(feature: Feature, _: Path, cell: Any) -> Any:
    content = f"cell\n{text_of(cell)}\n".encode()
    rows = rows_of_page(schema_of(feature), content, ",", ".", "utf-8", "")
    return predicted(feature, rows)


WAYS: list[Callable[[Feature, Path, Any], Any]] = [
    by_csv, by_parquet, by_arrow, by_frame, by_rows, by_columns, by_stream, by_open_inference, by_bytes, by_cli,
    by_cli_lines, by_lists, by_mappings, by_pandas, by_objects_of_pandas, by_table, by_form, by_page,
]  # fmt: skip


def meanings(feature: Feature, folder: Path, cell: Any) -> dict[str, Any]:
    """The meaning of a cell by way; ways that refuse it are absent."""
    found = {}
    for way in WAYS:
        # texts take the way of Parquet
        if way in (by_arrow, by_frame) and isinstance(cell, str) and cell:
            continue
        try:
            found[way.__name__] = way(feature, folder, cell)
        except REFUSALS:
            continue
    return found


@pytest.mark.parametrize("cell", CATEGORY_CELLS, ids=ascii)
def test_a_cell_of_categories_has_one_meaning(tmp_path: Path, cell: Any) -> None:
    found = meanings(WARD, tmp_path, cell)
    assert len(set(found.values())) <= 1, found


@pytest.mark.parametrize("cell", NUMBER_CELLS, ids=lambda cell: ascii(cell)[:20])
def test_a_cell_of_numbers_has_one_meaning(tmp_path: Path, cell: Any) -> None:
    found = meanings(AGE, tmp_path, cell)
    assert len(set(found.values())) <= 1, found


@pytest.mark.parametrize("cell", DATE_CELLS, ids=ascii)
def test_a_cell_of_dates_has_one_meaning(tmp_path: Path, cell: Any) -> None:
    found = meanings(DAY, tmp_path, cell)
    assert len(set(found.values())) <= 1, found
    if str(cell).strip() == "2024-02-29":
        assert set(found.values()) == {(1.0, 3346.0)}


@pytest.mark.parametrize("cell", ["2024-02-29", "", "2014-12-31"])
def test_a_date_as_text_goes_every_way(tmp_path: Path, cell: str) -> None:
    of_tables = {"by_arrow", "by_frame"} if cell else set()  # texts go by Parquet
    ways = {way.__name__ for way in WAYS} - of_tables
    assert set(meanings(DAY, tmp_path, cell)) == ways


def test_a_date_of_python_and_pandas_goes_every_way_that_has_its_type(
    tmp_path: Path,
) -> None:
    ways = {
        "by_parquet", "by_arrow", "by_frame", "by_stream", "by_lists", "by_mappings", "by_pandas",
        "by_objects_of_pandas", "by_table",
    }  # fmt: skip
    for cell in (datetime.date(2024, 2, 29), MIDNIGHT):
        assert set(meanings(DAY, tmp_path, cell)) == ways


def test_a_number_a_time_of_the_day_and_another_form_are_no_dates(
    tmp_path: Path,
) -> None:
    for cell in (
        19782, 19782.0, True, "19782", "29.02.2024", "02/29/2024", "2023-02-29", "2024-02-29 00:00:00",
        MIDNIGHT.replace(hour=12), MIDNIGHT.replace(tzinfo=datetime.UTC),
        MIDNIGHT.replace(microsecond=1),
    ):  # fmt: skip
        assert meanings(DAY, tmp_path, cell) == {}, cell


def test_an_empty_text_is_missing_everywhere(tmp_path: Path) -> None:
    found = meanings(WARD, tmp_path, "")
    assert set(found) == {way.__name__ for way in WAYS}
    assert set(found.values()) == {"MISSING"}


@pytest.mark.parametrize("cell", CATEGORY_CELLS, ids=ascii)
def test_a_cell_where_texts_are_declared_as_missing_has_one_meaning(
    tmp_path: Path, cell: Any
) -> None:
    found = meanings(MARKED, tmp_path, cell)
    assert len(set(found.values())) <= 1, found
    if isinstance(cell, str) and cell.strip(" \t") in MARKED.marks:
        assert set(found.values()) == {"MISSING"}
        assert {"by_csv", "by_rows", "by_stream", "by_open_inference"} <= set(found)


OF_PREDICTIONS = {
    "by_rows", "by_columns", "by_stream", "by_open_inference", "by_bytes", "by_cli_lines",
}  # fmt: skip
"""Ways of predictions on which a cell has the type of JSON or Arrow that it is sent with."""


def refused(feature: Feature, folder: Path, cell: Any) -> dict[str, str]:
    """The problem of a cell by way of predictions; other ways and what cannot be sent
    are absent.
    """
    found = {}
    for way in WAYS:
        if way.__name__ in OF_PREDICTIONS:
            with suppress(TypeError, pa.ArrowException, struct.error):
                with pytest.raises(ParameterInvalid) as caught:
                    way(feature, folder, cell)
                (problem,) = caught.value.problems
                found[way.__name__] = problem.problem
    return found


@pytest.mark.parametrize("cell", ["39", " 39 ", "1e1", "nan"])
def test_a_number_as_text_predicts_as_it_trains_or_is_refused_by_one_word(
    tmp_path: Path, cell: str
) -> None:
    found = meanings(AGE, tmp_path, cell)
    of_tables = {"by_arrow", "by_frame"}  # texts go by Parquet
    ways = {way.__name__ for way in WAYS} - of_tables
    assert set(found) == ways - OF_PREDICTIONS
    assert refused(AGE, tmp_path, cell) == dict.fromkeys(OF_PREDICTIONS, "not-a-number")


@pytest.mark.parametrize("cell", [True, 1.0, 39])
def test_a_value_of_json_in_a_column_of_categories_is_refused_by_one_word(
    tmp_path: Path, cell: Any
) -> None:
    assert refused(WARD, tmp_path, cell) == dict.fromkeys(
        OF_PREDICTIONS, "not-a-string"
    )


def test_truth_values_that_predict_can_be_uploaded(tmp_path: Path) -> None:
    for way in (by_pandas, by_frame):
        assert way(WARD, tmp_path, True) == "True"


@pytest.mark.parametrize(
    "way",
    [by_rows, by_columns, by_stream, by_open_inference, by_csv],
    ids=lambda way: way.__name__,
)
@pytest.mark.parametrize("cell", ["", None])
def test_an_empty_text_is_refused_where_no_cell_may_be_missing(
    tmp_path: Path, way: Any, cell: str | None
) -> None:
    feature = Feature("cell", "categorical", categories=CATEGORIES)
    with pytest.raises(GrovekeeperError):
        way(feature, tmp_path, cell)


DIALECTS = {
    "commas": (",", ".", "utf-8", ""),
    "semicolons": (";", ",", "latin-1", "NA"),
    "tabs": ("tab", ".", "utf-16", ".,null"),
}
FILES = (
    "", "{row}", "cell\n", "cell\r\n{row}\r\n", "\ncell\n{row}\n", "cell\n\n{row}\n\n", "cell\n{row}\0\n",
    '"cell"\n{row}', "cell{sign}y\n{row}{sign}0\n", "cell\n{row}\n{row}{sign}1\n", 'cell\n"{row}',
    "sep={sign}\ncell\n{row}\n", "cell{sign}cell\n{row}{sign}1\n",
)  # fmt: skip
NUMBERS = (
    "3,9", "1.234,5", "1,234.5", "3 9", "- 3", "+3", "\u00a03", "1e1", "1_0", ".", "NA", "null", "-", "(3)",
)  # fmt: skip


def read_alike(feature: Feature, folder: Path, text: str, name: str) -> bool:
    """Whether the browser and the command line read the same rows, or both refuse."""
    separator, decimal, encoding, missing = DIALECTS[name]
    content = text.encode(encoding)
    file = folder / "rows.csv"
    file.write_bytes(content)
    marks = missing.split(",") if missing else None
    how = Written(separator, decimal, encoding, marks)
    of_page = of_cli = None
    with suppress(GrovekeeperError):
        of_page = rows_of_page(schema_of(feature), content, *DIALECTS[name])
    with suppress(WrongUse):
        # the command refuses a file without rows
        of_cli = read_rows(file, card_of(feature), how) or None
    return repr(of_page) == repr(of_cli)


@pytest.mark.parametrize("name", DIALECTS)
def test_the_browser_and_the_command_line_read_one_file_alike(
    tmp_path: Path, name: str
) -> None:
    sign = {"tab": "\t"}.get(DIALECTS[name][0], DIALECTS[name][0])
    texts = [file.format(row=3, sign=sign) for file in FILES]
    texts += [f'cell\n"{number}"\n' for number in NUMBERS]
    others = [text for text in texts if not read_alike(AGE, tmp_path, text, name)]
    assert not others
