"""Numbers that pages and commands show with a few digits."""

import pytest

from grovekeeper_common.number_words import few_digits
from grovekeeper_forests.data.schema import Feature
from grovekeeper_forests.releases.forest.one_tree import _bound_in_words


@pytest.mark.parametrize(
    ("number", "words"),
    [
        (1.140625, "1.14062"),
        (-7.62939453125e-06, "-7.62939e-06"),
        (99_999.99, "100000"),
        (1_234_567.0, "1234567"),
        (20_230_515.5, "20230515.5"),
        (-1_700_000_001.25, "-1700000001.2"),
        (1e300, "1e+300"),
        ("2024-02-29", "2024-02-29"),
    ],
)
def test_all_digits_before_the_point_are_shown(number: float | str, words: str) -> None:
    """Edges of 20230515 and 20230516 were both shown as 2.02305e+07."""
    assert few_digits(number) == words


def test_questions_about_large_numbers_differ() -> None:
    cost = Feature("cost", "numeric", lower=0.0, upper=1e9)
    words = [_bound_in_words(cost, edge) for edge in (0.25, 2e7 + 1.25, 2e7 + 2.5)]
    assert words == ["0.25", "20000001.2", "20000002.5"]
