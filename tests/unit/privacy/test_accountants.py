"""Published numbers, exact charges, and the ends of the range."""

from decimal import Decimal
from fractions import Fraction

import pytest

from app.privacy.accountants import gdp, zcdp
from app.privacy.adjacency import Adjacency
from app.privacy.events import DiscreteLaplace, ExponentialMechanism, PermuteAndFlip, RoundedGaussian

AR = Adjacency.ADD_REMOVE_ONE
DELTA = Fraction(1, 10**6)


@pytest.mark.parametrize(
    ("epsilon", "rho", "digits"),
    [("0.1", 3.21e-4, 6), ("0.5", 0.006642, 6), ("1", 0.024356, 6), ("2", 0.088153, 6), ("4", 0.311065, 6)],
)
def test_affordable_rho(epsilon: str, rho: float, digits: int) -> None:
    assert round(zcdp.cap(Fraction(epsilon), DELTA) / 10**12, digits) == rho


@pytest.mark.parametrize(
    ("epsilon", "mu"), [("0.1", 0.02754), ("0.5", 0.12411), ("1", 0.2367), ("2", 0.44833), ("10", 1.84813)]
)
def test_affordable_mu(epsilon: str, mu: float) -> None:
    assert round((gdp.cap(Fraction(epsilon), DELTA) / 10**12) ** 0.5, 5) == mu


def test_replace_one_at_one_and_a_millionth() -> None:
    assert round(float(zcdp.epsilon_of(4 * zcdp.cap(Fraction(1), DELTA), DELTA)), 3) == 2.112
    assert round(float(gdp.epsilon_of(4 * gdp.cap(Fraction(1), DELTA), DELTA)), 3) == 2.123


def test_gdp_grants_more_than_zcdp() -> None:
    for epsilon in (Fraction(1, 10), Fraction(1), Fraction(10)):
        assert gdp.cap(epsilon, DELTA) > 2 * zcdp.cap(epsilon, DELTA)


def test_charges_of_one_at_epsilon_one() -> None:
    selection = ExponentialMechanism(AR, Fraction(2), Fraction(1, 2), 9)
    flip = PermuteAndFlip(AR, Fraction(2), Fraction(1, 2), 9)
    counts = DiscreteLaplace(AR, Fraction(1), Fraction(1), 4)

    assert zcdp.loss(selection, adjacency=AR) == Fraction(1, 8)
    assert zcdp.loss(flip, adjacency=AR) == zcdp.loss(counts, adjacency=AR) == pytest.approx(0.46211715726)
    assert float(gdp.loss(selection, adjacency=AR)) ** 0.5 == pytest.approx(0.6238925921)
    assert float(gdp.loss(flip, adjacency=AR)) ** 0.5 == pytest.approx(1.2320353853)


def test_gaussian_charges_are_exact() -> None:
    noisy = RoundedGaussian(AR, Fraction(3, 7), Fraction(2**48), 10)

    assert zcdp.loss(noisy, adjacency=AR) == Fraction(3, 14 * 2**48)
    assert gdp.loss(noisy, adjacency=AR) == Fraction(3, 7 * 2**48)


def selection(epsilon: Fraction) -> ExponentialMechanism:
    return ExponentialMechanism(AR, Fraction(2), epsilon / 2, 9)


@pytest.mark.parametrize("epsilon", [Fraction(1, 10**15), Fraction(1, 2**32), Fraction(1, 10), Fraction(7)])
def test_selections_are_cheaper_than_other_pure_mechanisms(epsilon: Fraction) -> None:
    rho, mu_squared = (unit.loss(selection(epsilon), adjacency=AR) for unit in (zcdp, gdp))

    assert rho == epsilon**2 / 8 < zcdp.of_pure(epsilon) <= min(epsilon**2 / 2, epsilon)
    assert mu_squared < gdp.of_pure(epsilon) <= Fraction("1.2534") ** 2 * epsilon**2


def test_selection_of_a_large_epsilon_costs_no_more_than_any_pure_mechanism() -> None:
    assert zcdp.loss(selection(Fraction(30)), adjacency=AR) == zcdp.of_pure(Fraction(30)) <= 30


def test_branches_of_the_quantile_join() -> None:
    """The tangent below 10⁻¹² and the tail bound above 10⁶ are near what they stand in for, and never below it."""
    near_zero, far = Fraction(1, 10**12), Fraction(10**6)
    tangent, quantile = gdp.of_pure(near_zero * Fraction(999, 1000)), gdp.of_pure(near_zero)
    assert tangent * Fraction(1000, 999) ** 2 == pytest.approx(float(quantile), rel=1e-12, abs=0)
    assert quantile < gdp.of_pure(far) < gdp.of_pure(far + 1) < gdp.of_pure(far) * Fraction(10_001, 10_000)


@pytest.mark.parametrize("unit", [zcdp, gdp])
def test_budget_too_small_for_one_step_opens_nothing(unit: object) -> None:
    for epsilon, delta in (("1e-18", "1e-18"), ("1e-9", "1e-99"), ("1e-99", "1e-99")):
        assert unit.cap(Fraction(epsilon), Fraction(delta)) == 0  # type: ignore[attr-defined]


@pytest.mark.parametrize("unit", [zcdp, gdp])
@pytest.mark.parametrize(
    ("epsilon", "delta"), [("1000000", "1e-6"), ("1000000", "0.5"), ("1", "1e-99"), ("1", "0.999")]
)
def test_ends_of_the_range_convert_and_return(unit: object, epsilon: str, delta: str) -> None:
    cap = unit.cap(Fraction(epsilon), Fraction(delta))  # type: ignore[attr-defined]

    assert 0 < cap < 2**63
    assert unit.epsilon_of(cap, Fraction(delta)) == Fraction(epsilon)  # type: ignore[attr-defined]


def test_delta_alone_can_cover_a_small_mu() -> None:
    assert gdp.epsilon_of(10**6, Fraction(1, 100)) == 0
    assert gdp.epsilon_of(10**12, Fraction(1, 100)) > 0


def test_a_quantile_that_was_found_wrongly_is_not_charged(monkeypatch: pytest.MonkeyPatch) -> None:
    """The search is not trusted: one that ends below the solution is noticed."""
    monkeypatch.setattr(gdp, "_quantile", lambda *_, **__: Decimal("0.1"))
    with pytest.raises(ArithmeticError, match="safe side"):
        gdp.of_pure.__wrapped__(Fraction(1))
