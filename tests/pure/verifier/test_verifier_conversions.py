"""The verifier's conversion of ε-DP to ρ and μ²: compared with the service's, and never
below the exact value.
"""

import math
from decimal import Decimal, localcontext
from fractions import Fraction

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from grovekeeper_forests.privacy import accountants
from grovekeeper_forests.privacy.accountants import gdp, zcdp
from grovekeeper_forests.privacy.accountants.accountant import (
    enclosure,
    lower_end,
    normal_lower_tail,
)
from grovekeeper_forests.privacy.events import (
    Adjacency,
    DiscreteLaplace,
    Event,
    ExponentialMechanism,
    Parallel,
    Part,
    PermuteAndFlip,
    RoundedGaussian,
    Sequential,
)
from grovekeeper_verifier import conversions
from grovekeeper_verifier.events import NotAnEvent, total

AR = Adjacency.ADD_REMOVE_ONE

wide = st.floats(min_value=-10, max_value=4, allow_nan=False).map(
    lambda power: Fraction(10**power)
)
wider = st.floats(min_value=-20, max_value=20, allow_nan=False).map(
    lambda power: Fraction(10**power)
)


@settings(max_examples=60, deadline=None)
@given(wider)
@example(Fraction(1, 2**32))
@example(Fraction(55452225, 2**32))
@example(Fraction(64 * 512))
@example(Fraction(1, 10**14))
@example(Fraction(10**6))
@example(Fraction(10**6) + Fraction(1, 10**30))
def test_the_verifier_and_the_service_convert_epsilon_alike(epsilon: Fraction) -> None:
    """A price covers the verifier's bound: otherwise an honest ledger with that price
    would not be verified.
    """
    for own, service in (
        (conversions.rho_of_pure(epsilon), zcdp.of_pure(epsilon)),
        (conversions.mu_squared_of_pure(epsilon), gdp.of_pure(epsilon)),
    ):
        assert 0 <= service - own <= service * Fraction(1, 10**20)


@settings(max_examples=30, deadline=None)
@given(wide)
def test_no_bound_is_below_the_truth(epsilon: Fraction) -> None:
    exact = enclosure(epsilon)

    assert conversions.rho_of_pure(epsilon) > lower_end(exact * (exact / 2).tanh()) * (
        1 - Fraction(1, 10**60)
    )
    x = (enclosure(conversions.mu_squared_of_pure(epsilon)) / 4).sqrt()
    assert normal_lower_tail(x) <= 1 / (1 + exact.exp())


def test_exact_values_from_other_sources() -> None:
    assert float(conversions.rho_of_pure(Fraction(1))) == pytest.approx(
        math.tanh(0.5), rel=1e-15
    )
    assert float(conversions.mu_squared_of_pure(Fraction(1))) ** 0.5 == pytest.approx(
        1.2320353853449007, rel=1e-12
    )
    assert float(
        conversions.mu_squared_of_pure(Fraction(1, 2))
    ) ** 0.5 == pytest.approx(0.6238925920985082, rel=1e-12)


def test_ends_of_the_range_are_covered_by_plain_bounds() -> None:
    assert (
        conversions.rho_of_pure(Fraction(0))
        == conversions.mu_squared_of_pure(Fraction(0))
        == 0
    )
    for tiny in (Fraction(1, 10**15), Fraction(1, 10**99)):
        assert conversions.rho_of_pure(tiny) == zcdp.of_pure(tiny) == tiny**2 / 2
    huge = Fraction(10**7)
    assert conversions.mu_squared_of_pure(huge) == 8 * huge
    assert conversions.rho_of_pure(huge) == huge


def test_callers_precision_does_not_matter() -> None:
    conversions.mu_squared_of_pure.cache_clear()
    with localcontext() as context:
        context.prec = 5
        coarse = conversions.mu_squared_of_pure(Fraction(1, 3))
        assert Decimal(1) / 3 == Decimal("0.33333")
    conversions.mu_squared_of_pure.cache_clear()
    assert conversions.mu_squared_of_pure(Fraction(1, 3)) == coarse


LEAVES: tuple[Event, ...] = (
    PermuteAndFlip(AR, Fraction(512), Fraction(3, 2**20), 30),
    DiscreteLaplace(AR, Fraction(1), Fraction(1, 4), 8),
    ExponentialMechanism(AR, Fraction(4), Fraction(1, 8), 30),
    ExponentialMechanism(AR, Fraction(4), Fraction(8), 30),
    RoundedGaussian(AR, Fraction(5, 3), Fraction(2**48), 12),
)


@pytest.mark.parametrize("accountant", ["zcdp", "gdp"])
@pytest.mark.parametrize("adjacency", [AR, Adjacency.LABEL])
def test_trees_cost_what_the_services_own_accountant_says(
    accountant: str, adjacency: Adjacency
) -> None:
    parts = tuple(Part(index + 1, leaf) for index, leaf in enumerate(LEAVES))
    event = Sequential((*parts, Part(7, Parallel("nodes", parts))))
    expected = accountants.by_name(accountant).loss(event, adjacency=adjacency)

    loss = total(event.to_json(), adjacency=adjacency.value, accountant=accountant)
    assert abs(loss - expected) <= expected * Fraction(1, 10**20)


def test_normal_noise_is_exact_and_has_no_pure_price() -> None:
    noisy = LEAVES[-1].to_json()

    assert total(noisy, adjacency="add_remove", accountant="zcdp") == Fraction(
        5, 6 * 2**48
    )
    assert total(noisy, adjacency="add_remove", accountant="gdp") == Fraction(
        5, 3 * 2**48
    )
    assert total(noisy, adjacency="label", accountant="gdp") == Fraction(20, 3 * 2**48)
    with pytest.raises(NotAnEvent):
        total(noisy, adjacency="add_remove", accountant="pure")
    with pytest.raises(NotAnEvent):
        total({**noisy, "sigma_squared": "0"}, adjacency="add_remove", accountant="gdp")
