"""Events of dp_accounting on accounts of the service: each price bounds the loss of the
event, and what has no sound price is refused before a row is read.
"""

import math
from decimal import Decimal
from fractions import Fraction
from statistics import NormalDist
from typing import Any

import pytest
from dp_accounting import dp_event as events
from dp_accounting.pld import privacy_loss_distribution

from grovekeeper_client import ApiProblem, Dataset, Grovekeeper, Refused
from grovekeeper_client.adapters import dp_accounting
from grovekeeper_client.adapters.rounding import (
    Unpriced,
    amplified,
    mu_squared_of_pure,
    rho_of_pure,
)
from tests.support.databases import on_one_server
from tests.support.server import Server

PURE = {"accountant": "pure", "epsilon": "1"}
ZCDP = {"accountant": "zcdp", "rho": "0.5", "delta": "1e-6", "delta_set_aside": "5e-7"}
GDP = {"accountant": "gdp", "mu": "1", "delta": "1e-6"}
GAUSSIAN, LAPLACE = events.GaussianDpEvent(20.0), events.LaplaceDpEvent(4.0)
DISCRETE = events.DiscreteLaplaceDpEvent(0.125, 2)
BOTH = events.ComposedDpEvent([GAUSSIAN, events.SelfComposedDpEvent(LAPLACE, 2)])
SAMPLED = events.PoissonSampledDpEvent(0.25, LAPLACE)
SGD = events.SelfComposedDpEvent(
    events.PoissonSampledDpEvent(0.01, events.GaussianDpEvent(2.0)), 100
)
AGES = [20, 40, 60]
SGD_EPSILON = 0.39
"""A little more than the ε of SGD at 10⁻⁷."""


def unread() -> Any:
    """Rows that nobody may open."""
    raise AssertionError("a row was read")


def of_account(server: Server, budget: dict[str, str], **declared: Any) -> Dataset:
    name = server.declared(budget=budget, **declared)["name"]
    return Grovekeeper(server.url, server.admin.key).dataset(name)


def stated(dataset: Dataset, event: Any, **options: Any) -> Any:
    said = {"adjacency": "add_remove", "per": "row", "description": "sum of ages"}
    return dp_accounting.mechanism(dataset, event, sum, **(said | options))


def price(dataset: Dataset, event: Any, **options: Any) -> Decimal:
    return Decimal(stated(dataset, event, **options).quote()["price"]["amount"])


@on_one_server
def test_what_is_paid_runs_and_what_does_not_fit_reads_nothing(server: Server) -> None:
    dataset = of_account(server, PURE)
    noisy = stated(dataset, events.SelfComposedDpEvent(LAPLACE, 3))
    assert noisy.run(lambda: AGES) == 120
    with pytest.raises(Refused):
        noisy.run(unread)
    assert dataset.balance().charged == Decimal("0.75")


@on_one_server
def test_each_account_counts_what_it_has_a_bound_for(server: Server) -> None:
    pure, zcdp, gdp = (of_account(server, it) for it in (PURE, ZCDP, GDP))
    rho_of_laplace = 0.25 * math.tanh(0.125)
    expected = [
        (pure, DISCRETE, 0.25),
        (pure, SAMPLED, math.log1p(0.25 * math.expm1(0.25))),
        (zcdp, GAUSSIAN, 1 / 800),
        (zcdp, BOTH, 1 / 800 + 2 * rho_of_laplace),
        (zcdp, events.ZCDpEvent(rho=0.125), 0.125),
        (gdp, GAUSSIAN, 1 / 400),
        (gdp, BOTH, 1 / 400 + 2 * 1.5708 / 16),
    ]
    for dataset, event, least in expected:
        paid = float(price(dataset, event))
        assert least * (1 - 1e-12) <= paid <= least * (1 + 1e-6), event
    assert price(gdp, GAUSSIAN) == Decimal("0.0025"), "an exact root stays exact"


