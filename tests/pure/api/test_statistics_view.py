"""Noisy numbers in words: as many digits as the noise leaves, and intervals that are
never narrower than the released ones.
"""

import pytest

from grovekeeper_common.number_words import error_in_words, estimate_in_words

WORDS = [
    ((1659.0, 1599.0, 1719.0), ("1,659", "1,599 to 1,719")),
    ((-4.0, -64.0, 56.0), ("−4", "−64 to 56")),
    ((38.58149, 38.21262, 38.95001), ("38.58", "38.21 to 38.96")),
    ((None, 0.0, 100.0), ("not told", "0 to 100")),
    ((0.001234, 0.0012, 0.0013), ("0.001234", "0.001200 to 0.001300")),
    ((12.5, 12.5, 12.5), ("12.500000", "12.500000 to 12.500000")),
    ((3.4e-7, 3.3e-7, 3.5e-7), ("3.400e−7", "3.300e−7 to 3.500e−7")),
    ((-0.3, -20.2, 19.8), ("0", "−21 to 20")),
    ((1.25e-9, 1.25e-9, 1.25e-9), ("1.25000e−9", "1.25000e−9 to 1.25000e−9")),
    ((1.23e15, 1.2345671e15, 1.2345679e15), ("1.23e+15", "1.23456e+15 to 1.23457e+15")),
    ((-1e308, -1.5e308, 1.5e308), ("−1e+308", "−1.5e+308 to 1.5e+308")),
    ((1.5e300, 1.0e300, 2.0e300), ("1.5e+300", "1e+300 to 2e+300")),
]


@pytest.mark.parametrize(("numbers", "words"), WORDS)
def test_a_number_has_the_digits_that_its_noise_leaves(
    numbers: tuple[float | None, float, float], words: tuple[str, str]
) -> None:
    value, low, high = numbers
    assert estimate_in_words(value, low, high) == words


NUMBERS = [0.0, 5e-324, 3.21e-9, 0.00012345, 0.3, 1.05, 10.5, 123.4, 999_999.5, 1.23e17, 1.7e308]  # fmt: skip


@pytest.mark.parametrize("error", NUMBERS)
def test_an_error_is_never_said_to_be_smaller_than_it_is(error: float) -> None:
    said = _number(error_in_words(error))
    assert error <= said <= max(1.1 * error, error + 1e-323)


@pytest.mark.parametrize("width", NUMBERS)
@pytest.mark.parametrize("middle", [0.0, -7e-8, 12.345678, -4.4e15])
def test_an_interval_is_never_said_to_be_smaller_than_it_is(
    middle: float, width: float
) -> None:
    low, high = middle - width, middle + width
    lowest, highest = estimate_in_words(middle, low, high)[1].split(" to ")
    assert _number(lowest) <= low
    assert _number(highest) >= high


def _number(words: str) -> float:
    return float(words.replace(",", "").replace("−", "-"))


def test_a_half_width_is_short() -> None:
    assert error_in_words(240.0) == "240"
    assert error_in_words(1.0) == "1"
    assert error_in_words(10.5) == "11"
    assert error_in_words(0.0123456) == "0.013"
    assert error_in_words(3.21e-9) == "3.3e−9"
