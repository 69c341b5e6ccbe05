"""Read-outs of one release, on counts small enough to compute by hand."""

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from grovekeeper_forests.contract.plan import Forest
from grovekeeper_forests.data.sanitiser import SanitisedColumns
from grovekeeper_forests.errors import ParameterInvalid
from grovekeeper_forests.privacy.calibration import Terms
from grovekeeper_forests.releases.forest.predictor import Predictor
from grovekeeper_forests.releases.forest.price import PlanRequest, plan
from grovekeeper_forests.trees import leaf_read_out
from tests.support.schemas import schema_of

SCHEMA = schema_of(
    {"name": "bit", "type": "integer", "lower": 0, "upper": 1}, classes=["a", "b"]
)
ROWS = SanitisedColumns((np.array([0.0, 1.0]),), 2)
# Two trees that split at the bit; row 0 reaches the left leaves, row 1 the right
# leaves.
COUNTS = np.array([[[3, 1], [-2, -5]], [[0, 4], [6, 0]]], dtype=np.int64)


def forest(slug: str, counts: np.ndarray = COUNTS) -> Forest:
    settled = plan(
        PlanRequest(slug, {"n_estimators": 2, "max_depth": 1}, Terms(Fraction(1))),
        SCHEMA,
    )
    nodes = (2, 1)
    arrays = {
        "feature": np.zeros(nodes, dtype=np.int32),
        "threshold": np.zeros(nodes, dtype=np.uint8),
        "equals": np.zeros(nodes, dtype=np.bool_),
        "counts": counts,
    }
    return Forest(settled, arrays)


def found(slug: str, read_out: str | None = None) -> np.ndarray:
    return Predictor(forest(slug), SCHEMA).probabilities(ROWS, read_out=read_out)


def test_threshold_averaging_is_the_mean_of_clamped_proportions() -> None:
    """A leaf without a positive count votes uniformly."""
    assert found("rdt-ta") == pytest.approx(
        np.array([[(3 / 4 + 0) / 2, (1 / 4 + 1) / 2], [(1 / 2 + 1) / 2, 1 / 4]])
    )


def test_majority_vote_is_the_share_of_trees() -> None:
    assert found("rdt-mv") == pytest.approx(np.array([[0.5, 0.5], [1.0, 0.0]]))


def test_probabilistic_averaging_publishes_the_same_probabilities() -> None:
    assert np.array_equal(found("rdt-pa"), found("rdt-ta"))


@pytest.mark.parametrize("slug", ["rdt-mv", "rdt-ta", "rdt-pa"])
@pytest.mark.parametrize("read_out", ["mv", "ta", "pa"])
def test_one_model_gives_any_of_the_three_read_outs(slug: str, read_out: str) -> None:
    assert np.array_equal(found(slug, read_out), found(f"rdt-{read_out}"))


def test_logarithmic_pool_is_the_normalised_geometric_mean() -> None:
    # the noise of the plan's leaves: ε/2 per tree, 0.4 of it for the counts
    noise_scale = 5.0
    evidence = np.maximum(COUNTS.astype(float), 0)
    total = np.maximum(COUNTS.sum(axis=(0, 1)), 0) + np.sqrt(2 * 4) * noise_scale
    theta = evidence + noise_scale * total / total.sum()
    theta /= theta.sum(axis=-1, keepdims=True)
    expected = np.sqrt(theta[0] * theta[1])
    expected /= expected.sum(axis=-1, keepdims=True)

    assert found("mrf") == pytest.approx(expected, rel=1e-6)
    assert np.array_equal(found("mrf"), found("mrf", "log"))


@pytest.mark.parametrize(
    ("slug", "read_out"), [("rdt-ta", "log"), ("mrf", "pa"), ("mrf", "")]
)
def test_read_out_that_the_model_does_not_offer_is_refused(
    slug: str, read_out: str
) -> None:
    with pytest.raises(ParameterInvalid) as refused:
        found(slug, read_out)
    assert [(error.place, error.problem) for error in refused.value.problems] == [
        (("read_out",), "unknown-choice")
    ]


