"""T1, T2, T4 and T12 on evaluations: the exact law of the production code over small
datasets, and its known flaws.
"""

import itertools
from collections.abc import Iterator
from fractions import Fraction
from functools import cache, partial
from typing import Any

import numpy as np
import pytest

from grovekeeper_forests.bins import releases
from grovekeeper_forests.contract.algorithm import PublicFacts
from grovekeeper_forests.noise.randomness import SystemRandomness
from grovekeeper_forests.privacy import accountants
from grovekeeper_forests.privacy.accountants import pure
from grovekeeper_forests.privacy.calibration import Terms
from grovekeeper_forests.privacy.events import Adjacency
from grovekeeper_forests.releases.choice import draw as choice_draw
from grovekeeper_forests.releases.choice import price as choice_price
from grovekeeper_forests.releases.contract import public_facts
from grovekeeper_forests.releases.evaluation import answers
from grovekeeper_forests.releases.evaluation import draw as evaluation_draw
from grovekeeper_forests.releases.evaluation import price as evaluation_price
from grovekeeper_forests.releases.evaluation import read as evaluation_read
from grovekeeper_forests.releases.evaluation.price import EvaluationPlan
from grovekeeper_forests.releases.forest.draw import grow
from grovekeeper_forests.releases.forest.predictor import Predictor
from grovekeeper_forests.releases.forest.price import PlanRequest, plan
from grovekeeper_forests.trees import tree_growth
from tests.privacy.enumeration import TOLERANCE, EnumeratingRandomness, loss, output_law
from tests.privacy.test_delta_accounts import share_of_curve
from tests.privacy.universe import (
    EMPTY,
    RECORDS,
    TWO_SPLITS,
    Dataset,
    Record,
    multisets,
    rows_of,
)

Models = list[Predictor]


def facts(epsilon: str, accountant: str = "pure") -> PublicFacts:
    delta = None if accountant == "pure" else Fraction(1, 10**6)
    request = PlanRequest("evaluation", {}, Terms(Fraction(epsilon), accountant, delta))
    return public_facts(
        request.terms, request.public_size, TWO_SPLITS, Adjacency.ADD_REMOVE_ONE
    )


@pytest.fixture(scope="module")
def models() -> Models:
    """Three released forests, each right on other records; their predictions are
    arbitrary.
    """
    job_plan = plan(
        PlanRequest("rdt-ta", {"n_estimators": 1, "max_depth": 1}, Terms(Fraction(1))),
        TWO_SPLITS,
    )
    results: dict[tuple[int, ...], Predictor] = {}
    # random forests include three different ones within a few draws
    while len(results) < 3:
        forest = grow(
            job_plan,
            TWO_SPLITS,
            rows_of(EMPTY),
            SystemRandomness(),
            on_tree_done=lambda: None,
        )
        model = Predictor(forest, TWO_SPLITS)
        results.setdefault(
            tuple(
                choice_draw._correct(model, rows_of({1: record})) for record in RECORDS
            ),
            model,
        )
    return list(results.values())


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shrinks the blocks, so that datasets of three rows need two blocks."""
    monkeypatch.setattr(answers, "BLOCK_ROWS", 2)


def law(
    planned: EvaluationPlan, models: Models, dataset: Dataset
) -> dict[object, float]:
    rows = rows_of(dataset)

    def run(randomness: EnumeratingRandomness) -> object:
        evaluation = evaluation_draw.release(planned, models, rows, randomness)  # type: ignore[arg-type]
        return evaluation.best, tuple(
            (name, table.tobytes()) for name, table in sorted(evaluation.tables.items())
        )

    return output_law(run)  # type: ignore[return-value, arg-type]


def neighbours(n_rows: int) -> Iterator[tuple[Dataset, Dataset]]:
    for dataset in multisets(n_rows):
        for gone in dataset:
            yield (
                dataset,
                {
                    row_id: record
                    for row_id, record in dataset.items()
                    if row_id != gone
                },
            )


def worst(planned: EvaluationPlan, models: Models, *, n_rows: int = 3) -> float:
    @cache
    def of(records: tuple[tuple[int, Record], ...]) -> dict[object, float]:
        return law(planned, models, dict(records))

    return max(
        loss(of(tuple(one.items())), of(tuple(other.items())))
        for one, other in neighbours(n_rows)
    )


def claim(planned: EvaluationPlan) -> float:
    return float(pure.loss(planned.event, adjacency=Adjacency.ADD_REMOVE_ONE))


@pytest.mark.parametrize("epsilon", ["0.5", "2"])
@pytest.mark.parametrize(
    "metrics", [["accuracy"], ["confusion"], ["auroc"], ["accuracy", "auroc"]]
)
def test_tables_lose_exactly_their_price(
    metrics: list[str], epsilon: str, models: Models
) -> None:
    planned = evaluation_price.plan_tables(metrics, facts(epsilon), score_bins=2)
    worst_loss = worst(planned, models[:1], n_rows=2)
    assert claim(planned) <= float(Fraction(epsilon))
    assert worst_loss == pytest.approx(claim(planned), abs=TOLERANCE)


@pytest.mark.parametrize("winner_accuracy", [False, True])
def test_the_choice_loses_at_most_its_price(
    winner_accuracy: bool, models: Models
) -> None:
    planned = choice_price.plan_best(3, facts("2"), winner_accuracy=winner_accuracy)
    worst_loss = worst(planned, models)
    assert claim(planned) <= 2
    assert 0.3 * claim(planned) < worst_loss <= claim(planned) + TOLERANCE


@pytest.mark.parametrize("accountant", ["zcdp", "gdp"])
def test_the_choice_stays_below_the_curve_of_its_price(
    accountant: str, models: Models
) -> None:
    planned = choice_price.plan_best(3, facts("3", accountant), winner_accuracy=False)
    price = accountants.by_name(accountant).loss(
        planned.event, adjacency=Adjacency.ADD_REMOVE_ONE
    )
    laws = (
        (law(planned, models, one), law(planned, models, other))
        for one, other in neighbours(3)
    )
    assert 0.2 < share_of_curve(laws, price, accountant=accountant) <= 1.0 + TOLERANCE


def test_every_evaluation_can_come_from_every_dataset(models: Models) -> None:
    for planned, own in (
        (
            evaluation_price.plan_tables(
                ["confusion", "auroc"], facts("1"), score_bins=2
            ),
            models[:1],
        ),
        (choice_price.plan_best(3, facts("1"), winner_accuracy=True), models),
    ):
        support = law(planned, own, EMPTY).keys()
        for dataset in multisets(2):
            assert law(planned, own, dataset).keys() == support


def test_a_row_moves_every_model_up_by_at_most_one(models: Models) -> None:
    for record in RECORDS:
        for dataset in multisets(2):
            before = [choice_draw._correct(model, rows_of(dataset)) for model in models]
            after = [
                choice_draw._correct(model, rows_of({**dataset, 9: record}))
                for model in models
            ]
            assert {new - old for new, old in zip(after, before, strict=True)} <= {0, 1}


def test_one_cell_per_row_and_cells_do_not_depend_on_other_rows(models: Models) -> None:
    planned = evaluation_price.plan_tables(
        ["confusion", "auroc"], facts("1"), score_bins=4
    )
    for released in planned.releases:
        exact = partial(evaluation_draw._exact, released, planned, models[0])
        alone = {record: exact(rows_of({0: record})) for record in RECORDS}
        for records in itertools.product(RECORDS, repeat=3):
            together = exact(rows_of(dict(enumerate(records))))
            assert (
                together.tolist() == sum(alone[record] for record in records).tolist()
            )


def test_counting_in_two_cells_is_seen(
    models: Models, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The flaw: correct and total counts, both with the noise of a single count."""
    honest = evaluation_draw._exact

    def correct_and_total(*arguments: Any) -> np.ndarray:
        correct, incorrect = honest(*arguments)
        return np.array([correct, correct + incorrect])

    monkeypatch.setattr(evaluation_draw, "_exact", correct_and_total)
    planned = evaluation_price.plan_tables(["accuracy"], facts("1"), score_bins=2)
    assert worst(planned, models[:1], n_rows=2) > claim(planned) + 0.5


