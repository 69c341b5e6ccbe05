"""Tests accountants over their whole range, and against the public libraries
dp-accounting and OpenDP.
"""

import math
from fractions import Fraction

import dp_accounting
import numpy as np
import opendp.prelude as opendp
import pytest
from dp_accounting.rdp.rdp_privacy_accountant import compute_epsilon
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy import optimize
from scipy.special import ndtr

from grovekeeper_forests.privacy.accountants import gdp, largest_that_fits, zcdp
from grovekeeper_forests.privacy.accountants.accountant import Accountant, enclosure

pytestmark = pytest.mark.property

STEP = Fraction(1, 10**12)
NANO = Fraction(1, 10**9)
TOLERANCE = 1e-9

units = st.sampled_from([zcdp, gdp])
epsilons = st.fractions(
    min_value=Fraction(1, 1000), max_value=Fraction(100), max_denominator=10**6
)
deltas = st.integers(min_value=1, max_value=12).map(
    lambda power: Fraction(1, 10**power)
)
oracle_grid = pytest.mark.parametrize(
    ("epsilon", "delta"),
    [
        (e, d)
        for e in ("0.1", "0.5", "1", "2", "4", "10")
        for d in ("1e-5", "1e-6", "1e-9")
    ],
)


@settings(max_examples=30, deadline=None)
@given(units, epsilons, deltas)
def test_conversions_round_to_the_safe_side_and_back(
    unit: Accountant, epsilon: Fraction, delta: Fraction
) -> None:
    cap = unit.cap(epsilon, delta)

    assert unit.cap(epsilon, delta * 2 if delta < Fraction(1, 2) else delta) >= cap
    assert unit.cap(epsilon + NANO, delta) >= cap
    if cap > 0:
        converted = unit.epsilon_of(cap, delta)
        assert converted <= epsilon + NANO
        assert unit.cap(converted, delta) >= cap


@settings(max_examples=15, deadline=None)
@given(
    units,
    epsilons,
    deltas,
    st.fractions(min_value=0, max_value=1, max_denominator=1000),
)
@example(zcdp, Fraction(1, 1000), Fraction(1, 10**6), Fraction(1))
def test_the_largest_epsilon_that_fits_is_affordable_and_the_next_is_not(
    unit: Accountant, epsilon: Fraction, delta: Fraction, left: Fraction
) -> None:
    remaining = int(unit.cap(epsilon, delta) * left)
    largest = largest_that_fits(unit.NAME, remaining, delta)

    if largest > epsilon + NANO:  # a small ε and larger ε can have equal prices
        assert unit.price(largest, delta) == unit.price(epsilon, delta)
    if largest > 0:
        assert unit.price(largest, delta) <= remaining
    if remaining > 0:
        assert unit.price(largest + NANO, delta) > remaining


@settings(max_examples=20, deadline=None)
@given(
    st.lists(
        st.fractions(min_value=Fraction(1, 100), max_value=3, max_denominator=1000),
        min_size=2,
        max_size=4,
    )
)
def test_a_pure_mechanism_never_costs_less_than_its_parts(
    parts: list[Fraction],
) -> None:
    """The price of a forest draw by draw is at most the price of one mechanism of the
    summed ε.
    """
    for of_pure in (zcdp.of_pure, gdp.of_pure):
        assert sum(map(of_pure, parts)) <= of_pure(sum(parts, Fraction(0)))


@settings(max_examples=60, deadline=None)
@given(st.floats(min_value=1e-6, max_value=30))
def test_charges_of_pure_mechanisms_agree_with_floating_point(epsilon: float) -> None:
    exact = Fraction(epsilon)
    tail = optimize.brentq(
        lambda x: ndtr(-x) * (1 + math.exp(epsilon)) - 1, 0, 10, xtol=1e-15
    )

    assert float(zcdp.of_pure(exact)) == pytest.approx(
        epsilon * math.tanh(epsilon / 2), rel=1e-12
    )
    assert float(gdp.of_pure(exact)) == pytest.approx(4 * tail**2, rel=1e-6)


