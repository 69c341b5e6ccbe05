"""Boosting stays above the majority class on a wide table of near-constant categories.

Most random splits of such a table separate few rows, so every tree has one leaf with
most of the rows and takes a full step in that leaf. Trees that share their gradients
repeat the step and overshoot: with four trees per gradient, the forests of this test
end ten points below the majority class.
"""

from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from grovekeeper_forests.data.sanitiser import SanitisedColumns, SanitisedRows
from grovekeeper_forests.data.schema import Schema
from grovekeeper_forests.noise.randomness import SystemRandomness
from grovekeeper_forests.privacy.calibration import Terms
from grovekeeper_forests.releases.forest.draw import grow
from grovekeeper_forests.releases.forest.predictor import Predictor
from grovekeeper_forests.releases.forest.price import PlanRequest, plan
from tests.support.schemas import schema_of

N_ROWS = 3_000
NEAR_CONSTANT, TELLING = 36, 4
CATEGORIES = ("usual", "rare", "odd")
SHARES = np.array([0.54, 0.35, 0.11])


def wide_table() -> tuple[Schema, SanitisedColumns, NDArray[np.int32]]:
    """Three unbalanced classes. Four columns shift the odds of the second; in the
    others 0.4 % of the rows differ.
    """
    names = [f"column {i}" for i in range(NEAR_CONSTANT + TELLING)]
    features = [
        {"name": name, "type": "categorical", "categories": list(CATEGORIES)}
        for name in names
    ]
    schema = schema_of(*features, classes=["a", "b", "c"])
    rng = np.random.default_rng(0)
    differs = rng.random((N_ROWS, NEAR_CONSTANT)) < 0.004
    near_constant = differs * rng.integers(1, 3, (N_ROWS, NEAR_CONSTANT))
    telling = rng.integers(0, 3, (N_ROWS, TELLING))
    odds = np.tile(SHARES, (N_ROWS, 1))
    odds[:, 1] *= np.exp(0.5 * (telling - 1).sum(axis=1))
    cumulative = (odds / odds.sum(axis=1, keepdims=True)).cumsum(axis=1)
    y = (rng.random((N_ROWS, 1)) > cumulative[:, :2]).sum(axis=1).astype(np.int32)
    codes = np.concatenate([near_constant, telling], axis=1).astype(np.int32)
    return (
        schema,
        SanitisedColumns(
            tuple(np.ascontiguousarray(column) for column in codes.T), N_ROWS
        ),
        y,
    )


def test_near_constant_columns_do_not_push_a_forest_below_the_majority_class() -> None:
    """The most likely class is right 6 points more often than the majority class; the
    forests almost reach that.
    """
    schema, columns, y = wide_table()
    request = PlanRequest(
        "nbrt",
        {"n_estimators": 40},
        Terms(Fraction(10), "gdp", Fraction(1, 10**6)),
        N_ROWS,
    )
    rows = SanitisedRows(columns, y, np.zeros((N_ROWS, 16), dtype=np.uint8))
    right = []
    for _ in range(5):
        forest = grow(
            plan(request, schema),
            schema,
            rows,
            SystemRandomness(),
            on_tree_done=lambda: None,
        )
        probabilities = Predictor(forest, schema).probabilities(columns)
        right.append(float((probabilities.argmax(axis=1) == y).mean()))
    majority = np.bincount(y).max() / N_ROWS

    assert min(right) > majority
    assert np.mean(right) > majority + 0.04
