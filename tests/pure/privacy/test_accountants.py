"""Accountants: published values, exact charges, smallest and largest budgets; their
enclosures of real numbers.
"""

from decimal import Decimal, localcontext
from fractions import Fraction

import pytest
from flint import arb, ctx
from scipy.special import log_ndtr

from grovekeeper_forests.privacy.accountants import (
    ALL,
    Amount,
    gdp,
    largest_that_fits,
    zcdp,
)
from grovekeeper_forests.privacy.accountants.accountant import (
    Accountant,
    enclosure,
    largest_holding,
    lower_end,
    normal_lower_tail,
    steps_down,
    steps_up,
    upper_end,
)
from grovekeeper_forests.privacy.events import (
    Adjacency,
    DiscreteLaplace,
    ExponentialMechanism,
    PermuteAndFlip,
    RoundedGaussian,
)

AR = Adjacency.ADD_REMOVE_ONE
DELTA = Fraction(1, 10**6)
NANO = Fraction(1, 10**9)


@pytest.mark.parametrize(
    ("epsilon", "rho", "digits"),
    [
        ("0.1", 3.21e-4, 6),
        ("0.5", 0.006642, 6),
        ("1", 0.024356, 6),
        ("2", 0.088153, 6),
        ("4", 0.311065, 6),
    ],
)
def test_the_rho_of_a_cap_equals_published_values(
    epsilon: str, rho: float, digits: int
) -> None:
    assert round(zcdp.cap(Fraction(epsilon), DELTA) / 10**12, digits) == rho


@pytest.mark.parametrize(
    ("epsilon", "mu"),
    [
        ("0.1", 0.02754),
        ("0.5", 0.12411),
        ("1", 0.2367),
        ("2", 0.44833),
        ("10", 1.84813),
    ],
)
def test_the_mu_of_a_cap_equals_published_values(epsilon: str, mu: float) -> None:
    assert round((gdp.cap(Fraction(epsilon), DELTA) / 10**12) ** 0.5, 5) == mu


def test_the_replace_one_epsilon_of_epsilon_1_at_delta_1e_6() -> None:
    assert (
        round(float(zcdp.epsilon_of(4 * zcdp.cap(Fraction(1), DELTA), DELTA)), 3)
        == 2.112
    )
    assert (
        round(float(gdp.epsilon_of(4 * gdp.cap(Fraction(1), DELTA), DELTA)), 3) == 2.123
    )


def test_gdp_grants_more_than_zcdp() -> None:
    for epsilon in (Fraction(1, 10), Fraction(1), Fraction(10)):
        assert gdp.cap(epsilon, DELTA) > 2 * zcdp.cap(epsilon, DELTA)


def test_charges_of_one_at_epsilon_one() -> None:
    selection = ExponentialMechanism(AR, Fraction(2), Fraction(1, 2), 9)
    flip = PermuteAndFlip(AR, Fraction(2), Fraction(1, 2), 9)
    counts = DiscreteLaplace(AR, Fraction(1), Fraction(1), 4)

    assert zcdp.loss(selection, adjacency=AR) == Fraction(1, 8)
    assert (
        zcdp.loss(flip, adjacency=AR)
        == zcdp.loss(counts, adjacency=AR)
        == pytest.approx(0.46211715726)
    )
    assert float(gdp.loss(selection, adjacency=AR)) ** 0.5 == pytest.approx(
        0.6238925921
    )
    assert float(gdp.loss(flip, adjacency=AR)) ** 0.5 == pytest.approx(1.2320353853)


def test_gaussian_charges_are_exact() -> None:
    noisy = RoundedGaussian(AR, Fraction(3, 7), Fraction(2**48), 10)

    assert zcdp.loss(noisy, adjacency=AR) == Fraction(3, 14 * 2**48)
    assert gdp.loss(noisy, adjacency=AR) == Fraction(3, 7 * 2**48)


def selection(epsilon: Fraction) -> ExponentialMechanism:
    return ExponentialMechanism(AR, Fraction(2), epsilon / 2, 9)


