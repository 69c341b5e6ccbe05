"""Measurements of OpenDP on accounts of the service: the price is their own map at what
the account protects, and nothing is read before it is paid.
"""

import math
import pickle
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from typing import Any

import opendp.prelude as dp
import pytest

from grovekeeper_client import ApiProblem, Dataset, Grovekeeper, Refused
from grovekeeper_client.adapters import opendp
from grovekeeper_client.adapters.protocol import AlreadyRun
from grovekeeper_client.adapters.rounding import Unpriced, upward
from tests.support.databases import on_one_server
from tests.support.server import Server

AGES = [20, 40, 60]
ZCDP = {"accountant": "zcdp", "rho": "0.5", "delta": "1e-6", "delta_set_aside": "5e-7"}
VISITS = {"column": "patient", "max_rows": 3}


@pytest.fixture(autouse=True)
def contrib() -> None:
    dp.enable_features("contrib")


def unread() -> Any:
    """Rows that nobody may open."""
    raise AssertionError("a row was read")


def of_account(server: Server, **declared: Any) -> Dataset:
    budget = {"budget": {"accountant": "pure", "epsilon": "1"}} | declared
    name = server.declared(**budget)["name"]
    return Grovekeeper(server.url, server.admin.key).dataset(name)


def space(metric: Any = None, size: int | None = None) -> Any:
    rows = dp.vector_domain(dp.atom_domain(T=int), size=size)
    return rows, metric or dp.symmetric_distance()


def noisy_sum(then: Any, start: Any = None) -> Any:
    clamped = (start or space()) >> dp.t.then_clamp((0, 120))
    return clamped >> dp.t.then_sum() >> then


def laplace() -> Any:
    return noisy_sum(dp.m.then_laplace(240.0))


def gaussian() -> Any:
    return noisy_sum(dp.m.then_gaussian(1200.0))


def approximate(delta: float = 1e-7) -> Any:
    return dp.c.make_fix_delta(dp.c.make_zCDP_to_approxDP(gaussian()), delta)


def charged(dataset: Dataset) -> Decimal:
    return dataset.balance().charged


@on_one_server
def test_what_is_paid_runs_once_and_what_does_not_fit_reads_nothing(
    server: Server,
) -> None:
    dataset = of_account(server)
    noisy = opendp.mechanism(dataset, laplace(), description="sum of ages")
    assert noisy.quote()["price"]["amount"] == "0.5", "OpenDP's own ε"
    assert charged(dataset) == 0
    paid = noisy.charge()
    assert charged(dataset) == Decimal("0.5")
    assert isinstance(paid.run(lambda: AGES), int)
    with pytest.raises(AlreadyRun):
        paid.run(unread)
    with pytest.raises((TypeError, ValueError), match="pickle"):
        pickle.dumps(paid)
    assert isinstance(noisy.run(lambda: AGES), int), "a second run pays again"
    with pytest.raises(Refused) as refused:
        noisy.run(unread)
    assert refused.value.remaining == 0
    assert charged(dataset) == 1


@on_one_server
def test_what_fails_before_the_rows_are_opened_keeps_its_paid_run_and_later_does_not(
    server: Server,
) -> None:
    dataset = of_account(server)
    paid = opendp.mechanism(dataset, laplace(), description="sum of ages").charge()

    def broken() -> Any:
        raise OSError("no such file")

    with pytest.raises(OSError, match="no such file"):
        paid.run(broken)
    with pytest.raises(AlreadyRun):
        paid.run(unread)
    assert charged(dataset) == Decimal("0.5")


