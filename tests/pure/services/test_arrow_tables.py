"""Tables in Arrow: they mean what JSON means, and a hostile stream costs no more than
its bytes.
"""

import itertools
import json
import struct
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.core import limits
from app.core.errors import InvalidRequest, MalformedRequest, TooLarge
from app.services import arrow_tables, predict
from grovekeeper_forests.data.sanitiser import (
    Cells,
    JsonCells,
    SanitisedColumns,
    sanitise_prediction_columns,
)
from grovekeeper_forests.data.schema import Feature, Label, Schema
from grovekeeper_forests.errors import (
    GrovekeeperError,
    ParameterInvalid,
    ParameterProblem,
)
from tests.support.arrow_schemas import nested, repeating
from tests.support.columnar import stream_of
from tests.support.schemas import schema_of, sized
from tests.support.set_limits import SetLimit

SCHEMA = Schema(
    (
        Feature("age", "integer", lower=-5, upper=2**60),
        Feature("height/m", "numeric", lower=-1.5, upper=2.5, missing=True),
        Feature("sex", "categorical", categories=("F", "M", "é", ""), missing=True),
        Feature("ci~ty", "categorical", categories=("Bern", "0")),
    ),
    Label("y", ("no", "yes")),
)
NAMES = [feature.name for feature in SCHEMA.features]
CELLS = {
    "age": [1, None, 3],
    "height/m": [0.5, None, 9.0],
    "sex": ["F", None, "else"],
    "ci~ty": ["Bern", "x", "0"],
}
CANARY = "canary-of-a-person"

_INTEGERS = st.integers(-(2**63), 2**63 - 1)
_FLOATS = st.floats(allow_nan=False, allow_infinity=False)
_TEXTS = st.sampled_from(["F", "M", "é", "", "Bern", "0", "x"])
_COLUMNS = st.sampled_from(
    [
        (_INTEGERS, pa.int64()),
        (st.integers(0, 2**64 - 1), pa.uint64()),
        (st.integers(-128, 127), pa.int8()),
        (_FLOATS, pa.float64()),
        (st.floats(width=32, allow_nan=False, allow_infinity=False), pa.float32()),
        (st.floats(width=16, allow_nan=False, allow_infinity=False), pa.float16()),
        (_TEXTS, pa.string()),
        (_TEXTS, pa.large_string()),
        (_TEXTS, pa.dictionary(pa.int8(), pa.string())),
        (_TEXTS, pa.dictionary(pa.uint32(), pa.large_string())),
        (_INTEGERS, pa.dictionary(pa.int16(), pa.int64())),
        (st.booleans(), pa.bool_()),
        (st.none(), pa.null()),
    ]
)


def _sanitised(columns: dict[str, Cells]) -> SanitisedColumns | list[ParameterProblem]:
    try:
        return sanitise_prediction_columns(SCHEMA, columns)
    except ParameterInvalid as refused:
        return list(refused.problems)


@settings(max_examples=50)
@given(st.data())
def test_a_table_is_read_as_its_cells_in_json_are(data: st.DataObject) -> None:
    n_rows = data.draw(st.integers(0, 6))
    cells, arrays = dict[str, list[Any]](), dict[str, pa.Array]()
    for name in data.draw(st.lists(st.sampled_from([*NAMES, "unknown"]), unique=True)):
        values, kind = data.draw(_COLUMNS)
        cells[name] = data.draw(
            st.lists(st.none() | values, min_size=n_rows, max_size=n_rows)
        )
        arrays[name] = pa.array(cells[name], kind)
    body = stream_of(pa.table(arrays), max_chunksize=data.draw(st.integers(1, 7)))
    by_table = _sanitised(dict(arrow_tables.read(body, SCHEMA).columns))
    decoded = (
        predict.decode(json.dumps({"columns": cells}).encode(), SCHEMA).columns or {}
    )
    by_json = _sanitised({name: JsonCells(values) for name, values in decoded.items()})
    if isinstance(by_json, list):
        assert by_table == by_json
        return
    assert isinstance(by_table, SanitisedColumns)
    assert by_table.n_rows == by_json.n_rows
    for mine, other in zip(by_table.columns, by_json.columns, strict=True):
        assert (mine.dtype, mine.tobytes()) == (other.dtype, other.tobytes())


