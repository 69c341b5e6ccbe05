"""Noisy numbers in words: as many digits as the noise leaves, and intervals that are
never narrower than the released ones.
"""

import pytest

from app.api.pages.statistics_view import in_words, number_in_words
from app.wire.statistics import EstimateOut

WORDS = [
    ((1659.0, 1599.0, 1719.0), ("1,659", "1,599 to 1,719")),
    ((-4.0, -64.0, 56.0), ("−4", "−64 to 56")),
    ((38.58149, 38.21262, 38.95001), ("38.58", "38.21 to 38.96")),
    ((None, 0.0, 100.0), ("not told", "0 to 100")),
    ((0.001234, 0.0012, 0.0013), ("0.001234", "0.001200 to 0.001300")),
    ((12.5, 12.5, 12.5), ("12.500000", "12.500000 to 12.500000")),
    ((1.5e300, 1.0e300, 2.0e300), ("1.5e+300", "1e+300 to 2e+300")),
]


@pytest.mark.parametrize(("numbers", "words"), WORDS)
def test_a_number_has_the_digits_that_its_noise_leaves(
    numbers: tuple[float | None, float, float], words: tuple[str, str]
) -> None:
    value, low, high = numbers
    assert in_words(EstimateOut(value=value, low=low, high=high)) == words


def test_a_half_width_is_short() -> None:
    assert number_in_words(240.0) == "240"
    assert number_in_words(0.0123456) == "0.012"
