"""Calibration turns budgets into events that use the budget up and never exceed it."""

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction

import pytest

from grovekeeper_forests import limits as forest_limits
from grovekeeper_forests.errors import ParameterInvalid
from grovekeeper_forests.privacy import accountants
from grovekeeper_forests.privacy.calibration import Budget, Terms, fitted
from grovekeeper_forests.privacy.events import (
    Adjacency,
    DiscreteLaplace,
    Event,
    NoBoundInUnit,
    Part,
    PermuteAndFlip,
    RoundedGaussian,
    Sequential,
    UnknownPrivacyEvent,
    quantised,
)

AR = Adjacency.ADD_REMOVE_ONE
DELTA = Fraction(1, 10**6)


def budget(accountant: str, epsilon: Fraction, adjacency: Adjacency = AR) -> Budget:
    unit = accountants.by_name(accountant)
    return Budget(
        accountant, unit.price(epsilon, DELTA if unit.TAKES_DELTA else None), adjacency
    )


def forest_of(n_draws: int) -> Callable[[Fraction], Event]:
    def event_at(strength: Fraction) -> Event:
        share = quantised(min(strength / n_draws, Fraction(64)))
        half = quantised(share / 512 / 2)
        return Sequential(
            (
                Part(n_draws, DiscreteLaplace(AR, Fraction(1), share / 2, 4)),
                Part(n_draws, PermuteAndFlip(AR, Fraction(512), half, 30)),
            )
        )

    return event_at


@pytest.mark.parametrize("accountant", accountants.NAMES)
@pytest.mark.parametrize("n_draws", [1, 12, 600])
@pytest.mark.parametrize("epsilon", [Fraction(1, 10), Fraction(1), Fraction(8)])
def test_fitted_event_uses_the_amount_up_and_no_more(
    accountant: str, n_draws: int, epsilon: Fraction
) -> None:
    whole = budget(accountant, epsilon)
    event = fitted(whole, forest_of(n_draws), start=epsilon)

    assert whole.covers(event)
    assert whole.loss(event) > whole.limit * Fraction(98, 100)


def test_start_far_from_the_solution_does_not_matter() -> None:
    whole = budget("zcdp", Fraction(1))
    near, far, low = (
        fitted(whole, forest_of(50), start=start)
        for start in (Fraction(1), Fraction(500), DELTA)
    )

    losses = [whole.loss(event) for event in (near, far, low)]
    assert max(losses) <= whole.limit
    assert min(losses) > whole.limit * Fraction(999, 1000)


def test_loss_that_levels_off_ends_the_search() -> None:
    whole = budget("gdp", Fraction(10_000))

    assert fitted(whole, forest_of(1), start=Fraction(1)) == forest_of(1)(
        Fraction(200_000)
    )


def test_many_draws_buy_more_epsilon_in_rho_than_in_pure() -> None:
    event = fitted(budget("zcdp", Fraction(1)), forest_of(600), start=Fraction(1))

    assert accountants.by_name("pure").loss(event, adjacency=AR) > 4


@pytest.mark.parametrize(
    ("accountant", "delta"),
    [("pure", None), ("zcdp", Fraction(1, 10**18)), ("gdp", Fraction(1, 10**18))],
)
@pytest.mark.parametrize("max_rows", [2, 3])
def test_a_refused_epsilon_is_told_the_smallest_one(
    accountant: str, delta: Fraction | None, max_rows: int
) -> None:
    def budget(epsilon: Fraction) -> Budget:
        return Terms(epsilon, accountant, delta, max_rows=max_rows).budget()

    with pytest.raises(ParameterInvalid) as refused:
        budget(Fraction(1, 10**10))
    (words,) = refused.value.problems[0].accepted
    smallest = Fraction(words.removeprefix("at least "))
    assert budget(smallest).amount >= 1
    with pytest.raises(ParameterInvalid):
        budget(smallest - Fraction(1, 10**9))


def test_label_account_gets_half_the_strength() -> None:
    plain = fitted(budget("pure", Fraction(1)), forest_of(4), start=Fraction(1))
    label = fitted(
        budget("pure", Fraction(1), Adjacency.LABEL), forest_of(4), start=Fraction(1)
    )

    loss = accountants.by_name("pure").loss
    assert 2 * loss(label, adjacency=AR) == pytest.approx(
        float(loss(plain, adjacency=AR)), rel=1e-4
    )


def test_event_without_a_bound_in_the_unit_is_refused() -> None:
    with pytest.raises(NoBoundInUnit):
        fitted(
            budget("pure", Fraction(1)),
            lambda strength: RoundedGaussian(AR, Fraction(1), 1 / strength, 1),
            start=Fraction(1),
        )


def test_covering_is_decided_exactly() -> None:
    own = Budget("zcdp", 500, AR)

    assert own.limit == Fraction(500, 10**12)
    assert own.covers(RoundedGaussian(AR, Fraction(1), Fraction(10**9), 1))
    assert not own.covers(RoundedGaussian(AR, Fraction(1), Fraction(10**9 - 1), 1))