def epsilon_by_opendp(rho: float, delta: str) -> float:
    opendp.enable_features("contrib")
    noise = opendp.m.make_gaussian(
        opendp.atom_domain(T=float, nan=False),
        opendp.absolute_distance(T=float),
        scale=1 / math.sqrt(2 * rho),
    )
    return float(
        opendp.c.make_zCDP_to_approxDP(noise).map(1.0).epsilon(delta=float(delta))
    )


def epsilon_by_dp_accounting(mu_squared: float, delta: str) -> float:
    with np.errstate(divide="ignore"):  # δ at an ε where it is 0 in floating point
        return float(
            dp_accounting.get_epsilon_gaussian(
                1 / math.sqrt(mu_squared), float(delta), tol=1e-13
            )
        )


@oracle_grid
def test_rho_agrees_with_opendp(epsilon: str, delta: str) -> None:
    cap = zcdp.cap(Fraction(epsilon), Fraction(delta))

    assert epsilon_by_opendp(cap / 10**12, delta) == pytest.approx(
        float(epsilon), abs=TOLERANCE
    )
    assert epsilon_by_opendp(cap / 10**12, delta) <= float(epsilon) + 1e-12
    assert epsilon_by_opendp(4 * cap / 10**12, delta) == pytest.approx(
        float(zcdp.epsilon_of(4 * cap, Fraction(delta))), abs=2 * TOLERANCE
    )


@pytest.mark.parametrize(
    ("epsilon", "delta"),
    [
        (e, d)
        for e in ("0.0001", "0.01", "30", "100")
        for d in ("1e-12", "1e-6", "0.01", "0.1")
    ],
)
def test_a_cap_at_the_ends_of_the_range_is_safe_and_the_next_step_is_not(
    epsilon: str, delta: str
) -> None:
    limit, exact, slack = (
        float(epsilon),
        (Fraction(epsilon), Fraction(delta)),
        1e-13 * max(float(epsilon), 1.0),
    )
    rho, mu_squared = zcdp.cap(*exact), gdp.cap(*exact)

    assert (
        epsilon_by_opendp(rho / 10**12, delta) - slack
        <= limit
        <= epsilon_by_opendp((rho + 1) / 10**12, delta) + slack
    )
    assert epsilon_by_dp_accounting(mu_squared / 10**12, delta) - slack <= limit
    assert limit <= epsilon_by_dp_accounting((mu_squared + 1) / 10**12, delta) + slack


@oracle_grid
def test_rho_agrees_with_dp_accounting(epsilon: str, delta: str) -> None:
    cap = zcdp.cap(Fraction(epsilon), Fraction(delta)) / 10**12

    def epsilon_at(log_order: float) -> float:
        orders = np.array([1 + math.exp(log_order)])
        return float(compute_epsilon(orders, orders * cap, float(delta))[0])

    best = optimize.minimize_scalar(
        epsilon_at, bounds=(-5, 12), method="bounded", options={"xatol": 1e-9}
    )
    assert best.fun == pytest.approx(float(epsilon), abs=TOLERANCE)


@oracle_grid
def test_mu_agrees_with_dp_accounting(epsilon: str, delta: str) -> None:
    cap = gdp.cap(Fraction(epsilon), Fraction(delta))

    assert epsilon_by_dp_accounting(cap / 10**12, delta) == pytest.approx(
        float(epsilon), abs=TOLERANCE
    )
    assert epsilon_by_dp_accounting(4 * cap / 10**12, delta) == pytest.approx(
        float(gdp.epsilon_of(4 * cap, Fraction(delta))), abs=2 * TOLERANCE
    )


@pytest.mark.parametrize("delta", ["1e-12", "1e-9", "1e-6", "1e-5", "0.1"])
@pytest.mark.parametrize(
    "epsilon", ["0.0001", "0.1", "0.5", "1", "2", "4", "10", "100"]
)
def test_delta_of_a_cap_is_at_most_the_budgets_and_of_the_next_step_is_larger(
    epsilon: str, delta: str
) -> None:
    cap, limit = gdp.cap(Fraction(epsilon), Fraction(delta)), enclosure(Fraction(delta))

    assert gdp.delta_of(Fraction(epsilon), cap * STEP) <= limit
    assert gdp.delta_of(Fraction(epsilon), (cap + 1) * STEP) > limit