def test_nan_is_an_empty_cell_and_an_infinity_is_clamped() -> None:
    table = pa.table(
        {
            "height/m": [float("nan"), float("-inf"), 1.0],
            "age": pa.array([np.nan, 1, 2]),
        }
    )
    (problem,) = _sanitised(dict(arrow_tables.read(stream_of(table), SCHEMA).columns))[
        :1
    ]
    assert problem == ParameterProblem(("columns", "age", 0), "missing", count=1)
    columns = arrow_tables.read(
        stream_of(table.set_column(1, "age", [[1, 2, 3]])), SCHEMA
    ).columns
    columns["ci~ty"] = arrow_tables.ArrowCells(pa.string(), [pa.array(["Bern"] * 3)])
    np.testing.assert_array_equal(
        sanitise_prediction_columns(SCHEMA, dict(columns)).columns[1],
        [np.nan, -1.5, 1.0],
    )


def test_a_null_among_the_values_of_a_dictionary_is_an_empty_cell() -> None:
    array = pa.DictionaryArray.from_arrays(
        pa.array([0, 1, None, 1]), pa.array(["M", None])
    )
    columns = arrow_tables.read(stream_of(pa.table({"sex": array})), SCHEMA).columns
    assert columns["sex"].codes(SCHEMA.features[2]).tolist() == [1, 5, 5, 5]
    assert columns["sex"].empty(SCHEMA.features[2]).tolist() == [1, 2, 3]


@pytest.mark.parametrize("ages", [pa.float64(), pa.int64()])
def test_a_buffer_that_ends_in_the_middle_of_an_element_is_read(
    ages: pa.DataType,
) -> None:
    cells = np.array([41, 7], dtype=ages.to_pandas_dtype()).tobytes() + b"more"
    table = pa.table(
        {"age": pa.Array.from_buffers(ages, 2, [None, pa.py_buffer(cells)])}
    )
    assert arrow_tables.read(stream_of(table), SCHEMA).columns["age"].numbers(
        SCHEMA.features[0]
    ).tolist() == [41.0, 7.0]


def test_the_read_out_is_in_the_metadata() -> None:
    table = pa.table({"age": [1]})
    assert arrow_tables.read(stream_of(table), SCHEMA).read_out is None
    assert (
        arrow_tables.read(
            stream_of(table.replace_schema_metadata({"read_out": "mv", "x": "y"})),
            sized(0),
        ).read_out
        == "mv"
    )


def test_an_answer_has_labels_in_the_order_of_classes_and_probabilities() -> None:
    shares = np.array([[0.25, 0.75], [1.0, 0.0], [0.5, 0.5]])
    answer = arrow_tables.write(
        np.array([1, 0, 0], np.int32), ("no", "yes"), shares, metadata={"model": "md_1"}
    )
    table = pa.ipc.open_stream(answer).read_all()
    table.validate(full=True)
    assert table.to_pydict() == {
        "label": ["yes", "no", "no"],
        "probabilities": shares.tolist(),
    }
    assert table.column("label").chunk(0).dictionary.to_pylist() == ["no", "yes"]
    empty = arrow_tables.write(
        np.empty(0, np.int32),
        ("no", "yes"),
        np.empty((0, 2)),
        metadata={"model": "md_1"},
    )
    assert pa.ipc.open_stream(empty).read_all().num_rows == 0


_TEXTS = ["Male", None, "a text of more than twelve bytes", "x"]
_VIEWS = pa.array(_TEXTS, pa.string_view())


@pytest.mark.parametrize(
    "views", [_VIEWS, pa.DictionaryArray.from_arrays(pa.array([0, 1, 2, 3]), _VIEWS)]
)
def test_views_of_texts_are_texts(views: pa.Array) -> None:
    """As polars writes them."""
    schema = schema_of(
        {
            "name": "s",
            "type": "categorical",
            "categories": ["Male", _TEXTS[2]],
            "missing": True,
        },
        classes=("no", "yes"),
    )
    cells = arrow_tables.read(stream_of(pa.table({"s": views})), schema).columns["s"]
    assert cells.codes(schema.features[0]).tolist() == [0, 3, 1, 2]