@pytest.mark.parametrize(
    ("accountant", "steps"), [("pure", 2), ("zcdp", 4), ("gdp", 4)]
)
def test_a_mechanism_for_rows_gets_half_of_a_label_budget_and_no_other_adjacency_has_a_bound(
    accountant: str, steps: int
) -> None:
    """Rounded down: steps of the mechanism's loss never exceed the amount that is
    charged.
    """
    of_label = Budget(accountant, 4_003, Adjacency.LABEL)

    assert of_label.stated_under(Adjacency.LABEL) == of_label
    assert of_label.stated_under(AR) == Budget(accountant, 4_003 // steps, AR)
    for own, other in (
        (AR, Adjacency.LABEL),
        (AR, Adjacency.REPLACE_ONE),
        (Adjacency.LABEL, Adjacency.REPLACE_ONE),
    ):
        with pytest.raises(UnknownPrivacyEvent):
            Budget(accountant, 4_003, own).stated_under(other)


@pytest.mark.parametrize("accountant", accountants.NAMES)
def test_parts_of_a_budget_add_up_to_at_most_the_whole(accountant: str) -> None:
    whole = Budget(accountant, 1_001, Adjacency.LABEL)
    parts = [
        whole.part(share) for share in (Fraction(1, 3), Fraction(2, 3), Fraction(1))
    ]

    assert [part.amount for part in parts] == [333, 667, 1_001]
    assert {(part.accountant, part.adjacency) for part in parts} == {
        (accountant, Adjacency.LABEL)
    }
    assert whole.limit == Fraction(1_001, 10 ** accountants.by_name(accountant).PLACES)


@pytest.mark.parametrize("accountant", accountants.NAMES)
@pytest.mark.parametrize("max_rows", [1, 3, 20])
def test_all_rows_of_a_unit_together_cost_at_most_the_price(
    accountant: str, max_rows: int
) -> None:
    unit = accountants.by_name(accountant)
    delta, times = (
        DELTA if unit.TAKES_DELTA else None,
        max_rows if accountant == "pure" else max_rows**2,
    )
    price = Terms(Fraction(1), accountant, delta).price()
    own = Terms(Fraction(1), accountant, delta, AR, max_rows).budget()

    assert price == unit.price(Fraction(1), delta)
    assert own == Budget(accountant, price // times, AR)
    assert times * own.amount <= price < times * (own.amount + 1)
    with pytest.raises(ParameterInvalid):
        Terms(Fraction(1), accountant, delta, AR, 10**10).budget()


def problem_of(call: Callable[[], object]) -> tuple[str, str]:
    with pytest.raises(ParameterInvalid) as refused:
        call()
    [(at, problem)] = [(error.place, error.problem) for error in refused.value.problems]
    return at, problem


def test_a_price_needs_a_delta_where_the_account_has_one_and_an_amount_of_one_step() -> (
    None
):
    most = Fraction(forest_limits.MAX_CAP_EPSILON_WITH_DELTA)

    def price(
        epsilon: Fraction, accountant: str, delta: Fraction | None
    ) -> Callable[[], int]:
        return Terms(epsilon, accountant, delta).price

    for accountant in ("zcdp", "gdp"):
        assert problem_of(price(Fraction(1), accountant, None)) == (
            ("delta",),
            "required",
        )
        assert problem_of(price(Fraction(1), accountant, Fraction(0))) == (
            ("delta",),
            "not-positive",
        )
        assert problem_of(price(Fraction(1), accountant, Fraction(-1))) == (
            ("delta",),
            "not-positive",
        )
        assert problem_of(price(Fraction(1), accountant, Fraction(1))) == (
            ("delta",),
            "not-below-one",
        )
        assert problem_of(
            price(Fraction(1, 10**9), accountant, Fraction(1, 10**99))
        ) == (("epsilon",), "too-small")
        assert problem_of(price(most + 1, accountant, DELTA)) == (
            ("epsilon",),
            "too-large",
        )
        assert price(most, accountant, DELTA)() > 0
    assert problem_of(price(Fraction(1), "pure", DELTA)) == (("delta",), "not-for-pure")
    assert problem_of(price(Fraction(0), "pure", None)) == (("epsilon",), "too-small")
    assert [
        price(Fraction(1, 10**9), "pure", None)(),
        price(most + 1, "pure", None)(),
    ] == [1, (most + 1) * 10**9]


def test_a_search_never_returns_an_event_above_the_budget() -> None:
    """Also where its estimates are wrong: the loss of this mechanism rises in steps,
    and is flat between them.
    """
    for step in (Fraction(1, 7), Fraction(3), Fraction(1, 1_000)):
        for accountant in ("zcdp", "gdp"):
            whole = budget(accountant, Fraction(2))

            def event_at(strength: Fraction, step: Fraction = step) -> Event:
                return DiscreteLaplace(AR, Fraction(1), strength // step * step, 4)

            event = fitted(whole, event_at, start=Fraction(1))
            assert whole.covers(event)
            assert isinstance(event, DiscreteLaplace)
            assert not whole.covers(
                replace(event, inverse_scale=event.inverse_scale + step)
            )
