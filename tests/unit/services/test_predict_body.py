"""Prediction bodies: every name occurs once per object, whatever the strings contain."""

import json

import pytest

from app.core.errors import InvalidRequest, MalformedRequest, TooLarge
from app.services import predict


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
    for text in (json.dumps(body), json.dumps(body, separators=(",", ":")), json.dumps(body, indent=3)):
        requested = predict.decode(text.encode(), 2)
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
        predict.decode(body, 2)


def test_other_errors_of_a_prediction_body_keep_their_types() -> None:
    with pytest.raises(InvalidRequest):
        predict.decode(b'{"rows": null, "columns": null}', 2)
    with pytest.raises(InvalidRequest):
        predict.decode(b'{"rows": [], "columns": {}}', 2)
    with pytest.raises(MalformedRequest):
        predict.decode(b'{"rows": [', 2)


def test_a_body_without_other_colons_is_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(predict, "_refuse_repeated_names", lambda _body: pytest.fail("it was read again"))
    predict.decode(json.dumps({"rows": [{"age": 1, "sex": "Male"}] * 9_000, "read_out": "mv"}).encode(), 2)
    predict.decode(json.dumps({"columns": {"age": [1] * 9_000, "sex": ["Male"] * 9_000}}).encode(), 2)


@pytest.mark.parametrize(
    ("body", "limit"),
    [
        (b'{"rows": [' + b"{}," * 9_999 + b"{}]}", 500),
        (b'{"columns": {"a": [' + b"null," * 500 + b"null]}}", 500),
        (
            b'{"rows": [{' + b",".join(b'"n%d":1' % name for name in range(1_200_000)) + b"}]}",
            predict.max_nodes(2_000),
        ),
    ],
    ids=["empty rows", "one column", "names"],
)
def test_a_body_costs_no_more_than_the_cells_of_a_model_may(body: bytes, limit: int) -> None:
    """40 KB of empty rows are 20,000,000 cells of a model with 2,000 features."""
    with pytest.raises(TooLarge) as refused:
        predict.decode(body, 2_000)
    assert refused.value.limit == limit
    if limit == 500:
        assert predict.decode(body, 3)
