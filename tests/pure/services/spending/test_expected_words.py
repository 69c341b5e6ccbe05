"""The words of an expected accuracy: recovered shares are rounded in one place, and
none is above all.
"""

from dataclasses import replace

import pytest

from app.services.spending.quotes import sentence_of, spread_of
from grovekeeper_forests.expected_accuracy import Band, Recovered

BAND = Band(
    epsilon=1.0,
    low=0.7849,
    middle=0.9449,
    high=1.055,
    tables=(Recovered("adult", 0.7849), Recovered("magic", 1.055)),
    without_gain=(),
    majority=0.75,
    forest=0.85,
    auroc=None,
)


def test_a_share_above_100_percent_is_all() -> None:
    """By chance a private forest answers better than the other forest; nobody recovers
    101 %.
    """
    assert spread_of(BAND) == (
        "Similar public tables (adult, magic) recovered 94 % in the middle, half of them between 78 % and all."
    )


@pytest.mark.parametrize(
    ("middle", "share"),
    [(0.9449, "94 %"), (0.994, "99 %"), (0.9951, "all"), (1.0, "all"), (1.01, "all")],
)
def test_the_sentence_and_the_spread_print_one_number(
    middle: float, share: str
) -> None:
    """0.9449 as 0.945, which the answer has, would be 94 or 95 %, depending on who
    rounds.
    """
    band = replace(BAND, middle=middle)
    assert sentence_of(band).startswith(f"Expect about {share} of what ")
    assert f"recovered {share} in the middle" in spread_of(band)
