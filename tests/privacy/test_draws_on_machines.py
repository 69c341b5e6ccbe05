"""Where several machines have the rows, a job draws what its event pays for, on any
rows, as in one process.
"""

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from grovekeeper_forests import catalogue
from grovekeeper_forests.contract.plan import Forest, Plan
from grovekeeper_forests.data.coded_rows import TrainingRows
from grovekeeper_forests.data.sanitiser import SanitisedRows
from grovekeeper_forests.data.schema import Schema
from grovekeeper_forests.noise.randomness import (
    PaidRandomness,
    Randomness,
    SystemRandomness,
    UnpaidDraw,
)
from grovekeeper_forests.privacy.events import UnknownPrivacyEvent
from grovekeeper_forests.releases.forest import draw as growth
from tests.privacy import test_hostile_data as hostile
from tests.privacy import test_paid_draws as paid
from tests.privacy.noiseless import Noiseless
from tests.support.machines import on_machines

CASES = [case for case in paid.CASES if not catalogue.algorithm(case[0]).reads_values]
HOSTILE = [
    case
    for case in hostile.PLANS
    if not catalogue.algorithm(case[0].partition("@")[0]).reads_values
]

Place = Callable[[SanitisedRows, Plan, Schema], TrainingRows]


def in_this_process(
    values: SanitisedRows, _plan: Plan, _schema: Schema
) -> TrainingRows:
    return values


def grown(
    plan: Plan, place: Place, randomness: Randomness, n_rows: int = 300
) -> Forest:
    second = (
        None
        if plan.unlabelled is None
        else place(paid.rows_of(n_rows, seed=1), plan, paid.SCHEMA)
    )
    rows = place(paid.rows_of(n_rows), plan, paid.SCHEMA)
    return growth.grow(
        plan,
        paid.SCHEMA,
        rows,
        randomness,
        on_tree_done=lambda: None,
        unlabelled=second,
    )


class Drawn(Noiseless):
    """Records every draw with its law."""

    def __init__(self) -> None:
        super().__init__()
        self.draws: list[tuple[object, ...]] = []

    def permute_and_flip(
        self, utilities: np.ndarray, *, inverse_scale: Fraction
    ) -> int:
        self.draws.append(("permute and flip", len(utilities), inverse_scale))
        return super().permute_and_flip(utilities, inverse_scale=inverse_scale)

    def select_exponential(
        self, utilities: np.ndarray, *, inverse_scale: Fraction
    ) -> int:
        self.draws.append(("exponential", len(utilities), inverse_scale))
        return super().select_exponential(utilities, inverse_scale=inverse_scale)

    def discrete_laplace(
        self, shape: tuple[int, ...], *, inverse_scale: Fraction
    ) -> np.ndarray:
        self.draws.append(("laplace", shape, inverse_scale))
        return super().discrete_laplace(shape, inverse_scale=inverse_scale)

    def rounded_gaussian(
        self, shape: tuple[int, ...], *, scale_bits: int
    ) -> np.ndarray:
        self.draws.append(("gaussian", shape, scale_bits))
        return super().rounded_gaussian(shape, scale_bits=scale_bits)


@pytest.mark.parametrize(("slug", "accountant"), CASES)
def test_a_forest_makes_and_pays_for_the_draws_of_one_process(
    monkeypatch: pytest.MonkeyPatch, slug: str, accountant: str
) -> None:
    payments: list[PaidRandomness] = []

    def pay(*arguments: Any) -> PaidRandomness:
        payments.append(PaidRandomness(*arguments))
        return payments[-1]

    monkeypatch.setattr(growth, "PaidRandomness", pay)
    plan, here, there = paid.planned(slug, accountant), Drawn(), Drawn()
    expected, forest = (
        grown(plan, in_this_process, here),
        grown(plan, on_machines, there),
    )
    assert there.draws == here.draws
    assert len(payments) == 2
    assert payments[1].left == payments[0].left
    for array, values in expected.arrays.items():
        np.testing.assert_array_equal(forest.arrays[array], values)


@pytest.mark.parametrize(("slug", "accountant"), CASES)
def test_a_plan_that_grows_more_trees_than_its_event_prices_stops(
    slug: str, accountant: str
) -> None:
    plan = paid.planned(slug, accountant)
    more = replace(plan, n_trees=19, parameters={**plan.parameters, "n_estimators": 19})
    with pytest.raises((UnpaidDraw, UnknownPrivacyEvent)):
        grown(more, on_machines, SystemRandomness())


@pytest.mark.parametrize(
    ("slug", "accountant"), [("mrf", "pure"), ("nbrt", "gdp"), ("sspe-1", "zcdp")]
)
def test_a_job_that_spends_more_on_any_single_draw_stops_before_it(
    monkeypatch: pytest.MonkeyPatch, slug: str, accountant: str
) -> None:
    release = partial(
        grown, paid.planned(slug, accountant), on_machines, SystemRandomness()
    )
    whole, *stopped = paid.draws_until_refused(monkeypatch, release)
    assert stopped == list(range(1, whole + 1))


@pytest.mark.parametrize(("slug", "parameters"), HOSTILE)
@given(
    records=st.lists(
        hostile.RECORD.filter(lambda record: record[-1] >= 0), max_size=20
    ),
    same_id=st.booleans(),
)
@settings(max_examples=4, deadline=None)
def test_any_rows_give_the_model_of_one_process(
    slug: str,
    parameters: dict[str, object],
    records: list[tuple[Any, ...]],
    same_id: bool,
) -> None:
    settled = hostile.planned(slug, parameters)
    ids = np.zeros((len(records), 16), dtype=np.uint8)
    if not same_id:
        ids[:, 0] = np.arange(len(records))
    rows = hostile.rows_from(records, ids)

    def forest(place: Place) -> Forest:
        second = (
            None
            if settled.unlabelled is None
            else place(replace(rows, y=-np.ones_like(rows.y)), settled, hostile.SCHEMA)
        )
        placed = place(rows, settled, hostile.SCHEMA)
        return growth.grow(
            settled,
            hostile.SCHEMA,
            placed,
            Noiseless(),
            on_tree_done=lambda: None,
            unlabelled=second,
        )

    expected, there = forest(in_this_process), forest(partial(on_machines, n_rows=7))
    assert there.arrays.keys() == expected.arrays.keys()
    for array, values in expected.arrays.items():
        np.testing.assert_array_equal(there.arrays[array], values)
