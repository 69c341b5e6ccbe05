"""T6, T12 and T13 on profiles and evaluations: planned shapes, stated noise, and audits
of real runs.

Any rows give a release of the planned shape with the stated noise, and many real runs
on two neighbours prove no more than the charge.
"""

import math
from collections import Counter
from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from grovekeeper_forests.bins import noisy_counts, releases
from grovekeeper_forests.contract.algorithm import PublicFacts
from grovekeeper_forests.data.schema import Schema
from grovekeeper_forests.noise.randomness import SystemRandomness
from grovekeeper_forests.privacy.calibration import Terms
from grovekeeper_forests.privacy.events import Adjacency
from grovekeeper_forests.releases.choice import price as choice_price
from grovekeeper_forests.releases.contract import public_facts
from grovekeeper_forests.releases.evaluation import draw as evaluation_draw
from grovekeeper_forests.releases.evaluation import price as evaluation_price
from grovekeeper_forests.releases.evaluation.read import Evaluation
from grovekeeper_forests.releases.forest.draw import grow
from grovekeeper_forests.releases.forest.predictor import Predictor
from grovekeeper_forests.releases.forest.price import PlanRequest, plan
from grovekeeper_forests.releases.profile import draw as profile_draw
from grovekeeper_forests.releases.profile import price as profile_price
from grovekeeper_forests.releases.profile.read import Profile
from tests.privacy.laws import assert_law, discrete_laplace_law, proved_loss
from tests.privacy.test_hostile_data import RECORD, SCHEMA, rows_from
from tests.privacy.universe import EMPTY, RECORDS, TWO_SPLITS, rows_of

DELTA = Fraction(1, 10**6)
ACCOUNTS = [("pure", None), ("gdp", DELTA)]
N_RUNS = 4_000


def facts(
    schema: Schema,
    accountant: str = "pure",
    delta: Fraction | None = None,
    epsilon: str = "1",
) -> PublicFacts:
    request = PlanRequest("release", {}, Terms(Fraction(epsilon), accountant, delta))
    return public_facts(
        request.terms, request.public_size, schema, Adjacency.ADD_REMOVE_ONE
    )


def model(schema: Schema) -> Predictor:
    job_plan = plan(
        PlanRequest("rdt-ta", {"n_estimators": 2, "max_depth": 2}, Terms(Fraction(1))),
        schema,
    )
    rows = (
        rows_from([], np.zeros((0, 16), dtype=np.uint8))
        if schema is SCHEMA
        else rows_of(EMPTY)
    )
    forest = grow(job_plan, schema, rows, SystemRandomness(), on_tree_done=lambda: None)
    return Predictor(forest, schema)


@pytest.mark.parametrize(("accountant", "delta"), ACCOUNTS)
@given(records=st.lists(RECORD, max_size=20))
@settings(max_examples=12, deadline=None)
def test_any_rows_give_a_profile_of_the_planned_shape(
    accountant: str, delta: Fraction | None, records: list[tuple]
) -> None:
    known = [record for record in records if record[-1] >= 0]
    rows = rows_from(known, np.zeros((len(known), 16), dtype=np.uint8))
    planned = profile_price.plan(
        {"size_share": "0.1"}, facts(SCHEMA, accountant, delta)
    )
    profile = profile_draw.release(planned, SCHEMA, rows, SystemRandomness())
    assert Profile.from_json(profile.to_json(), SCHEMA).to_json() == profile.to_json()
    assert len(profile.counts_in_rows) == SCHEMA.n_classes
    assert all(map(math.isfinite, [*profile.counts_in_rows, profile.size_in_rows]))


@given(records=st.lists(RECORD, max_size=20))
@settings(max_examples=12, deadline=None)
def test_any_rows_give_an_evaluation_of_the_planned_shape(records: list[tuple]) -> None:
    known = [record for record in records if record[-1] >= 0]
    rows = rows_from(known, np.zeros((len(known), 16), dtype=np.uint8))
    judged = model(SCHEMA)
    table = evaluation_price.plan_tables(["confusion"], facts(SCHEMA), score_bins=4)
    best = choice_price.plan_best(2, facts(SCHEMA), winner_accuracy=True)
    for planned, models in ((table, [judged]), (best, [judged, model(SCHEMA)])):
        evaluation = evaluation_draw.release(planned, models, rows, SystemRandomness())
        assert (
            Evaluation.from_json(evaluation.to_json()).to_json() == evaluation.to_json()
        )


def test_counts_of_no_rows_are_noise_of_the_stated_law() -> None:
    public = facts(TWO_SPLITS)
    event = noisy_counts.priced(public.epsilon, public.budget, coordinates=5_000)
    released = releases.release_counts(
        np.zeros(5_000, dtype=np.int64), event, SystemRandomness()
    )
    folded = np.clip(released, -6, 6)
    assert_law(Counter(folded.tolist()), discrete_laplace_law(1.0, window=6))


def proved(run: Callable[[bool], bool]) -> float:
    """The largest loss that the frequencies of an event, with a row and without it,
    prove.
    """
    with_row, without = (
        sum(run(has_row) for _ in range(N_RUNS)) for has_row in (True, False)
    )
    return proved_loss(with_row, without, N_RUNS)


@pytest.mark.parametrize(("louder", "least", "most"), [(1, 0.6, 1.0), (2, 1.2, 2.0)])
def test_runs_of_an_evaluation_prove_almost_its_charge_and_no_more(
    louder: int, least: float, most: float
) -> None:
    """The second case has half of the noise: its runs prove more than the charge of the
    first case.
    """
    planned = evaluation_price.plan_tables(
        ["confusion"], facts(TWO_SPLITS, epsilon=str(louder)), score_bins=2
    )
    judged, randomness = [model(TWO_SPLITS)], SystemRandomness()
    row = RECORDS[1]

    def somebody_of_the_rows_class(has_row: bool) -> bool:
        rows = rows_of({0: row} if has_row else EMPTY)
        counts = (
            evaluation_draw.release(planned, judged, rows, randomness)
            .tables["confusion"]
            .reshape(2, 2)
        )
        return bool((counts[row[2]] >= 1).any())

    def in_its_own_cell(has_row: bool) -> bool:
        rows = rows_of({0: row} if has_row else EMPTY)
        counts = evaluation_draw.release(planned, judged, rows, randomness).tables[
            "confusion"
        ]
        return bool(counts[cell] >= 1)

    cell = int(
        np.flatnonzero(
            evaluation_draw._exact("confusion", planned, judged[0], rows_of({0: row}))
        )[0]
    )
    assert least < proved(in_its_own_cell) <= most
    assert proved(somebody_of_the_rows_class) <= most


def test_runs_of_a_profile_prove_almost_the_charge_of_its_counts() -> None:
    planned = profile_price.plan({}, facts(TWO_SPLITS))
    randomness = SystemRandomness()

    def somebody_of_class_one(has_row: bool) -> bool:
        rows = rows_of({0: RECORDS[1]} if has_row else EMPTY)
        return bool(
            profile_draw.release(planned, TWO_SPLITS, rows, randomness).class_counts[1]
            >= 1
        )

    assert 0.6 < proved(somebody_of_class_one) <= 1.0
