"""Calibration turns budgets into events that use the budget up and never exceed it."""

from collections.abc import Callable
from fractions import Fraction

import pytest

from app.privacy import accountants
from app.privacy.adjacency import Adjacency
from app.privacy.calibration import Budget, fitted
from app.privacy.events import (
    DiscreteLaplace,
    Event,
    NoBoundInUnit,
    Part,
    PermuteAndFlip,
    RoundedGaussian,
    Sequential,
    quantised,
)

AR = Adjacency.ADD_REMOVE_ONE
DELTA = Fraction(1, 10**6)


def budget(accountant: str, epsilon: Fraction, adjacency: Adjacency = AR) -> Budget:
    unit = accountants.by_name(accountant)
    return Budget(accountant, unit.price(epsilon, DELTA if unit.TAKES_DELTA else None), adjacency)


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
def test_fitted_event_uses_the_amount_up_and_no_more(accountant: str, n_draws: int, epsilon: Fraction) -> None:
    whole = budget(accountant, epsilon)
    event = fitted(whole, forest_of(n_draws), start=epsilon)

    assert whole.covers(event)
    assert whole.loss(event) > whole.limit * Fraction(98, 100)


def test_start_far_from_the_solution_does_not_matter() -> None:
    whole = budget("zcdp", Fraction(1))
    near, far, low = (fitted(whole, forest_of(50), start=start) for start in (Fraction(1), Fraction(500), DELTA))

    losses = [whole.loss(event) for event in (near, far, low)]
    assert max(losses) <= whole.limit
    assert min(losses) > whole.limit * Fraction(999, 1000)


def test_loss_that_levels_off_ends_the_search() -> None:
    whole = budget("gdp", Fraction(10_000))

    assert fitted(whole, forest_of(1), start=Fraction(1)) == forest_of(1)(Fraction(200_000))


def test_many_draws_buy_more_epsilon_in_rho_than_in_pure() -> None:
    event = fitted(budget("zcdp", Fraction(1)), forest_of(600), start=Fraction(1))

    assert accountants.by_name("pure").loss(event, adjacency=AR) > 4


def test_label_account_gets_half_the_strength() -> None:
    plain = fitted(budget("pure", Fraction(1)), forest_of(4), start=Fraction(1))
    label = fitted(budget("pure", Fraction(1), Adjacency.LABEL), forest_of(4), start=Fraction(1))

    loss = accountants.by_name("pure").loss
    assert 2 * loss(label, adjacency=AR) == pytest.approx(float(loss(plain, adjacency=AR)), rel=1e-4)


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
