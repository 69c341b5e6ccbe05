"""What is read of released numbers, compared with a second statement of it: estimates
and intervals by all corners, errors at a declared size, and the ε of a wanted error.
"""

import math
from collections.abc import Iterable
from fractions import Fraction
from itertools import product
from typing import Any

import numpy as np
import pytest

from grovekeeper_forests.bins import noisy_counts
from grovekeeper_forests.bins.noisy_counts import per_row
from grovekeeper_forests.errors import ParameterInvalid, ParameterProblem
from grovekeeper_forests.privacy.calibration import Terms
from grovekeeper_forests.privacy.events import Adjacency
from grovekeeper_forests.releases.contract import public_facts
from grovekeeper_forests.releases.statistics import price, read
from grovekeeper_forests.releases.statistics.price import (
    StatisticsInvalid,
    StatisticsPlan,
)
from grovekeeper_forests.releases.statistics.read import (
    Statistics,
    epsilon_for,
    error_at_size,
    error_before,
    half_width,
    half_widths,
    total,
)
from tests.pure.releases.test_plans_of_statistics import COUNT, SCHEMA, TERMS, planned
from tests.support.schemas import schema_of

ACCOUNTS = ("pure", "zcdp", "gdp")
FEW = schema_of(
    {"name": "visits", "type": "integer", "lower": -7, "upper": 3},
    {"name": "share", "type": "numeric", "lower": -0.5, "upper": 0.1},
    classes=["no", "yes"],
)
COLUMNS = {"visits": (-2.0, 5.0), "share": (-0.2, 0.3)}
"""Centres and radii."""


def within(low: float, value: float, high: float) -> float:
    return min(max(value, low), high)


def share(
    of_sum: float, n_rows: float, widths: tuple[float, float], reach: float, step: float
) -> tuple[float | None, float, float]:
    """A sum by a number of rows: value, low and high."""
    sum_width, n_width = widths
    if n_rows - n_width < 1:
        return None, -reach, reach
    corners = [
        within(-reach, (of_sum + at * sum_width) / (n_rows + by * n_width), reach)
        for at, by in product((-1, 1), repeat=2)
    ]
    return (
        within(-reach, of_sum / n_rows, reach),
        within(-reach, min(corners) - step, reach),
        within(-reach, max(corners) + step, reach),
    )


def released(plan: StatisticsPlan, *numbers: Iterable[int]) -> Statistics:
    return Statistics(plan, [[np.array(list(of_measure)) for of_measure in numbers]])


@pytest.mark.parametrize("account", ACCOUNTS)
@pytest.mark.parametrize("numbers", [[0, 5], [-40, 7_000]])
def test_a_count_and_a_sum_are_in_the_middle_of_their_intervals(
    account: str, numbers: list[int]
) -> None:
    sex = {"statistic": "count", "by": ["sex"]}
    visits = {"statistic": "sum", "column": "visits", "by": ["sex"]}
    for asked in (sex, visits):
        plan = planned(asked, account=account)
        [(table, [(measure, event)])] = plan.measured
        cells = numbers + [0] * (table.n_cells - 2)
        width = half_width(measure, event)
        assert width > 0
        for cell, estimate in zip(
            cells, released(plan, cells).estimates(0), strict=True
        ):
            value = cell / per_row(event) * measure.reach
            assert (estimate.value, estimate.low, estimate.high) == pytest.approx(
                (value, value - width, value + width)
            )


SUMS = [
    (n_rows, mean, square)
    for n_rows in (0, 3, 60, 5_000)
    for mean in (-1.2, -0.9, 0.0, 0.2, 1.0)
    for square in (-1.1, -0.6, 0.0, 0.9)
]
"""Numbers of rows, and shares of the largest mean and the largest mean square."""