def labels(
    slug: str, probabilities: np.ndarray, read_out: str | None = None, **coins: object
) -> list[int]:
    predictor = Predictor(forest(slug), SCHEMA)
    drawn = predictor.labels(probabilities, read_out=read_out, **coins)
    assert drawn.dtype == np.int32
    return drawn.tolist()


def test_label_is_the_most_probable_class_and_the_first_of_equals() -> None:
    assert labels("rdt-mv", np.array([[0.5, 0.5], [0.2, 0.8]])) == [0, 1]


def test_drawn_label_follows_exact_coins() -> None:
    """A coin below the first class's share of 2^53 gives the first class, a coin equal
    to it the second class.
    """
    quarter = np.array([[0.25, 0.75], [1.0, 0.0]])
    queries: list[int] = []

    def coin(value: int) -> object:
        return lambda total: queries.append(total) or min(value, total - 1)

    assert labels("rdt-pa", quarter, below=coin(2**51 - 1)) == [0, 0]
    assert labels("rdt-pa", quarter, below=coin(2**51)) == [1, 0]
    assert labels("rdt-ta", quarter, read_out="pa", below=coin(2**53 - 1)) == [1, 0]
    assert queries == [2**53] * 6


def test_class_without_any_probability_is_never_drawn() -> None:
    sure = np.array([[0.0, 1.0], [0.0, 1.0]])

    assert labels("rdt-pa", sure, below=lambda total: 0) == [1, 1]


def test_a_forest_is_prepared_for_its_default_read_out() -> None:
    predictor = Predictor(forest("mrf"), SCHEMA)
    assert not predictor.is_prepared
    predictor.probabilities(ROWS, read_out="ta")
    assert not predictor.is_prepared, "packed for another read-out alone"
    predictor.prepare()
    assert predictor.is_prepared


def test_a_prediction_by_the_default_read_out_prepares_a_forest_too() -> None:
    drawn = Predictor(forest("rdt-pa"), SCHEMA)
    drawn.probabilities(ROWS, read_out="ta")
    assert drawn.is_prepared, "labels are drawn from the averages"


def test_no_rows_have_no_predictions() -> None:
    none = SanitisedColumns((np.empty(0),), 0)
    for slug in ("mrf", "rdt-pa"):
        predictor = Predictor(forest(slug), SCHEMA)
        probabilities = predictor.probabilities(none)

        assert probabilities.shape == (0, 2)
        assert predictor.labels(probabilities).shape == (0,)


def test_extreme_counts_stay_finite() -> None:
    extreme = np.array(
        [[[2**62, -(2**62)], [0, 0]], [[-(2**62), -(2**62)], [2**62, 2**62]]],
        dtype=np.int64,
    )
    for slug in ("mrf", "rdt-ta", "rdt-mv"):
        values = Predictor(forest(slug, extreme), SCHEMA).probabilities(ROWS)

        assert np.all(np.isfinite(values))
        assert values.sum(axis=1) == pytest.approx(1.0)


def test_forests_do_not_share_cached_readers() -> None:
    one = forest("rdt-ta")
    other = replace(
        one, arrays={**one.arrays, "counts": one.arrays["counts"][:, :, ::-1].copy()}
    )
    first = Predictor(one, SCHEMA).probabilities(ROWS)

    assert np.array_equal(
        Predictor(other, SCHEMA).probabilities(ROWS),
        first[:, ::-1],
    )
    assert np.array_equal(Predictor(one, SCHEMA).probabilities(ROWS), first)


def test_class_proportions_never_rule_a_class_out() -> None:
    evidence = np.array([[[100.0, -50.0, 0.0]]])
    shares = leaf_read_out.class_proportions(evidence, 2.0)

    assert shares.sum() == pytest.approx(1.0)
    assert shares.min() > 0