@pytest.mark.parametrize(
    "epsilon", [Fraction(1, 10**15), Fraction(1, 2**32), Fraction(1, 10), Fraction(7)]
)
def test_selections_are_cheaper_than_other_pure_mechanisms(epsilon: Fraction) -> None:
    rho, mu_squared = (
        unit.loss(selection(epsilon), adjacency=AR) for unit in (zcdp, gdp)
    )

    assert rho == epsilon**2 / 8 < zcdp.of_pure(epsilon) <= min(epsilon**2 / 2, epsilon)
    assert mu_squared < gdp.of_pure(epsilon) <= Fraction("1.2534") ** 2 * epsilon**2


def test_selection_of_a_large_epsilon_costs_no_more_than_any_pure_mechanism() -> None:
    assert (
        zcdp.loss(selection(Fraction(30)), adjacency=AR)
        == zcdp.of_pure(Fraction(30))
        <= 30
    )


def test_charged_mu_keeps_to_the_known_bounds() -> None:
    """μ ≤ ε·√(π/2) and μ² ≤ 8ε hold for every ε, and are tight at the two ends."""
    for epsilon in (Fraction(1, 10**90), Fraction(1, 10**12)):
        assert float(gdp.of_pure(epsilon) / epsilon**2) == pytest.approx(
            1.5707963267948966, rel=1e-12
        )
    assert Fraction("7.9999") * 10**6 < gdp.of_pure(Fraction(10**6)) < 8 * 10**6
    assert gdp.of_pure(Fraction(10**18)) == 8 * 10**18


@pytest.mark.parametrize("unit", [zcdp, gdp])
def test_budget_too_small_for_one_step_opens_nothing(unit: object) -> None:
    for epsilon, delta in (("1e-18", "1e-18"), ("1e-9", "1e-99"), ("1e-99", "1e-99")):
        assert unit.cap(Fraction(epsilon), Fraction(delta)) == 0  # type: ignore[attr-defined]


@pytest.mark.parametrize("unit", [zcdp, gdp])
@pytest.mark.parametrize(
    ("epsilon", "delta"),
    [("1000000", "1e-6"), ("1000000", "0.5"), ("1", "1e-99"), ("1", "0.999")],
)
def test_ends_of_the_range_convert_and_return(
    unit: object, epsilon: str, delta: str
) -> None:
    cap = unit.cap(Fraction(epsilon), Fraction(delta))  # type: ignore[attr-defined]

    assert 0 < cap < 2**63
    assert unit.epsilon_of(cap, Fraction(delta)) == Fraction(epsilon)  # type: ignore[attr-defined]


def test_delta_alone_can_cover_a_small_mu() -> None:
    assert gdp.epsilon_of(10**6, Fraction(1, 100)) == 0
    assert gdp.epsilon_of(10**12, Fraction(1, 100)) > 0


@pytest.mark.parametrize(
    "epsilon",
    ["1e-14", "1e-9", "0.3", "0.9999999", "1", "1.0000001", "40", "400", "1e6"],
)
def test_charged_mu_solves_its_equation_from_above(epsilon: str) -> None:
    """Φ(−μ/2) is at most 1/(1 + e^ε) for a μ that is smaller by a relative 4·10⁻³¹, and
    above it for 6·10⁻³¹: the charge covers the exact μ², and what the verifier's fewer
    digits may add.
    """
    tail = 1 / (1 + enclosure(Fraction(epsilon)).exp())
    mu = enclosure(gdp.of_pure(Fraction(epsilon))).sqrt()

    assert normal_lower_tail(mu / 2 * (1 - enclosure(Fraction(4, 10**31)))) <= tail
    assert normal_lower_tail(mu / 2 * (1 - enclosure(Fraction(6, 10**31)))) > tail


@pytest.mark.parametrize("epsilon", ["1e-14", "1e-9", "0.3", "1", "7", "40"])
def test_charged_rho_is_the_exact_one_to_its_last_digits(epsilon: str) -> None:
    """ε·(e^ε − 1)/(e^ε + 1) by 120 digits, and 10⁻³⁰ of it for the verifier's rounding;
    never more than ε²/2 or ε.
    """
    with localcontext() as context:
        context.prec = 120
        grown = Decimal(epsilon).exp()
        exact = Fraction(Decimal(epsilon) * (grown - 1) / (grown + 1))
    charged, limit = (
        zcdp.of_pure(Fraction(epsilon)),
        min(Fraction(epsilon) ** 2 / 2, Fraction(epsilon)),
    )

    assert exact < charged <= limit
    assert charged == limit or abs(
        charged / exact - 1 - Fraction(1, 10**30)
    ) < Fraction(1, 10**60)