@pytest.mark.parametrize("account", ACCOUNTS)
@pytest.mark.parametrize("statistic", ["mean", "variance"])
@pytest.mark.parametrize("column", COLUMNS)
def test_a_mean_and_a_variance_have_the_bounds_of_all_corners(
    account: str, statistic: str, column: str
) -> None:
    centre, radius = COLUMNS[column]
    facts = public_facts(TERMS[account], None, FEW, Adjacency.ADD_REMOVE_ONE)
    plan = price.plan([{"statistic": statistic, "column": column}], facts)
    [(_, priced)] = plan.measured
    fewest = math.ceil(half_width(*priced[0], n=len(priced))) + 1
    for n_rows, of_mean, of_square in (*SUMS, (fewest, 0.5, 0.1)):
        shares = (1.0, of_mean, of_square)[: len(priced)]
        numbers = [
            round(n_rows * part * per_row(event))
            for part, (_, event) in zip(shares, priced, strict=True)
        ]
        n, *sums = (
            number / per_row(event) * measure.reach
            for number, (measure, event) in zip(numbers, priced, strict=True)
        )
        n_width, *widths = (half_width(*each, n=len(priced)) for each in priced)
        steps = [measure.reach / per_row(event) / 2 for measure, event in priced[1:]]
        reaches = (radius, radius**2 / 2)
        means = [
            share(of_sum, n, (width, n_width), reach, step)
            for of_sum, width, reach, step in zip(
                sums, widths, reaches, steps, strict=False
            )
        ]
        value, low, high = means[0]
        expected: tuple[float | None, float, float]
        if statistic == "mean":
            expected = (
                None if value is None else centre + value,
                centre + low,
                centre + high,
            )
        else:
            square, square_low, square_high = means[1]
            middle = radius**2 / 2
            largest = max(low**2, high**2)
            smallest = 0 if low <= 0 <= high else min(low**2, high**2)
            expected = (
                None
                if value is None or square is None
                else within(0, middle + square - value**2, radius**2),
                max(middle + square_low - largest, 0),
                min(middle + square_high - smallest, radius**2),
            )
        [found] = released(plan, *([number] for number in numbers)).estimates(0)
        assert found.value == pytest.approx(expected[0])
        assert (found.low, found.high) == pytest.approx(expected[1:])


@pytest.mark.parametrize("account", ACCOUNTS)
def test_the_error_at_a_size_is_that_of_rows_at_a_bound(account: str) -> None:
    _, radius = COLUMNS["visits"]
    for statistic in ("mean", "variance"):
        plan = planned({"statistic": statistic, "column": "visits"}, account=account)
        [(table, priced)] = plan.measured
        n_width, *widths = (half_width(*each, n=len(priced)) for each in priced)
        for size in (math.floor(n_width), math.ceil(n_width) + 1, 400):
            found = error_at_size(table, priced, size)
            assert found == error_before(table, priced, size)
            if size <= n_width:
                assert found is None
                continue
            mean = (widths[0] + radius * n_width) / (size - n_width)
            expected = mean
            if statistic == "variance":
                of_square = widths[1] + radius**2 / 2 * n_width
                expected = of_square / (size - n_width) + 2 * radius * mean
            assert found == pytest.approx(expected)
        assert error_at_size(table, priced, None) is None


def test_the_error_of_some_rows_is_unknown_before() -> None:
    where = [{"column": "sex", "in": ["f"]}]
    for some in ({"by": ["sex"]}, {"where": where}):
        asked = {"statistic": "mean", "column": "visits", **some}
        [(table, priced)] = planned(asked).measured
        assert error_before(table, priced, 400) is None
        assert error_at_size(table, priced, 400) is not None


