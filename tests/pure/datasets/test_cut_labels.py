"""A label of numbers is cut into classes by one function on every way in."""

import io
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from sklearn.metrics import get_scorer

from app.core.errors import RowsInvalid
from app.datasets.fingerprints import RowHash
from app.datasets.upload_bodies import BodyForm, Dialect
from app.services.datasets.check_file import OwnersFile, check_file
from grovekeeper_client import uploads
from grovekeeper_common.declared_columns import write
from grovekeeper_forests.data.schema import Schema
from grovekeeper_forests.estimators import RandomPrivateForest
from tests.support.columnar import body_of
from tests.support.uploads import KEY, Ingestion, stored_table

CUT: dict[str, Any] = {
    "features": [{"name": "age", "type": "integer", "lower": 0, "upper": 120}],
    "label": {"name": "los_days", "cuts": [3, 7.5]},
}
SCHEMA = Schema.from_json(CUT)
DAYS = [-1, 0, 2.999999, 3, 7, 7.4999, 7.5, 400, math.inf, -math.inf, None]
CODES = [0, 0, 0, 1, 1, 1, 2, 2, 2, 0, -1]


def _codes(ingest: Ingestion, body: str | bytes, **options: Any) -> list[int]:
    report = ingest(body, **options)
    unknown = {column.name: column.unknown for column in report.columns}
    stored = stored_table(ingest.destination).column("label").to_pylist()
    assert unknown == {"age": 0, "los_days": stored.count(-1)}
    return stored


@pytest.fixture
def ingest(tmp_path: Path) -> Ingestion:
    return Ingestion(tmp_path, SCHEMA)


def _csv(cells: list[str]) -> str:
    return "".join(["age,los_days\n", *(f"40,{cell}\n" for cell in cells)])


def test_a_csv_keeps_the_number_and_the_service_stores_its_class(
    ingest: Ingestion,
) -> None:
    cells = ["" if day is None else str(day) for day in DAYS]
    assert _codes(ingest, _csv(cells)) == CODES
    assert ingest.read().y.tolist() == [code for code in CODES if code >= 0]


@pytest.mark.parametrize("form", [BodyForm.PARQUET, BodyForm.ARROW_FILE])
def test_columns_of_numbers_are_cut_alike(ingest: Ingestion, form: BodyForm) -> None:
    table = pa.table({"age": [40] * len(DAYS), "los_days": pa.array(DAYS)})
    assert _codes(ingest, body_of(table, form), form=form) == CODES


def test_whole_numbers_of_a_file_are_cut_alike(ingest: Ingestion) -> None:
    table = pa.table({"age": [40, 40], "los_days": pa.array([2, 8], pa.int8())})
    body = body_of(table, BodyForm.PARQUET)
    assert _codes(ingest, body, form=BodyForm.PARQUET) == [0, 2]


def test_blanks_marks_and_decimal_commas_are_read_as_in_other_numbers(
    ingest: Ingestion,
) -> None:
    dialect = Dialect(separator=";", decimal=",", missing=("k.A.",))
    body = "age;los_days\n1; 7,5 \n2;7,4\n3;k.A.\n4;NaN\n"
    assert _codes(ingest, body, dialect=dialect) == [2, 1, -1, -1]


def test_text_is_refused_as_in_other_columns_of_numbers(ingest: Ingestion) -> None:
    with pytest.raises(RowsInvalid) as refused:
        ingest(_csv(["3", "three", "3 to below 7.5"]))
    found = [(each.name, each.problem, each.count) for each in refused.value.columns]
    assert found == [("los_days", "not-a-number", 2)]
    assert ingest.files() == []


def test_rows_of_one_class_have_fingerprints_of_their_own() -> None:
    """As rows whose clamped number is equal: the number is in it as it was parsed."""
    days = pa.array([4.0, 5.0, 5.0, math.nan])
    ages = pa.array([40.0] * 4)
    prints = RowHash(KEY, SCHEMA).of_rows([ages, days])
    assert [len(np.unique(prints)), prints[1] == prints[2]] == [3, True]


def test_a_check_of_a_file_reads_it_as_the_service_does(tmp_path: Path) -> None:
    file = tmp_path / "rows.csv"
    file.write_text(_csv(["2", "", "drei"]))
    declaration = {
        "name": "stays",
        "schema": CUT,
        "budget": {"accountant": "pure", "epsilon": "1"},
    }
    owners = OwnersFile(file, uploads.headers_of(file), {})
    answer = check_file(json.dumps(declaration).encode(), owners)
    found = [(each["name"], each["problem"]) for each in answer["problems"]]
    assert found == [("los_days", "not-a-number"), ("los_days", "unknown")]


def test_the_client_sends_numbers(ingest: Ingestion) -> None:
    frame = pd.DataFrame({"age": [40] * len(DAYS)})
    columns = uploads.by_schema(frame, pd.Series(DAYS), SCHEMA.to_json())
    stream = io.StringIO(newline="")
    write(columns, stream)
    assert _codes(ingest, stream.getvalue()) == CODES


def test_an_estimator_without_a_service_cuts_alike() -> None:
    forest = RandomPrivateForest(epsilon=1, schema=CUT)
    days = [day for day in DAYS if day is not None]
    frame = pd.DataFrame({"age": [40] * len(days)})
    forest.fit(frame, np.array(days))
    # scorers read the columns of probabilities in the order of y, which has numbers
    assert forest.classes_.tolist() == ["below 3", "3 to below 7.5", "7.5 or more"]
    rows = forest._rows(frame, np.array(days), forest._declared())
    assert rows.y.tolist() == [code for code in CODES if code >= 0]


def test_the_area_under_the_curve_is_that_of_the_numbers() -> None:
    """Names sort the other way: "0.5 or more" is before "below 0.5"."""
    schema = {**CUT, "label": {"name": "died", "cuts": [0.5]}}
    frame = pd.DataFrame({"age": [10, 90] * 300})
    died = np.array([0, 1] * 300)
    forest = RandomPrivateForest(epsilon=100, schema=schema).fit(frame, died)
    assert forest.score(frame, died) == 1
    assert forest.predict_proba(frame[:2]).argmax(axis=1).tolist() == [0, 1]
    assert get_scorer("roc_auc")(forest, frame, died) == 1
