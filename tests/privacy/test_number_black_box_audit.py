"""T6 on forests that predict a number: audits of many real runs on two neighbours, no
row and one row with the largest number.
"""

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from grovekeeper_forests.algorithms.rpf.price import events_of
from grovekeeper_forests.contract.plan import Forest, Plan
from grovekeeper_forests.data.sanitiser import SanitisedColumns, SanitisedRows
from grovekeeper_forests.data.schema import TARGET_STEPS, Schema
from grovekeeper_forests.kernels.boosting import UNIT
from grovekeeper_forests.noise.randomness import SystemRandomness
from grovekeeper_forests.privacy.accountants import gdp
from grovekeeper_forests.privacy.calibration import Terms
from grovekeeper_forests.privacy.events import Adjacency, Part, Sequential
from grovekeeper_forests.releases.forest import price as forest_price
from grovekeeper_forests.releases.forest.draw import grow
from grovekeeper_forests.releases.forest.price import PlanRequest
from tests.privacy.laws import proved_loss

N_RUNS = 2_500
DELTA = Fraction(1, 10**6)
YES_OR_NO = Schema.from_json(
    {
        "features": [{"name": "size", "type": "integer", "lower": 0, "upper": 1}],
        "label": {"name": "days", "type": "integer", "lower": 0, "upper": 1},
    }
)
"""A label with one edge between its numbers, so that the median is no choice."""


def planned(slug: str, epsilon: Fraction, accountant: str, depth: int) -> Plan:
    delta = None if accountant == "pure" else DELTA
    body = {"n_estimators": 1, "max_depth": depth}
    terms = Terms(epsilon, accountant, delta)
    return forest_price.plan(PlanRequest(slug, body, terms, 1_000), YES_OR_NO)


def rows_of(n_rows: int) -> SanitisedRows:
    columns = SanitisedColumns((np.ones(n_rows),), n_rows)
    y = np.full(n_rows, TARGET_STEPS, dtype=np.int32)
    return SanitisedRows(columns, y, np.zeros((n_rows, 16), dtype=np.uint8))


def hits(plan: Plan, event: Callable[[Forest], bool]) -> tuple[int, int]:
    """In how many of the runs an event occurs, with the row and without it."""
    randomness = SystemRandomness()

    def of(rows: SanitisedRows) -> int:
        return sum(
            event(grow(plan, YES_OR_NO, rows, randomness, on_tree_done=lambda: None))
            for _ in range(N_RUNS)
        )

    return of(rows_of(1)), of(rows_of(0))


def a_row_above(forest: Forest) -> bool:
    """Whether the leaf of the row has the units above that a clipped residual adds."""
    last_leaf = forest.arrays["counts"][0, -1]
    return bool(last_leaf[1] >= UNIT - 1)


# ε of which the leaves get 1: 0.78 of it is for the tree, and of that all, or 2/5
@pytest.mark.parametrize(
    ("depth", "epsilon"), [(0, Fraction(100, 78)), (1, Fraction(250, 78))]
)
def test_runs_of_a_reweighted_forest_prove_almost_the_charge_of_its_leaves(
    depth: int, epsilon: Fraction
) -> None:
    plan = planned("rpf", epsilon, "pure", depth)
    _, scales = events_of(plan.event)
    proved = proved_loss(*hits(plan, a_row_above), N_RUNS)

    assert UNIT * float(scales.leaves[depth]) == pytest.approx(1.0)
    assert 0.6 < proved <= 1.0


def test_runs_of_a_reweighted_forest_with_half_the_noise_prove_it() -> None:
    plan = planned("rpf", Fraction(100, 78), "pure", 0)
    *start, trees, mean = plan.event.parts
    leaf = trees.event
    louder = replace(leaf, inverse_scale=2 * leaf.inverse_scale)
    event = Sequential((*start, replace(trees, event=louder), mean))
    terms = replace(plan.terms, epsilon=2 * plan.terms.epsilon)
    broken = replace(plan, event=event, terms=terms)

    assert proved_loss(*hits(broken, a_row_above), N_RUNS) > 1.3


def boosted(mu_squared: float) -> Plan:
    """One tree with a leaf on either side, at a μ² of its own; selections and means cost
    nearly nothing.
    """
    plan = planned("nbrt", Fraction(1), "gdp", 1)
    middle, spread, mean, tree, _ = plan.event.parts
    quiet = [
        Part(1, replace(part.event, inverse_scale=Fraction(1, 2**20)))
        for part in (middle, spread)
    ]
    small = Part(1, replace(mean.event, l2_sensitivity_squared=Fraction(2**20)))
    square = Fraction(int(mu_squared * 2**48))
    loud = Part(1, replace(tree.event, l2_sensitivity_squared=square))
    terms = replace(plan.terms, epsilon=Fraction(100))
    return replace(plan, event=Sequential((*quiet, small, loud, small)), terms=terms)


def a_step_up(forest: Forest) -> bool:
    """Whether the leaf of the row scores above 0."""
    return bool(forest.arrays["scores"][0, -1, 0] > 0)


def test_runs_of_boosting_prove_almost_the_curve_of_a_tree_and_no_more() -> None:
    """A quarter is the most μ² of a tree: a share of Φ(0.48) − ½ = 0.18 of the runs."""
    plan = boosted(0.25)
    loss = gdp.loss(plan.event, adjacency=Adjacency.ADD_REMOVE_ONE)
    with_row, without = hits(plan, a_step_up)
    gap = (with_row - without) / N_RUNS
    # six deviations of the difference of two shares
    slack = 6 * (0.5 / N_RUNS) ** 0.5
    limit = float(gdp.delta_of(Fraction(0), loss).upper())

    assert loss == pytest.approx(0.25, abs=1e-3)
    assert limit / 4 < gap < limit + slack
    assert limit == pytest.approx(0.197, abs=1e-3)
