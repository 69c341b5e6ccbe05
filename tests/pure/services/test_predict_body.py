"""Prediction bodies: every name occurs once per object, whatever the strings contain."""

import json
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pyarrow as pa
import pytest

from app.access.grants import Principal
from app.core.errors import InvalidRequest, MalformedRequest, TooLarge
from app.services import arrow_tables, inference, predict
from app.services.installation import Installation
from app.services.predict import Addressed
from grovekeeper_forests.data.schema import Schema
from grovekeeper_forests.errors import ParameterInvalid
from grovekeeper_forests.releases.forest.predictor import Predictor
from tests.support.columnar import stream_of
from tests.support.schemas import sized


@pytest.mark.parametrize(
    "body",
    [
        {"rows": [{"age": 1, "sex": "Male"}, {"age": 2}]},
        {"columns": {"age": [1, 2], "at:noon": [None, "12:30"]}},
        {"rows": [{"url": "http://x:80/::", "a": ":"}], "read_out": "ta"},
        {"rows": [{"age": None}], "columns": None, "read_out": None},
        {"rows": []},
        {"rows": [{}]},
    ],
)
def test_a_member_name_that_occurs_once_is_read(body: dict[str, object]) -> None:
    for text in (
        json.dumps(body),
        json.dumps(body, separators=(",", ":")),
        "\ufeff" + json.dumps(body, indent=3),
    ):
        requested = predict.decode(text.encode(), sized(2))
        assert (requested.rows, requested.columns, requested.read_out) == tuple(
            map(body.get, ("rows", "columns", "read_out"))
        )


@pytest.mark.parametrize(
    "body",
    [
        b'{"rows": [{"age": 1, "age": 1}]}',
        b'{"rows": [], "rows": []}',
        b'{"rows": [], "columns": null, "columns": null}',
        b'{"columns": {"a:": [1], "a:": [2]}}',
        b'{"columns": {"a": [1], "\\u0061": [2]}}',
        b'{"rows": [{"a": ":", "b": [{"c": 1, "c": 2}]}]}',
    ],
)
def test_a_member_name_that_occurs_twice_is_refused(body: bytes) -> None:
    with pytest.raises(MalformedRequest):
        predict.decode(body, sized(2))


def test_other_errors_of_a_prediction_body_keep_their_types() -> None:
    with pytest.raises(InvalidRequest):
        predict.decode(b'{"rows": null, "columns": null}', sized(2))
    with pytest.raises(InvalidRequest):
        predict.decode(b'{"rows": [], "columns": {}}', sized(2))
    with pytest.raises(MalformedRequest):
        predict.decode(b'{"rows": [', sized(2))


def test_a_number_beyond_floats_has_its_own_problem() -> None:
    with pytest.raises(InvalidRequest) as refused:
        predict.decode(b'{"rows": [{"x0": 1e400}]}', sized(2))
    assert [problem.problem for problem in refused.value.errors] == ["number-too-large"]


def test_a_tensor_too_many_is_named_if_the_model_does_not_read_it() -> None:
    tensors = [
        {"name": name, "datatype": "INT64", "shape": [1], "data": [1]}
        for name in ("x0", "x1", "label")
    ]
    with pytest.raises(ParameterInvalid) as refused:
        inference.read_request(json.dumps({"inputs": tensors}).encode(), [], sized(2))
    (problem,) = refused.value.problems
    assert (problem.place, problem.problem, problem.column) == (
        ("inputs",),
        "unknown-column",
        "label",
    )
    with pytest.raises(TooLarge, match="the number of inputs"):
        inference.read_request(
            json.dumps({"inputs": tensors[:1] * 3}).encode(), [], sized(2)
        )


def test_a_body_without_other_colons_is_read_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(
        predict,
        "_refuse_repeated_names",
        lambda _body: pytest.fail("it was read again"),
    )
    predict.decode(
        json.dumps(
            {"rows": [{"age": 1, "sex": "Male"}] * 9_000, "read_out": "mv"}
        ).encode(),
        sized(2),
    )
    predict.decode(
        json.dumps({"columns": {"age": [1] * 9_000, "sex": ["Male"] * 9_000}}).encode(),
        sized(2),
    )


