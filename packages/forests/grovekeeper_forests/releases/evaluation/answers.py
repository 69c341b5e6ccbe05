"""Answers PRIVATE rows with released models. Only the child process of a job imports
this module.
"""

from collections.abc import Iterator

import numpy as np

from grovekeeper_forests.array_types import Float64Array, Int32Array, Int64Array
from grovekeeper_forests.data.sanitiser import (
    SanitisedColumns,
    SanitisedRows,
    numbers_of_codes,
)
from grovekeeper_forests.releases.forest.predictor import Predictor

BLOCK_ROWS = 8_192
"""Rows are answered in blocks of this size, the last one filled up: shapes and layouts
do not depend on the rows.
"""


def answers(
    model: Predictor, rows: SanitisedRows, *, read_out: str | None
) -> Iterator[tuple[Int64Array, Float64Array]]:
    """Classes of rows and a model's probabilities for them, block by block."""
    for y, block in _blocks(rows):
        shares = model.probabilities(block, read_out=read_out)
        yield y.astype(np.int64), shares[: len(y)]


def numbers(
    model: Predictor, rows: SanitisedRows
) -> Iterator[tuple[Float64Array, Float64Array]]:
    """Labels that are numbers and a model's predictions for them, block by block."""
    label = model.schema.label
    for y, block in _blocks(rows):
        yield numbers_of_codes(label, y), model.numbers(block)[: len(y)]


def _blocks(
    rows: SanitisedRows,
) -> Iterator[tuple[Int32Array, SanitisedColumns]]:
    for start in range(0, rows.features.n_rows, BLOCK_ROWS):
        columns = tuple(_block(column, start) for column in rows.features.columns)
        yield (
            rows.y[start : start + BLOCK_ROWS],
            SanitisedColumns(columns, BLOCK_ROWS),
        )


def _block(column: Float64Array | Int32Array, start: int) -> Float64Array | Int32Array:
    block = np.zeros(BLOCK_ROWS, dtype=column.dtype)
    values = column[start : start + BLOCK_ROWS]
    block[: len(values)] = values
    return block
