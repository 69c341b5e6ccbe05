"""T12 and T13 on the reweighted forest: any rows give a model of the planned shape,
with the stated noise.
"""

from collections import Counter
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from grovekeeper_forests.algorithms.rpf.price import events_of
from grovekeeper_forests.algorithms.rpf.read import UNREACHED
from grovekeeper_forests.contract.plan import Plan
from grovekeeper_forests.data.sanitiser import SanitisedColumns, SanitisedRows
from grovekeeper_forests.data.schema import Schema
from grovekeeper_forests.noise.randomness import SystemRandomness
from grovekeeper_forests.privacy.calibration import Terms
from grovekeeper_forests.releases.forest import read as released_forest
from grovekeeper_forests.releases.forest.draw import grow
from grovekeeper_forests.releases.forest.predictor import Predictor
from grovekeeper_forests.releases.forest.price import PlanRequest, plan
from tests.privacy.laws import assert_law, discrete_laplace_law
from tests.privacy.test_hostile_data import RECORD, SCHEMA, grown, rows_from, shape
from tests.support.schemas import schema_of

PLANS = [
    {"n_estimators": 3, "max_depth": 3},
    {"n_estimators": 1, "max_depth": 6},
    {"n_estimators": 2, "max_depth": 0},
    {"n_estimators": 2, "max_depth": 3, "splits": "node"},
]


def planned(
    parameters: dict, epsilon: str = "1", size: int = 1_000, schema: Schema = SCHEMA
) -> Plan:
    return plan(PlanRequest("rpf", parameters, Terms(Fraction(epsilon)), size), schema)


@pytest.mark.parametrize("parameters", PLANS)
@given(records=st.lists(RECORD, max_size=20))
@settings(max_examples=12, deadline=None)
def test_any_rows_give_a_model_of_the_planned_shape(
    parameters: dict, records: list[tuple]
) -> None:
    settled = planned(parameters)
    # the reader drops rows with an unknown label
    records = [record for record in records if record[-1] >= 0]
    ids = np.zeros((len(records), 16), dtype=np.uint8)
    forest = grown(settled, rows_from(records, ids))
    data = released_forest.dumps(forest, {"schema": SCHEMA.to_json()})
    artifact = released_forest.loads(data)
    probabilities = artifact.predictor.probabilities(rows_from(records, ids).features)

    assert shape(forest) == shape(grown(settled, rows_from([], ids[:0])))
    assert released_forest.dumps(artifact.forest, artifact.metadata) == data
    assert probabilities.shape == (len(records), 3)
    assert np.all(np.isfinite(probabilities))
    assert np.allclose(probabilities.sum(axis=1), 1.0)


def test_one_class_only_is_learnt() -> None:
    records = [(0.0, 3.0, 7, 2.5, 0, 1)] * 2_000
    forest = grown(
        planned({}, size=2_000),
        rows_from(records, np.zeros((2_000, 16), dtype=np.uint8)),
    )
    probabilities = Predictor(forest, SCHEMA).probabilities(
        rows_from(records[:1], np.zeros((1, 16), np.uint8)).features
    )

    assert probabilities[0].argmax() == 1


def test_schema_without_any_split_is_one_leaf() -> None:
    schema = schema_of(
        {"name": "fixed", "type": "numeric", "lower": 1, "upper": 1}, classes=["a", "b"]
    )
    settled = planned({}, schema=schema)

    assert settled.parameters["max_depth"] == 0
    assert settled.warnings == (
        "The public schema allows no split: every row lies in one leaf.",
    )


def test_hopeless_budget_gives_the_noisy_prior_and_says_so() -> None:
    settled = planned({}, epsilon="0.01")

    assert (settled.n_trees, settled.parameters["max_depth"]) == (1, 0)
    assert len(settled.warnings) == 1
    assert "the same for every row" in settled.warnings[0]
    assert planned({}, epsilon="0.02").parameters["max_depth"] > 0
    assert planned({"max_depth": 2}, epsilon="0.01").parameters["max_depth"] == 2


@pytest.mark.parametrize(("at_once", "depth", "n_trees"), [(1, 3, 450), (2, 5, 600)])
def test_every_reached_leaf_of_an_empty_dataset_carries_the_stated_noise(
    at_once: int, depth: int, n_trees: int
) -> None:
    """Paths end at all depths, each with its own law; all other weights are zero."""
    features = [
        {"name": name, "type": "integer", "lower": 0, "upper": 3}
        for name in ("one", "two")
    ]
    schema = schema_of(*features, classes=["a", "b"])
    body = {
        "n_estimators": n_trees,
        "max_depth": depth,
        "structure_share": "0.6",
        "pairs": "none",
        "at_once": at_once,
    }
    settled = planned(body, epsilon=str(400 * n_trees), schema=schema)
    nobody = SanitisedRows(
        SanitisedColumns((np.empty(0), np.empty(0)), 0),
        np.empty(0, np.int32),
        np.empty((0, 16), np.uint8),
    )
    forest = grow(
        settled, schema, nobody, SystemRandomness(), on_tree_done=lambda: None
    )
    _, scales = events_of(settled.event)
    counts, selections = forest.arrays["counts"], forest.arrays["selections"]

    assert not counts[selections == UNREACHED].any()
    assert set(np.unique(selections).tolist()) == {2, 3, UNREACHED}
    for spent in (2, 3):
        observed = counts[selections == spent].ravel()
        folded = Counter(int(np.clip(value, -3, 3)) for value in observed)
        assert len(observed) > 60
        assert_law(folded, discrete_laplace_law(float(scales.leaves[spent]), window=3))
