"""The compiled reader of prediction requests equals the general one, or leaves the request to it."""

import json
import math
import random
from decimal import Decimal

import numpy as np
import pytest

from app.core import limits
from app.core.errors import GrovekeeperError
from app.forests.data.request_cells import JsonCells
from app.forests.data.request_text import RequestText
from app.forests.data.rows import SanitisedColumns
from app.forests.data.sanitiser import sanitise_prediction_columns, sanitise_prediction_rows
from app.forests.data.schema import Feature, Label, Schema
from app.services import predict

SCHEMA = Schema(
    (
        Feature("age", "integer", lower=0, upper=120),
        Feature("rows", "categorical", categories=("a{", "b", "é", "")),
        Feature("height", "numeric", lower=-1.5, upper=2.5, missing=True),
        Feature("sex", "categorical", categories=("F", "M"), missing=True),
    ),
    Label("y", ("0", "1")),
)
READER = RequestText(SCHEMA)
CELLS = {
    "age": [
        "3", "-5", "12.5", "1e2", "13.5", "1E-3", "500", "-0", "01", "+1", "1.", ".5", "1e", "null", "true", '"3"',
        "9007199254740993", "18446744073709551616", "1e400", "1e-400", "0.1234567890123456789", "NaN", "-Infinity",
    ],
    "rows": ['"a{"', '"b"', '"zz"', '"é"', '""', r'"\u0062"', "null", '"ñ"', "3", '"a\tb"', '"a'],
    "height": ["1.5", "null", "-9", "-0.0", "0.30000000000000004", '"x"', "nul", "nullx", "[1]", "{}"],
    "sex": ['"F"', '"M"', "null", '"Q"', r'"\""', '"a"b"'],
}  # fmt: skip
"""The first three cells of a column are usual."""


def _general(body: bytes) -> tuple[SanitisedColumns, str | None] | None:
    """Columns and read-out of a body by the general reader, which refuses an invalid body."""
    try:
        request = predict.decode(body, len(SCHEMA.features))
        if request.rows is not None:
            return sanitise_prediction_rows(SCHEMA, request.rows), request.read_out
        cells = {name: JsonCells(values) for name, values in (request.columns or {}).items()}
        return sanitise_prediction_columns(SCHEMA, cells), request.read_out
    except GrovekeeperError:
        return None


def _is_equal(columns: SanitisedColumns, others: SanitisedColumns) -> bool:
    pairs = zip(columns.columns, others.columns, strict=True)
    return columns.n_rows == others.n_rows and all(
        one.dtype == other.dtype and one.tobytes() == other.tobytes() for one, other in pairs
    )


def _row(rng: random.Random, names: list[str]) -> str:
    usual = {name: cells if rng.random() < 0.1 else cells[:3] for name, cells in CELLS.items()}
    space = rng.choice(["", " ", "\n\t"])
    members = (f'"{name}"{space}:{space}{rng.choice(usual[name])}{space}' for name in names)
    return "{" + space + ",".join(members) + "}"


def _column(rng: random.Random, name: str, n_rows: int) -> str:
    usual = CELLS[name] if rng.random() < 0.1 else CELLS[name][:3]
    space = rng.choice(["", " ", "\n\t"])
    listed = f"{space},{space}".join(rng.choice(usual) for _ in range(n_rows - (rng.random() < 0.03)))
    return f'"{name}"{space}:{space}[{space}{listed}{space}]{space}'


def _body(rng: random.Random) -> bytes:
    """A request of a few rows, often with a cell or a character that does not belong there."""
    names = rng.sample(list(CELLS), rng.choice([1, 3, 4, 4, 4, 4]))
    rows = [_row(rng, names) for _ in range(rng.randrange(4))]
    end = rng.choice(["}\n", "} ", ' , "read_out" : "ta" } ', ',"read_out":"mv"}', ', "read_out": null}'])
    if rng.random() < 0.5:
        n_rows = rng.randrange(4)
        columns = ",".join(_column(rng, name, n_rows) for name in names)
        text = rng.choice(['{"columns": {', '{"columns":{', ' { "columns" : { ', '{"column": {']) + columns + "}" + end
    else:
        text = rng.choice(['{"rows": [', '{"rows":[', ' { "rows" : [ ', '{"row": [']) + ", ".join(rows) + " ] " + end
    if rng.random() < 0.3:
        at = rng.randrange(len(text))
        text = text[:at] + rng.choice(["", *',}{"[]1\0']) + text[at + rng.randrange(3) :]
    return text.encode("utf-8")