def test_views_of_one_text_count_as_many_texts() -> None:
    """A megabyte to which each of twenty cells refers is a body of one megabyte, and
    twenty to validate.
    """
    _, views, text = pa.array(["x" * 1_000_000], pa.string_view()).buffers()
    repeated = pa.py_buffer(views.to_pybytes()[:16] * 20)
    body = stream_of(
        pa.table(
            {"s": pa.Array.from_buffers(pa.string_view(), 20, [None, repeated, text])}
        )
    )
    with pytest.raises(TooLarge, match="bytes of all columns"):
        arrow_tables.read(body, SCHEMA)


@pytest.mark.parametrize(
    ("column", "problem"),
    [
        (pa.array([[1]]), "unsupported-type"),
        (pa.array([b"x"]), "unsupported-type"),
        (pa.array([{"a": 1}]), "unsupported-type"),
        (pa.array([1], pa.timestamp("s")), "unsupported-type"),
        (pa.array([1], pa.decimal128(5)), "unsupported-type"),
        (pa.array(["{}"], pa.json_()), "unsupported-type"),
    ],
)
def test_a_type_that_no_feature_has_is_refused_by_name(
    column: pa.Array, problem: str
) -> None:
    body = stream_of(pa.table({"ci~ty": column, CANARY: column, "age": [1]}))
    with pytest.raises(InvalidRequest) as refused:
        arrow_tables.read(body, SCHEMA)
    found = [(error.at, error.problem) for error in refused.value.errors]
    assert found == [("/columns/ci~0ty", problem), ("/columns", problem)]
    assert CANARY not in repr(refused.value)


DAY = Feature("day", "date", upper=9_999.0, missing=True, first_day=16_436)


@pytest.mark.parametrize(
    ("feature", "kind", "accepted"),
    [
        (DAY, pa.timestamp("s", "UTC"), "timestamp without a zone"),
        (DAY, pa.time32("s"), "date"),
        (replace(DAY, type="integer", first_day=None), pa.decimal128(5), "integer"),
    ],
)
def test_the_types_that_a_column_takes_are_named(
    feature: Feature, kind: pa.DataType, accepted: str
) -> None:
    schema = Schema((feature,), SCHEMA.label)
    body = stream_of(pa.table({"day": pa.nulls(1, kind)}))
    with pytest.raises(InvalidRequest) as refused:
        arrow_tables.read(body, schema)
    (error,) = refused.value.errors
    assert accepted in error.accepted
    assert ("dictionary of strings" in error.accepted) == feature.is_date


@pytest.mark.parametrize("codec", ["lz4", "zstd"])
def test_a_compressed_stream_is_refused_before_it_is_unpacked(codec: str) -> None:
    bomb = pa.table({"age": np.zeros(1_000_000)})
    for table in (
        bomb,
        pa.table({"sex": pa.array(["a" * 8_000_000]).dictionary_encode()}),
    ):
        before = pa.total_allocated_bytes()
        body = stream_of(table, compression=codec)
        del table
        with pytest.raises(InvalidRequest) as refused:
            arrow_tables.read(body, SCHEMA)
        assert [error.problem for error in refused.value.errors] == ["compressed"]
        assert pa.total_allocated_bytes() <= before


