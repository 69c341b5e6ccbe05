"""Selection of two levels of the reweighted forest at once: its conditions, its price
and its accuracy.
"""

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from grovekeeper_forests.algorithms.rpf.grow import LevelTrees
from grovekeeper_forests.algorithms.rpf.price import events_of, stages
from grovekeeper_forests.algorithms.rpf.read import UNREACHED
from grovekeeper_forests.algorithms.rpf.reweighted_rows import LocalReweightedRows
from grovekeeper_forests.contract.plan import PlanInvalid
from grovekeeper_forests.data.encoding import NO_SPLIT, Encoding
from grovekeeper_forests.data.sanitiser import SanitisedColumns, SanitisedRows
from grovekeeper_forests.data.schema import Schema
from grovekeeper_forests.errors import ParameterInvalid
from grovekeeper_forests.noise.randomness import SystemRandomness
from grovekeeper_forests.privacy.accountants import pure
from grovekeeper_forests.privacy.events import Adjacency
from grovekeeper_forests.releases.forest import price as forest_price
from grovekeeper_forests.releases.forest.draw import grow
from grovekeeper_forests.releases.forest.predictor import Predictor
from grovekeeper_verifier import events as verifier
from tests.support.reweighted import SCHEMA, planned
from tests.support.schemas import schema_of
from tests.support.stored_plans import read_priced


@given(depth=st.integers(0, 20), at_once=st.integers(1, 5))
def test_selections_choose_all_levels_in_as_few_stages_as_go(
    depth: int, at_once: int
) -> None:
    result = stages(depth, at_once)

    assert sum(result) == depth
    assert len(result) == math.ceil(depth / at_once)
    assert all(0 < n_splits <= at_once for n_splits in result)
    assert list(result) == sorted(result)
    assert max(result, default=0) - min(result, default=0) <= 1


def with_numbers(n: int) -> Schema:
    numbers = [
        {"name": f"x{index}", "type": "numeric", "lower": 0, "upper": 1}
        for index in range(n)
    ]
    return Schema.from_json({**SCHEMA.to_json(), "features": numbers})


def test_levels_at_once_are_a_rule_of_public_numbers() -> None:
    def at_once(schema: Schema = SCHEMA, size: int = 2_000, **asked: object) -> object:
        return planned(
            size=size, schema=schema, **{"max_depth": 4, **asked}
        ).parameters["at_once"]

    assert at_once() == 2
    assert at_once(splits="node") == at_once(max_depth=1) == at_once(max_depth=0) == 1
    assert at_once(with_numbers(64)) == 2
    assert at_once(with_numbers(67)) == 1  # 67 × 15 splits: more than a thousand
    # a smaller table may take the work of one of 2^15 rows
    deep = {"n_estimators": 16, "max_depth": 6}
    assert at_once(with_numbers(64), 200) == 2
    assert at_once(with_numbers(64), 200, **deep) == 1
    assert at_once(with_numbers(64), 2**15, **deep) == 1
    assert at_once(with_numbers(64), 2**18, **deep) == 2
    assert at_once(with_numbers(64), 200, at_once=2) == 2
    # with one level the parameter has no effect and is accepted
    assert at_once(max_depth=1, at_once=2) == 2


def test_a_stored_plan_of_three_levels_at_once_is_refused() -> None:
    stored = planned(max_depth=4, at_once=2).to_json()
    assert forest_price.read_plan(stored).to_json() == stored
    stored["parameters"] = {**planned(max_depth=4, at_once=2).parameters, "at_once": 3}
    with pytest.raises(PlanInvalid):
        forest_price.read_plan(stored)


def test_one_price_covers_each_selection_of_two_levels() -> None:
    """Half as many selections, each at the summed budget of its two levels."""
    plans = [planned(max_depth=5, at_once=at_once) for at_once in (1, 2)]
    one, two = (events_of(plan.event)[1] for plan in plans)
    recomputed = [
        verifier.total(plan.event.to_json(), adjacency="add_remove", accountant="pure")
        for plan in plans
    ]

    assert recomputed == [
        pure.loss(plan.event, adjacency=Adjacency.ADD_REMOVE_ONE) for plan in plans
    ]
    assert len(two.levels) == 3
    assert two.levels[0] == one.levels[0]
    for joint, alone in zip(
        two.levels[1:], (one.levels[1:3], one.levels[3:5]), strict=True
    ):
        # each budget is rounded down separately
        assert 0 <= joint - sum(alone) < Fraction(3, 2**32)
    assert two.last == one.last


