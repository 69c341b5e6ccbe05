"""T6 on the reweighted forest: an audit of many real runs on two neighbours."""

from dataclasses import replace

import pytest

from grovekeeper_forests.algorithms.rpf.price import PathScales, events_of
from grovekeeper_forests.contract.plan import Forest
from grovekeeper_forests.kernels.boosting import UNIT
from grovekeeper_forests.privacy.events import Part, Sequential
from tests.privacy.test_black_box_audit import (
    ONE_ROW,
    lower_bound_on_loss,
    someone_of_class_one,
)
from tests.privacy.universe import EMPTY, TWO_SPLITS, planned


def a_whole_row_of_class_one(forest: Forest) -> bool:
    """Whether the noisy weight of class 1 is at least one row in the leaf that the only
    row reaches.
    """
    counts = forest.arrays["counts"]
    return someone_of_class_one(
        Forest(forest.plan, {**forest.arrays, "counts": counts - (UNIT - 1)})
    )


@pytest.mark.parametrize(("depth", "epsilon"), [(0, "1"), (1, "2.5")])
def test_runs_of_a_correct_forest_prove_almost_the_charge_of_its_leaves_and_no_more(
    depth: int, epsilon: str
) -> None:
    """At depth 1 the leaves have 40 % of ε = 2.5; the choice between two equal splits
    does not depend on one row.
    """
    plan = planned("rpf", TWO_SPLITS, epsilon, max_depth=depth, structure_share="0.6")
    _, scales = events_of(plan.event)
    proved = lower_bound_on_loss(plan, ONE_ROW, EMPTY, a_whole_row_of_class_one)

    assert 256 * float(scales.leaves[depth]) == pytest.approx(1.0)
    assert 0.6 < proved <= 1.0


def test_runs_of_a_forest_with_half_the_noise_prove_it() -> None:
    plan = planned("rpf", TWO_SPLITS, max_depth=0)
    _, scales = events_of(plan.event)
    louder = PathScales(scales.levels, 2 * scales.last).event([], n_classes=2)
    broken = replace(plan, event=Sequential((Part(1, louder),)))

    assert lower_bound_on_loss(broken, ONE_ROW, EMPTY, a_whole_row_of_class_one) > 1.3