@pytest.mark.parametrize(
    "what", ["name", "child", "zone", "message", "schema", "field"]
)
def test_a_schema_that_refers_to_one_text_many_times_is_refused(
    what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The library makes a text of each reference: 66 KB would become 64 MB."""

    def never(*_: object) -> None:
        raise AssertionError("the library read the schema")

    body = repeating(what, 1_000, n_bytes=64_000)
    monkeypatch.setattr(pa.ipc, "open_stream", never)
    with pytest.raises(TooLarge, match="names and metadata"):
        arrow_tables.read(body, SCHEMA)


def test_columns_in_columns_have_a_limit_of_levels() -> None:
    """Each level would cost its time again for each of the columns below it."""
    with pytest.raises(
        TooLarge, match="the number of levels of columns is over the limit of 64"
    ):
        arrow_tables.read(nested(65, 1), SCHEMA)
    with pytest.raises(InvalidRequest):
        arrow_tables.read(nested(64, 1), SCHEMA)
    with pytest.raises(TooLarge, match="levels"):
        arrow_tables.read(nested(950, 16_000), SCHEMA)


@pytest.mark.parametrize("what", ["message", "schema", "field"])
def test_metadata_of_few_bytes_are_read(what: str) -> None:
    read = arrow_tables.read(repeating(what, 100), SCHEMA)
    assert list(read.columns) == ["aaa"]


def test_a_dictionary_that_continues_another_is_refused() -> None:
    batches = [
        pa.record_batch(
            {"sex": pa.DictionaryArray.from_arrays(pa.array([0]), pa.array(values))}
        )
        for values in (["F"], ["F", "M"])
    ]
    body = stream_of(pa.Table.from_batches(batches), emit_dictionary_deltas=True)
    with pytest.raises(InvalidRequest) as refused:
        arrow_tables.read(body, SCHEMA)
    assert [error.problem for error in refused.value.errors] == ["dictionary-delta"]


def test_columns_that_share_bytes_are_refused_before_they_are_looked_at() -> None:
    text = pa.array(["x" * 15_000_000])
    names = [f"c{number}" for number in range(200)]
    body = _sharing(
        stream_of(pa.table({name: ["x"] for name in names})),
        n_columns=len(names),
        text=text,
    )
    with pytest.raises(TooLarge) as refused:
        arrow_tables.read(body, sized(len(names)))
    assert refused.value.limit == limits.MAX_PREDICTION_BODY_BYTES


def test_texts_are_validated_after_their_bytes_are_counted(
    set_limit: SetLimit,
) -> None:
    """Each view of a text is looked at, however many share it."""
    set_limit("MAX_PREDICTION_BODY_BYTES", 50)
    looked_at: list[bool] = []

    def validate(*, full: bool = False) -> None:
        looked_at.append(full)

    texts = [pa.array(["x" * 100])]
    batch = SimpleNamespace(num_rows=1, columns=texts, validate=validate)
    with pytest.raises(TooLarge):
        arrow_tables._checked([batch], 1, max_rows=1)
    assert looked_at == [False]


def test_a_dictionary_of_fewer_than_no_nulls_is_refused() -> None:
    """Found by fuzzing: nothing but the stream says how many nulls a dictionary has."""
    n_nulls = 1_234_567
    some = pa.table(
        {
            "age": pa.DictionaryArray.from_arrays(
                pa.array([0], pa.int32()), pa.nulls(n_nulls)
            )
        }
    )
    fewer = stream_of(some).replace(struct.pack("<q", n_nulls), struct.pack("<q", -1))
    with pytest.raises(MalformedRequest):
        arrow_tables.read(fewer, SCHEMA)


def test_a_dictionary_of_nulls_takes_no_memory() -> None:
    """Found by fuzzing: nulls have no bytes in the body, and one each as soon as they
    are looked at.
    """
    empty = pa.table(
        {
            "age": pa.DictionaryArray.from_arrays(
                pa.array([None], pa.int32()), pa.nulls(0)
            )
        }
    )
    assert arrow_tables.read(stream_of(empty), SCHEMA).columns["age"].empty(
        SCHEMA.features[0]
    ).tolist() == [0]
    nulls = pa.nulls(limits.MAX_PREDICTION_BODY_BYTES + 1)
    many = pa.table(
        {"age": pa.DictionaryArray.from_arrays(pa.array([0], pa.int32()), nulls)}
    )
    with pytest.raises(TooLarge) as refused:
        arrow_tables.read(stream_of(many), SCHEMA)
    assert refused.value.limit == limits.MAX_PREDICTION_BODY_BYTES


def test_limits_of_rows_messages_and_columns(set_limit: SetLimit) -> None:
    set_limit("MAX_PREDICTION_ROWS", 3)
    schema = replace(SCHEMA)  # a schema keeps its limit
    read = arrow_tables.read(stream_of(pa.table({"age": [1] * 3})), schema)
    assert len(read.columns["age"]) == 3
    for chunk in (1, 4):
        with pytest.raises(TooLarge):
            arrow_tables.read(
                stream_of(pa.table({"age": [1] * 4}), max_chunksize=chunk), schema
            )
    set_limit("MAX_PREDICTION_MESSAGES", 3)
    arrow_tables.read(stream_of(pa.table({"age": [1] * 2}), max_chunksize=1), SCHEMA)
    with pytest.raises(TooLarge):
        arrow_tables.read(
            stream_of(pa.table({"age": [1] * 3}), max_chunksize=1), SCHEMA
        )
    set_limit("MAX_FEATURES", 1)
    with pytest.raises(TooLarge):
        arrow_tables.read(stream_of(pa.table({"age": [1], "sex": [1]})), SCHEMA)


def test_a_name_that_occurs_twice_is_refused() -> None:
    with pytest.raises(InvalidRequest):
        arrow_tables.read(stream_of(pa.table([[1], [2]], names=["age", "age"])), SCHEMA)


def test_a_damaged_stream_is_malformed_and_its_cells_are_in_no_error() -> None:
    body = stream_of(
        pa.table({"sex": [CANARY], "ci~ty": pa.array([CANARY]).dictionary_encode()})
    )
    cut = [body[:length] for length in range(0, len(body) - 8, 5)]
    swapped = [
        body.replace(CANARY.encode(), b"\xff" * len(CANARY)),
        body.replace(CANARY.encode()[:2], b"\xff\xff"),
    ]
    for damaged in (*cut, *swapped, body + b"\0", b'{"rows": []}'):
        with pytest.raises(MalformedRequest) as refused:
            arrow_tables.read(damaged, SCHEMA)
        assert refused.value.__cause__ is refused.value.__context__ is None
        assert CANARY not in str(refused.value)


def test_no_flipped_byte_does_more_than_refuse() -> None:
    body = stream_of(
        pa.table({"age": [1, 2], "sex": pa.array(["M", None]).dictionary_encode()})
    )
    n_refused = 0
    for at, mask in itertools.product(range(0, len(body), 3), (1, 0x80)):
        flipped = bytearray(body)
        flipped[at] ^= mask
        try:
            columns = dict(arrow_tables.read(bytes(flipped), SCHEMA).columns)
            sanitise_prediction_columns(SCHEMA, columns)
        except GrovekeeperError:
            n_refused += 1
    assert n_refused > len(body) // 12


def _sharing(body: bytes, *, n_columns: int, text: pa.Array) -> bytes:
    """A stream whose columns of one string all refer to the same text, which the record
    batch has once.
    """
    data = text.buffers()[2]
    reader = pa.ipc.MessageReader.open_stream(body)
    schema = reader.read_next_message().serialize().to_pybytes()
    message = reader.read_next_message()
    metadata = bytearray(message.metadata.to_pybytes())
    content = struct.pack("<2i", 0, data.size).ljust(
        64, b"\0"
    ) + data.to_pybytes().ljust(-(-data.size // 64) * 64)
    first = _buffers_at(metadata, 3 * n_columns)
    for column in range(n_columns):
        for place, (offset, length) in enumerate([(0, 0), (0, 8), (64, data.size)]):
            struct.pack_into(
                "<2q", metadata, first + 16 * (3 * column + place), offset, length
            )
    at = metadata.find(struct.pack("<q", len(message.body)))
    struct.pack_into("<q", metadata, at, len(content))
    return (
        schema
        + struct.pack("<2i", -1, len(metadata))
        + bytes(metadata)
        + content
        + struct.pack("<2i", -1, 0)
    )


def _buffers_at(metadata: bytearray, n_buffers: int) -> int:
    """Where the metadata of a record batch lists its buffers, before their number."""
    at = metadata.find(struct.pack("<iq", n_buffers, 0))
    if at < 0:
        at = metadata.find(struct.pack("<i", n_buffers))
    return at + 4


def test_rows_times_features_and_batches_times_columns_have_limits() -> None:
    """Columns of nulls have no bytes, and a record batch without rows few."""
    nulls = pa.table({f"x{index}": pa.nulls(501) for index in range(2_000)})
    for table, chunk, limit in (
        (nulls, None, 500),
        (nulls.slice(0, 40), 1, limits.MAX_PREDICTION_ARRAYS),
    ):
        with pytest.raises(TooLarge) as refused:
            arrow_tables.read(stream_of(table, max_chunksize=chunk), sized(2_000))
        assert refused.value.limit == limit
    assert (
        len(arrow_tables.read(stream_of(nulls.slice(0, 500)), sized(2_000)).columns)
        == 2_000
    )
    assert (
        len(arrow_tables.read(stream_of(nulls.select(["x1"])), sized(2)).columns["x1"])
        == 501
    )
