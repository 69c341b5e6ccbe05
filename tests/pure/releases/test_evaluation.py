"""Evaluations: prices on every account, estimates from released counts, and artifacts
that are read back.
"""

from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from grovekeeper_forests import catalogue
from grovekeeper_forests.bins import noisy_counts, releases
from grovekeeper_forests.contract.algorithm import PublicFacts
from grovekeeper_forests.data.sanitiser import SanitisedColumns, SanitisedRows
from grovekeeper_forests.data.schema import Schema
from grovekeeper_forests.errors import ParameterInvalid
from grovekeeper_forests.noise.randomness import SystemRandomness
from grovekeeper_forests.privacy.accountants import pure
from grovekeeper_forests.privacy.calibration import Terms
from grovekeeper_forests.privacy.events import Adjacency
from grovekeeper_forests.releases.choice import price as choice_price
from grovekeeper_forests.releases.contract import public_facts
from grovekeeper_forests.releases.evaluation import draw as evaluation_draw
from grovekeeper_forests.releases.evaluation import metrics
from grovekeeper_forests.releases.evaluation import price as evaluation_price
from grovekeeper_forests.releases.evaluation.price import (
    EvaluationInvalid,
    EvaluationPlan,
)
from grovekeeper_forests.releases.evaluation.read import Evaluation
from grovekeeper_forests.releases.forest.draw import grow
from grovekeeper_forests.releases.forest.predictor import Predictor
from grovekeeper_forests.releases.forest.price import PlanRequest, plan
from grovekeeper_forests.releases.profile import price as profile_price
from tests.support.schemas import schema_of

SCHEMA = schema_of(
    {"name": "x", "type": "numeric", "lower": 0, "upper": 1, "missing": True},
    classes=["a", "b"],
    label="y",
)
THREE = Schema.from_json(
    {**SCHEMA.to_json(), "label": {"name": "y", "classes": ["a", "b", "c"]}}
)
DELTA = Fraction(1, 10**6)
ACCOUNTS = [("pure", None), ("zcdp", DELTA), ("gdp", DELTA)]


def facts(
    accountant: str,
    delta: Fraction | None,
    epsilon: str = "20",
    schema: Schema = SCHEMA,
) -> PublicFacts:
    request = PlanRequest("evaluation", {}, Terms(Fraction(epsilon), accountant, delta))
    return public_facts(
        request.terms, request.public_size, schema, Adjacency.ADD_REMOVE_ONE
    )


def rows_of(n_rows: int, *, wrong: float = 0.1) -> SanitisedRows:
    generator = np.random.default_rng(11)
    x = generator.uniform(0, 1, n_rows)
    y = (x > 0.5) ^ (generator.uniform(0, 1, n_rows) < wrong)
    return SanitisedRows(
        SanitisedColumns((x,), n_rows),
        y.astype(np.int32),
        np.zeros((n_rows, 16), dtype=np.uint8),
    )


@pytest.fixture(scope="module")
def model() -> Predictor:
    job_plan = plan(
        PlanRequest(
            "mrf", {"n_estimators": 1, "max_depth": 2}, Terms(Fraction(50)), 5_000
        ),
        SCHEMA,
    )
    forest = grow(
        job_plan, SCHEMA, rows_of(5_000), SystemRandomness(), on_tree_done=lambda: None
    )
    return Predictor(forest, SCHEMA)


@pytest.mark.parametrize(("accountant", "delta"), ACCOUNTS)
@pytest.mark.parametrize("wanted", [["accuracy"], ["confusion", "auroc"]])
def test_tables_use_the_price_up(
    accountant: str, delta: Fraction | None, wanted: list[str]
) -> None:
    public = facts(accountant, delta, "1")
    spent = public.budget.loss(
        evaluation_price.plan_tables(wanted, public, score_bins=32).event
    )
    assert 0.999 * public.budget.limit < spent <= public.budget.limit


