"""T1, T2 and mutations for `sspe-1`: the exact loss of each of two datasets while the
other dataset is fixed.
"""

import itertools
import math
from collections.abc import Hashable, Iterable
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from grovekeeper_forests.algorithms.literature import medians
from grovekeeper_forests.contract.plan import Plan, PlanInvalid
from grovekeeper_forests.data.sanitiser import SanitisedRows
from grovekeeper_forests.data.schema import Schema
from grovekeeper_forests.privacy import accountants
from grovekeeper_forests.privacy.accountants import pure
from grovekeeper_forests.privacy.calibration import Terms
from grovekeeper_forests.privacy.events import Adjacency
from grovekeeper_forests.releases.forest import price as forest_price
from grovekeeper_forests.releases.forest.draw import grow
from grovekeeper_forests.releases.forest.price import plan
from grovekeeper_forests.trees import tree_price
from tests.privacy.enumeration import TOLERANCE, EnumeratingRandomness, loss, output_law
from tests.privacy.test_delta_accounts import share_of_curve
from tests.privacy.universe import (
    EMPTY,
    RECORDS,
    THREE_SPLITS,
    TWO_SPLITS,
    Dataset,
    add_remove_pairs,
    datasets,
    multisets,
    released,
    replace_one_pairs,
    rows_of,
)
from tests.support.plans import request_for

FEW = RECORDS[:3]
LABELLED: Dataset = {0: RECORDS[0], 1: RECORDS[1]}
UNLABELLED: Dataset = {100: RECORDS[1], 101: RECORDS[2], 102: RECORDS[2]}


def planned(
    schema: Schema = THREE_SPLITS,
    epsilon: str = "1",
    *,
    accountant: str = "pure",
    **parameters: object,
) -> Plan:
    shape = {
        "n_estimators": 1,
        "max_depth": 1,
        "assignment": "sequential",
        **parameters,
    }
    delta = None if accountant == "pure" else Fraction(1, 10**6)
    return plan(
        request_for(
            "sspe-1", shape, Fraction(epsilon), None, accountant=accountant, delta=delta
        ),
        schema,
    )


def claims(settled: Plan) -> tuple[float, float]:
    """The claims of the labelled dataset and of the unlabelled dataset."""
    assert settled.unlabelled is not None
    of_labelled, of_unlabelled = (
        float(pure.loss(event, adjacency=Adjacency.ADD_REMOVE_ONE))
        for event in (settled.event, settled.unlabelled.event)
    )
    return of_labelled, of_unlabelled


def test_each_dataset_pays_by_its_own_facts() -> None:
    """ε and the rows of a unit of one account do not price the events of the other
    account.
    """
    shape: dict[str, object] = {
        "n_estimators": 1,
        "max_depth": 1,
        "assignment": "sequential",
    }
    request = request_for("sspe-1", shape, Fraction(1), None, max_rows=2)
    assert request.unlabelled is not None
    other = replace(request, unlabelled=Terms(Fraction(3)))

    assert claims(plan(request, THREE_SPLITS)) == pytest.approx((0.5, 0.5))
    assert claims(plan(other, THREE_SPLITS)) == pytest.approx((0.5, 3.0))


def without_labels(dataset: Dataset) -> SanitisedRows:
    rows = rows_of(dataset)
    return replace(rows, y=np.full_like(rows.y, -1))


class Laws:
    """Exact output laws on pairs of datasets, computed once per pair."""

    def __init__(
        self,
        settled: Plan,
        schema: Schema,
        *,
        key: bytes = b"",
        window: tuple[int, int] = (0, 1),
    ) -> None:
        self.plan, self._schema, self._key, self._window = settled, schema, key, window
        self._known: dict[object, dict[Hashable, float]] = {}

    def of(self, labelled: Dataset, unlabelled: Dataset) -> dict[Hashable, float]:
        name = (tuple(sorted(labelled.items())), tuple(sorted(unlabelled.items())))
        if name not in self._known:
            rows, others = rows_of(labelled), without_labels(unlabelled)
            self._known[name] = output_law(
                lambda randomness: self.grown(rows, others, randomness),
                window=self._window,
                key=self._key,
            )
        return self._known[name]

    def grown(
        self,
        rows: SanitisedRows,
        others: SanitisedRows,
        randomness: EnumeratingRandomness,
    ) -> Hashable:
        forest = grow(
            self.plan,
            self._schema,
            rows,
            randomness,
            on_tree_done=lambda: None,
            unlabelled=others,
        )
        return released(forest)

    def worst_of_labelled(
        self, pairs: Iterable[tuple[Dataset, Dataset]], unlabelled: Dataset = UNLABELLED
    ) -> float:
        return max(
            loss(self.of(one, unlabelled), self.of(other, unlabelled))
            for one, other in pairs
        )

    def worst_of_unlabelled(
        self, pairs: Iterable[tuple[Dataset, Dataset]], labelled: Dataset = LABELLED
    ) -> float:
        return max(
            loss(self.of(labelled, one), self.of(labelled, other))
            for one, other in pairs
        )


