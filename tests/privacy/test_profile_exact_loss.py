"""T1 and T2 on profiles: the exact law of the production code over small datasets, and
its known flaws.
"""

import itertools
from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from functools import cache, partial

import numpy as np
import pytest

from grovekeeper_forests.bins import quantile_bins, releases
from grovekeeper_forests.bins.quantile_bins import ReusedProfile
from grovekeeper_forests.data.sanitiser import SanitisedColumns, SanitisedRows
from grovekeeper_forests.privacy.accountants import pure
from grovekeeper_forests.privacy.calibration import Terms
from grovekeeper_forests.privacy.events import (
    Adjacency,
    DiscreteLaplace,
    Part,
    Sequential,
)
from grovekeeper_forests.releases.contract import public_facts
from grovekeeper_forests.releases.forest import price as forest_price
from grovekeeper_forests.releases.forest.draw import grow
from grovekeeper_forests.releases.forest.price import PlanRequest
from grovekeeper_forests.releases.profile import draw as profile_draw
from grovekeeper_forests.releases.profile import price as profile_price
from grovekeeper_forests.releases.profile.price import ProfilePlan
from tests.privacy.enumeration import (
    TOLERANCE,
    EnumeratingRandomness,
    keep_fine_edges,
    loss,
    output_law,
)
from tests.support.schemas import schema_of

Rows = tuple[tuple[int, int], ...]
"""(cell, class) of each record."""

N_CELLS = 5
RECORDS = tuple(itertools.product(range(N_CELLS), range(2)))
SCHEMA = schema_of(
    {"name": "f", "type": "integer", "lower": 0, "upper": N_CELLS - 1},
    classes=["a", "b"],
    label="y",
)


@pytest.fixture(autouse=True)
def no_free_bins(monkeypatch: pytest.MonkeyPatch) -> None:
    """Production never cuts a grid of five cells privately; this test must."""
    keep_fine_edges(monkeypatch)
    monkeypatch.setattr(quantile_bins, "_FREE_CELLS", 1)
    monkeypatch.setattr(quantile_bins, "_GROUPED_CELLS", 1)


def planned(epsilon: str = "1", **parameters: str) -> ProfilePlan:
    body = {"bins": "4", "class_share": "0.5", **parameters}
    request = PlanRequest("profile", body, Terms(Fraction(epsilon)))
    return profile_price.plan(
        body,
        public_facts(
            request.terms, request.public_size, SCHEMA, Adjacency.ADD_REMOVE_ONE
        ),
    )


def private_rows(rows: Rows) -> SanitisedRows:
    columns = SanitisedColumns(
        (np.array([cell for cell, _ in rows], dtype=np.float64),), len(rows)
    )
    labels = np.array([label for _, label in rows], dtype=np.int32)
    return SanitisedRows(columns, labels, np.zeros((len(rows), 16), dtype=np.uint8))


def law(plan: ProfilePlan, rows: Rows) -> dict[object, float]:
    private = private_rows(rows)

    def run(randomness: EnumeratingRandomness) -> object:
        released = profile_draw.release(plan, SCHEMA, private, randomness)  # type: ignore[arg-type]
        return released.cuts.tobytes(), released.class_counts.tobytes(), released.size

    return output_law(run, window=(0, 2))  # type: ignore[arg-type]


def neighbours(n_rows: int) -> Iterator[tuple[Rows, Rows]]:
    for size in range(1, n_rows + 1):
        for rows in itertools.combinations_with_replacement(RECORDS, size):
            for index in range(size):
                yield rows, rows[:index] + rows[index + 1 :]


def worst(plan: ProfilePlan, *, n_rows: int = 2) -> float:
    of = cache(partial(law, plan))
    return max(loss(of(one), of(other)) for one, other in neighbours(n_rows))


@pytest.mark.covering("epsilon", "size_share")
@pytest.mark.parametrize("size_share", ["0", "0.25"])
@pytest.mark.parametrize("epsilon", ["0.5", "2"])
def test_a_profile_loses_at_most_its_price(epsilon: str, size_share: str) -> None:
    plan = planned(epsilon, size_share=size_share)
    claim = float(pure.loss(plan.event, adjacency=Adjacency.ADD_REMOVE_ONE))
    assert claim <= float(Fraction(epsilon))
    assert 0.6 * claim < worst(plan) <= claim + TOLERANCE


def test_every_profile_can_come_from_every_dataset() -> None:
    plan = planned("1", size_share="0.25")
    support = law(plan, ()).keys()
    for rows in {rows for rows, _ in neighbours(2)}:
        assert law(plan, rows).keys() == support


def test_a_size_that_nobody_paid_for_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """The flaw: the size has the noise of the class counts, and the event has no part
    for the size.
    """
    honest = planned("1", size_share="0.25")
    paid = honest.event
    assert isinstance(paid, Sequential)
    *others, size = paid.parts
    assert isinstance(size.event, DiscreteLaplace)
    generous = replace(size.event, inverse_scale=4 * size.event.inverse_scale)
    flawed = replace(honest, event=Sequential((*others, Part(1, generous))))
    assert (
        worst(flawed) > float(pure.loss(paid, adjacency=Adjacency.ADD_REMOVE_ONE)) + 0.2
    )


def test_counting_a_row_twice_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = planned("1")
    honest = releases.release_counts
    monkeypatch.setattr(
        releases,
        "release_counts",
        lambda exact, event, randomness: honest(2 * exact, event, randomness),
    )
    assert (
        worst(plan)
        > float(pure.loss(plan.event, adjacency=Adjacency.ADD_REMOVE_ONE)) + 0.2
    )


def test_a_forest_on_a_reused_profile_loses_at_most_its_own_price() -> None:
    """The profile may be of any rows; in this test it is of none of the rows that the
    forest reads.
    """
    result = ReusedProfile("pf_a", ((2,),), (0, 0))
    body = {"n_estimators": 1, "max_depth": 1}
    plan = forest_price.plan(
        PlanRequest("rpf", body, Terms(Fraction(1)), profile=result), SCHEMA
    )

    @cache
    def of(rows: Rows) -> dict[object, float]:
        private = private_rows(rows)

        def run(randomness: EnumeratingRandomness) -> object:
            forest = grow(plan, SCHEMA, private, randomness, on_tree_done=lambda: None)  # type: ignore[arg-type]
            return tuple(
                (name, array.tobytes()) for name, array in sorted(forest.arrays.items())
            )

        return output_law(run)

    pairs = [
        (one, other)
        for one, other in neighbours(2)
        if all(cell in (0, 4) for cell, _ in one)
    ]
    found_loss = max(loss(of(one), of(other)) for one, other in pairs)
    assert 0.25 < found_loss <= 1 + TOLERANCE