@pytest.mark.parametrize("adjacency", [Adjacency.ADD_REMOVE_ONE, Adjacency.LABEL])
@pytest.mark.parametrize("max_rows", [1, 3, 7])
@pytest.mark.parametrize("epsilon", ["0.4", "0.999999999"])
def test_a_price_that_the_rows_of_a_unit_do_not_divide_is_used_up_too(
    adjacency: Adjacency, max_rows: int, epsilon: str
) -> None:
    requested = Fraction(epsilon)
    request = PlanRequest(
        "evaluation", {}, Terms(requested, adjacency=adjacency, max_rows=max_rows)
    )
    public = public_facts(
        request.terms, request.public_size, SCHEMA, Adjacency.ADD_REMOVE_ONE
    )
    for event in (
        evaluation_price.plan_tables(["accuracy"], public, score_bins=2).event,
        choice_price.plan_best(3, public, winner_accuracy=True).event,
        profile_price.plan({}, public).event,
    ):
        assert (
            0.999 * requested
            < max_rows * pure.loss(event, adjacency=adjacency)
            <= requested
        )


@pytest.mark.parametrize(("accountant", "delta"), ACCOUNTS)
@pytest.mark.parametrize("winner_accuracy", [False, True])
def test_a_choice_uses_the_price_up_however_many_models_there_are(
    accountant: str, delta: Fraction | None, winner_accuracy: bool
) -> None:
    public = facts(accountant, delta, "1")
    for n_models in (2, 50):
        event = choice_price.plan_best(
            n_models, public, winner_accuracy=winner_accuracy
        ).event
        assert (
            0.999 * public.budget.limit
            < public.budget.loss(event)
            <= public.budget.limit
        )


@pytest.mark.parametrize(("accountant", "delta"), ACCOUNTS)
def test_released_numbers_are_near_the_exact_ones(
    accountant: str, delta: Fraction | None, model: Predictor
) -> None:
    rows = rows_of(4_000)
    planned = evaluation_price.plan_tables(
        ["confusion", "auroc"], facts(accountant, delta), score_bins=64
    )
    evaluation = evaluation_draw.release(planned, [model], rows, SystemRandomness())
    shares = model.probabilities(rows.features)
    exact = float((shares.argmax(axis=1) == rows.y).mean())
    estimate = metrics.accuracy(evaluation)
    assert estimate is not None
    assert estimate.estimate == pytest.approx(exact, abs=0.02)
    width = estimate.high - estimate.low
    # six deviations; another test checks 95 of 100
    assert estimate.low - width <= exact <= estimate.high + width
    assert width < 0.05
    assert estimate.population_low < estimate.low
    area = metrics.auroc(evaluation)
    assert area is not None
    assert area.estimate == pytest.approx(_area(shares[:, 1], rows.y), abs=0.02)
    assert area.noise_sd is not None
    assert 0 < area.noise_sd < 0.02


def _area(scores: np.ndarray, y: np.ndarray) -> float:
    first, second = scores[y == 0], scores[y == 1]
    wins = (second[:, np.newaxis] > first).mean() + (
        second[:, np.newaxis] == first
    ).mean() / 2
    return float(wins)


def test_the_interval_holds_as_often_as_it_says() -> None:
    planned = evaluation_price.plan_tables(
        ["accuracy"], facts("pure", None, "0.1"), score_bins=2
    )
    event = planned.event_of("accuracy")
    exact, held = np.array([80, 20], dtype=np.int64), 0
    for _ in range(400):
        table = releases.release_counts(exact, event, SystemRandomness())
        estimate = metrics.accuracy(Evaluation(planned, None, {"accuracy": table}))
        assert estimate is not None
        held += estimate.low <= 0.8 <= estimate.high
    assert held >= 370, (
        "95 of a hundred, and a little more since each bound is one of whole numbers"
    )


def test_the_interval_lets_both_sums_err_and_shares_the_chance_between_them() -> None:
    planned = evaluation_price.plan_tables(
        ["accuracy"], facts("pure", None, "1"), score_bins=2
    )
    estimate = metrics.accuracy(
        Evaluation(planned, None, {"accuracy": np.array([80, 20], dtype=np.int64)})
    )
    off = noisy_counts.noise_bound(planned.event_of("accuracy"), level=0.975)

    assert estimate is not None
    assert off > noisy_counts.noise_bound(planned.event_of("accuracy"), level=0.95)
    assert (estimate.low, estimate.high) == ((80 - off) / 100, (80 + off) / 100)