@pytest.mark.parametrize(
    ("written", "limit", "decoder"),
    [
        (lambda: b'{"rows": [' + b"{}," * 9_999 + b"{}]}", 500, "_rows"),
        (lambda: b'{"columns": {"a": [' + b"null," * 500 + b"null]}}", 500, "_rows"),
        (
            lambda: (
                b'{"rows": [{'
                + b",".join(b'"n%d":1' % name for name in range(1_200_000))
                + b"}]}"
            ),
            predict.max_nodes(2_000),
            "_outlines",
        ),
    ],
    ids=["empty rows", "one column", "names"],
)
def test_a_body_costs_no_more_than_the_cells_of_a_model_may(
    written: Callable[[], bytes],
    limit: int,
    decoder: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """40 KB of empty rows are 20,000,000 cells of a model with 2,000 features. What is
    refused was not built: no other thread runs meanwhile.
    """
    body = written()
    with monkeypatch.context() as patch, pytest.raises(TooLarge) as refused:
        patch.setattr(predict, decoder, None)
        predict.decode(body, sized(2_000))
    assert refused.value.limit == limit
    if limit == 500:
        assert predict.decode(body, sized(3))


def _in_tensor(n_rows: int) -> bytes:
    tensor = {"name": "x0", "datatype": "FP64", "shape": [n_rows], "data": [1] * n_rows}
    return json.dumps({"inputs": [tensor]}).encode()


@pytest.mark.parametrize(
    "read",
    [
        lambda n, schema: predict.decode(
            json.dumps({"rows": [{"x0": 1}] * n}).encode(), schema
        ),
        lambda n, schema: predict.decode(
            json.dumps({"columns": {"x0": [1] * n}}).encode(), schema
        ),
        lambda n, schema: inference.read_request(_in_tensor(n), [], schema),
        lambda n, schema: arrow_tables.read(
            stream_of(pa.table({"x0": [1] * n})), schema
        ),
    ],
    ids=["rows", "columns", "tensor", "Arrow"],
)
def test_rows_times_classes_of_a_model_have_a_limit(read: Any) -> None:
    """30 KB of rows are 10,000,000 probabilities of a model with 1,000 classes."""
    for n_features, n_classes, limit in (
        (1, 1_000, 1_000),
        (400, 1_000, 1_000),
        (2_000, 1_000, 500),
        (1, 100, 10_000),
    ):
        schema = sized(n_features, n_classes)
        assert read(limit, schema)
        for n_rows in (limit + 1, 10_001):
            with pytest.raises(TooLarge) as refused:
                read(n_rows, schema)
            assert (refused.value.what, refused.value.limit) == (
                "the number of rows",
                limit,
            )


def _is_answered_at_once(
    monkeypatch: pytest.MonkeyPatch, schema: Schema, body: object
) -> bool:
    monkeypatch.setattr(predict.PredictingModel, "answer", lambda *_: b"an answer")
    forest: Any = SimpleNamespace(plan=SimpleNamespace(algorithm="mrf"))
    loaded = SimpleNamespace(predictor=Predictor(forest, schema))
    loaded.predictor.is_prepared = True
    installation = SimpleNamespace(
        authority={("key", "md"): Addressed("md", "digest")},
        changed_cells=None,
        cache=SimpleNamespace(loaded={"digest": loaded}.get),
    )
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    caller = Principal("key", frozenset())
    return (
        predict.answer_at_once(cast(Installation, installation), caller, "md", content)
        is not None
    )


@pytest.mark.parametrize(
    ("schema", "n_rows"),
    [
        (sized(3), 85),
        (sized(2, 100), 2),
        (sized(200), 1),
        (sized(1, 256), 1),
        (sized(1, 1_000), 0),
    ],
    ids=["features", "classes", "a wide row", "many classes", "too many classes"],
)
def test_the_event_loop_answers_few_cells_and_few_probabilities(
    monkeypatch: pytest.MonkeyPatch, schema: Schema, n_rows: int
) -> None:
    for more in (0, 1):
        rows = [{feature.name: 1 for feature in schema.features}] * (n_rows + more)
        some = {"x0": [1] * (n_rows + more)}  # the request need not have every column
        for body in (
            ({"rows": rows}, {"columns": some}) if n_rows + more else ({"rows": rows},)
        ):
            assert _is_answered_at_once(monkeypatch, schema, body) == (not more), body
    with pytest.raises(MalformedRequest):  # refused in no time
        _is_answered_at_once(monkeypatch, schema, b'{"rows": [')
    for name in (b"read_out", rb"\u0072ead_out"):
        assert not _is_answered_at_once(
            monkeypatch, schema, b'{"rows": [{}], "%s": "mv"}' % name
        )


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        ([], "not-a-prediction-request"),
        ({"rows": [[1]]}, "not-a-prediction-request"),
        ({"instances": [{"age": 1}]}, "not-a-prediction-request"),
        ({}, "needs-rows-or-columns"),
    ],
)
def test_a_body_of_another_form_is_told_the_forms_that_are_taken(
    body: object, problem: str
) -> None:
    with pytest.raises(InvalidRequest) as refused:
        predict.decode(json.dumps(body).encode(), sized(2))
    (error,) = refused.value.errors
    assert (error.at, error.problem) == ("", problem)
    assert '{"rows": [{"COLUMN": value}]}' in " ".join(error.accepted)