def test_a_number_of_steps_is_rounded_down_for_a_grant_and_up_for_a_charge() -> None:
    """In exact integers: also where a float has no digits left."""
    for places in (9, 12):
        step, many = Fraction(1, 10**places), 10**30
        for just_less, just_more in (
            (-step / 10**40, step / 10**40),
            (-step / 2, step / 3),
        ):
            assert [
                steps_down(many * step + part, places)
                for part in (just_less, 0, just_more)
            ] == [
                many - 1,
                many,
                many,
            ]
            assert [
                steps_up(many * step + part, places)
                for part in (just_less, 0, just_more)
            ] == [
                many,
                many,
                many + 1,
            ]
    assert (
        steps_down(Fraction(-3), 9)
        == steps_up(Fraction(-3), 9)
        == steps_down(Fraction(0), 9)
        == 0
    )
    assert steps_up(Fraction(0), 9) == 0


@pytest.mark.parametrize(
    ("amount", "stated", "replacing"),
    [
        (Amount("pure", 1_500_000_000), ("pure", "epsilon", "1.5"), "3"),
        (Amount("zcdp", 20_000_000_000), ("zcdp", "rho", "0.02"), "0.08"),
        (Amount("gdp", 1), ("gdp", "mu_squared", "0.000000000001"), "0.000000000004"),
    ],
)
def test_an_amount_is_stated_in_the_unit_of_its_accountant(
    amount: Amount, stated: tuple[str, str, str], replacing: str
) -> None:
    assert (amount.accountant, amount.unit, amount.text) == stated
    assert amount.value == Fraction(stated[2])
    assert amount.replace_one().text == replacing


@pytest.mark.parametrize("unit", [zcdp, gdp])
def test_the_first_steps_of_an_account_are_converted_exactly(unit: Accountant) -> None:
    """With a δ so small that no ε is free: one step is ε > 0, no step is none, and what
    fits costs what is left.
    """
    delta = Fraction(1, 10**99)

    assert (
        unit.epsilon_of(0, delta)
        == largest_that_fits(unit.NAME, 0, delta)
        == largest_that_fits(unit.NAME, -1, delta)
        == 0
    )
    for amount in (1, 2, 1_000):
        assert unit.cap(unit.epsilon_of(amount, delta), delta) >= amount
        assert unit.cap(unit.epsilon_of(amount, delta) - NANO, delta) < amount
        fits = largest_that_fits(unit.NAME, amount, delta)
        assert unit.price(fits, delta) == amount < unit.price(fits + NANO, delta)


@pytest.mark.parametrize("amount", [1, 10**6, 10**12, 10**15])
def test_the_largest_pure_loss_within_a_rho_is_bounded_from_above(amount: int) -> None:
    """ε·tanh(ε/2) is above ρ at the bound, and below it a relative 10⁻⁶ before; nothing
    has no loss.
    """
    rho, bound = Fraction(amount, 10**12), zcdp.largest_pure(amount)
    for epsilon, is_above in (
        (bound, True),
        (bound * (1 - Fraction(101, 10**8)), False),
    ):
        exact = enclosure(epsilon)
        assert bool(exact * (exact / 2).tanh() >= enclosure(rho)) is is_above
    assert zcdp.largest_pure(0) == 0


def test_several_rows_and_a_replaced_unit_cost_by_the_rule_of_the_unit() -> None:
    """Rows of a unit: k for ε and k² for ρ and μ²; a replaced unit is two steps of
    add/remove.
    """
    assert [unit.group(rows) for unit in ALL for rows in (1, 2, 5)] == [
        1,
        2,
        5,
        1,
        4,
        25,
        1,
        4,
        25,
    ]
    assert [unit.replace_one(7) for unit in ALL] == [14, 28, 28]


RELATIVE_WIDTH = Fraction(1, 10**70)


def assert_narrow_around(value: arb, exact: Fraction) -> None:
    assert lower_end(value) <= exact <= upper_end(value)
    assert upper_end(value) - lower_end(value) <= abs(exact) * RELATIVE_WIDTH


