"""Rows of every kind become the same request, and answers are of the kind of the rows."""

import datetime
import sys
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from app.services import arrow_tables
from grovekeeper_client import rows
from grovekeeper_client.uploads import as_file
from grovekeeper_common.declared_columns import Feature

SCHEMA: dict[str, Any] = {
    "features": [
        {"name": "age", "type": "integer", "lower": 0, "upper": 120, "missing": True},
        {
            "name": "height",
            "type": "numeric",
            "lower": 0.5,
            "upper": 2.5,
            "missing": True,
        },
        {
            "name": "code",
            "type": "categorical",
            "categories": ["1", "x", "true", "2.5"],
            "missing": True,
        },
    ],
    "label": {"name": "income", "classes": ["low", "high"]},
}
NUMBER, REAL, CATEGORY = SCHEMA["features"]
COLUMNS = {"age": [39, None], "height": [1.5, None], "code": ["x", None]}
LABELS = ["low", "high"]
PROBABILITIES = [[0.75, 0.25], [0.25, 0.75]]

FRAME = pd.DataFrame(
    {"age": [39, None], "height": [1.5, float("nan")], "code": ["x", None]},
    index=["a", "b"],
)
NULLABLE = pd.DataFrame(
    {
        "age": pd.array([39, None], dtype="Int64"),
        "height": pd.array([1.5, None], dtype="Float32"),
        "code": pd.Categorical(["x", None]),
    }
)
KINDS: dict[str, Any] = {
    "pandas": FRAME,
    "pandas, nullable": NULLABLE,
    "pyarrow": pa.table(
        {
            "age": [39, None],
            "height": [1.5, None],
            "code": pa.array(["x", None]).dictionary_encode(),
        }
    ),
    "pyarrow batch": pa.RecordBatch.from_pydict(
        {"age": [39, None], "height": [1.5, None], "code": ["x", None]}
    ),
    "numpy": np.array([[39, 1.5, "x"], [None, np.nan, None]], dtype=object),
    "columns": {
        "age": [39, None],
        "height": (1.5, float("nan")),
        "code": np.array(["x", None], dtype=object),
    },
    "mappings": [{"age": 39, "height": 1.5, "code": "x"}, {"age": None, "code": pd.NA}],
    "lists": [[39, 1.5, "x"], (None, pd.NaT, None)],
}


@pytest.mark.parametrize("kind", KINDS)
def test_rows_of_every_kind_become_the_same_columns(kind: str) -> None:
    table = rows.read(KINDS[kind], SCHEMA)
    assert table.columns == COLUMNS
    assert table.n_rows == 2
    assert table.kind == kind.partition(",")[0].partition(" ")[0]
    types = {type(cell) for column in table.columns.values() for cell in column}
    assert types <= {int, float, str, type(None)}


@pytest.mark.parametrize("kind", KINDS)
def test_tables_and_frames_are_sent_as_arrow(kind: str) -> None:
    table = rows.read(KINDS[kind], SCHEMA).table
    if not kind.startswith(("pandas", "pyarrow")):
        assert table is None
        return
    sent = pa.ipc.open_stream(rows.write_stream(table, 0, 9, read_out="mv")).read_all()
    assert sent.to_pydict() == COLUMNS
    assert sent.schema.metadata == {b"counts": b"true", b"read_out": b"mv"}


def test_a_column_that_arrow_would_not_send_as_its_feature_is_sent_by_its_cells() -> (
    None
):
    frame = pd.DataFrame(
        {
            "code": [1, 2.5, True, "x"],
            "age": pd.Series([Decimal(1), 2, 3.5, None], dtype=object),
            "height": [True] * 4,
        }
    )
    table = rows.read(frame, SCHEMA).table
    assert table.to_pydict() == {
        "code": ["1", "2.5", "true", "x"], "age": [1.0, 2.0, 3.5, None], "height": [1.0] * 4
    }  # fmt: skip
    assert table.schema.types == [pa.string(), pa.float64(), pa.float64()]
    assert rows.read(pa.table({"code": [1, None]}), SCHEMA).table.to_pydict() == {
        "code": ["1", None]
    }
    with pytest.raises(TypeError, match="column 'age': not a number"):
        _ = rows.read(pd.DataFrame({"age": ["x"]}), SCHEMA).table


