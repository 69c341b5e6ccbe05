"""T8 and T9: accuracies that private forests must not reach, and predictions that cost
no budget.
"""

import math
from fractions import Fraction

import numpy as np
import pytest

from grovekeeper_forests.contract.plan import Forest
from grovekeeper_forests.data.sanitiser import SanitisedColumns, SanitisedRows
from grovekeeper_forests.noise.randomness import SystemRandomness
from grovekeeper_forests.privacy.calibration import Terms
from grovekeeper_forests.releases.forest.draw import grow
from grovekeeper_forests.releases.forest.predictor import Predictor
from grovekeeper_forests.releases.forest.price import PlanRequest, plan
from tests.support.schemas import schema_of

SCHEMA = schema_of(
    {"name": "signal", "type": "categorical", "categories": ["low", "high"]},
    {"name": "noise", "type": "numeric", "lower": 0, "upper": 1},
    classes=["no", "yes"],
)
N_ROWS = 400


def rows() -> SanitisedRows:
    generator = np.random.default_rng(11)
    y = np.arange(N_ROWS, dtype=np.int32) % 2
    columns = SanitisedColumns((y.copy(), generator.random(N_ROWS)), N_ROWS)
    return SanitisedRows(
        columns, y, generator.integers(0, 256, (N_ROWS, 16), dtype=np.uint8)
    )


def train(slug: str, epsilon: str, **parameters: object) -> Forest:
    settled = plan(
        PlanRequest(slug, parameters, Terms(Fraction(epsilon)), N_ROWS), SCHEMA
    )
    return grow(settled, SCHEMA, rows(), SystemRandomness(), on_tree_done=lambda: None)


def accuracy(forest: Forest) -> float:
    data = rows()
    predictor = Predictor(forest, SCHEMA)
    labels = predictor.labels(predictor.probabilities(data.features))
    return float(np.mean(labels == data.y))


@pytest.mark.parametrize(
    "slug", ["mrf", "rdt-ta", "maxtree", "rdt-jagannathan", "spe", "srt"]
)
def test_almost_no_budget_gives_chance(slug: str) -> None:
    """Missing noise would show as accuracy. 60 forests: a false alarm once in about
    fifty million runs.
    """
    result = [
        accuracy(train(slug, "0.0001", n_estimators=1, max_depth=1)) for _ in range(60)
    ]

    assert (
        abs(np.mean(result) - 0.5)
        < 6.5 * np.std(result) / math.sqrt(len(result)) + 0.02
    )
    assert np.mean(result) < 0.8


@pytest.mark.parametrize(
    "slug", ["mrf", "rdt-ta", "maxtree", "rdt-jagannathan", "spe", "srt"]
)
def test_large_budget_learns_what_is_there(slug: str) -> None:
    assert accuracy(train(slug, "20", n_estimators=8, max_depth=3)) > 0.95


def test_guessing_the_class_of_a_single_row_succeeds_at_most_as_often_as_epsilon_allows() -> (
    None
):
    """One row, one leaf: no release at ε = 1 names the row's class more often than e/(1
    + e).
    """
    schema = schema_of(
        {"name": "fixed", "type": "numeric", "lower": 0, "upper": 0},
        classes=["no", "yes"],
    )
    columns = SanitisedColumns((np.zeros(1),), 1)
    one = SanitisedRows(
        columns, np.ones(1, dtype=np.int32), np.zeros((1, 16), dtype=np.uint8)
    )
    settled = plan(
        PlanRequest("rdt-ta", {"n_estimators": 1}, Terms(Fraction(1)), 1), schema
    )
    hits = 0
    for _ in range(1_500):
        forest = grow(
            settled, schema, one, SystemRandomness(), on_tree_done=lambda: None
        )
        hits += int(forest.arrays["counts"][0, 0, 1] > forest.arrays["counts"][0, 0, 0])
    ceiling = math.e / (1 + math.e)

    assert hits / 1_500 < ceiling + 6 * math.sqrt(ceiling * (1 - ceiling) / 1_500)
    assert hits / 1_500 > 0.45


def test_asking_again_gives_the_same_probabilities() -> None:
    forest, features = train("rdt-pa", "1"), rows().features
    predictor = Predictor(forest, SCHEMA)
    first = predictor.probabilities(features, read_out="pa")
    for _ in range(20):
        again = predictor.probabilities(features, read_out="pa")
        assert np.array_equal(again, first)


def test_drawn_labels_follow_the_published_probabilities() -> None:
    """``pa`` draws from released numbers only, so any number of predictions costs no
    budget.
    """
    forest, features = train("rdt-pa", "0.2", n_estimators=1), rows().features
    predictor = Predictor(forest, SCHEMA)
    probabilities = predictor.probabilities(features)
    drawn = np.stack([predictor.labels(probabilities) for _ in range(30)])
    share = drawn.mean(axis=0)

    assert not np.array_equal(drawn[0], drawn[1])
    assert abs(np.mean(share - probabilities[:, 1])) < 6.5 * 0.5 / math.sqrt(drawn.size)
