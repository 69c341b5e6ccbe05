"""T10: the price of every plan, in exact fractions."""

import re
from dataclasses import replace
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from grovekeeper_forests import catalogue
from grovekeeper_forests.bins.noisy_counts import LARGEST_INVERSE_SCALE
from grovekeeper_forests.contract.plan import Plan
from grovekeeper_forests.errors import ParameterInvalid
from grovekeeper_forests.privacy.accountants import pure
from grovekeeper_forests.privacy.calibration import Terms
from grovekeeper_forests.privacy.events import (
    QUANTUM,
    Adjacency,
    DiscreteLaplace,
    Event,
    Parallel,
    PermuteAndFlip,
    Sequential,
)
from grovekeeper_forests.releases.forest import price as forest_price
from grovekeeper_forests.releases.forest.price import PlanRequest, plan
from grovekeeper_forests.trees import leaf_read_out, tree_parameters
from grovekeeper_forests.trees.tree_price import GINI_RANGE_SENSITIVITY, TreePrice
from tests.support.plans import request_for
from tests.support.schemas import schema_of

SCHEMA = schema_of(
    *({"name": f"f{i}", "type": "numeric", "lower": 0, "upper": 1} for i in range(5)),
    classes=["a", "b", "c"],
)
SLUGS = sorted(
    slug for slug, own in catalogue.BY_SLUG.items() if "pure" in own.accountants
)
SHARDABLE = [
    slug
    for slug in SLUGS
    if "assignment"
    in {parameter.name for parameter in catalogue.algorithm(slug).parameters}
]
"""``bms-rf`` shards layers instead of trees: test_bms_rf.py."""
SHARDABLE.remove("bms-rf")

budgets = st.fractions(
    min_value=Fraction(1, 10), max_value=Fraction(20), max_denominator=10**9
)


def planned(slug: str, parameters: dict, epsilon: Fraction, size: int | None) -> Plan:
    """A plan on a pure account of the algorithm's adjacency."""
    return plan(request_for(slug, parameters, epsilon, size), SCHEMA)


def requests(slug: str) -> st.SearchStrategy[dict]:
    optional = {
        "n_estimators": st.integers(1, 64),
        "max_depth": st.integers(0, 6),
        "n_bins": st.integers(2, 64),
        "min_rows": st.integers(2, 10**6),
        "assignment": st.sampled_from(
            [tree_parameters.SEQUENTIAL, tree_parameters.SHARDED]
        ),
    }
    optional["structure_share"] = optional["bins_share"] = st.sampled_from(
        ["0.01", "0.3", "0.5"]
    )
    modes = {
        "n_layers": [1],
        "layer_assignment": [tree_parameters.SEQUENTIAL, tree_parameters.SHARDED],
        "kept_splits": ["0.1", "1"],
    }
    modes |= {
        "se": ["none", "hash"],
        "exploration": ["0", "0.2"],
        "feature_share": ["0.3"],
        "level_ratio": ["1", "1.7"],
    }
    optional |= {name: st.sampled_from(choices) for name, choices in modes.items()}
    known = {
        parameter.name: parameter for parameter in catalogue.algorithm(slug).parameters
    }
    chosen = [known[name] for name in ("selection", "utility", "leaf") if name in known]
    optional |= {
        parameter.name: st.sampled_from(parameter.choices) for parameter in chosen
    }
    return st.fixed_dictionaries(
        {}, optional={name: own for name, own in optional.items() if name in known}
    )


def at_one_quantum(event: Event) -> Event:
    """The event's draws, each at the smallest inverse scale."""
    if isinstance(event, Sequential | Parallel):
        parts = tuple(
            replace(part, event=at_one_quantum(part.event)) for part in event.parts
        )
        return replace(event, parts=parts)
    return replace(event, inverse_scale=QUANTUM)


def leaves_of(event: Event) -> list[PermuteAndFlip | DiscreteLaplace]:
    if isinstance(event, Sequential | Parallel):
        return [leaf for part in event.parts for leaf in leaves_of(part.event)]
    return [event]


@pytest.mark.parametrize("slug", SLUGS)
@given(
    data=st.data(), epsilon=budgets, size=st.one_of(st.none(), st.integers(1, 10**12))
)
@settings(max_examples=40, deadline=None)
def test_event_costs_at_most_what_was_asked_and_almost_all_of_it(
    slug: str, data: st.DataObject, epsilon: Fraction, size: int | None
) -> None:
    settled = planned(slug, data.draw(requests(slug)), epsilon, size)
    loss = pure.loss(settled.event, adjacency=settled.terms.adjacency)
    draws = leaves_of(settled.event)
    capped = any(draw.inverse_scale == LARGEST_INVERSE_SCALE for draw in draws)
    # Rounding a draw down loses less than one quantum of its scale, times its
    # sensitivity and its repetitions.
    slack = pure.loss(at_one_quantum(settled.event), adjacency=settled.terms.adjacency)

    assert loss <= epsilon
    assert capped or epsilon - loss <= slack
    assert all(
        draw.inverse_scale > 0 and (draw.inverse_scale / QUANTUM).denominator == 1
        for draw in draws
    )
    assert settled.terms.epsilon == epsilon
    assert forest_price.read_plan(settled.to_json()) == settled


@given(epsilon=budgets, depth=st.integers(1, 8), n_trees=st.integers(1, 9))
@settings(max_examples=40, deadline=None)
def test_mrf_path_adds_up_to_the_price_of_a_tree(
    epsilon: Fraction, depth: int, n_trees: int
) -> None:
    parameters = {"n_estimators": n_trees, "max_depth": depth}
    settled = plan(PlanRequest("mrf", parameters, Terms(epsilon), 1_000), SCHEMA)
    levels = TreePrice.of(settled.event).levels
    path = sum(
        GINI_RANGE_SENSITIVITY * selection.inverse_scale
        for level in levels
        for selection in level
    )
    tree = path + leaf_read_out.leaves_of(settled.event).inverse_scale

    assert n_trees * tree == pure.loss(
        settled.event, adjacency=Adjacency.ADD_REMOVE_ONE
    )
    assert len(levels) == settled.parameters["max_depth"]


@pytest.mark.parametrize("slug", SHARDABLE)
def test_sharding_gives_every_tree_the_whole_price(slug: str) -> None:
    shape = {"n_estimators": 4, "max_depth": 2}
    sequential, sharded = (
        planned(slug, {**shape, "assignment": where}, Fraction(1), 1_000)
        for where in (tree_parameters.SEQUENTIAL, tree_parameters.SHARDED)
    )
    own, whole = (
        leaves_of(settled.event)[-1].inverse_scale for settled in (sequential, sharded)
    )

    assert isinstance(sequential.event, Sequential)
    assert isinstance(sharded.event, Parallel)
    assert 0 <= whole - 4 * own < 4 * QUANTUM


@pytest.mark.parametrize("slug", SLUGS)
def test_budget_below_the_quantum_is_refused(slug: str) -> None:
    with pytest.raises(ParameterInvalid) as refused:
        planned(slug, {"n_estimators": 8}, Fraction(1, 2**33), 1_000)

    assert [(error.place, error.problem) for error in refused.value.problems] == [
        (("epsilon",), "too-small")
    ]


def test_price_is_known_without_compiled_code() -> None:
    """The API quotes without loading the compiler, which takes most of a second and 150
    MB.
    """
    import subprocess
    import sys

    modules = "grovekeeper_forests.catalogue, grovekeeper_forests.releases.forest.read"
    program = f"import sys; import {modules}; print('numba' in sys.modules)"
    answer = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )

    assert re.fullmatch(r"False\s*", answer.stdout)
