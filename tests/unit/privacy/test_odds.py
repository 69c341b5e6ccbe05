"""The odds of a right guess: exact laws of worst-case pairs, and bounds that no pair exceeds."""

import math
from fractions import Fraction
from statistics import NormalDist

import numpy as np
import pytest

from app.privacy import accountants
from app.privacy.guarantees import right_guesses

LOSSES = [Fraction(1, 1000), Fraction(1, 10), Fraction(1), Fraction(5, 2), Fraction(8)]


def _steps(accountant: str, loss: Fraction) -> int:
    return int(loss * 10 ** accountants.by_name(accountant).PLACES)


@pytest.mark.parametrize("loss", LOSSES)
def test_randomised_response_reaches_the_odds_of_pure_accounts(loss: Fraction) -> None:
    exact = 1 / (1 + math.exp(-float(loss)))
    assert exact <= float(right_guesses("pure", _steps("pure", loss))) <= exact + 1e-4


@pytest.mark.parametrize("loss", LOSSES)
def test_a_gaussian_mechanism_reaches_the_odds_of_gdp_accounts(loss: Fraction) -> None:
    exact = NormalDist().cdf(math.sqrt(loss) / 2)
    assert exact <= float(right_guesses("gdp", _steps("gdp", loss))) <= exact + 1e-4


@pytest.mark.parametrize("loss", LOSSES)
def test_no_gaussian_pair_exceeds_the_odds_of_zcdp_accounts(loss: Fraction) -> None:
    """N(0, 1) and N(√(2ρ), 1) are exactly ρ-zCDP."""
    exact = NormalDist().cdf(math.sqrt(2 * loss) / 2)
    assert exact <= float(right_guesses("zcdp", _steps("zcdp", loss))) <= exact + 0.12


def test_no_pair_of_coins_exceeds_the_odds_of_zcdp_accounts() -> None:
    orders = np.linspace(1.01, 60, 400)
    for p in np.linspace(0.02, 0.98, 13):
        for q in np.linspace(0.02, 0.98, 13):
            both = [(p, q), (q, p)]
            rho = max(float(np.max(_renyi(a, b, orders) / orders)) for a, b in both)
            odds = float(right_guesses("zcdp", math.ceil(rho * 10 ** accountants.by_name("zcdp").PLACES)))
            assert (1 + abs(p - q)) / 2 <= odds + 1e-3


def _renyi(p: float, q: float, orders: np.ndarray) -> np.ndarray:
    moments = p**orders * q ** (1 - orders) + (1 - p) ** orders * (1 - q) ** (1 - orders)
    return np.log(moments) / (orders - 1)


@pytest.mark.parametrize("accountant", accountants.NAMES)
def test_nothing_spent_leaves_a_coin(accountant: str) -> None:
    assert right_guesses(accountant, 0) == "0.5"
    assert right_guesses(accountant, 10**30) == "1"


def test_delta_that_is_set_aside_counts() -> None:
    assert right_guesses("zcdp", 0, set_aside=Fraction(1, 100)) == "0.505"