def test_the_bound_of_a_sum_of_many_counts_grows_with_their_root() -> None:
    planned = evaluation_price.plan_tables(
        ["accuracy"], facts("pure", None, "1"), score_bins=2
    )
    accuracy = planned.event_of("accuracy")
    of_many = noisy_counts.noise_bound(accuracy, level=0.95, n_counts=10_000)

    assert of_many == pytest.approx(
        1.96 * 100 * noisy_counts.noise_sd(accuracy), rel=0.02
    )


@pytest.mark.parametrize("epsilon", ["1", "5", "6"])
def test_the_interval_of_a_confusion_matrix_holds_as_often_as_it_says(
    epsilon: str,
) -> None:
    """At a large ε the noise of most cells is 0, but the noise of their sums is not."""
    ten = Schema.from_json(
        {**SCHEMA.to_json(), "label": {"name": "y", "classes": list("abcdefghij")}}
    )
    planned = evaluation_price.plan_tables(
        ["confusion"], facts("pure", None, epsilon, ten), score_bins=2
    )
    exact, held = (3 + 197 * np.eye(10, dtype=np.int64)).ravel(), 0
    for _ in range(400):
        table = releases.release_counts(
            exact, planned.event_of("confusion"), SystemRandomness()
        )
        estimate = metrics.accuracy(Evaluation(planned, None, {"confusion": table}))
        assert estimate is not None
        held += estimate.low <= 2_000 / 2_270 <= estimate.high
    assert held >= 370


@pytest.mark.parametrize(("n_rows", "share"), [(30, 0.97), (200, 0.99), (500, 0.8)])
def test_the_population_interval_holds_as_often_as_it_says(
    n_rows: int, share: float
) -> None:
    planned = evaluation_price.plan_tables(
        ["accuracy"], facts("pure", None, "6"), score_bins=2
    )
    generator, held = np.random.default_rng(17), 0
    for _ in range(2_500):
        right = generator.binomial(n_rows, share)
        exact = np.array([right, n_rows - right], dtype=np.int64)
        table = releases.release_counts(
            exact, planned.event_of("accuracy"), SystemRandomness()
        )
        estimate = metrics.accuracy(Evaluation(planned, None, {"accuracy": table}))
        assert estimate is not None
        held += estimate.population_low <= share <= estimate.population_high
    # where 94 of a hundred hold, fewer than 91 come once in 10⁸ runs
    assert held >= 2_275, "91 of a hundred would be bad luck at 95"


def test_an_evaluation_without_noise_to_speak_of_can_be_shown() -> None:
    planned = evaluation_price.plan_tables(
        ["confusion", "auroc"], facts("pure", None, "3000"), score_bins=2
    )
    tables = {"confusion": np.array([9, 0, 1, 10]), "auroc": np.array([9, 0, 1, 10])}
    estimate = metrics.accuracy(Evaluation(planned, None, tables))
    assert estimate is not None
    assert estimate.low == estimate.estimate == estimate.high == 0.95


def test_empty_tables_say_nothing() -> None:
    planned = evaluation_price.plan_tables(
        ["accuracy", "auroc"], facts("pure", None), score_bins=4
    )
    empty = Evaluation(
        planned,
        None,
        {"accuracy": np.array([-3, -1]), "auroc": np.array([0, -1, 0, 0, 5, 0, 0, 0])},
    )
    told, area = metrics.accuracy(empty), metrics.auroc(empty)
    assert told is not None
    assert (told.estimate, told.population_low, told.population_high) == (
        None,
        0.0,
        1.0,
    )
    assert area is not None
    assert area.estimate is None


def test_the_better_model_is_chosen_at_a_generous_price(model: Predictor) -> None:
    flipped = rows_of(5_000, wrong=0.9)
    job_plan = plan(
        PlanRequest(
            "mrf", {"n_estimators": 1, "max_depth": 2}, Terms(Fraction(50)), 5_000
        ),
        SCHEMA,
    )
    forest = grow(
        job_plan, SCHEMA, flipped, SystemRandomness(), on_tree_done=lambda: None
    )
    bad = Predictor(forest, SCHEMA)
    for accountant, delta in ACCOUNTS:
        planned = choice_price.plan_best(
            3, facts(accountant, delta, "1"), winner_accuracy=False
        )
        evaluation = evaluation_draw.release(
            planned, [bad, model, bad], rows_of(3_000), SystemRandomness()
        )
        assert evaluation.best == 1