def test_the_winners_exact_accuracy_is_an_infinite_loss(
    models: Models, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        releases, "release_counts", lambda exact, event, randomness: exact
    )
    planned = choice_price.plan_best(3, facts("1"), winner_accuracy=True)
    assert worst(planned, models, n_rows=1) == float("inf")


def test_the_accuracy_beside_the_choice_is_that_of_the_model_that_was_drawn(
    models: Models, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That of the exactly best model would cost no more, and be another model's."""
    records = [
        record for number, record in enumerate(RECORDS) for _ in range(2**number)
    ]
    rows = rows_of(dict(enumerate(records)))
    planned = choice_price.plan_best(3, facts("1"), winner_accuracy=True)
    monkeypatch.setattr(
        releases, "release_counts", lambda exact, event, randomness: exact
    )
    released = []
    for drawn in range(3):
        monkeypatch.setattr(
            tree_growth,
            "select",
            lambda event, utilities, randomness, drawn=drawn: drawn,
        )
        evaluation = evaluation_draw.release(planned, models, rows, SystemRandomness())
        right = choice_draw._correct(models[drawn], rows)
        assert (evaluation.best, evaluation.tables["accuracy"].tolist()) == (
            drawn,
            [right, len(records) - right],
        )
        released.append(right)
    assert len({*released}) == 3, "models of different accuracy"


def test_the_best_without_noise_is_an_infinite_loss(
    models: Models, monkeypatch: pytest.MonkeyPatch
) -> None:
    def always_the_same_class(
        predictor: Predictor, *_: object, **__: object
    ) -> np.ndarray:
        return np.eye(2)[[models.index(predictor) % 2] * answers.BLOCK_ROWS]

    monkeypatch.setattr(Predictor, "probabilities", always_the_same_class)
    planned = choice_price.plan_best(2, facts("1"), winner_accuracy=False)
    assert worst(planned, models[:2]) <= claim(planned) + TOLERANCE
    monkeypatch.setattr(
        tree_growth,
        "select",
        lambda event, utilities, randomness: int(utilities.argmax()),
    )
    assert worst(planned, models[:2]) == float("inf")


@pytest.mark.parametrize("n_rows", [0, 1, 5])
def test_no_rows_can_make_an_evaluation_fail(n_rows: int, models: Models) -> None:
    rows = rows_of(dict.fromkeys(range(n_rows), RECORDS[0]))
    for metrics in (["accuracy"], ["confusion", "auroc"]):
        planned = evaluation_price.plan_tables(metrics, facts("1"), score_bins=7)
        evaluation = evaluation_draw.release(
            planned, models[:1], rows, SystemRandomness()
        )
        assert (
            evaluation_read.Evaluation.from_json(evaluation.to_json()).to_json()
            == evaluation.to_json()
        )
