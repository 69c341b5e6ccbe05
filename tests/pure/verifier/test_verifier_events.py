"""Prices of events against hand computation and the service's accountant, and the
events that must be refused.
"""

from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from grovekeeper_forests.privacy import events as service
from grovekeeper_forests.privacy.accountants import pure
from grovekeeper_forests.privacy.events import Adjacency
from grovekeeper_verifier.events import MAX_DEPTH, NotAnEvent, total

LAPLACE: dict[str, Any] = {
    "type": "discrete-laplace/1",
    "adjacency": "add_remove",
    "l1_sensitivity": "2",
    "inverse_scale": "3/8",
    "coordinates": 5,
}
FLIP: dict[str, Any] = {
    "type": "permute-and-flip/1",
    "adjacency": "add_remove",
    "range_sensitivity": "512",
    "inverse_scale": "1/2048",
    "max_candidates": 310,
}


def _times(times: int, event: dict[str, Any]) -> dict[str, Any]:
    return {"times": times, "event": event}


def test_sequential_adds_and_parallel_takes_the_largest() -> None:
    tree = {"type": "sequential/1", "parts": [_times(3, FLIP), _times(1, LAPLACE)]}
    both = {
        "type": "parallel/1",
        "over": "trees",
        "parts": [_times(8, tree), _times(64, FLIP)],
    }
    assert total(LAPLACE, adjacency="add_remove", accountant="pure") == Fraction(3, 4)
    assert total(FLIP, adjacency="add_remove", accountant="pure") == Fraction(1, 4)
    assert total(tree, adjacency="add_remove", accountant="pure") == Fraction(3, 2)
    assert total(both, adjacency="add_remove", accountant="pure") == Fraction(3, 2)
    assert (
        total(
            {"type": "sequential/1", "parts": [_times(2, both)]},
            adjacency="add_remove",
            accountant="pure",
        )
        == 3
    )


def test_a_label_account_pays_an_add_remove_mechanism_twice() -> None:
    assert total(LAPLACE, adjacency="label", accountant="pure") == Fraction(3, 2)
    assert total(
        {**LAPLACE, "adjacency": "label"}, adjacency="label", accountant="pure"
    ) == Fraction(3, 4)


@pytest.mark.parametrize("accountant", ["zcdp", "gdp"])
@pytest.mark.parametrize(
    "event",
    [LAPLACE, FLIP, {**FLIP, "type": "exponential-mechanism/1"}, {
        "type": "rounded-gaussian/1", "adjacency": "add_remove", "l2_sensitivity_squared": "1",
        "sigma_squared": "100", "coordinates": 4,
    }],
    ids=lambda event: event["type"],
)  # fmt: skip
def test_two_steps_cost_four_times_the_rho_and_mu_squared_of_one(
    accountant: str, event: dict[str, Any]
) -> None:
    """A changed label is a row less and a row more: twice the ε or μ, so four times the
    ρ or μ².
    """
    one = total(event, adjacency="add_remove", accountant=accountant)
    assert one > 0
    assert (
        total({**event, "adjacency": "label"}, adjacency="label", accountant=accountant)
        == one
    )
    assert total(event, adjacency="label", accountant=accountant) == 4 * one


def test_a_large_selection_costs_no_more_rho_than_any_mechanism_of_its_epsilon() -> (
    None
):
    """If ε²/8 exceeds ε·tanh(ε/2), the second amount is the price, because it bounds
    every ε-DP mechanism.
    """
    for epsilon, rho in (("2", Fraction(1, 2)), ("16", Fraction(16))):
        event = {
            **FLIP,
            "type": "exponential-mechanism/1",
            "range_sensitivity": "1",
            "inverse_scale": epsilon,
        }
        loss = total(event, adjacency="add_remove", accountant="zcdp")
        assert rho * Fraction(99, 100) < loss <= rho


FRACTIONS = st.fractions(0, 1000, max_denominator=2**32)
LEAVES = st.builds(
    service.DiscreteLaplace,
    st.just(Adjacency.ADD_REMOVE_ONE),
    FRACTIONS,
    FRACTIONS,
    st.integers(1, 9),
) | st.builds(
    service.PermuteAndFlip,
    st.just(Adjacency.ADD_REMOVE_ONE),
    FRACTIONS,
    FRACTIONS,
    st.integers(1, 9),
)


def _composed(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    parts = st.lists(st.builds(service.Part, st.integers(1, 9), inner), max_size=3).map(
        tuple
    )
    return st.builds(service.Sequential, parts) | st.builds(
        service.Parallel, st.text(max_size=3), parts
    )


@given(st.recursive(LEAVES, _composed, max_leaves=8))
def test_two_programs_agree_on_every_price(event: Any) -> None:
    expected = pure.loss(event, adjacency=Adjacency.ADD_REMOVE_ONE)
    assert total(event.to_json(), adjacency="add_remove", accountant="pure") == expected


@pytest.mark.parametrize(
    "event",
    [
        None,
        "discrete-laplace/1",
        [],
        {},
        {**LAPLACE, "type": "discrete-laplace/2"},
        {**LAPLACE, "type": ["discrete-laplace/1"]},
        {**LAPLACE, "adjacency": "replace_one"},
        {**LAPLACE, "adjacency": "label"},
        {**LAPLACE, "adjacency": ["add_remove"]},
        {**LAPLACE, "free": True},
        {name: value for name, value in LAPLACE.items() if name != "coordinates"},
        {**LAPLACE, "coordinates": 0},
        {**LAPLACE, "coordinates": True},
        {**LAPLACE, "inverse_scale": "6/16"},
        {**LAPLACE, "inverse_scale": "3/0"},
        {**LAPLACE, "inverse_scale": "-3/8"},
        {**LAPLACE, "inverse_scale": "0.375"},
        {**LAPLACE, "inverse_scale": " 3/8"},
        {**LAPLACE, "inverse_scale": "٣/8"},
        {**LAPLACE, "inverse_scale": 1},
        {**LAPLACE, "inverse_scale": "9" * 5000},
        {"type": "sequential/1"},
        {"type": "sequential/1", "parts": LAPLACE},
        {"type": "sequential/1", "parts": [LAPLACE]},
        {"type": "sequential/1", "parts": [], "over": "trees"},
        {"type": "sequential/1", "parts": [{"times": 0, "event": LAPLACE}]},
        {"type": "sequential/1", "parts": [{"times": -1, "event": LAPLACE}]},
        {"type": "sequential/1", "parts": [{"times": True, "event": LAPLACE}]},
        {
            "type": "sequential/1",
            "parts": [{"times": 1, "event": LAPLACE, "weight": 0}],
        },
        {"type": "parallel/1", "parts": []},
        {"type": "parallel/1", "over": 3, "parts": []},
    ],
)
def test_an_event_of_no_known_form_is_refused(event: Any) -> None:
    with pytest.raises(NotAnEvent):
        total(event, adjacency="add_remove", accountant="pure")


def test_nesting_is_bounded() -> None:
    event = LAPLACE
    for _ in range(MAX_DEPTH):
        event = {"type": "sequential/1", "parts": [_times(1, event)]}
    assert total(event, adjacency="add_remove", accountant="pure") == Fraction(3, 4)
    with pytest.raises(NotAnEvent, match="deeply"):
        total(
            {"type": "sequential/1", "parts": [_times(1, event)]},
            adjacency="add_remove",
            accountant="pure",
        )
