"""T6: audits of many real runs on two neighbours by Clopper–Pearson intervals, without
a look inside the mechanism.

The enumeration proves the mechanism under ideal draws; these tests check growth and the
system's randomness together. A correct forest fails once in about half a million runs
of a test.
"""

from collections.abc import Callable
from dataclasses import replace

import pytest

from grovekeeper_forests.contract.plan import Forest, Plan
from grovekeeper_forests.data.sanitiser import SanitisedRows
from grovekeeper_forests.noise.randomness import SystemRandomness
from grovekeeper_forests.releases.forest.draw import grow
from grovekeeper_forests.trees import leaf_read_out, tree_price
from grovekeeper_forests.trees.tree_price import TreePrice
from tests.privacy.laws import proved_loss
from tests.privacy.universe import EMPTY, RECORDS, TWO_SPLITS, Dataset, planned, rows_of

N_RUNS = 2_500
ONE_ROW: Dataset = {0: RECORDS[1]}


def lower_bound_on_loss(
    plan: Plan, one: Dataset, other: Dataset, event: Callable[[Forest], bool]
) -> float:
    """The largest loss that the frequencies of an event and of its complement prove."""
    randomness = SystemRandomness()

    def hits(rows: SanitisedRows) -> int:
        return sum(
            event(grow(plan, TWO_SPLITS, rows, randomness, on_tree_done=lambda: None))
            for _ in range(N_RUNS)
        )

    return proved_loss(hits(rows_of(one)), hits(rows_of(other)), N_RUNS)


def someone_of_class_one(forest: Forest) -> bool:
    """Whether the noisy count of class 1 is above zero in the leaf that the only row
    reaches.
    """
    leaf = 0
    if forest.depth:
        feature, threshold, equals = (
            forest.arrays[name][0, 0] for name in ("feature", "threshold", "equals")
        )
        value = RECORDS[1][feature]
        leaf = int(value != threshold if equals else value > threshold)
    return bool(forest.arrays["counts"][0, leaf, 1] >= 1)


def test_runs_of_released_labels_prove_almost_their_charge_and_no_more() -> None:
    """One row of class 1 in a leaf: label 0 has probability e^−ε/2, and 1/2 without the
    row.
    """
    plan = planned("srt", TWO_SPLITS, max_depth=0)
    proved = lower_bound_on_loss(
        plan, ONE_ROW, EMPTY, lambda forest: bool(forest.arrays["labels"][0, 0] == 0)
    )

    assert float(TreePrice.of(plan.event).leaves.parts[0].event.inverse_scale) == 1.0
    assert 0.6 < proved <= 1.0


@pytest.mark.parametrize(
    ("slug", "depth", "epsilon"),
    [("rdt-ta", 0, "1"), ("rdt-ta", 1, "1"), ("mrf", 1, "2.5")],
)
def test_runs_of_a_correct_forest_prove_almost_the_charge_of_its_counts_and_no_more(
    slug: str, depth: int, epsilon: str
) -> None:
    plan = planned(slug, TWO_SPLITS, epsilon, max_depth=depth)
    charged = float(leaf_read_out.leaves_of(plan.event).inverse_scale)
    proved = lower_bound_on_loss(plan, ONE_ROW, EMPTY, someone_of_class_one)

    assert charged == pytest.approx(1.0)
    assert 0.6 < proved <= charged


def test_runs_of_a_forest_with_half_the_noise_prove_it() -> None:
    plan = planned("rdt-ta", TWO_SPLITS, max_depth=0)
    leaves = tree_price.tree_event(plan.event)
    louder = replace(
        plan.event.parts[0],
        event=replace(leaves, inverse_scale=2 * leaves.inverse_scale),
    )
    broken = replace(plan, event=replace(plan.event, parts=(louder,)))

    assert lower_bound_on_loss(broken, ONE_ROW, EMPTY, someone_of_class_one) > 1.3