@pytest.mark.parametrize(
    ("cell", "sent"),
    [
        (2**64, 2.0**64),
        (10**400, sys.float_info.max),
        (-(10**400), -sys.float_info.max),
        (Decimal("Infinity"), sys.float_info.max),
    ],
)
def test_a_number_that_no_type_of_arrow_holds_is_sent_as_the_nearest_one(
    cell: object, sent: float, tmp_path: Path
) -> None:
    frame = pd.DataFrame({"age": pd.Series([1, cell], dtype=object)})
    read = rows.read(frame, SCHEMA)
    assert read.columns == {"age": [1, sent]}
    assert read.table.to_pydict() == {"age": [1.0, sent]}
    file = tmp_path / "rows.arrow"
    rows.write_arrow(frame, file, SCHEMA["features"])
    assert pa.ipc.open_file(file).read_all().to_pydict() == {"age": [1.0, sent]}
    with pytest.raises(
        TypeError, match=r"column 'age': .* more than 64 bits; make texts"
    ):
        rows.write_arrow(frame, tmp_path / "others.arrow", ())


_METADATA = {"model": "md_1", "counts": '{"clamped":{"age":1},"unseen":{}}'}


def test_an_answer_in_arrow_is_read_as_one_in_json() -> None:
    probabilities = np.array(PROBABILITIES)
    answer = arrow_tables.write(
        np.array([0, 1], np.int32), ("low", "high"), probabilities, metadata=_METADATA
    )
    assert rows.read_stream(answer) == {
        "model": "md_1", "counts": {"clamped": {"age": 1}, "unseen": {}},
        "classes": ["low", "high"], "labels": LABELS, "probabilities": PROBABILITIES,
    }  # fmt: skip


def test_numbers_of_a_frame_with_missing_values_stay_the_numbers_that_they_were() -> (
    None
):
    """pandas makes floats of integers beside a missing value."""
    assert FRAME["age"].dtype == float
    assert rows.read(FRAME, SCHEMA).columns["age"] == [39, None]
    frame = pd.DataFrame({"code": [1, None]})
    assert rows.read(frame, SCHEMA).columns["code"] == ["1", None]


def test_answers_are_of_the_kind_of_the_rows() -> None:
    frame = rows.read(FRAME, SCHEMA)
    labels, probabilities = _answers(frame)
    assert isinstance(labels, pd.Series)
    assert (labels.tolist(), list(labels.index), labels.name) == (
        LABELS,
        ["a", "b"],
        "income",
    )
    assert isinstance(probabilities, pd.DataFrame)
    assert (probabilities.values.tolist(), list(probabilities.columns)) == (
        PROBABILITIES,
        ["low", "high"],
    )
    assert list(probabilities.index) == ["a", "b"]

    labels, probabilities = _answers(rows.read(KINDS["pyarrow"], SCHEMA))
    assert labels.equals(pa.array(LABELS))
    assert probabilities.equals(pa.table({"low": [0.75, 0.25], "high": [0.25, 0.75]}))

    labels, probabilities = _answers(rows.read(KINDS["numpy"], SCHEMA))
    assert isinstance(labels, np.ndarray)
    assert labels.tolist() == LABELS
    assert probabilities.tolist() == PROBABILITIES

    assert _answers(rows.read(KINDS["columns"], SCHEMA)) == (
        LABELS,
        {"low": [0.75, 0.25], "high": [0.25, 0.75]},
    )
    assert _answers(rows.read(KINDS["mappings"], SCHEMA)) == (
        LABELS,
        [{"low": 0.75, "high": 0.25}, {"low": 0.25, "high": 0.75}],
    )
    assert _answers(rows.read(KINDS["lists"], SCHEMA)) == (LABELS, PROBABILITIES)


def _answers(table: rows.Rows) -> tuple[Any, Any]:
    labels = table.labels(LABELS, name="income", is_number=False)
    return labels, table.probabilities(PROBABILITIES, classes=["low", "high"])


@pytest.mark.parametrize("kind", KINDS)
def test_numbers_are_of_the_kind_of_the_rows(kind: str) -> None:
    table = rows.read(KINDS[kind], SCHEMA)
    numbers = table.labels([0.5, 7.0], name="days", is_number=True)
    match numbers:
        case pd.Series():
            assert (numbers.dtype, numbers.name) == (float, "days")
        case np.ndarray():
            assert numbers.dtype == float
        case pa.Array():
            assert numbers.type == pa.float64()
            numbers = numbers.to_pylist()
    assert list(numbers) == [0.5, 7.0]


