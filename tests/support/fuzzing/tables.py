"""Target that reads requests of predictions in Arrow."""

from functools import cache

import pyarrow as pa

from app.services import arrow_tables
from grovekeeper_forests import limits as forest_limits
from grovekeeper_forests.data.sanitiser import sanitise_prediction_columns
from grovekeeper_forests.data.schema import Feature, Label, Schema
from grovekeeper_forests.errors import GrovekeeperError, ParameterInvalid
from tests.support.columnar import stream_of

_SCHEMA = Schema(
    (
        Feature("age", "integer", lower=0, upper=120, missing=True),
        Feature("sex", "categorical", categories=("F", "M"), missing=True),
    ),
    Label("y", ("no", "yes")),
)


@cache
def seeds() -> tuple[bytes, ...]:
    texts = pa.array(["M", None, "F", "x"])
    tables = [
        pa.table({"age": [1.5, None, 200.0, 3.0], "sex": texts}),
        pa.table(
            {
                "age": pa.array([1, 2, 3, 4], pa.uint8()),
                "sex": texts.dictionary_encode(),
            }
        ),
        pa.table({"age": pa.array([7, None]).dictionary_encode(), "sex": pa.nulls(2)}),
        pa.table({"age": pa.array([], pa.int64())}, metadata={"read_out": "mv"}),
    ]
    return tuple(
        stream_of(table, max_chunksize=n_rows)
        for table in tables
        for n_rows in (None, 2)
    )


def run(data: bytes) -> bool:
    """A table is refused, or has those cells that the library's reader sees."""
    try:
        table = arrow_tables.read(data, _SCHEMA)
    except GrovekeeperError as error:
        refused = error
    else:
        return _is_read(data, table)
    assert refused.__cause__ is refused.__context__ is None
    return False


def _is_read(data: bytes, table: arrow_tables.ArrowTable) -> bool:
    other = pa.ipc.open_stream(data).read_all()
    assert list(table.columns) == other.schema.names
    assert all(
        len(cells) == other.num_rows <= forest_limits.MAX_PREDICTION_ROWS
        for cells in table.columns.values()
    )
    try:
        columns = sanitise_prediction_columns(_SCHEMA, dict(table.columns))
    except ParameterInvalid:
        return False
    if "sex" in table.columns:
        codes = {"F": 0, "M": 1, None: 3}
        assert columns.columns[1].tolist() == [
            codes.get(cell, 2) for cell in other.column("sex").to_pylist()
        ]
    return True
