"""The limit on the work of two levels at once: for all trees together, from public
numbers, before any charge.
"""

from fractions import Fraction

import pytest

from grovekeeper_forests import limits as forest_limits
from grovekeeper_forests.algorithms.rpf import price
from grovekeeper_forests.bins import quantile_bins
from grovekeeper_forests.contract.plan import Plan
from grovekeeper_forests.data.schema import Schema
from grovekeeper_forests.errors import ParameterInvalid, ParameterProblem
from grovekeeper_forests.privacy.calibration import Terms
from grovekeeper_forests.releases.forest.price import PlanRequest, plan
from grovekeeper_forests.trees import tree_parameters
from tests.support.schemas import schema_of

DEPTH = 10


def with_numbers(n_features: int, n_classes: int = 2) -> Schema:
    return schema_of(
        *(
            {"name": f"x{index}", "type": "numeric", "lower": 0, "upper": 1}
            for index in range(n_features)
        ),
        classes=[f"k{index}" for index in range(n_classes)],
    )


WIDE = with_numbers(64)


def planned(schema: Schema = WIDE, size: int = 10**9, **asked: object) -> Plan:
    return plan(
        PlanRequest("rpf", {"max_depth": DEPTH, **asked}, Terms(Fraction(50)), size),
        schema,
    )


def refusal(**asked: object) -> ParameterProblem:
    with pytest.raises(ParameterInvalid) as refused:
        planned(**asked)
    (result,) = refused.value.problems
    return result


def test_more_trees_than_can_be_evaluated_are_refused_with_the_number_that_can() -> (
    None
):
    result = refusal(n_estimators=forest_limits.MAX_TREES, at_once=2)

    assert (result.place, result.problem) == (("n_estimators",), "too-large")
    assert result.limit is not None
    assert 16 <= result.limit < forest_limits.MAX_TREES
    assert planned(n_estimators=result.limit, at_once=2).parameters["at_once"] == 2
    assert refusal(n_estimators=result.limit + 1, at_once=2) == result
    assert (
        planned(n_estimators=forest_limits.MAX_TREES, at_once=1).n_trees
        == forest_limits.MAX_TREES
    )


@pytest.mark.parametrize("size", [1_000, 10**12])
def test_no_public_size_makes_the_rule_choose_what_a_request_may_not(size: int) -> None:
    most = refusal(n_estimators=forest_limits.MAX_TREES, at_once=2).limit
    assert most is not None

    assert planned(size=size, n_estimators=most + 1).parameters["at_once"] == 1
    assert planned(size=10**12, n_estimators=most).parameters["at_once"] == 2


def test_the_limit_does_not_depend_on_the_public_size() -> None:
    result = [
        refusal(n_estimators=forest_limits.MAX_TREES, at_once=2, size=size)
        for size in (100, 10**6, 10**12)
    ]

    assert result[0] == result[1] == result[2]


def test_fewer_levels_leave_more_trees() -> None:
    shallow = refusal(
        n_estimators=forest_limits.MAX_TREES, at_once=2, max_depth=9
    ).limit
    deep = refusal(n_estimators=forest_limits.MAX_TREES, at_once=2, max_depth=11).limit

    assert shallow is not None
    assert deep is not None
    assert shallow // deep == 4
    assert (
        planned(n_estimators=forest_limits.MAX_TREES, at_once=2, max_depth=4).n_trees
        == forest_limits.MAX_TREES
    )


@pytest.mark.parametrize(
    ("n_features", "n_classes", "depth"),
    [(64, 2, 8), (64, 8, 8), (20, 26, 8), (4, 100, 8)],
)
def test_no_rule_of_the_mechanism_is_held_up(
    n_features: int, n_classes: int, depth: int
) -> None:
    """The rule's largest number of trees never turns off two levels at once where a
    single tree may use it.
    """
    widest = quantile_bins.widest_encoding(with_numbers(n_features, n_classes))

    assert price.is_affordable(widest, depth)
    assert price.most_trees(widest, depth) >= tree_parameters.MAX_RULE_TREES
    assert price.MAX_FOREST_WORK >= tree_parameters.MAX_RULE_TREES * price.MAX_WORK