def test_the_labelled_dataset_pays_for_its_counts_and_for_nothing_else() -> None:
    laws = Laws(planned(), THREE_SPLITS)
    replaced = laws.worst_of_labelled(replace_one_pairs(multisets(2)))

    assert claims(laws.plan)[0] == 1.0
    assert laws.worst_of_labelled(add_remove_pairs(multisets(2))) == pytest.approx(
        1.0, abs=TOLERANCE
    )
    assert 1.0 < replaced <= 2.0 + TOLERANCE


@pytest.mark.parametrize("accountant", ["zcdp", "gdp"])
def test_where_rho_or_mu_is_counted_both_stay_within_the_curves_of_their_charges(
    accountant: str,
) -> None:
    """Medians by the exponential mechanism on one account, normal noise on counts on
    the other.
    """
    laws = Laws(planned(epsilon="3", accountant=accountant), THREE_SPLITS)
    assert laws.plan.unlabelled is not None
    of_labelled, of_unlabelled = (
        accountants.by_name(accountant).loss(event, adjacency=Adjacency.ADD_REMOVE_ONE)
        for event in (laws.plan.event, laws.plan.unlabelled.event)
    )
    labelled = (
        (laws.of(one, UNLABELLED), laws.of(other, UNLABELLED))
        for one, other in add_remove_pairs(multisets(2))
    )
    unlabelled = (
        (laws.of(LABELLED, one), laws.of(LABELLED, other))
        for one, other in add_remove_pairs(multisets(3, FEW))
    )

    assert (
        0.3
        < share_of_curve(labelled, of_labelled, accountant=accountant)
        <= 1.0 + TOLERANCE
    )
    assert (
        0.3
        < share_of_curve(unlabelled, of_unlabelled, accountant=accountant)
        <= 1.0 + TOLERANCE
    )


@pytest.mark.parametrize(
    ("parameters", "n_rows", "reached"),
    [
        ({}, 4, 0.9),
        ({"max_depth": 2}, 2, 0.4),
        ({"max_depth": 2, "level_ratio": "1"}, 2, 0.4),
        ({"n_estimators": 2}, 2, 0.4),
    ],
)
def test_the_unlabelled_dataset_pays_for_its_medians_and_for_nothing_else(
    parameters: dict, n_rows: int, reached: float
) -> None:
    """Counts of the labelled rows are folded to a constant; the next test shows that
    they add no loss.
    """
    laws = Laws(planned(**parameters), THREE_SPLITS, window=(0, 0))
    claim = claims(laws.plan)[1]
    add_remove = laws.worst_of_unlabelled(add_remove_pairs(multisets(n_rows, FEW)))
    replaced = laws.worst_of_unlabelled(replace_one_pairs(multisets(n_rows, FEW), FEW))

    assert 1.0 - 1e-8 < claim <= 1.0
    assert reached <= add_remove <= claim + TOLERANCE
    assert add_remove <= replaced <= 2 * claim + TOLERANCE


def test_counts_do_not_make_the_unlabelled_dataset_lose_more() -> None:
    settled, pairs = planned(), list(add_remove_pairs(multisets(2, FEW)))
    with_counts, without = (
        Laws(settled, THREE_SPLITS, window=window).worst_of_unlabelled(pairs)
        for window in ((0, 1), (0, 0))
    )

    assert 0.0 < with_counts <= without + TOLERANCE