def test_an_answer_of_numbers_in_arrow_has_no_classes() -> None:
    numbers = np.array([0.5, 7.0])
    answer = arrow_tables.write(numbers, (), None, metadata=_METADATA)
    read = rows.read_stream(answer)
    assert (read["labels"], read["classes"], read["probabilities"]) == (
        [0.5, 7.0],
        [],
        [],
    )


def test_no_rows_give_empty_answers_of_their_kind() -> None:
    for source, is_empty in (
        (FRAME.iloc[:0], lambda answer: answer.shape == (0, 2)),
        (KINDS["pyarrow"].slice(0, 0), lambda answer: answer.shape == (0, 2)),
        (np.empty((0, 3)), lambda answer: answer.shape == (0, 2)),
        ([], lambda answer: answer == []),
        (
            {"age": [], "height": [], "code": []},
            lambda answer: answer == {"low": [], "high": []},
        ),
    ):
        table = rows.read(source, SCHEMA)
        assert table.n_rows == 0
        assert is_empty(table.probabilities([], classes=["low", "high"]))


@pytest.mark.parametrize(
    "row", [{"code": "xyz"}, {"age": 39}, {"age": [39], "code": None}]
)
def test_one_row_is_no_mapping_of_columns(row: dict[str, Any]) -> None:
    """The letters of a text are no rows."""
    with pytest.raises(TypeError, match="a list of one mapping"):
        rows.read(row, SCHEMA)


def test_rows_without_names_are_in_the_declared_order() -> None:
    assert (
        rows.read(pd.DataFrame([[39, 1.5, "x"], [None, None, None]]), SCHEMA).columns
        == COLUMNS
    )
    with pytest.raises(ValueError, match="need 3 cells, not 2"):
        rows.read([[1, 2]], SCHEMA)


def test_columns_that_the_model_does_not_have_or_lacks_are_named() -> None:
    with pytest.raises(ValueError, match="does not read these columns: income"):
        rows.read({"age": [1], "income": ["low"]}, SCHEMA)
    strict = {**SCHEMA, "features": [{**NUMBER, "missing": False}, REAL, CATEGORY]}
    with pytest.raises(ValueError, match="are needed: age"):
        rows.read({"code": ["x"]}, strict)
    with pytest.raises(ValueError, match="occurs twice"):
        rows.read(pd.DataFrame([[1, 2]], columns=["age", "age"]), SCHEMA)
    with pytest.raises(ValueError, match="unequal lengths"):
        rows.read({"age": [1], "code": []}, SCHEMA)


@pytest.mark.parametrize(
    "source",
    [
        "text",
        b"bytes",
        7,
        None,
        np.zeros(3),
        pd.Series([1]),
        pd.DataFrame({"age": [1], "code": ["x"]}).iloc[0],
    ],
)
def test_what_is_not_rows_is_refused(source: Any) -> None:
    with pytest.raises(TypeError, match="rows are"):
        rows.read(source, SCHEMA)


LARGEST = sys.float_info.max
"""In the place of an infinity, which JSON lacks: out of every bound, so that it is
counted.
"""


@pytest.mark.parametrize(
    ("cell", "value"),
    [
        (np.int64(7), 7), (np.float32(0.1), float(np.float32(0.1))), (np.float64(0.1), 0.1), (np.bool_(True), 1),
        (True, 1), (2**70, 2**70), (Decimal("1.5"), 1.5), (float("inf"), LARGEST),
        (float("-inf"), -LARGEST), (np.float16("inf"), LARGEST),
        (float("nan"), None), (np.datetime64("NaT"), None), (pd.NaT, None), (pd.NA, None),
        (None, None), (Decimal("NaN"), None), (np.float32("nan"), None),
    ],
)  # fmt: skip
def test_a_cell_of_a_number_column_keeps_its_value(cell: Any, value: Any) -> None:
    (converted,) = rows.cells(NUMBER, [cell])
    assert converted == value
    assert type(converted) in (int, float, type(None))