def test_what_is_read_equals_the_general_reader() -> None:
    rng = random.Random(0)
    n_read, forms = 0, set[tuple[bool, str | None]]()
    for _ in range(4_000):
        body = _body(rng)
        read = READER.read(body)
        if read is not None:
            general = _general(body)
            assert general is not None, body
            assert _is_equal(read[0], general[0]), body
            assert read[1] == general[1], body
            np.testing.assert_array_equal(read[0].table, np.array(general[0].columns, dtype=np.float64))
            forms.add((b"columns" in body, read[1]))
            n_read += 1
    assert n_read > 300
    assert forms >= {(by_columns, read_out) for by_columns in (False, True) for read_out in (None, "ta", "mv")}


@pytest.mark.parametrize(
    "body",
    [
        b"", b"{", b'{"rows": []}', b'{"rows": [{}]}', b'{"rows":"{"}]}', b'{"rows":[{"age":1}',
        b'{"rows": [{"age": 1, "rows": "b", "age": 2}]}', b'{"rows": [{"age": 1, "rows": "b"}], "rows": []}',
        b'{"rows": [{"age": 1, "rows": "b"}], "read_out": "ta", "read_out": "ta"}', b'{"rows": [{"rows": "b"}]}',
        b'{"read_out": "ta", "rows": [{"age": 1, "rows": "b"}]}',
        b'{"rows": [{"age": 1, "rows": "b", "read_out": "ta"}', b'{"columns": {" age": [1], "rows": ["b"]}}',
        b'{"columns": {}}', b'{"columns": {"age": [], "rows": []}}', b'{"columns": {"age": [1], "rows": ["b", "b"]}}',
        b'{"columns": {"age": [1, 2], "rows": ["b"]}}', b'{"columns": {"age": [1]}}',
        b'{"columns": {"age": [1], "rows": ["b"], "age": [1]}}',
        b'{"columns": {"age": [1], "rows": ["b"]}, "columns": null}',
        b'{"rows": [{"age": 1, "rows": "b", "other": 2}]}', b'{"rows": [{"age": 1, "rows": "\xff"}]}',
        b'{"rows": [{"age": 1, "rows": "b"}]}}', b'{"rows": [{"age": 1, "rows": "b"}, {"rows": "b", "age": 1}]}',
    ],
)  # fmt: skip
def test_other_bodies_are_left_to_the_general_reader(body: bytes) -> None:
    assert READER.read(body) is None


def test_a_body_over_a_limit_is_left_to_the_general_reader(monkeypatch: pytest.MonkeyPatch) -> None:
    body = json.dumps({"rows": [{"age": 1, "rows": "b"}] * 3}).encode()
    assert READER.read(body) is not None
    monkeypatch.setattr(limits, "MAX_PREDICTION_ROWS", 2)
    assert READER.read(body) is None
    monkeypatch.undo()
    monkeypatch.setattr(limits, "MAX_PREDICTION_BODY_NODES", 32)
    assert READER.read(body) is None


def _numbers(rng: random.Random, n: int) -> list[str]:
    """Decimal texts of at most 19 digits: shortest forms, long fractions, powers of ten, and ties between doubles."""
    ties = (Decimal(rng.randrange(2**52, 2**53)) + Decimal("0.5") for _ in range(n))
    powers = (f"{rng.randrange(10 ** rng.randrange(1, 19))}e{rng.randrange(-45, 60)}" for _ in range(n))
    shortest = (repr(rng.uniform(-1, 1) * 10.0 ** rng.randrange(-30, 30)) for _ in range(n))
    fractions = (f"{rng.uniform(-1e6, 1e6):.{rng.randrange(1, 12)}f}" for _ in range(n))
    return [
        *map(str, ties),
        *powers,
        *shortest,
        *fractions,
        *(str(2 * rng.randrange(2**52, 2**53) + 1) for _ in range(n)),
    ]


def test_numbers_are_rounded_as_python_rounds_them() -> None:
    number = Feature("x", "numeric", lower=-1e300, upper=1e300)
    reader = RequestText(Schema((number,), Label("y", ("0", "1"))))
    texts = _numbers(random.Random(1), 1_000)
    body = '{"rows": [' + ",".join(f'{{"x": {text}}}' for text in texts) + "]}"
    read = reader.read(body.encode("ascii"))
    assert read is not None, "every number is read"
    expected = np.array([float(text) for text in texts]) + 0.0
    np.testing.assert_array_equal(read[0].columns[0], expected)
    assert math.isclose(expected.min(), min(map(float, texts)))