@on_one_server
def test_a_sampled_gaussian_is_priced_at_a_delta(server: Server) -> None:
    dataset = of_account(server, ZCDP)
    quote = stated(dataset, SGD, delta="1e-7").quote()["price"]
    assert quote["delta"] == "0.0000001"
    at_once = SGD_EPSILON * math.tanh(SGD_EPSILON / 2)
    assert float(quote["amount"]) <= at_once
    pld = privacy_loss_distribution.from_gaussian_mechanism(2.0, sampling_prob=0.01)
    epsilon = pld.self_compose(100).get_epsilon_for_delta(1e-7)
    assert float(quote["amount"]) >= epsilon * math.tanh(epsilon / 2)


@on_one_server
def test_units_and_labels_pay_for_what_they_change(server: Server) -> None:
    visits = of_account(server, ZCDP, privacy_unit={"column": "patient", "max_rows": 3})
    assert price(visits, GAUSSIAN) == 9 * price(visits, GAUSSIAN, per="unit")
    labels = of_account(server, PURE, protects="label")
    assert price(labels, LAPLACE) == 2 * price(labels, LAPLACE, adjacency="label")


def less_than(part: Any) -> Any:
    """Two parts, one of which would lower the sum: the library checks no numbers."""
    return events.ComposedDpEvent([LAPLACE, part])


@on_one_server
@pytest.mark.parametrize(
    ("event", "options"),
    [
        (SGD, {}),
        (GAUSSIAN, {}),
        (BOTH, {}),
        (events.NonPrivateDpEvent(), {}),
        (events.NonPrivateDpEvent(), {"delta": "1e-7"}),
        (events.GaussianDpEvent(0.0), {}),
        (events.NoOpDpEvent(), {}),
        (events.ZCDpEvent(rho=0.1, xi=0.1), {}),
        (events.RandomizedResponseDpEvent(0.5, 2), {}),
        (events.SampledWithoutReplacementDpEvent(10, 2, LAPLACE), {}),
        (SAMPLED, {"adjacency": "label"}),
        (less_than(events.DiscreteLaplaceDpEvent(-0.1, 1)), {}),
        (less_than(events.SelfComposedDpEvent(DISCRETE, -1)), {}),
        (less_than(events.PoissonSampledDpEvent(-0.5, DISCRETE)), {}),
        (SGD, {"adjacency": "label", "delta": "1e-7"}),
    ],
)
def test_an_event_without_a_sound_price_is_refused(
    server: Server, event: Any, options: dict[str, Any]
) -> None:
    with pytest.raises(Unpriced):
        stated(of_account(server, PURE), event, **options)


@on_one_server
def test_the_service_refuses_a_loss_for_replacing_a_row(server: Server) -> None:
    dataset = of_account(server, PURE)
    with pytest.raises(ApiProblem) as problem:
        stated(dataset, LAPLACE, adjacency="replace_one").run(unread)
    assert problem.value.errors[0].problem == "other-adjacency"
    assert dataset.balance().charged == 0


@pytest.mark.parametrize("exponent", range(-9, 4))
def test_bounds_of_an_epsilon_are_bounds(exponent: int) -> None:
    """μ² is at least the exact one where a float can tell, ρ at least its tangents'."""
    epsilon = Fraction(2) ** exponent
    exact = 2 * NormalDist().inv_cdf(1 / (1 + math.exp(-epsilon)))
    assert float(mu_squared_of_pure(epsilon)) >= exact**2
    rho = rho_of_pure(epsilon)
    assert float(rho) == pytest.approx(epsilon * math.tanh(epsilon / 2), rel=1e-12)
    assert rho < epsilon**2 / 2
    half = amplified(epsilon, Fraction(1, 2))
    assert float(half) == pytest.approx(math.log1p(math.expm1(epsilon) / 2), rel=1e-12)
    assert amplified(epsilon, Fraction(1)) == epsilon
