"""Forests that answer one class: shown exactly where each tree's reachable leaves
agree, and never claimed wrongly.
"""

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from grovekeeper_forests.contract.plan import Forest
from grovekeeper_forests.data.encoding import NO_SPLIT
from grovekeeper_forests.data.sanitiser import SanitisedColumns
from grovekeeper_forests.privacy.calibration import Terms
from grovekeeper_forests.privacy.events import (
    Adjacency,
    DiscreteLaplace,
    Parallel,
    Part,
    RoundedGaussian,
    Sequential,
)
from grovekeeper_forests.releases.forest.predictor import Predictor
from grovekeeper_forests.releases.forest.price import PlanRequest, plan
from grovekeeper_forests.releases.forest.read import noise_in_rows, only_answer
from tests.support.schemas import schema_of

SCHEMA = schema_of(
    {"name": "bit", "type": "integer", "lower": 0, "upper": 1}, classes=["no", "yes"]
)
_BOOSTED = PlanRequest(
    "nbrt",
    {"n_estimators": 2, "max_depth": 1},
    Terms(Fraction(1), "gdp", Fraction(1, 10**6)),
)
ROWS = SanitisedColumns((np.array([0.0, 1.0]),), 2)


def _forest(
    counts: list[list[list[int]]], *, slug: str = "rdt-ta", threshold: int = 0
) -> Forest:
    """Trees of depth 1 that split at the bit, with these counts."""
    n_trees = len(counts)
    settled = plan(
        PlanRequest(
            slug, {"n_estimators": n_trees, "max_depth": 1}, Terms(Fraction(1))
        ),
        SCHEMA,
    )
    arrays = {
        "feature": np.zeros((n_trees, 1), dtype=np.int32),
        "threshold": np.full((n_trees, 1), threshold, dtype=np.uint8),
        "equals": np.zeros((n_trees, 1), dtype=np.bool_),
        "counts": np.array(counts, dtype=np.int64),
    }
    return Forest(settled, arrays)


def _answers(forest: Forest) -> set[str]:
    predictor = Predictor(forest, SCHEMA)
    codes = predictor.labels(predictor.probabilities(ROWS))
    return {SCHEMA.label.classes[code] for code in codes}


@pytest.mark.parametrize("slug", ["rdt-ta", "rdt-mv", "mrf"])
@pytest.mark.parametrize(
    ("counts", "answer"),
    [
        ([[[9, 1], [6, 2]]], "no"),
        ([[[1, 9], [2, 6]]], "yes"),
        ([[[9, 1], [2, 6]]], None),
        ([[[9, 1], [8, 1]], [[7, 2], [9, 3]]], "no"),
        ([[[0, 9], [5, 4]], [[0, 9], [9, 0]]], None),
        ([[[-3, -2], [-1, -1]]], "no"),
    ],
    ids=[
        "no",
        "yes",
        "both",
        "two trees agree",
        "two trees differ",
        "no positive count: a tie",
    ],
)
def test_the_only_answer_is_what_every_row_gets(
    slug: str, counts: list[list[list[int]]], answer: str | None
) -> None:
    forest = _forest(counts, slug=slug)
    shown = only_answer(forest, SCHEMA)
    assert shown is None or _answers(forest) == {shown}, "never claimed wrongly"
    if slug == "rdt-ta":
        assert shown == answer


def test_a_leaf_that_no_row_reaches_has_no_say() -> None:
    forest = _forest([[[9, 1], [0, 50]]], threshold=NO_SPLIT)
    assert only_answer(forest, SCHEMA) == "no"
    assert _answers(forest) == {"no"}
    assert only_answer(_forest([[[9, 1], [0, 50]]]), SCHEMA) is None


def test_drawn_labels_are_never_one_class() -> None:
    assert only_answer(_forest([[[9, 1], [6, 2]]], slug="rdt-pa"), SCHEMA) is None


def test_a_boosted_forest_answers_the_class_that_no_tree_can_overturn() -> None:
    settled = plan(_BOOSTED, SCHEMA)
    right = np.zeros((2, 1, 4), dtype=np.uint64)
    right[..., 0] = 2  # the code 1 goes right
    arrays = {
        "start": np.array([-40_000], dtype=np.int64),
        "feature": np.zeros((2, 1), dtype=np.int32),
        "right": right,
        "scores": np.array([[[-10], [9_000]], [[-20], [9_000]]], dtype=np.int32),
        "cuts": np.zeros((0, 63), dtype=np.uint16),
        "temperature": np.array([1 << 16], dtype=np.int64),
    }
    forest = Forest(settled, arrays)
    assert only_answer(forest, SCHEMA) == "no"
    overturned = replace(
        forest,
        arrays={
            **arrays,
            "scores": np.array([[[0], [30_000]], [[0], [30_000]]], np.int32),
        },
    )
    assert only_answer(overturned, SCHEMA) is None


def test_noise_is_stated_in_rows() -> None:
    of_leaves = DiscreteLaplace(
        Adjacency.ADD_REMOVE_ONE, Fraction(256), Fraction(1, 2560), 64
    )
    other = DiscreteLaplace(Adjacency.ADD_REMOVE_ONE, Fraction(1), Fraction(1), 2)
    event = Sequential(
        (Part(1, other), Part(3, Parallel("shards", (Part(2, of_leaves),))))
    )
    assert noise_in_rows(event) == pytest.approx(2**0.5 * 10)
    assert noise_in_rows(
        RoundedGaussian(Adjacency.ADD_REMOVE_ONE, Fraction(4), Fraction(100), 8)
    ) == pytest.approx(5)