@pytest.mark.parametrize(
    ("cell", "text"),
    [
        ("x", "x"), (np.str_("x"), "x"), (1, "1"), (1.0, "1"), (np.int8(1), "1"), (2.5, "2.5"), (True, "true"),
        (np.bool_(True), "true"), (False, "False"), (7.0, "7"), (0.1, "0.1"), (Decimal("2.5"), "2.5"), ("", ""),
        (float("inf"), "inf"), (float("nan"), None), (pd.NaT, None),
    ],
)  # fmt: skip
def test_a_cell_of_a_category_column_becomes_the_text_of_its_category(
    cell: Any, text: str | None
) -> None:
    (converted,) = rows.cells(CATEGORY, [cell])
    assert converted == text
    assert type(converted) in (str, type(None))


def test_a_text_in_a_column_of_numbers_is_read_as_an_upload_reads_it() -> None:
    frame = pd.DataFrame({"age": [" 39 ", "1e1", "", "nan", None]})
    read = rows.read(frame, SCHEMA)
    assert read.columns == {"age": [39, 10.0, None, None, None]}
    assert read.table.to_pydict() == {"age": [39.0, 10.0, None, None, None]}


@pytest.mark.parametrize("cell", ["x39", datetime.date(2026, 1, 1), [1], b"1", 1j])
def test_a_cell_of_another_type_is_refused_without_its_value(cell: Any) -> None:
    words = "column 'age': (a number is needed|not a number)"
    with pytest.raises(TypeError, match=words) as caught:
        rows.cells(NUMBER, [cell])
    assert "39" not in str(caught.value)
    if not isinstance(cell, str):
        with pytest.raises(
            TypeError, match="column 'code': text or a number is needed"
        ):
            rows.cells(CATEGORY, [cell])


def test_parameters_of_numpy_become_plain() -> None:
    value = {
        "depth": np.int64(4),
        "share": np.float64(0.5),
        "cells": np.array([1, 2]),
        "names": ("a", np.str_("b")),
    }
    assert rows.plain(value) == {
        "depth": 4,
        "share": 0.5,
        "cells": [1, 2],
        "names": ["a", "b"],
    }


def test_texts_beside_numbers_are_uploaded_for_the_service_to_read(
    tmp_path: Path,
) -> None:
    """A declared mark for a missing value is one in predictions, too."""
    ages = pd.Series([1, "NA", 2.5, None, True, " 3"], dtype=object)
    frame = pd.DataFrame({"age": ages, "height": [1.5] * 6})
    rows.write_arrow(frame, tmp_path / "rows.arrow", SCHEMA["features"])
    written = pa.ipc.open_file(tmp_path / "rows.arrow").read_all()
    assert written["age"].to_pylist() == ["1", "NA", "2.5", None, "1", " 3"]


