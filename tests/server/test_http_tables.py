"""Predictions of Arrow tables over HTTP: the answers, errors and limits of rows in
JSON.
"""

import json
from typing import Any

import httpx
import pyarrow as pa
import pytest

from app.core import limits
from grovekeeper_forests import limits as forest_limits
from tests.support.columnar import stream_of
from tests.support.databases import on_one_server
from tests.support.server import Server

pytestmark = on_one_server

ARROW = "application/vnd.apache.arrow.stream"
ROWS = {
    "age": [20, 90, -3],
    "height": [1.5, None, 9.0],
    "sex": ["Female", "other", None],
}
TABLE = pa.table(ROWS)


@pytest.fixture(scope="module")
def model(server: Server) -> str:
    return f"/models/{server.trained(server.uploaded()['id'])['model_id']}/predict"


def _sent(
    server: Server, model: str, table: pa.Table | bytes, **headers: str
) -> httpx.Response:
    body = table if isinstance(table, bytes) else stream_of(table)
    return server.admin.http.post(
        model, content=body, headers={"Content-Type": ARROW, **headers}
    )


def _in_json(
    server: Server, model: str, columns: dict[str, Any] = ROWS, **options: str
) -> httpx.Response:
    return server.admin.http.post(model, json={"columns": columns, **options})


@pytest.mark.parametrize("form", ["plain", "dictionaries", "batches"])
def test_a_table_is_answered_by_the_table_of_the_same_predictions(
    server: Server, model: str, form: str
) -> None:
    table = TABLE
    if form == "dictionaries":
        table = pa.table(
            {name: pa.array(cells).dictionary_encode() for name, cells in ROWS.items()}
        )
    body = stream_of(table, max_chunksize=1 if form == "batches" else None)
    answer = _sent(server, model, body)
    assert (answer.status_code, answer.headers["content-type"]) == (200, ARROW), (
        answer.text
    )
    assert answer.headers["X-Request-Id"]
    predicted, expected = (
        pa.ipc.open_stream(answer.content).read_all(),
        _in_json(server, model).json(),
    )
    assert predicted.to_pydict() == {
        "label": expected["labels"],
        "probabilities": expected["probabilities"],
    }
    assert (
        predicted.column("label").chunk(0).dictionary.to_pylist() == expected["classes"]
    )
    assert predicted.schema.metadata == {b"model": model.split("/")[2].encode()}


def test_accept_chooses_the_form_of_the_answer(server: Server, model: str) -> None:
    expected = _in_json(server, model).json()
    for accepted in ("application/json", "text/html, application/json;q=0.9"):
        answer = _sent(server, model, TABLE, Accept=accepted)
        assert (answer.headers["content-type"], answer.json()) == (
            "application/json",
            expected,
        )
    for accepted in ("*/*", "text/html", f"application/json, {ARROW}"):
        assert (
            _sent(server, model, TABLE, Accept=accepted).headers["content-type"]
            == ARROW
        )
    answer = server.admin.http.post(
        model, json={"columns": ROWS}, headers={"Accept": ARROW}
    )
    assert (
        pa.ipc.open_stream(answer.content).read_all().column("label").to_pylist()
        == expected["labels"]
    )


def test_the_metadata_of_a_table_choose_the_read_out(
    server: Server, model: str
) -> None:
    read_out = server.admin.http.get(model.removesuffix("/predict")).json()[
        "read_outs"
    ][-1]
    answer = _sent(server, model, TABLE.replace_schema_metadata({"read_out": read_out}))
    shares = (
        pa.ipc.open_stream(answer.content)
        .read_all()
        .column("probabilities")
        .to_pylist()
    )
    assert shares == _in_json(server, model, read_out=read_out).json()["probabilities"]
    refused = _sent(server, model, TABLE.replace_schema_metadata({"read_out": "x"}))
    assert (refused.status_code, refused.json()["errors"][0]["at"]) == (
        422,
        "/read_out",
    )


def test_errors_are_those_of_columns_in_json(server: Server, model: str) -> None:
    for columns in (
        {**ROWS, "age": [1, None, None]},
        {**ROWS, "sex": [1, 2, None], "age": ["x", None, "y"]},
        {**ROWS, "unknown": [1, 2, 3]},
        {"sex": ["Male"]},
    ):
        table, listed = (
            _sent(server, model, pa.table(columns)),
            _in_json(server, model, columns),
        )
        assert (table.status_code, table.json()["errors"]) == (
            listed.status_code,
            listed.json()["errors"],
        ), columns
        assert table.headers["content-type"] == "application/problem+json"


def test_a_table_that_cannot_be_read_is_a_problem_without_a_cell(
    server: Server, model: str
) -> None:
    canary = "canary-of-a-person"
    body = stream_of(TABLE.set_column(2, "sex", [[canary] * 3]))
    long = TABLE.take([0] * (forest_limits.MAX_PREDICTION_ROWS + 1))
    for content, status in (
        (body[:-20], 400), (body.replace(canary.encode(), b"\xff" * len(canary)), 400), (b"", 400),
        (json.dumps({"columns": ROWS}).encode(), 400), (stream_of(TABLE, compression="zstd"), 422),
        (stream_of(TABLE.set_column(2, "sex", [[[canary]] * 3])), 422), (stream_of(long), 413),
        (body.ljust(limits.MAX_PREDICTION_BODY_BYTES + 1), 413),
    ):  # fmt: skip
        answer = _sent(server, model, content)
        assert answer.status_code == status, answer.text
        assert canary not in answer.text
    absent = _sent(server, "/models/md_absent/predict", b"x")
    assert (
        absent.status_code,
        _sent(server, "/models/md_absent/predict", TABLE).status_code,
    ) == (404, 404)
    assert (
        _sent(server, model, TABLE, **{"Content-Encoding": "gzip"}).status_code == 415
    )
