"""Predictions of any number of rows are requests within the limits of the API, in the
order of the rows.
"""

import json
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from app.core import limits
from app.services import arrow_tables
from grovekeeper_client import models
from grovekeeper_client.models import predict_columns, predict_rows, predict_table
from grovekeeper_forests import limits as forest_limits
from tests.support.schemas import sized


def _schema(*names: str, n_classes: int = 2) -> dict[str, Any]:
    """The schema on a card, as far as the number of rows of a request depends on it."""
    return {
        "features": [{"name": name} for name in names],
        "label": {"classes": ["a"] * n_classes},
    }


METADATA = {"model": "md_1", "counts": '{"clamped": {}, "unseen": {}}'}


class _Counting:
    """A client that predicts each row's number."""

    def __init__(self) -> None:
        self.bodies: list[bytes] = []
        self.sizes: list[int] = []

    def predict(self, _model_id: str, body: bytes) -> dict[str, Any]:
        content = json.loads(body)
        numbers = (
            content["columns"]["n"]
            if "columns" in content
            else [row["n"] for row in content["rows"]]
        )
        self.bodies.append(body)
        self.sizes.append(len(numbers))
        return {
            "classes": ["a"], "labels": [str(n) for n in numbers], "probabilities": [[1.0] for _ in numbers],
            "counts": {"clamped": {"n": len(numbers)}, "unseen": {}},
        }  # fmt: skip


def test_the_limits_are_those_of_the_service() -> None:
    assert models.MAX_ROWS == forest_limits.MAX_PREDICTION_ROWS
    assert models.MAX_CELLS == forest_limits.MAX_PREDICTION_CELLS
    assert models.MAX_BYTES == limits.MAX_PREDICTION_BODY_BYTES


@pytest.mark.parametrize(
    "extra",
    [-forest_limits.MAX_PREDICTION_ROWS, -1, 0, 1, forest_limits.MAX_PREDICTION_ROWS],
)
def test_any_number_of_rows_is_predicted(extra: int) -> None:
    n_rows = forest_limits.MAX_PREDICTION_ROWS + extra
    by_row, by_column = _Counting(), _Counting()
    answer = predict_rows(
        by_row, "md_1", [{"n": n} for n in range(n_rows)], schema=_schema("n")
    )  # type: ignore[arg-type]
    assert answer["labels"] == [str(n) for n in range(n_rows)]
    assert answer["counts"] == {"clamped": {"n": n_rows}, "unseen": {}}
    assert answer == predict_columns(
        by_column,
        "md_1",
        {"n": list(range(n_rows))},
        n_rows=n_rows,
        schema=_schema("n"),
    )  # type: ignore[arg-type]
    assert len(answer["probabilities"]) == n_rows
    assert answer["classes"] == ["a"]
    for client in (by_row, by_column):
        assert max(client.sizes) <= forest_limits.MAX_PREDICTION_ROWS
        assert len(client.sizes) == max(
            -(-n_rows // forest_limits.MAX_PREDICTION_ROWS), 1
        )


def test_wide_rows_stay_below_the_limit_of_cells() -> None:
    client = _Counting()
    wide = {"n": list(range(7_000)), **{f"c{n}": [None] * 7_000 for n in range(999)}}
    predict_columns(client, "md_1", wide, n_rows=7_000, schema=_schema(*wide))  # type: ignore[arg-type]
    assert sum(client.sizes) == 7_000
    assert max(client.sizes) == sized(1_000).max_request_rows


def test_rows_for_many_classes_stay_below_the_limit_of_probabilities() -> None:
    by_row, by_column, by_table = _Counting(), _Counting(), _CountingTables()
    schema, numbers = _schema("n", n_classes=1_000), list(range(2_500))
    answers = [
        predict_rows(by_row, "md_1", [{"n": n} for n in numbers], schema=schema),  # type: ignore[arg-type]
        predict_columns(by_column, "md_1", {"n": numbers}, n_rows=2_500, schema=schema),  # type: ignore[arg-type]
    ]
    predict_table(
        by_table, "md_1", pa.table({"n": [n % 100 for n in numbers]}), schema=schema
    )  # type: ignore[arg-type]
    assert [answer["labels"] for answer in answers] == [list(map(str, numbers))] * 2
    limit = sized(1, 1_000).max_request_rows
    assert by_row.sizes == by_column.sizes == by_table.sizes == [limit, limit, 500]


def test_long_cells_stay_below_the_limit_of_bytes() -> None:
    client = _Counting()
    rows = [{"n": n, "text": "x" * 5_000} for n in range(9_000)]
    answer = predict_rows(
        client, "md_1", rows, schema=_schema("n", "text"), read_out="ta"
    )  # type: ignore[arg-type]
    assert answer["labels"] == [str(n) for n in range(9_000)]
    assert max(map(len, client.bodies)) <= limits.MAX_PREDICTION_BODY_BYTES
    assert {json.loads(body)["read_out"] for body in client.bodies} == {"ta"}


METADATA = {"model": "md_1", "counts": '{"clamped": {}, "unseen": {}}'}


class _CountingTables:
    """A client that predicts the number of each row of a table."""

    def __init__(self) -> None:
        self.sizes: list[int] = []
        self.addresses: list[str] = []

    def predict_table(self, model_id: str, stream: bytes) -> bytes:
        self.addresses.append(model_id)
        assert len(stream) <= limits.MAX_PREDICTION_BODY_BYTES
        codes = (
            pa.ipc.open_stream(stream)
            .read_all()
            .column("n")
            .to_numpy()
            .astype(np.int32)
        )
        self.sizes.append(len(codes))
        return arrow_tables.write(
            codes,
            [str(n) for n in range(100)],
            np.ones((len(codes), 100)),
            metadata=METADATA,
        )


def test_a_table_of_any_size_is_predicted_in_parts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(models, "MAX_ROWS", 40)
    client, text = _CountingTables(), pa.array(["x" * 500_000] * 100)
    table, schema = pa.table({"n": range(100), "text": text}), _schema("n", "text")
    answer = predict_table(client, "bank@production", table, schema=schema)  # type: ignore[arg-type]
    assert answer["labels"] == [str(n) for n in range(100)]
    assert client.sizes == [20] * 5
    assert client.addresses == ["bank@production", *["md_1"] * 4], (
        "the alias may move meanwhile"
    )
    empty = predict_table(client, "md_1", table.slice(0, 0), schema=schema)  # type: ignore[arg-type]
    assert (empty["labels"], empty["probabilities"]) == ([], [])