@pytest.mark.parametrize(
    "exact",
    [Fraction(1, 3), Fraction(-7, 3), Fraction(10**30 + 1, 10**60), Fraction(0)],
)
def test_enclosure_of_a_fraction_contains_it(exact: Fraction) -> None:
    assert_narrow_around(enclosure(exact), exact)


def test_ends_of_an_inexact_number_lie_on_both_sides() -> None:
    third = enclosure(Fraction(1, 3))

    assert lower_end(third) < Fraction(1, 3) < upper_end(third)


def test_functions_agree_with_100_digits_of_decimal() -> None:
    two = enclosure(2)
    with localcontext() as context:
        context.prec = 100
        exact = [Decimal(2).exp(), Decimal(2).ln(), Decimal(2).sqrt()]

    for value, digits in zip((two.exp(), two.log(), two.sqrt()), exact, strict=True):
        assert_narrow_around(value, Fraction(digits))


@pytest.mark.parametrize("x", ["0.001", "0.5", "1", "3", "6.5", "9", "20"])
def test_normal_tail_agrees_with_its_series(x: str) -> None:
    """Φ(−x) = ½ − φ(x)·(x + x³/3 + x⁵/(3·5) + …), with 300 digits, because nearly all
    of ½ cancels.
    """
    with localcontext() as context:
        context.prec = 300
        term = total = Decimal(x)
        for odd in range(3, 4_000, 2):
            term = term * Decimal(x) ** 2 / odd
            total += term
        exact = (
            Decimal("0.5") - total * (-(Decimal(x) ** 2) / 2).exp() / (2 * _pi()).sqrt()
        )

    assert_narrow_around(normal_lower_tail(enclosure(Fraction(x))), Fraction(exact))


def _pi() -> Decimal:
    """π by Machin's formula, in integers."""
    scale = 10**310

    def arctan_of_inverse(x: int) -> int:
        term, total, odd = scale // x, 0, 1
        while term:
            total += term // odd if odd % 4 == 1 else -(term // odd)
            term, odd = term // x**2, odd + 2
        return total

    return Decimal(4 * (4 * arctan_of_inverse(5) - arctan_of_inverse(239))).scaleb(-310)


@pytest.mark.parametrize(
    "x", ["-40", "-3", "0", "1e-9", "0.5", "3", "7.5", "40", "1400"]
)
def test_normal_tail_agrees_with_scipy(x: str) -> None:
    log_tail = normal_lower_tail(enclosure(Fraction(x))).log()

    assert float(log_tail) == pytest.approx(
        float(log_ndtr(-float(x))), rel=1e-12, abs=1e-60
    )


def test_an_uncertain_comparison_is_false() -> None:
    wide, third = arb(2, 0.9), enclosure(Fraction(1, 3))

    assert wide <= 3
    assert not wide <= 2.5
    assert not wide > 1.5
    assert not third * 3 <= 1, "equal, but not to the last bit"


@pytest.mark.parametrize(
    "value", [arb("nan"), arb("inf"), 1 / arb(0, 1), arb(0).log()], ids=str
)
def test_undefined_value_has_no_ends_and_meets_no_limit(value: arb) -> None:
    assert not value <= 1
    for end in (lower_end, upper_end):
        with pytest.raises(ValueError):
            end(value)


def test_fewer_bits_widen_an_enclosure_and_keep_it_right() -> None:
    enclosure(1)  # the first enclosure of a process sets the precision
    with ctx.workprec(20):
        coarse = enclosure(2).sqrt()
    fine = enclosure(2).sqrt()

    assert lower_end(coarse) < lower_end(fine) <= upper_end(fine) < upper_end(coarse)


@pytest.mark.parametrize("largest", [-1, 0, 1, 2, 3, 7, 8, 1000, 10**30 + 7])
def test_search_ends_with_the_largest_number_that_meets_the_condition(
    largest: int,
) -> None:
    assert largest_holding(lambda n: n <= largest) == largest


def test_condition_that_every_number_meets_is_refused() -> None:
    with pytest.raises(ArithmeticError):
        largest_holding(lambda n: n >= 0)