def test_scores_fall_into_equal_bins_of_which_the_last_holds_one(
    model: Predictor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A score s is in bin ⌊s · n⌋; a score of 1 is in the last bin."""
    scores = np.array([0.0, 0.2499, 0.25, 0.4999, 0.5, 0.7501, 1.0])
    rows = SanitisedRows(
        SanitisedColumns((scores,), len(scores)),
        np.zeros(len(scores), dtype=np.int32),
        np.zeros((len(scores), 16), np.uint8),
    )

    def share_of_the_value(
        _: Predictor, columns: SanitisedColumns, *, read_out: str | None
    ) -> np.ndarray:
        return np.stack([1 - columns.columns[0], columns.columns[0]], axis=1)

    monkeypatch.setattr(Predictor, "probabilities", share_of_the_value)
    planned = evaluation_price.plan_tables(
        ["auroc"], facts("pure", None, "1000"), score_bins=4
    )
    released = evaluation_draw.release(planned, [model], rows, SystemRandomness())

    assert released.in_rows("auroc").tolist() == [2, 2, 1, 2, 0, 0, 0, 0]


def test_scores_of_more_than_two_classes_have_no_curve() -> None:
    with pytest.raises(ParameterInvalid) as refused:
        evaluation_price.plan_tables(
            ["auroc"], facts("pure", None, schema=THREE), score_bins=4
        )
    assert [(error.place, error.problem) for error in refused.value.problems] == [
        (("metrics",), "needs-two-classes")
    ]


@pytest.mark.parametrize(
    "changes",
    [{"best": 0}, {"best": "0"}, {"tables": {}}, {"tables": {"accuracy": ["1"]}}, {"tables": {"auroc": ["1", "2"]}},
     {"plan": {}}, {"more": 1}],
)  # fmt: skip
def test_foreign_evaluations_are_refused(changes: dict[str, Any]) -> None:
    planned = evaluation_price.plan_tables(
        ["accuracy"], facts("pure", None), score_bins=4
    )
    value = Evaluation(planned, None, {"accuracy": np.array([3, 4])}).to_json()
    assert Evaluation.from_json(value).to_json() == value
    with pytest.raises(EvaluationInvalid):
        Evaluation.from_json({**value, **changes})


def test_a_plan_survives_its_json() -> None:
    planned = choice_price.plan_best(4, facts("gdp", DELTA), winner_accuracy=True)
    assert EvaluationPlan.from_json(planned.to_json()) == planned


_OF_ROWS_ALONE = sorted(
    slug
    for slug, mechanism in catalogue.BY_SLUG.items()
    if mechanism.adjacency is Adjacency.ADD_REMOVE_ONE and not slug.startswith("sspe")
)
"""The other algorithms need more than these rows for training."""


@pytest.mark.parametrize("slug", _OF_ROWS_ALONE)
def test_an_answer_is_a_bit_exact_function_of_its_row(slug: str) -> None:
    """A precondition of the proof: dropping, permuting or shifting rows changes no bit
    of another row's answer.
    """
    mechanism = catalogue.algorithm(slug)
    accountant, delta = (
        ("pure", None) if "pure" in mechanism.accountants else ("gdp", DELTA)
    )
    plan_request = PlanRequest(
        slug,
        {"n_estimators": 3, "max_depth": 3},
        Terms(Fraction(3), accountant, delta),
        500,
    )
    forest = grow(
        plan(plan_request, SCHEMA),
        SCHEMA,
        rows_of(500),
        SystemRandomness(),
        on_tree_done=lambda: None,
    )
    x = np.random.default_rng(2).uniform(0, 1, 101)
    x[7] = np.nan

    def answers(values: np.ndarray) -> np.ndarray:
        columns = SanitisedColumns((np.ascontiguousarray(values),), len(values))
        return Predictor(forest, SCHEMA).probabilities(columns)

    whole = answers(x)
    for first in (1, 2, 3, 5, 64):
        assert answers(x[first:]).tobytes() == whole[first:].tobytes()
    order = np.random.default_rng(3).permutation(len(x))
    assert answers(x[order]).tobytes() == whole[order].tobytes()