@on_one_server
@pytest.mark.parametrize(
    ("declared", "measurement", "price"),
    [
        ({"budget": ZCDP}, gaussian, "0.005"),
        ({"budget": ZCDP}, laplace, "0.122459331202"),
        ({"privacy_unit": VISITS}, laplace, "1.5"),
        ({"protects": "label"}, laplace, "1"),
        ({"budget": ZCDP, "privacy_unit": VISITS}, gaussian, "0.045"),
        ({"budget": ZCDP, "protects": "label"}, gaussian, "0.02"),
    ],
)
def test_the_price_is_the_map_at_what_the_account_protects(
    server: Server,
    declared: dict[str, Any],
    measurement: Callable[[], Any],
    price: str,
) -> None:
    dataset = of_account(server, **declared)
    stated = opendp.mechanism(dataset, measurement(), description="sum of ages")
    quote = stated.quote()["price"]
    assert 0 <= Decimal(quote["amount"]) - Decimal(price) <= Decimal("1e-9")


@on_one_server
@pytest.mark.parametrize("fixed", [1e-7, 1e-14])
def test_an_approximate_measurement_costs_of_the_delta_that_is_set_aside(
    server: Server, fixed: float
) -> None:
    dataset = of_account(server, budget=ZCDP)
    measurement = approximate(fixed)
    epsilon, delta = measurement.map(1)
    assert delta > 0
    price = opendp.mechanism(dataset, measurement, description="sum").quote()["price"]
    rho = Decimal(epsilon * math.tanh(epsilon / 2))
    assert abs(Decimal(price["amount"]) - rho) <= Decimal("1e-12")
    assert 0 <= Fraction(price["delta"]) - Fraction(delta) < Fraction(1, 10**18)


@on_one_server
def test_accounts_that_cannot_count_a_measurement_refuse_it(server: Server) -> None:
    dataset = of_account(server)
    for measurement in (gaussian(), approximate()):
        stated = opendp.mechanism(dataset, measurement, description="sum of ages")
        with pytest.raises(ApiProblem) as problem:
            stated.run(unread)
        assert problem.value.type == "accountant-mismatch"
    no_delta = {name: ZCDP[name] for name in ("accountant", "rho", "delta")}
    dataset = of_account(server, budget=no_delta)
    with pytest.raises(Refused):
        opendp.mechanism(dataset, approximate(), description="sum").run(unread)
    assert charged(dataset) == 0


def sized(metric: Any = None) -> Any:
    return noisy_sum(dp.m.then_laplace(240.0), space(metric, 10))


def ordered() -> Any:
    return sized(dp.insert_delete_distance())


def replaced() -> Any:
    bounded = dp.t.make_metric_unbounded(*space(dp.change_one_distance(), 10))
    return (
        bounded
        >> dp.t.then_clamp((0, 120))
        >> dp.t.then_sum()
        >> dp.m.then_laplace(240.0)
    )


def bit() -> Any:
    return dp.m.make_randomized_response_bool(0.75)


def smoothed() -> Any:
    return dp.c.make_zCDP_to_approxDP(gaussian())


@on_one_server
@pytest.mark.parametrize(
    ("measurement", "why"),
    [
        (sized, "fixes the number of rows"),
        (ordered, "fixes the number of rows"),
        (replaced, "ChangeOneDistance is no distance"),
        (bit, "DiscreteDistance is no distance"),
        (smoothed, "make_fix_delta"),
    ],
)
def test_a_measurement_without_a_sound_price_is_refused(
    server: Server, measurement: Callable[[], Any], why: str
) -> None:
    assert sized().map(1) == 0, "of lists of one length none has one row more"
    dataset = of_account(server)
    with pytest.raises(Unpriced, match=why):
        opendp.mechanism(dataset, measurement(), description="sum of ages")


@on_one_server
def test_a_replaced_row_is_a_changed_label(server: Server) -> None:
    dataset = of_account(server, protects="label")
    for measurement in (replaced(), sized()):
        stated = opendp.mechanism(dataset, measurement, description="sum of ages")
        assert stated.stated["declared"]["epsilon"] == "5E-1"


def test_losses_are_rounded_up() -> None:
    assert upward(0.5) == "5E-1"
    assert Decimal(upward(0.1)) > Decimal("0.1"), "a float holds a little more"
    assert Fraction(upward(1e-30)) >= Fraction(1e-30)
    for loss in (0.0, float("inf"), float("nan")):
        with pytest.raises(Unpriced):
            upward(loss)