def test_event_of_one_level_at_a_time_is_not_one_of_two_levels() -> None:
    job_plan = planned(max_depth=4, at_once=1)
    stored = job_plan.to_json()

    assert forest_price.read_plan(stored) == job_plan
    with pytest.raises(PlanInvalid):  # an event of four selections does not match two
        read_priced(
            {**stored, "parameters": {**job_plan.parameters, "at_once": 2}}, SCHEMA
        )


@pytest.mark.parametrize(
    ("asked", "problem"),
    [
        ({"splits": "node", "at_once": 2}, "not-with-splits-node"),
        ({"at_once": 3}, "too-large"),
        ({"at_once": 0}, "too-small"),
        ({"at_once": "2"}, "not-an-integer"),
    ],
)
def test_levels_that_cannot_be_chosen_at_once_are_refused(
    asked: dict[str, object], problem: str
) -> None:
    with pytest.raises(ParameterInvalid) as refused:
        planned(**asked)

    assert [(error.place, error.problem) for error in refused.value.problems] == [
        (("at_once",), problem)
    ]
    assert refused.value.problems[0].accepted in (("1 to 2",), ())


def test_too_many_splits_to_choose_two_at_once_are_refused() -> None:
    with pytest.raises(ParameterInvalid) as refused:
        planned(schema=with_numbers(67), max_depth=4, at_once=2)

    assert [(error.place, error.problem) for error in refused.value.problems] == [
        (("at_once",), "too-large")
    ]


def test_two_levels_are_chosen_at_once_only_where_their_tables_fit_in_memory() -> None:
    """The number of splits is small, but a table of one column with itself would have
    255² · 2⁶ · 100 cells.
    """
    many = {
        "name": "shop",
        "type": "categorical",
        "categories": [f"s{index}" for index in range(255)],
    }
    classes = [f"k{index}" for index in range(100)]
    schema = schema_of(many, classes=classes)

    assert planned(size=10**7, schema=schema, max_depth=3).parameters["at_once"] == 2
    assert planned(size=10**7, schema=schema, max_depth=8).parameters["at_once"] == 1
    with pytest.raises(ParameterInvalid) as refused:
        planned(size=10**7, schema=schema, max_depth=8, at_once=2)
    assert [(error.place, error.problem) for error in refused.value.problems] == [
        (("at_once",), "too-large")
    ]


def test_two_levels_at_once_learn_a_rule_that_no_single_split_shows() -> None:
    """The class is the parity of two columns; no other column is informative, and no
    single split gains.
    """
    schema = schema_of(
        *(
            {"name": f"f{index}", "type": "categorical", "categories": ["x", "y"]}
            for index in range(6)
        ),
        classes=["a", "b"],
    )
    every = np.tile(
        np.array(list(itertools.product((0, 1), repeat=6)), dtype=np.int32), (32, 1)
    )
    columns = tuple(every.T.copy())
    held = SanitisedColumns(columns, len(every))
    parity = (columns[1] + columns[4]) % 2
    own = SanitisedRows(
        held, parity.astype(np.int32), np.zeros((len(every), 16), np.uint8)
    )

    def right(at_once: int) -> list[float]:
        settled = planned(
            "2", schema=schema, max_depth=2, n_estimators=1, at_once=at_once
        )
        forests = [
            grow(settled, schema, own, SystemRandomness(), on_tree_done=lambda: None)
            for _ in range(20)
        ]
        probabilities = [
            Predictor(forest, schema).probabilities(own.features) for forest in forests
        ]
        return [float(np.mean(each.argmax(axis=1) == own.y)) for each in probabilities]

    assert min(right(2)) == 1.0
    # the first split is random: right at most once in three runs
    assert min(right(1)) < 0.6


def test_bins_that_leave_one_split_end_the_tree_after_it() -> None:
    """Two levels at once were planned for fifteen splits of a number; the released cuts
    may leave fewer than two.
    """
    schema = with_numbers(1)
    settled = planned("50", schema=schema, max_depth=2, n_estimators=1)
    assert settled.parameters["at_once"] == 2
    scales = events_of(settled.event)[1]
    encoding = Encoding.with_edges(schema, (np.array([0.5]),))
    X, y = (
        np.array([[0, 0, 1, 1]], dtype=np.uint8),
        np.array([0, 0, 1, 2], dtype=np.int32),
    )
    held = LocalReweightedRows(X, y, n_codes=encoding.n_codes, n_classes=3)
    trees = LevelTrees(scales, encoding, depth=2, at_once=2, joint_columns=1)
    tree = trees.grow(held, SystemRandomness())

    assert tree.selections.tolist() == [1, UNREACHED, 1, UNREACHED]
    assert tree.threshold.tolist() == [0, NO_SPLIT, NO_SPLIT]