@pytest.mark.parametrize("account", ACCOUNTS)
def test_a_total_adds_up_its_own_table(account: str) -> None:
    by_sex = {"statistic": "count", "by": ["sex"]}
    plan = planned(
        {"statistic": "sum", "column": "visits"}, by_sex, COUNT, account=account
    )
    tables = [table for table, _ in plan.measured]
    cells = [np.arange(1, table.n_cells + 1) for table in tables]
    statistics = Statistics(plan, [[of_table] for of_table in cells])
    assert total(statistics, 0) is None
    for index in (1, 2):
        [(_, event)] = list(plan.measured)[index][1]
        value = sum(cells[index].tolist()) / per_row(event)
        n_counts = tables[index].n_cells
        width = noisy_counts.noise_bound(event, level=0.95, n_counts=n_counts)
        found = total(statistics, index)
        assert found is not None
        assert (found.value, found.low, found.high) == pytest.approx(
            (value, value - width, value + width)
        )


def of_rows(epsilon: Fraction) -> StatisticsPlan:
    terms = Terms(epsilon)
    return price.plan([COUNT], public_facts(terms, None, SCHEMA, terms.adjacency))


def test_a_wanted_error_leads_to_an_epsilon_of_three_digits() -> None:
    choices = read.EPSILONS
    assert epsilon_for(Fraction(7), of_rows) in choices
    assert range(100, 1_000) == read._DIGITS
    assert range(-6, 1) == read._EXPONENTS
    assert len(choices) == 6_300
    assert (choices[0], choices[1]) == (Fraction(1, 10_000), Fraction(101, 1_000_000))
    assert (choices[899], choices[900]) == (Fraction(999, 10**6), Fraction(1, 1_000))
    assert list(choices[-2:]) == [998, 999]
    assert list(choices) == sorted(set(choices))


def test_every_table_of_a_request_keeps_a_wanted_error() -> None:
    widest = {"statistic": "sum", "column": "visits"}

    def least(*asked: dict[str, Any], error: int = 50) -> Fraction:
        def plan_at(epsilon: Fraction) -> StatisticsPlan:
            terms = Terms(epsilon)
            facts = public_facts(terms, None, SCHEMA, terms.adjacency)
            return price.plan(asked, facts)

        found = epsilon_for(Fraction(error), plan_at)
        before = read.EPSILONS[read.EPSILONS.index(found) - 1]

        def widest_at(epsilon: Fraction) -> float:
            return max(max(half_widths(*each)) for each in plan_at(epsilon).measured)

        assert widest_at(found) <= error < widest_at(before)
        return found

    for asked in ((COUNT, widest), (widest, COUNT), (COUNT, widest, COUNT)):
        least(*asked)
    with pytest.raises(ParameterInvalid, match="not-of-this-statistic"):
        least(COUNT, {"statistic": "mean", "column": "visits"})
    with pytest.raises(ParameterInvalid, match=r"too-small .*at least 0\.\d"):
        least({"statistic": "sum", "column": "debt"}, error=0)


@pytest.mark.parametrize("further", [(), ("tables",)])
@pytest.mark.parametrize("is_first", [True, False])
def test_an_epsilon_that_is_refused_is_too_small_for_an_error(
    further: tuple[str, ...], *, is_first: bool
) -> None:
    """Whatever else is wrong with a request is refused at each ε."""
    names = ("epsilon", *further) if is_first else (*further, "epsilon")

    def plan_at(epsilon: Fraction) -> StatisticsPlan:
        if epsilon < 2:
            problems = [ParameterProblem((name,), "too-small") for name in names]
            raise ParameterInvalid(problems)
        return of_rows(epsilon)

    assert epsilon_for(Fraction(1_000), plan_at) == 2


def test_a_request_that_no_epsilon_makes_right_is_refused() -> None:
    def plan_at(_: Fraction) -> StatisticsPlan:
        raise ParameterInvalid.named("tables", "too-many")

    with pytest.raises(ParameterInvalid, match="too-many"):
        epsilon_for(Fraction(1_000), plan_at)


def test_a_number_of_more_than_64_bits_is_no_release() -> None:
    stored: Any = released(planned(COUNT), [2**63 - 1]).to_json()
    assert Statistics.from_json(stored, SCHEMA).to_json() == stored
    with pytest.raises(StatisticsInvalid):
        Statistics.from_json(stored | {"tables": [[[str(2**63)]]]}, SCHEMA)
