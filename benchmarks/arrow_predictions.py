"""Measures predictions of Arrow tables in one process: rows per second of CPU in each
step, and in all.

Run ``python -m benchmarks.arrow_predictions``. A request has 10,000 rows of 14 numbers,
or of 10 numbers and 4 categories. The forest is ``rpf`` with default parameters, grown
from 20,000 random rows.
"""

import statistics
import time
from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pyarrow as pa

from app.core.logging import Tally
from app.services import arrow_tables
from app.services.predict import PredictingModel, PredictionForm
from grovekeeper_forests import limits as forest_limits
from grovekeeper_forests.data.sanitiser import (
    SanitisedColumns,
    SanitisedRows,
    sanitise_prediction_columns,
)
from grovekeeper_forests.data.schema import Feature, Label, Schema
from grovekeeper_forests.noise.randomness import SystemRandomness
from grovekeeper_forests.privacy.calibration import Terms
from grovekeeper_forests.releases.forest import read as released_forest
from grovekeeper_forests.releases.forest.draw import grow
from grovekeeper_forests.releases.forest.price import PlanRequest, plan
from grovekeeper_forests.releases.forest.read import Artifact

_N_FEATURES = 14
_CATEGORIES = tuple("abcdefgh")
_REPETITIONS = 25


def schema_of(n_categorical: int) -> Schema:
    """Numbers, and then some columns of categories."""
    numbers = (
        Feature(f"x{index}", "numeric", upper=1.0)
        for index in range(_N_FEATURES - n_categorical)
    )
    words = (
        Feature(f"c{index}", "categorical", categories=_CATEGORIES)
        for index in range(n_categorical)
    )
    return Schema((*numbers, *words), Label("y", ("no", "yes")))


def table_of(schema: Schema, n_rows: int) -> pa.Table:
    """Random rows; categories are in dictionaries."""
    rng = np.random.default_rng(1)
    words = pa.array(_CATEGORIES)
    return pa.table(
        {
            feature.name: pa.DictionaryArray.from_arrays(
                rng.integers(0, len(_CATEGORIES), n_rows, np.int8), words
            )
            if feature.is_categorical
            else rng.random(n_rows)
            for feature in schema.features
        }
    )


def grown(schema: Schema) -> Artifact:
    """A forest of the default algorithm, packed as an artifact."""
    planned = plan(PlanRequest("rpf", {}, Terms(Fraction(1))), schema)
    cells = dict(
        arrow_tables.read(
            stream_of(table_of(schema, forest_limits.MAX_PREDICTION_ROWS)), schema
        ).columns
    )
    half = sanitise_prediction_columns(schema, cells)
    n_rows = 2 * half.n_rows
    columns = SanitisedColumns(
        tuple(np.concatenate([column, column]) for column in half.columns), n_rows
    )
    y = (columns.columns[0] + columns.columns[1] > 1).astype(np.int32)
    rows = SanitisedRows(columns, y, np.zeros((n_rows, 16), dtype=np.uint8))
    forest = grow(planned, schema, rows, SystemRandomness(), on_tree_done=lambda: None)
    return released_forest.loads(
        released_forest.dumps(forest, {"schema": schema.to_json()})
    )


def stream_of(table: pa.Table) -> bytes:
    """A table as an Arrow stream."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as stream:
        stream.write_table(table)
    content: bytes = sink.getvalue().to_pybytes()
    return content


def cpu_s(call: Callable[[], object]) -> float:
    """Median CPU seconds of a call."""
    seconds = []
    for _ in range(_REPETITIONS):
        began = time.thread_time()
        call()
        seconds.append(time.thread_time() - began)
    return statistics.median(seconds)


def measure(n_categorical: int) -> None:
    """Prints the figures for one schema."""
    schema = schema_of(n_categorical)
    model = PredictingModel("md", "digest", grown(schema), Tally())
    body = stream_of(table_of(schema, forest_limits.MAX_PREDICTION_ROWS))

    def decoded() -> SanitisedColumns:
        return sanitise_prediction_columns(
            schema, dict(arrow_tables.read(body, schema).columns)
        )

    columns = decoded()
    predicted = model.predict(columns, read_out=None)
    steps: dict[str, Callable[[], object]] = {
        "decode": decoded,
        "predict": lambda: model.predict(columns, read_out=None),
        "write": lambda: predicted.answer(
            PredictionForm.ARROW, model_id=model.id, counts=False
        ),
    }
    seconds = {name: cpu_s(step) for name, step in steps.items()}
    seconds |= {
        "decode and predict": seconds["decode"] + seconds["predict"],
        "all": sum(seconds.values()),
    }
    print(f"{_N_FEATURES - n_categorical} numbers, {n_categorical} categories")
    for name, took_s in seconds.items():
        print(
            f"  {name:<20}{forest_limits.MAX_PREDICTION_ROWS / took_s / 1e6:8.2f} million rows per second"
        )


if __name__ == "__main__":
    for n_categorical in (0, 4):
        measure(n_categorical)
