"""Losses that adapters state are never below those of their mechanisms."""

from decimal import Decimal
from fractions import Fraction
from math import pi

import pytest

from grovekeeper_client.adapters import rounding


@pytest.mark.parametrize("loss", [0.1, 1 / 3, 2.0, 1e-12, Fraction(1, 7)])
def test_a_loss_as_text_is_no_smaller(loss: float | Fraction) -> None:
    text = Fraction(Decimal(rounding.upward(loss)))
    assert Fraction(loss) <= text <= Fraction(loss) * (1 + Fraction(1, 10**13))


@pytest.mark.parametrize("square", [Fraction(2), Fraction(4), Fraction(1, 3)])
def test_a_root_is_no_smaller(square: Fraction) -> None:
    root = rounding.root_up(square)
    assert square <= root**2 <= square * (1 + Fraction(1, 10**18))


def test_a_pure_loss_in_squared_mu_has_no_smaller_factor() -> None:
    assert rounding.mu_squared_of_pure(Fraction(1)) >= Fraction(pi) / 2
