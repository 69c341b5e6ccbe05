"""Files of rows become JSON values by the schema, without guessed types."""

from pathlib import Path
from typing import Any

import pytest

from app.cli import prediction_rows
from app.cli.command import WrongUse
from app.cli.models import predict_all
from app.core import limits

SCHEMA: dict[str, Any] = {
    "features": [
        {"name": "age", "type": "integer"},
        {"name": "weight", "type": "numeric"},
        {"name": "code", "type": "categorical"},
    ],
    "label": {"name": "y", "classes": ["a", "b"]},
}
ROWS = [{"age": 39, "weight": 1.5, "code": "007"}, {"age": None, "weight": -2000.0, "code": None}]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("rows.csv", "age,weight,code\n39,1.5,007\n,-2e3,\n"),
        ("bom.csv", "\ufeffage,weight,code\r\n39,1.5,007\r\n,-2e3,\r\n"),
        ("labelled.csv", "y,age,weight,code\na,39,1.5,007\nb,,-2e3,\n"),
        ("rows.jsonl", '{"age": 39, "weight": 1.5, "code": "007"}\n\n{"age": null, "weight": -2000.0, "code": null}\n'),
        ("rows.json", '[{"age": 39, "weight": 1.5, "code": "007"}, {"age": null, "weight": -2e3, "code": null}]'),
        ("body.json", '{"rows": [{"age": 39, "weight": 1.5, "code": "007"}, '
                      '{"age": null, "weight": -2e3, "code": null}]}'),
    ],
)  # fmt: skip
def test_every_form_gives_the_same_rows(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_text(text, encoding="utf-8", newline="")
    assert prediction_rows.read(tmp_path / name, SCHEMA) == ROWS


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.csv", b"age,weight,code\n39,1.5\n"),
        ("a.csv", b"age,weight,code\n39,1.5,x,y\n"),
        ("a.csv", b"age,weight,code\nold,1.5,x\n"),
        ("a.csv", b"age,weight,code\n39,nan,x\n"),
        ("a.csv", b"age,weight,code\n39,inf,x\n"),
        ("a.csv", b'age,weight,code\n39,1,"x\n'),
        ("a.csv", b"age\n\xff\n"),
        ("a.json", b"{"),
        ("a.json", b"[1]"),
        ("a.json", b'{"columns": {}}'),
        ("a.jsonl", b"[]\n"),
    ],
)
def test_an_unusable_prediction_file_is_invalid_usage(tmp_path: Path, name: str, content: bytes) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(WrongUse):
        prediction_rows.read(tmp_path / name, SCHEMA)


class _Counting:
    """A client that predicts each row's number."""

    def __init__(self) -> None:
        self.sizes: list[int] = []

    def predict(self, _model_id: str, body: dict[str, Any]) -> dict[str, Any]:
        self.sizes.append(len(body["rows"]))
        return {
            "classes": ["a"],
            "labels": [str(row["n"]) for row in body["rows"]],
            "probabilities": [[1.0] for _ in body["rows"]],
        }


@pytest.mark.parametrize("extra", [-limits.MAX_PREDICTION_ROWS, -1, 0, 1, limits.MAX_PREDICTION_ROWS])
def test_a_list_may_request_any_number_of_items_up_to_the_limit(extra: int) -> None:
    n_rows = limits.MAX_PREDICTION_ROWS + extra
    client = _Counting()
    answer = predict_all(client, "md_1", [{"n": n} for n in range(n_rows)])  # type: ignore[arg-type]
    assert answer["labels"] == [str(n) for n in range(n_rows)]
    assert len(answer["probabilities"]) == n_rows
    assert max(client.sizes) <= limits.MAX_PREDICTION_ROWS
    assert len(client.sizes) == max(-(-n_rows // limits.MAX_PREDICTION_ROWS), 1)
