"""Prices of declared losses in every unit: exact where possible, and never below an
independent computation.
"""

from fractions import Fraction
from math import isclose, tanh

import pytest
from dp_accounting import GaussianDpEvent
from dp_accounting.rdp import RdpAccountant
from hypothesis import given
from hypothesis import strategies as st

from grovekeeper_forests.privacy import declared
from grovekeeper_forests.privacy.declared import DeclaredLoss
from grovekeeper_forests.privacy.events import (
    Adjacency,
    NoBoundInUnit,
    UnknownPrivacyEvent,
)

ROW, LABEL = Adjacency.ADD_REMOVE_ONE, Adjacency.LABEL
HALF, TENTH = Fraction(1, 2), Fraction(1, 10)


def _loss(
    stated: DeclaredLoss, accountant: str, adjacency: Adjacency = ROW
) -> Fraction:
    return declared.loss(stated, accountant=accountant, adjacency=adjacency)


@pytest.mark.parametrize(
    ("stated", "accepted"),
    [
        (DeclaredLoss(ROW, epsilon=HALF), ("pure", "zcdp", "gdp")),
        (DeclaredLoss(ROW, rho=TENTH), ("zcdp",)),
        (DeclaredLoss(ROW, mu=TENTH), ("zcdp", "gdp")),
        (DeclaredLoss(ROW, epsilon=HALF, delta=TENTH), ("zcdp",)),
        (DeclaredLoss(LABEL, epsilon=HALF), ()),
        (DeclaredLoss(Adjacency.REPLACE_ONE, epsilon=HALF), ()),
    ],
)
def test_a_statement_is_taken_where_it_has_a_bound(
    stated: DeclaredLoss, accepted: tuple[str, ...]
) -> None:
    assert declared.accepting(stated, adjacency=ROW) == accepted
    for accountant in {"pure", "zcdp", "gdp"} - set(accepted):
        expected = UnknownPrivacyEvent if stated.adjacency is not ROW else NoBoundInUnit
        with pytest.raises(expected):
            _loss(stated, accountant)


def test_prices_in_the_units_own_terms_are_exact() -> None:
    assert _loss(DeclaredLoss(ROW, epsilon=HALF), "pure") == HALF
    assert _loss(DeclaredLoss(ROW, rho=TENTH), "zcdp") == TENTH
    assert _loss(DeclaredLoss(ROW, mu=TENTH), "gdp") == Fraction(1, 100)
    assert _loss(DeclaredLoss(ROW, mu=TENTH), "zcdp") == Fraction(1, 200)


@given(epsilon=st.fractions(Fraction(1, 1000), 20, max_denominator=10**6))
def test_a_declared_epsilon_costs_what_every_such_mechanism_does(
    epsilon: Fraction,
) -> None:
    rho = _loss(DeclaredLoss(ROW, epsilon=epsilon), "zcdp")
    assert isclose(rho, float(epsilon) * tanh(float(epsilon) / 2), rel_tol=1e-9)
    assert rho <= epsilon**2 / 2
    assert _loss(DeclaredLoss(ROW, epsilon=epsilon, delta=TENTH), "zcdp") == rho
    assert _loss(DeclaredLoss(LABEL, epsilon=epsilon), "pure", LABEL) == epsilon
    assert _loss(DeclaredLoss(ROW, epsilon=epsilon), "pure", LABEL) == 2 * epsilon
    assert _loss(DeclaredLoss(ROW, epsilon=epsilon), "zcdp", LABEL) == 4 * rho


def test_a_declared_mu_is_the_normal_mechanism_of_another_library() -> None:
    mu, order = Fraction(3, 10), 8
    accountant = RdpAccountant([order])
    accountant.compose(GaussianDpEvent(float(1 / mu)))
    rho = _loss(DeclaredLoss(ROW, mu=mu), "zcdp")
    assert isclose(accountant._rdp[0], order * rho, rel_tol=1e-12)


def test_epsilon_and_delta_are_not_multiplied_for_groups() -> None:
    with pytest.raises(UnknownPrivacyEvent):
        _loss(DeclaredLoss(ROW, epsilon=HALF, delta=TENTH), "zcdp", LABEL)


@pytest.mark.parametrize(
    "wrong",
    [
        {}, {"epsilon": HALF, "rho": HALF}, {"mu": Fraction(0)}, {"rho": HALF, "delta": TENTH},
        {"epsilon": HALF, "delta": Fraction(1)}, {"epsilon": HALF, "delta": Fraction(0)}, {"delta": TENTH},
    ],
)  # fmt: skip
def test_other_combinations_of_fields_are_no_declared_loss(
    wrong: dict[str, Fraction],
) -> None:
    with pytest.raises(ValueError, match="epsilon"):
        DeclaredLoss(ROW, **wrong)


def test_a_declared_loss_has_a_json_form_and_a_sentence() -> None:
    stated = DeclaredLoss(ROW, epsilon=HALF, delta=Fraction(1, 10**7))
    assert stated.to_json() == {
        "adjacency": "add_remove",
        "epsilon": "0.5",
        "delta": "0.0000001",
    }
    assert (
        declared.from_json(
            {"adjacency": "add_remove", "epsilon": "0.5", "delta": "0.0000001"}
        )
        == stated
    )
    words = "Declared: at most ε = 0.5 and δ = 0.0000001 where one unit is added or removed."
    assert declared.in_words(stated, one="unit") == words