def test_the_upload_of_a_frame_without_pyarrow_says_what_to_do(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with (
        pytest.raises(ModuleNotFoundError, match="needs pyarrow") as refused,
        as_file(pd.DataFrame({"age": [1]})),
    ):
        pytest.fail("nothing can be uploaded")
    assert "to_csv" in str(refused.value)
    assert refused.value.__suppress_context__


class OfAnotherLibrary:
    """A table that gives a stream of Arrow and has nothing else, like a relation of
    DuckDB.
    """

    def __init__(self, table: pa.Table | pa.RecordBatchReader) -> None:
        self._table = table

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self._table.__arrow_c_stream__(requested_schema)


VIEWS = pa.array(["x", None], pa.string_view())


@pytest.mark.parametrize(
    "code", [VIEWS, pa.DictionaryArray.from_arrays(pa.array([0, None]), VIEWS[:1])]
)
@pytest.mark.parametrize("features", [SCHEMA["features"], []])
def test_rows_of_another_library_that_gives_a_stream_are_a_table(
    tmp_path: Path, code: pa.Array, features: list[Feature]
) -> None:
    """Texts of polars are views, and its Categorical and Enum are dictionaries of
    views.
    """
    plain = pa.table({"age": [39, None], "code": ["x", None]})
    views = OfAnotherLibrary(plain.set_column(1, "code", code))
    read = rows.read(views, SCHEMA)
    assert read.kind == "pyarrow"
    assert (
        read.columns
        == rows.read(plain, SCHEMA).columns
        == rows.read(plain.to_reader(), SCHEMA).columns
    )
    rows.write_arrow(views, tmp_path / "rows.arrow", features)
    written = pa.ipc.open_file(tmp_path / "rows.arrow").read_all()
    assert written.to_pydict() == plain.to_pydict()
    assert "view" not in str(written.schema)


class FrameOfMaps(pd.DataFrame):
    """A frame of a library that builds on pandas, as geopandas does."""


class Distances(np.ndarray):  # type: ignore[type-arg]
    """An array of a library that builds on NumPy."""


def test_rows_of_a_library_that_builds_on_another_are_of_that_one(
    tmp_path: Path,
) -> None:
    frame = FrameOfMaps(FRAME)
    read = rows.read(frame, SCHEMA)
    assert (read.kind, read.columns) == ("pandas", rows.read(FRAME, SCHEMA).columns)
    answer = read.labels(LABELS, name="income")
    assert list(answer.index) == list(FRAME.index), "answers keep the index"
    frame["place"] = [object(), object()]
    with pytest.raises(
        TypeError, match=r"column 'place': .* of a type that Arrow cannot"
    ):
        rows.write_arrow(frame, tmp_path / "rows.arrow")
    numbers = np.ones((1, 3)).view(Distances)
    assert rows.kind_of(numbers) == "numpy"


class OfWideIntegers:
    """As polars gives integers of 128 bits."""

    columns = ("age", "code")

    def __getitem__(self, names: list[str]) -> Any:
        return self if "code" in names else pa.table({"age": [1]})

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        raise pa.ArrowInvalid("unsupported format string: '_pli128'")


def test_a_column_that_arrow_does_not_know_is_named() -> None:
    with pytest.raises(
        TypeError, match="column 'code' has a type that pyarrow does not"
    ):
        rows.read(OfWideIntegers(), SCHEMA)


@pytest.mark.parametrize("features", [SCHEMA["features"], []])
def test_a_column_of_a_union_is_named_before_it_is_written(
    tmp_path: Path, features: list[Feature]
) -> None:
    """As DuckDB has them."""
    kinds = pa.array([0, 1], pa.int8())
    code = pa.UnionArray.from_sparse(kinds, [pa.array([1, 2]), pa.array(["x", "y"])])
    table = pa.table({"age": [39, 40], "code": code})
    for source in (table, OfAnotherLibrary(table)):
        with pytest.raises(TypeError, match="'code' is a union of types"):
            rows.write_arrow(source, tmp_path / "rows.arrow", features)


def test_a_stream_is_written_while_it_is_read(tmp_path: Path) -> None:
    """A relation of DuckDB may be larger than the memory."""
    schema = pa.schema(
        [("age", pa.int64()), ("code", pa.int64()), ("diary", pa.string_view())]
    )
    n_batches, n_rows, held = 40, 1_000, list[int]()
    before = pa.total_allocated_bytes()

    def batches() -> Iterator[pa.RecordBatch]:
        for number in range(n_batches):
            held.append(pa.total_allocated_bytes() - before)
            diary = pa.array(
                [f"{row:0100d}" for row in range(n_rows)], pa.string_view()
            )
            yield pa.record_batch(
                [pa.array([number] * n_rows), pa.array([1] * n_rows), diary], schema
            )

    stream = OfAnotherLibrary(pa.RecordBatchReader.from_batches(schema, batches()))
    rows.write_arrow(stream, tmp_path / "rows.arrow", SCHEMA["features"])
    written = pa.ipc.open_file(tmp_path / "rows.arrow").read_all()
    assert written.column("age").to_pylist() == [
        number for number in range(n_batches) for _ in range(n_rows)
    ]
    assert set(written.column("code").to_pylist()) == {"1"}
    assert max(held) < 5 * n_rows * 200, "a few batches of 40 are in memory at a time"


MARKED = SCHEMA | {"missing_values": ["NA", "x"]}
"""``x`` is a declared category, and stays it."""


@pytest.mark.parametrize(
    "source",
    [
        pd.DataFrame({"age": ["NA", 39], "code": [" NA\t", "x"]}),
        pd.DataFrame({"age": [None, 39], "code": pd.Categorical(["NA", "x"])}),
        pa.table({"age": [None, 39], "code": ["NA", "x"]}),
        pa.table({"age": pa.array(["NA", None]).slice(1), "code": ["NA"]}),
        pa.table({"code": pa.array(["NA", "x"], pa.large_string())}),
        pa.table({"code": pa.array(["NA", "x"]).dictionary_encode()}),
        {"age": ["NA", 39], "code": ["NA", "x"]},
        [{"age": "NA", "code": " NA"}, {"age": 39, "code": "x"}],
        np.array([["NA", None, "NA"], [39, None, "x"]], object),
    ],
)
def test_a_declared_text_for_a_missing_value_is_missing_in_rows_of_every_kind(
    source: Any,
) -> None:
    read = rows.read(source, MARKED)
    expected = {"age": [None, 39], "code": [None, "x"]}
    for name, cells in expected.items():
        if name in read.columns:
            assert read.columns[name] == cells[: read.n_rows]
        if read.table is not None and name in read.table.column_names:
            assert read.table[name].to_pylist() == cells[: read.n_rows]
    unmarked = rows.read({"code": ["NA"]}, SCHEMA | {"missing_values": None})
    assert unmarked.columns["code"] == ["NA"]


def test_a_frame_that_predicts_can_be_uploaded_whatever_its_columns_mix(
    tmp_path: Path,
) -> None:
    features = [
        {"name": "n", "type": "categorical", "categories": ["1", "2"]},
        {"name": "b", "type": "categorical", "categories": ["true", "false"]},
        {"name": "d", "type": "date", "lower": "2020-01-01", "upper": "2024-12-31"},
    ]
    frame = pd.DataFrame(
        {
            "n": ["1", 2, None],
            "b": [True, "true", None],
            "d": ["2022-05-01", datetime.date(2022, 5, 2), None],
        },
        dtype=object,
    )
    rows.write_arrow(frame, tmp_path / "rows.arrow", features)
    with pa.ipc.open_file(tmp_path / "rows.arrow") as file:
        written = file.read_all().to_pydict()
    assert written == {
        "n": ["1", "2", None],
        "b": ["true", "true", None],
        "d": ["2022-05-01", "2022-05-02", None],
    }


@pytest.mark.parametrize("name", ["y", "x"])
def test_a_refusal_of_a_mixed_column_quotes_no_cell(tmp_path: Path, name: str) -> None:
    features = [{"name": "x", "type": "numeric", "lower": 0.0, "upper": 1.0}]
    frame = pd.DataFrame({name: ["canary", 0.5j]}, dtype=object)
    with pytest.raises(TypeError, match=f"column '{name}'") as caught:
        rows.write_arrow(frame, tmp_path / "rows.arrow", features)
    error: BaseException | None = caught.value
    while error is not None:
        assert "canary" not in str(error)
        error = error.__context__


def test_periods_of_a_day_are_days(tmp_path: Path) -> None:
    day = {"name": "day", "type": "date", "lower": "2020-01-01", "upper": "2025-01-01"}
    frame = pd.DataFrame({"day": pd.period_range("2024-02-28", periods=2, freq="D")})
    schema = {"features": [day], "label": {"name": "y", "classes": ["a", "b"]}}
    assert rows.read(frame, schema).columns == {"day": ["2024-02-28", "2024-02-29"]}
    rows.write_arrow(frame, tmp_path / "a.arrow", [day])
    stored = pa.ipc.open_file(tmp_path / "a.arrow").schema
    assert pa.types.is_timestamp(stored.field("day").type)
    unnamed = frame.set_axis([0], axis="columns")
    assert rows.read(unnamed, schema).columns == {"day": ["2024-02-28", "2024-02-29"]}
    twice = pd.concat([frame, frame], axis="columns")
    with pytest.raises(ValueError, match=r"occurs twice|Duplicate column names"):
        rows.write_arrow(twice, tmp_path / "b.arrow", [day])
    assert str(frame.dtypes["day"]) == "period[D]", "the caller's own"
    months = frame.assign(day=pd.period_range("2024-02", periods=2, freq="M"))
    with pytest.raises(TypeError, match="column 'day': a date is needed, not Period"):
        rows.read(months, schema).columns  # noqa: B018
    number = {"name": "day", "type": "integer", "lower": 0, "upper": 999}
    for feature, needed in ((day, "a date"), (number, "a number")):
        with pytest.raises(TypeError, match=f"'day': {needed} is needed, not Period"):
            rows.write_arrow(months, tmp_path / "c.arrow", [feature])
