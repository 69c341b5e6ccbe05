"""The three accountants: one suite of the properties that the ledger relies on."""

from dataclasses import replace
from fractions import Fraction

import pytest

from grovekeeper_forests.privacy import accountants
from grovekeeper_forests.privacy.accountants.accountant import Accountant
from grovekeeper_forests.privacy.events import (
    Adjacency,
    DiscreteLaplace,
    Event,
    ExponentialMechanism,
    NoBoundInUnit,
    Parallel,
    Part,
    PermuteAndFlip,
    RoundedGaussian,
    Sequential,
    UnknownPrivacyEvent,
)

pytestmark = pytest.mark.contract

AR, LABEL = Adjacency.ADD_REMOVE_ONE, Adjacency.LABEL
NANO = Fraction(1, 10**9)

every_accountant = pytest.mark.parametrize(
    "unit", accountants.ALL, ids=lambda unit: unit.NAME
)
budgets = pytest.mark.parametrize(
    "epsilon", [Fraction("0.1"), Fraction(1), Fraction("3.7")]
)


def delta_for(unit: Accountant) -> Fraction | None:
    return Fraction(1, 10**6) if unit.TAKES_DELTA else None


def counts(inverse_scale: Fraction, adjacency: Adjacency = AR) -> DiscreteLaplace:
    return DiscreteLaplace(adjacency, Fraction(1), inverse_scale, 8)


LEAVES = (
    counts(Fraction(1, 2)),
    PermuteAndFlip(AR, Fraction(512), Fraction(1, 1024), 30),
    ExponentialMechanism(AR, Fraction(512), Fraction(1, 1024), 30),
)


@every_accountant
@budgets
def test_job_for_the_owners_own_numbers_costs_a_fresh_account_exactly(
    unit: Accountant, epsilon: Fraction
) -> None:
    delta = delta_for(unit)

    assert unit.price(epsilon, delta) == unit.cap(epsilon, delta) > 0


@every_accountant
@budgets
def test_largest_that_fits_fits_and_the_next_does_not(
    unit: Accountant, epsilon: Fraction
) -> None:
    delta = delta_for(unit)
    remaining = unit.cap(epsilon, delta) * 2 // 3
    largest = accountants.largest_that_fits(unit.NAME, remaining, delta)

    assert 0 < largest < epsilon
    assert unit.price(largest, delta) <= remaining < unit.price(largest + NANO, delta)


@every_accountant
@budgets
def test_fresh_account_fits_exactly_what_the_owner_gave(
    unit: Accountant, epsilon: Fraction
) -> None:
    delta = delta_for(unit)

    assert (
        accountants.largest_that_fits(unit.NAME, unit.cap(epsilon, delta), delta)
        == epsilon
    )


@every_accountant
def test_nothing_fits_where_nothing_is_left(unit: Accountant) -> None:
    assert accountants.largest_that_fits(unit.NAME, 0, delta_for(unit)) == 0
    assert accountants.largest_that_fits(unit.NAME, -5, delta_for(unit)) == 0


@every_accountant
@pytest.mark.parametrize("least", [1, 9, 64, 10**6])
def test_an_amount_that_pays_for_no_job_fits_none(unit: Accountant, least: int) -> None:
    """What fits costs at least the smallest price; where nothing fits, the first ε of
    that price costs too much.
    """
    delta = delta_for(unit)
    for remaining in range(max(least - 3, 0), least + 12):
        fits = accountants.largest_that_fits(unit.NAME, remaining, delta, least=least)
        if fits:
            assert least <= unit.price(fits, delta) <= remaining
        else:
            first = max(unit.epsilon_of(least, delta), NANO)
            assert unit.price(first, delta) > remaining


@every_accountant
@budgets
def test_printed_epsilon_of_a_cap_is_the_owners(
    unit: Accountant, epsilon: Fraction
) -> None:
    delta = delta_for(unit)

    assert unit.epsilon_of(unit.cap(epsilon, delta), delta) == epsilon


@every_accountant
def test_printed_epsilon_is_enough_for_the_amount(unit: Accountant) -> None:
    """The printed ε buys at least the amount; it is never smaller than the ε that the
    amount implies.
    """
    delta = delta_for(unit)
    for amount in (10**7, 123_456_789_012, 5 * 10**12 + 1):
        printed = unit.epsilon_of(amount, delta)
        assert unit.cap(printed, delta) >= amount
        assert unit.cap(printed - NANO, delta) < amount


@every_accountant
def test_replacing_costs_more_than_adding(unit: Accountant) -> None:
    delta = delta_for(unit)
    cap = unit.cap(Fraction(1), delta)

    assert unit.epsilon_of(unit.replace_one(cap), delta) >= 2


