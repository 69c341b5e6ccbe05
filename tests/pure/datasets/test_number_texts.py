"""A number in a column of categories has one text, in tables that are uploaded and in
the client.
"""

import io
import math
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.datasets.upload_bodies import BodyForm
from grovekeeper_client import rows
from grovekeeper_common.number_text import text_of_number
from grovekeeper_forests.data.schema import Feature, Label, Schema
from tests.support.uploads import Ingestion

F32 = pa.float32()

VECTORS: list[tuple[Any, pa.DataType, str]] = [
    (39, pa.int64(), "39"),
    (39.0, pa.float64(), "39"),
    (-0.0, pa.float64(), "0"),
    (-1.0, pa.float64(), "-1"),
    (0.1, pa.float64(), "0.1"),
    (0.1, F32, "0.10000000149011612"),
    (0.5, pa.float16(), "0.5"),
    (1e15, pa.float64(), "1000000000000000"),
    (1e16, pa.float64(), "10000000000000000"),
    (10**16, pa.int64(), "10000000000000000"),
    (2.0**62, pa.float64(), "4611686018427388000"),
    (2**62, pa.int64(), "4611686018427387904"),
    (1e20, pa.float64(), "100000000000000000000"),
    (1e21, pa.float64(), "1e+21"),
    (1.5e300, pa.float64(), "1.5e+300"),
    (1e-5, pa.float64(), "0.00001"),
    (-1e-6, pa.float64(), "-0.000001"),
    (1e-7, pa.float64(), "1e-7"),
    (1.5e-7, pa.float64(), "1.5e-7"),
    (5e-324, pa.float64(), "5e-324"),
    (99999999999999.98, pa.float64(), "99999999999999.98"),
    (12345678901.5, pa.float64(), "12345678901.5"),
    (math.inf, pa.float64(), "inf"),
    (-math.inf, pa.float64(), "-inf"),
    (Decimal("1.50"), pa.decimal128(10, 2), "1.50"),
    (Decimal("39.00"), pa.decimal128(10, 2), "39.00"),
    (Decimal("-39"), pa.decimal128(10, 0), "-39"),
    (Decimal("0.00"), pa.decimal128(10, 2), "0.00"),
    (Decimal("0.00000001"), pa.decimal128(10, 8), "0.00000001"),
    (
        Decimal("12345678901234567890.123"),
        pa.decimal128(30, 3),
        "12345678901234567890.123",
    ),
]
IDS = [f"{kind} {value}" for value, kind, _ in VECTORS]


def _in_client(declared: list[str], value: Any) -> Any:
    feature = {
        "name": "cell",
        "type": "categorical",
        "categories": declared,
        "missing": True,
    }
    return rows.cells(feature, [value])[0]


def _uploaded(
    folder: Path, feature: Feature, column: pa.Array, form: BodyForm
) -> list[Any]:
    table, file = pa.table({"cell": column, "y": ["0"] * len(column)}), io.BytesIO()
    if form is BodyForm.PARQUET:
        pq.write_table(table, file)
    else:
        with pa.ipc.new_stream(file, table.schema) as stream:
            stream.write_table(table)
    ingest = Ingestion(folder, Schema((feature,), Label("y", ("0", "1"))))
    ingest(file.getvalue(), form=form)
    return list(ingest.read().features.columns[0].tolist())


def _feature(*declared: str) -> Feature:
    return Feature("cell", "categorical", categories=declared, missing=True)


def _column(value: Any, kind: pa.DataType) -> pa.Array:
    return pa.array([np.float16(value) if kind == pa.float16() else value, None], kind)


@pytest.mark.parametrize(("value", "kind", "text"), VECTORS, ids=IDS)
def test_a_number_has_one_text(
    tmp_path: Path, value: Any, kind: pa.DataType, text: str
) -> None:
    column = _column(value, kind)
    assert _in_client(["x"], column[0].as_py()) == text
    forms = (
        [BodyForm.ARROW_STREAM]
        if kind == pa.float16()
        else [BodyForm.PARQUET, BodyForm.ARROW_STREAM]
    )
    feature = _feature("x", text)
    for form in forms:
        assert _uploaded(tmp_path / form.value, feature, column, form) == [
            1,
            feature.missing_code,
        ]


@pytest.mark.parametrize(
    ("declared", "code"),
    [(["x", "1.0"], 1), (["1.0", "1"], 1), (["1", "1.0"], 0), (["1.00"], -1)],
)
@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (1, pa.int64()),
        (1.0, pa.float64()),
        (1.0, F32),
        (Decimal("1"), pa.decimal128(5, 0)),
    ],
)
def test_a_whole_number_means_the_declared_one_with_a_point_where_that_alone_is_declared(
    tmp_path: Path, declared: list[str], code: int, value: Any, kind: pa.DataType
) -> None:
    feature = _feature(*declared)
    expected = feature.other_code if code < 0 else code
    for column in (_column(value, kind), _column(value, kind).dictionary_encode()):
        folder = tmp_path / str(pa.types.is_dictionary(column.type))
        assert _uploaded(folder, feature, column, BodyForm.ARROW_STREAM) == [
            expected,
            feature.missing_code,
        ]
    text = _in_client(declared, value)
    assert (
        declared.index(text) if text in declared else feature.other_code
    ) == expected


@given(st.floats(allow_nan=False))
def test_the_client_has_the_rule_of_the_service_and_the_text_is_read_as_the_number(
    number: float,
) -> None:
    text = text_of_number(number)
    assert _in_client(["x"], number) == text
    assert float(text) == number
    assert len(text) <= 40


@pytest.mark.parametrize("form", [BodyForm.PARQUET, BodyForm.ARROW_STREAM])
def test_a_truth_value_in_a_column_of_numbers_is_one_or_zero(
    tmp_path: Path, form: BodyForm
) -> None:
    feature = Feature("cell", "numeric", lower=-9.0, upper=9.0, missing=True)
    one, zero, missing = _uploaded(
        tmp_path, feature, pa.array([True, False, None]), form
    )
    assert (one, zero, math.isnan(missing)) == (1.0, 0.0, True)
    card = {"name": "cell", "type": "numeric", "lower": -9, "upper": 9, "missing": True}
    assert rows.cells(card, [True, False, None]) == [1, 0, None]
