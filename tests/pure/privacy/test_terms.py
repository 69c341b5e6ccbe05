"""What terms state, refuse and cover."""

from fractions import Fraction

import pytest

from grovekeeper_forests import limits
from grovekeeper_forests.errors import ParameterInvalid
from grovekeeper_forests.privacy.accountants import pure, zcdp
from grovekeeper_forests.privacy.calibration import Budget, Terms
from grovekeeper_forests.privacy.events import (
    Adjacency,
    DiscreteLaplace,
    UnknownPrivacyEvent,
)

AR = Adjacency.ADD_REMOVE_ONE


def test_a_price_is_stated_with_its_unit_and_its_terms() -> None:
    assert Terms(Fraction(1, 4)).stated(250_000_000) == {
        "accountant": "pure",
        "unit": "epsilon",
        "amount": "0.25",
        "epsilon": "0.25",
        "delta": None,
    }
    with_delta = Terms(Fraction(2), zcdp.NAME, Fraction(1, 1000))
    assert with_delta.stated(5 * 10**11) == {
        "accountant": "zcdp",
        "unit": "rho",
        "amount": "0.5",
        "epsilon": "2",
        "delta": "0.001",
    }


def test_an_epsilon_above_any_account_with_a_delta_is_refused_with_the_largest() -> (
    None
):
    largest = Terms(
        Fraction(limits.MAX_CAP_EPSILON_WITH_DELTA), zcdp.NAME, Fraction(1, 1000)
    )
    assert largest.price() > 0
    with pytest.raises(ParameterInvalid) as refused:
        Terms(largest.epsilon + 1, zcdp.NAME, largest.delta).price()
    [problem] = refused.value.problems
    assert (problem.place, problem.problem, problem.accepted) == (
        ("epsilon",),
        "too-large",
        (f"at most {limits.MAX_CAP_EPSILON_WITH_DELTA}",),
    )


def test_every_row_of_a_unit_counts_towards_what_terms_cover() -> None:
    event = DiscreteLaplace(AR, Fraction(1), Fraction(1, 4), 3)
    for max_rows, is_covered in ((1, True), (2, True), (3, False)):
        terms = Terms(Fraction(1, 2), max_rows=max_rows)
        assert terms.covers(event) == is_covered


def test_a_guarantee_under_another_adjacency_is_covered_for_labels_alone() -> None:
    whole = Budget("pure", 11, Adjacency.LABEL)
    assert whole.stated_under(AR) == Budget("pure", 5, AR)
    for adjacency, other in (
        (Adjacency.REPLACE_ONE, AR),
        (AR, Adjacency.LABEL),
        (Adjacency.LABEL, Adjacency.REPLACE_ONE),
    ):
        with pytest.raises(UnknownPrivacyEvent):
            Budget("pure", 11, adjacency).stated_under(other)


def test_a_pure_mechanism_costs_its_epsilon_in_rho_at_most() -> None:
    """From where ε·tanh(ε/2) cannot be told from ε."""
    assert zcdp.of_pure(Fraction(1000)) == 1000
    assert 0 < zcdp.of_pure(Fraction(2)) < 2


def test_a_pure_account_has_no_delta() -> None:
    one, delta = Fraction(1), Fraction(1, 1000)
    assert pure.price(one) == pure.cap(one) == 10**9
    assert pure.epsilon_of(10**9) == 1
    for call in (
        lambda: pure.price(one, delta),
        lambda: pure.cap(one, delta),
        lambda: pure.epsilon_of(10**9, delta),
    ):
        with pytest.raises(ValueError, match="a pure account has no δ"):
            call()