@every_accountant
@pytest.mark.parametrize("leaf", LEAVES, ids=lambda leaf: type(leaf).__name__)
def test_sequential_parts_add_and_parallel_parts_count_at_their_largest(
    unit: Accountant, leaf: Event
) -> None:
    small = counts(Fraction(1, 64))
    one, other = unit.loss(leaf, adjacency=AR), unit.loss(small, adjacency=AR)

    assert (
        unit.loss(Sequential((Part(3, leaf), Part(1, small))), adjacency=AR)
        == 3 * one + other
    )
    parts = Part(3, leaf), Part(9, small)
    for several in (parts, parts[::-1]):
        assert unit.loss(Parallel("trees", several), adjacency=AR) == one > other


@every_accountant
@pytest.mark.parametrize("leaf", LEAVES, ids=lambda leaf: type(leaf).__name__)
def test_a_sensitivity_costs_what_a_scale_costs(unit: Accountant, leaf: Event) -> None:
    """Three times the sensitivity at a third of the inverse scale is the same mechanism
    in another unit.
    """
    name = (
        "l1_sensitivity" if isinstance(leaf, DiscreteLaplace) else "range_sensitivity"
    )
    wider = replace(leaf, **{name: 3 * getattr(leaf, name)})  # type: ignore[type-var]
    scaled = replace(wider, inverse_scale=leaf.inverse_scale / 3)  # type: ignore[attr-defined, type-var]

    assert (
        unit.loss(scaled, adjacency=AR)
        == unit.loss(leaf, adjacency=AR)
        < unit.loss(wider, adjacency=AR)
    )
    if unit.NAME != "pure":
        noisy = RoundedGaussian(AR, Fraction(3), Fraction(600), 2)
        assert unit.loss(noisy, adjacency=AR) == unit.loss(
            RoundedGaussian(AR, Fraction(1), Fraction(200), 2), adjacency=AR
        )


@every_accountant
def test_event_of_nothing_is_free(unit: Accountant) -> None:
    assert unit.loss(Sequential(()), adjacency=AR) == 0
    assert unit.loss(Parallel("trees", ()), adjacency=AR) == 0
    assert unit.loss(counts(Fraction(0)), adjacency=AR) == 0


@every_accountant
@pytest.mark.parametrize("leaf", LEAVES, ids=lambda leaf: type(leaf).__name__)
def test_changed_label_costs_two_steps_of_add_remove(
    unit: Accountant, leaf: Event
) -> None:
    factor = 2 if unit.NAME == "pure" else 4

    assert unit.loss(leaf, adjacency=LABEL) == factor * unit.loss(leaf, adjacency=AR)


@every_accountant
def test_native_label_price_is_not_raised(unit: Accountant) -> None:
    native, other = counts(Fraction(1), LABEL), counts(Fraction(1))

    assert unit.loss(native, adjacency=LABEL) == unit.loss(other, adjacency=AR)


@every_accountant
@pytest.mark.parametrize(
    ("stated", "of_account"),
    [
        (LABEL, AR),
        (Adjacency.REPLACE_ONE, AR),
        (AR, Adjacency.REPLACE_ONE),
        (Adjacency.REPLACE_ONE, LABEL),
        (LABEL, Adjacency.REPLACE_ONE),
    ],
)
def test_other_pairs_of_adjacencies_have_no_bound(
    unit: Accountant, stated: Adjacency, of_account: Adjacency
) -> None:
    with pytest.raises(UnknownPrivacyEvent):
        unit.loss(counts(Fraction(1), stated), adjacency=of_account)


@every_accountant
def test_delta_is_needed_or_refused(unit: Accountant) -> None:
    wrong = (
        [None, Fraction(0), Fraction(1), Fraction(2)]
        if unit.TAKES_DELTA
        else [Fraction(1, 10**6)]
    )
    for delta in wrong:
        with pytest.raises(ValueError):
            unit.cap(Fraction(1), delta)
        with pytest.raises(ValueError):
            unit.epsilon_of(10**9, delta)


def test_gaussian_noise_has_no_pure_price_and_says_who_takes_it() -> None:
    noisy = RoundedGaussian(AR, Fraction(3), Fraction(400), 2)
    event = Sequential((Part(1, counts(Fraction(1))), Part(1, noisy)))

    with pytest.raises(NoBoundInUnit) as refused:
        accountants.by_name("pure").loss(event, adjacency=AR)
    assert refused.value.accountant == "pure"
    assert accountants.accepting(event, adjacency=AR) == ("zcdp", "gdp")
    assert accountants.accepting(counts(Fraction(1)), adjacency=AR) == (
        "pure",
        "zcdp",
        "gdp",
    )
    assert accountants.accepting(counts(Fraction(1), LABEL), adjacency=AR) == ()


def test_unknown_accountant_is_refused() -> None:
    with pytest.raises(KeyError):
        accountants.by_name("rdp")
