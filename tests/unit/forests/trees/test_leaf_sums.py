"""Prediction from one table of rows equals prediction from their columns."""

import numpy as np
import pytest

from app.forests.data import pairs
from app.forests.data.encoding import Encoding
from app.forests.data.rows import SanitisedColumns, SanitisedTable
from app.forests.data.schema import Feature, Label, Schema
from app.forests.trees.leaf_sums import LeafSums

FEATURES = (
    Feature("a", "numeric", upper=1.0, missing=True),
    Feature("b", "categorical", categories=("x", "y", "z"), missing=True),
    Feature("c", "numeric", upper=1.0),
)


@pytest.mark.parametrize("used", [(0,), (0, 1), (2, 1), (0, 1, 2)])
@pytest.mark.parametrize("paired", [False, True])
def test_rows_in_a_table_have_the_sums_of_rows_in_columns(used: tuple[int, ...], paired: bool) -> None:
    rng = np.random.default_rng(len(used))
    schema = Schema(FEATURES, Label("y", ("0", "1")))
    encoding = Encoding.of(schema, 16).paired(pairs.of_schema(schema) if paired else ())
    nodes = (5, 7)
    feature = rng.choice(used, nodes).astype(np.int32)
    if paired:
        feature[:, 0] = len(FEATURES)
    arrays = {
        "feature": feature,
        "threshold": rng.integers(0, 15, nodes, dtype=np.uint8),
        "equals": np.zeros(nodes, dtype=np.bool_),
    }
    sums = LeafSums(encoding, arrays, rng.normal(size=(5, 8, 2)))
    numbers, codes = rng.random((2, 40)), rng.integers(0, 5, 40, dtype=np.int32)
    numbers[0, ::7] = np.nan
    columns = (numbers[0], codes, numbers[1])
    table = np.array(columns, dtype=np.float64)
    result = sums.of(SanitisedTable(table, (False, True, False)))
    np.testing.assert_array_equal(result, sums.of(SanitisedColumns(columns, 40)))
    assert len(np.unique(result)) > 4
