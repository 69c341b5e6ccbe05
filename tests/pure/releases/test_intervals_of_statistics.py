"""Errors and intervals of statistics, computed here a second time from the law of the
noise.
"""

import math
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from grovekeeper_forests import limits
from grovekeeper_forests.bins.noisy_counts import VARIANCE, per_row
from grovekeeper_forests.privacy.events import (
    Adjacency,
    DiscreteLaplace,
    Parallel,
    Part,
    PermuteAndFlip,
    RoundedGaussian,
)
from grovekeeper_forests.releases.statistics.price import StatisticsInvalid
from grovekeeper_forests.releases.statistics.quantile_price import rank_error
from grovekeeper_forests.releases.statistics.read import (
    Statistics,
    _noise_quantile,
    half_width,
    half_widths,
)
from tests.pure.releases.test_plans_of_statistics import (
    COUNT,
    MEDIAN,
    SCHEMA,
    planned,
    table_of,
)

AR = Adjacency.ADD_REMOVE_ONE


@pytest.mark.parametrize("scale", ["1/100", "1/3", "1", "3", "4", "40"])
@pytest.mark.parametrize("miss", [0.9, 0.05, 0.001])
def test_the_quantile_of_discrete_noise_is_the_smallest(
    scale: str, miss: float
) -> None:
    event = DiscreteLaplace(AR, Fraction(1), Fraction(scale), 1)
    ratio = math.exp(-float(Fraction(scale)))

    def beyond(t: float) -> float:
        return 2 * math.pow(ratio, t + 1) / (1 + ratio)

    found = _noise_quantile(event, miss)
    assert beyond(found) <= miss * (1 + 1e-9)
    assert found == 0 or beyond(found - 1) > miss * (1 - 1e-9)


def test_the_quantile_of_normal_noise_is_above_that_of_the_normal() -> None:
    event = RoundedGaussian(AR, Fraction(1), Fraction(VARIANCE), 1)
    deviation = math.sqrt(VARIANCE)
    assert _noise_quantile(event, 0.05) == math.ceil(
        1.959963984540054 * deviation - 0.5
    )
    assert _noise_quantile(event, 1.0) == 0


@pytest.mark.parametrize("account", ["pure", "gdp"])
def test_numbers_that_hold_together_share_the_chance_of_a_miss(account: str) -> None:
    [(table, measured)] = planned(
        {"statistic": "variance", "column": "visits"}, account=account
    ).measured
    for measure, event in measured:
        for n in (1, 2, 3):
            of_noise = _noise_quantile(event, (1 - 0.95) / n)
            expected = of_noise / per_row(event) * measure.reach
            assert half_width(measure, event, n=n) == pytest.approx(expected, rel=1e-9)
        assert half_width(measure, event) < half_width(measure, event, n=2)
    assert half_widths(table, measured) == [half_width(*each) for each in measured]


def test_the_interval_of_a_mean_allows_for_rounding_to_steps() -> None:
    """Far more rows than noise, all at the centre of the bounds."""
    plan = planned({"statistic": "mean", "column": "debt"})
    [(_, [(rows, of_rows), (centred, of_sum)])] = plan.measured
    n = 1_000_000
    numbers = [np.array([n * per_row(of_rows)]), np.array([0])]
    [estimate] = Statistics(plan, [numbers]).estimates(0)
    rounding = centred.reach / per_row(of_sum) / 2
    width = half_width(centred, of_sum, n=2) / (n - half_width(rows, of_rows, n=2))
    assert estimate.value == 1.5
    assert estimate.high - 1.5 == pytest.approx(width + rounding, rel=1e-9)
    assert 1.5 - estimate.low == pytest.approx(width + rounding, rel=1e-9)
    assert rounding > 0


def test_an_error_in_rank_is_at_most_the_largest_number_of_rows() -> None:
    table = table_of(**MEDIAN)
    weakest = PermuteAndFlip(AR, Fraction(2), Fraction(1, 2**32), table.n_candidates)
    event = Parallel("groups", (Part(1, weakest),))
    assert rank_error(table, [event], 0.95) == limits.MAX_ROWS_PER_DATASET
    certain = replace(weakest, inverse_scale=Fraction(1000))
    event = Parallel("groups", (Part(1, certain),))
    assert rank_error(table, [event], 0.95) == 0


def test_numbers_that_are_spelled_otherwise_are_no_release() -> None:
    plan = planned(COUNT)
    stored: Any = Statistics(plan, [[np.array([7])]]).to_json()
    assert Statistics.from_json(stored, SCHEMA).to_json() == stored
    for text in ("07", "+7", " 7", "7_0"):
        with pytest.raises(StatisticsInvalid):
            Statistics.from_json(stored | {"tables": [[[text]]]}, SCHEMA)