def test_labels_of_the_unlabelled_dataset_are_never_looked_at() -> None:
    laws, rows, others = (
        Laws(planned(), THREE_SPLITS),
        rows_of(LABELLED),
        rows_of(UNLABELLED),
    )

    def law(labels: tuple[int, ...]) -> dict[Hashable, float]:
        given = replace(others, y=np.array(labels, dtype=np.int32))
        return output_law(lambda randomness: laws.grown(rows, given, randomness))

    unknown = law((-1, -1, -1))
    assert all(
        law(labels) == unknown for labels in itertools.product((-1, 0, 1), repeat=3)
    )


TOGETHER, APART = b"\x00" * 32, b"\x01" * 32
"""Keys that put ids 0 and 1 into one of two shards, and into both: see
test_exact_loss.py.
"""


@pytest.mark.parametrize("key", [TOGETHER, APART], ids=["together", "apart"])
@pytest.mark.parametrize("n_kinds", [1, pytest.param(2, marks=pytest.mark.long)])
def test_shards_of_either_dataset_cost_what_the_largest_tree_was_charged(
    n_kinds: int, key: bytes
) -> None:
    laws = Laws(
        planned(TWO_SPLITS, n_estimators=2, assignment="sharded"), TWO_SPLITS, key=key
    )
    of_labelled, of_unlabelled = (
        add_remove_pairs(datasets(2, RECORDS[:kinds])) for kinds in (1, n_kinds)
    )

    assert claims(laws.plan) == (1.0, 1.0)
    assert laws.worst_of_labelled(of_labelled, {0: RECORDS[1]}) == pytest.approx(
        1.0, abs=TOLERANCE
    )
    assert laws.worst_of_unlabelled(of_unlabelled, {0: RECORDS[1]}) <= 1.0 + TOLERANCE


def test_a_person_in_both_datasets_loses_more_than_either_price_and_no_more_than_the_sum() -> (
    None
):
    """The quote and the card state this; only the owners can ensure that the datasets
    share no person.
    """
    laws = Laws(planned(), THREE_SPLITS)
    worst = max(
        loss(laws.of({0: record}, {9: record, **others}), laws.of(EMPTY, others))
        for record in FEW
        for others in multisets(3, FEW)
    )

    assert 1.2 < worst <= sum(claims(laws.plan)) + TOLERANCE


def test_every_output_can_come_from_every_pair_of_datasets() -> None:
    laws = Laws(planned(), THREE_SPLITS)
    support = laws.of(EMPTY, EMPTY).keys()

    assert len(support) == 3 * 2**4
    for labelled, unlabelled in itertools.product(multisets(2, RECORDS[:2]), repeat=2):
        assert laws.of(labelled, unlabelled).keys() == support


def test_the_price_of_a_monotone_utility_is_caught() -> None:
    """Medians at twice the scale, as if one row moved all utilities in one direction."""
    settled = planned()
    assert settled.unlabelled is not None
    levels = tuple(
        (
            replace(
                own, range_sensitivity=Fraction(1), inverse_scale=2 * own.inverse_scale
            ),
        )
        for (own,) in tree_price.levels_of(settled.unlabelled.event)
    )
    event = tree_price.structure_event(levels, 1, sharded=False)
    flawed = Laws(
        replace(settled, unlabelled=replace(settled.unlabelled, event=event)),
        THREE_SPLITS,
        window=(0, 0),
    )

    assert claims(flawed.plan)[1] <= 1.0
    assert flawed.worst_of_unlabelled(add_remove_pairs(multisets(4, FEW))) > 1.5
    with pytest.raises(PlanInvalid):
        forest_price.require_priced(flawed.plan, THREE_SPLITS)


def test_a_stop_on_the_exact_number_of_unlabelled_rows_is_caught(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The paper stops at ten rows; this test stops at one row."""
    choose = medians.choose_medians

    def stopping(own: object, encoding: object, rows: object, **given: object) -> list:
        sizes = rows.class_histogram(slice(0, 1)).sum(axis=(1, 2))
        picked = choose(own, encoding, rows, **given)
        return [
            None if size <= 1 else choice
            for size, choice in zip(sizes, picked, strict=True)
        ]

    monkeypatch.setattr(medians, "choose_medians", stopping)
    laws = Laws(planned(), THREE_SPLITS, window=(0, 0))

    assert laws.worst_of_unlabelled(add_remove_pairs(multisets(2, FEW))) == math.inf
