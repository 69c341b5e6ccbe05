"""Tables of statistics: their cells, their plans, and the error that a plan states."""

import itertools
import json
import math
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from app.services.releases.statistics import _places
from grovekeeper_forests.amounts import to_text
from grovekeeper_forests.bins.noisy_counts import per_row
from grovekeeper_forests.data.sanitiser import ColumnBlock
from grovekeeper_forests.errors import ParameterInvalid
from grovekeeper_forests.noise.randomness import SystemRandomness
from grovekeeper_forests.privacy.accountants import gdp, zcdp
from grovekeeper_forests.privacy.calibration import Terms
from grovekeeper_forests.privacy.events import (
    Adjacency,
    DiscreteLaplace,
    RoundedGaussian,
)
from grovekeeper_forests.releases.contract import public_facts
from grovekeeper_forests.releases.statistics import price, sums
from grovekeeper_forests.releases.statistics.draw import release
from grovekeeper_forests.releases.statistics.price import (
    StatisticsInvalid,
    StatisticsPlan,
)
from grovekeeper_forests.releases.statistics.read import (
    EPSILONS,
    Statistics,
    epsilon_for,
    error_at_size,
    error_before,
    half_width,
    total,
)
from grovekeeper_forests.releases.statistics.tables import Axis, read_tables
from tests.privacy.noiseless import Noiseless
from tests.privacy.test_statistics_exact_loss import SCHEMA, private_rows
from tests.support.schemas import number_schema, schema_of

ACCOUNTS = {
    "pure": Terms(Fraction(1)),
    "zcdp": Terms(Fraction(1), zcdp.NAME, Fraction(1, 10**6)),
    "gdp": Terms(Fraction(1), gdp.NAME, Fraction(1, 10**6)),
}
MEAN = {"statistic": "mean", "column": "age"}
VARIANCE = {"statistic": "variance", "column": "age"}


def planned(
    *tables: dict[str, Any], account: str = "pure", epsilon: Fraction = Fraction(1)
) -> StatisticsPlan:
    terms = ACCOUNTS[account]
    terms = Terms(epsilon, terms.accountant, terms.delta)
    return price.plan(tables, public_facts(terms, None, SCHEMA, terms.adjacency))


def cells(**table: Any) -> list[list[dict[str, Any]]]:
    [read] = read_tables([table], SCHEMA)
    return [axis.cells for axis in read.axes]


def test_cells_follow_from_the_declaration() -> None:
    [sexes] = cells(statistic="histogram", column="sex")
    assert sexes == [{"category": "f"}, {"category": "m"}, {"other": True}, {"missing": True}]  # fmt: skip
    [labels] = cells(statistic="histogram", column="ill")
    assert labels == [{"category": "no"}, {"category": "yes"}, {"other": True}]


@pytest.mark.parametrize(
    ("column", "bins", "bounds"),
    [
        ("age", None, [0, 1, 2, 3, 3]),  # a bin for each whole number
        ("age", 2, [0, 2, 3]),
        ("age", [0, 2], [0, 2, 3]),  # the lower bound may be written out
        ("debt", 3, [-1, 0, 1, 2]),
        ("debt", [-1, 0.5, 2], [-1, 0.5, 2]),
        ("debt", 1, [-1, 2]),
    ],
)
def test_bins_cover_the_bounds(column: str, bins: Any, bounds: list[float]) -> None:
    [found] = cells(
        statistic="histogram",
        column=column,
        bins={} if bins is None else {column: bins},
    )
    *numbers, missing = found
    assert missing == {"missing": True}
    ends = [cell.get("below", cell.get("to")) for cell in numbers]
    assert [cell["from"] for cell in numbers] == bounds[:-1]
    assert ends == bounds[1:]


@pytest.mark.parametrize(
    "where",
    [
        [{"column": "sex", "in": ["f"]}, {"column": "sex", "in": ["m", None]}],
        [{"column": "age", "from": 0, "below": 2}, {"column": "age", "from": 2}],
    ],
)
def test_conditions_that_exclude_each_other_are_refused_and_stay_readable(
    where: list[dict[str, Any]],
) -> None:
    table = {"statistic": "count", "where": where}
    with pytest.raises(ParameterInvalid) as refused:
        planned(table)
    [problem] = refused.value.problems
    assert problem.place == ("tables", 0, "where", 1)
    [stored] = read_tables([table], SCHEMA)
    assert len(stored.where) == 2
    planned(table | {"where": where[:1]})


def test_a_value_on_an_edge_belongs_to_the_bin_above_it() -> None:
    plan = planned({"statistic": "histogram", "column": "age", "bins": {"age": [2]}})
    released = release(plan, private_rows(((2.0, 0, 0, 0),)), Noiseless())
    assert [row.value for row in released.estimates(0)] == [0, 1, 0]


@pytest.mark.parametrize("account", ACCOUNTS)
def test_exact_numbers_are_those_of_the_rows(account: str) -> None:
    rows = ((1.0, 0.5, 0, 1), (3.0, -1.0, 1, 1), (2.0, math.nan, 0, -1), (math.nan, 2.0, 3, 0))  # fmt: skip
    plan = planned(
        {"statistic": "count"},
        {"statistic": "sum", "column": "debt", "by": ["ill"]},
        MEAN,
        {"statistic": "variance", "column": "age"},
        account=account,
        epsilon=Fraction(400),
    )
    released = release(plan, private_rows(rows), Noiseless())
    [count], sums, [mean], [variance] = map(released.estimates, range(4))
    assert count.value == 4
    assert [row.value for row in sums] == pytest.approx([2.0, -0.5, 0.0], abs=1e-4)
    assert mean.value == pytest.approx(2.0, abs=1e-4)
    assert variance.value == pytest.approx(2 / 3, abs=1e-4)
    assert mean.low <= 2 <= mean.high
    of_all = total(released, 0)
    assert of_all is not None
    assert of_all.value == 4


def test_a_mean_of_too_few_rows_is_not_told() -> None:
    plan = planned(MEAN, epsilon=Fraction(1, 10))
    released = release(plan, private_rows(()), SystemRandomness())
    [mean] = released.estimates(0)
    assert (mean.value, mean.low, mean.high) == (None, 0, 3)


@pytest.mark.parametrize("account", ACCOUNTS)
@pytest.mark.parametrize("epsilon", [Fraction(1, 20), Fraction(1), Fraction(8)])
def test_a_half_width_is_the_smallest_that_covers(
    account: str, epsilon: Fraction
) -> None:
    plan = planned(
        {"statistic": "count"},
        {"statistic": "sum", "column": "debt"},
        account=account,
        epsilon=epsilon,
    )
    for _, [(measure, event)] in plan.measured:
        step = measure.reach / per_row(event)
        width = round(half_width(measure, event) / step)
        assert beyond(event, width) <= 0.05
        assert width == 0 or beyond(event, width - 1) > 0.05


def beyond(event: Any, t: int) -> float:
    """Pr[|noise| > t]: of Laplace noise as a sum of its terms."""
    if isinstance(event, DiscreteLaplace):
        scale = float(event.inverse_scale)
        far = np.arange(t + 1, t + 1 + int(40 / scale), max(int(1e-5 / scale), 1))
        width = far[1] - far[0] if len(far) > 1 else 1
        # blocks of equal width: their first term times the sum of a geometric series
        of_block = -math.expm1(-scale * width) / -math.expm1(-scale)
        q = math.exp(-scale)
        law = -math.expm1(-scale) / (1 + q)
        return float(2 * law * (np.exp(-scale * far) * of_block).sum())
    assert isinstance(event, RoundedGaussian)
    deviation = math.sqrt(float(event.sigma_squared))
    return math.erfc((t + 0.5) / deviation / math.sqrt(2))


@pytest.mark.parametrize("account", ACCOUNTS)
def test_the_epsilon_of_an_error_is_the_smallest_that_keeps_it(account: str) -> None:
    tables = ({"statistic": "count"}, {"statistic": "histogram", "column": "sex"})

    def plan_at(epsilon: Fraction) -> StatisticsPlan:
        return planned(*tables, account=account, epsilon=epsilon)

    def widest(epsilon: Fraction) -> float:
        measured = plan_at(epsilon).measured
        return max(half_width(*each) for _, priced in measured for each in priced)

    found = epsilon_for(Fraction(25), plan_at)
    assert widest(found) <= 25
    assert widest(EPSILONS[EPSILONS.index(found) - 1]) > 25
    with pytest.raises(ParameterInvalid):
        epsilon_for(Fraction(25), lambda epsilon: planned(MEAN, epsilon=epsilon))


def test_the_error_of_a_mean_is_stated_at_the_declared_size() -> None:
    [(table, priced)] = planned(MEAN).measured
    assert error_before(table, priced, 100) is None, "empty cells are no rows"
    assert table.value is not None
    table = replace(table, value=replace(table.value, missing=False))
    assert error_before(table, priced, None) is None
    few, many = (error_before(table, priced, size) for size in (100, 10_000))
    assert few is not None
    assert many is not None
    assert 0 < many < few < 3
    assert error_before(table, priced, 3) is None, "perhaps no row at all"
    [(grouped, priced)] = planned(MEAN | {"by": ["sex"]}).measured
    assert error_before(grouped, priced, 100) is None


def test_of_means_and_variances_of_some_rows_the_error_at_the_declared_size_is_stated() -> (
    None
):
    """Where cells may be empty, nothing was said before the charge."""
    shapes: list[dict[str, Any]] = [
        {},
        {"by": ["sex"]},
        {"where": [{"column": "age", "from": 1}]},
    ]
    for asked, shape in itertools.product((MEAN, VARIANCE), shapes):
        [(table, priced)] = planned(asked | shape).measured
        assert error_before(table, priced, 100) is None
        few, many = (error_at_size(table, priced, size) for size in (100, 10_000))
        assert few is not None
        assert many is not None
        assert 0 < many < few
        assert error_at_size(table, priced, None) is None
        assert error_at_size(table, priced, 3) is None, "perhaps no row at all"
    [(counts, priced)] = planned({"statistic": "count"}).measured
    assert error_at_size(counts, priced, 100) is None


@pytest.mark.parametrize("asked", [MEAN, VARIANCE])
def test_the_error_at_the_declared_size_holds_for_as_many_rows(
    asked: dict[str, Any],
) -> None:
    """Whatever the rows are, the noise almost never moves the number farther."""
    randomness = SystemRandomness()
    n_rows = 300
    plan = planned(asked, epsilon=Fraction(4))
    [(table, priced)] = plan.measured
    assert table.value is not None
    bound = error_at_size(table, priced, n_rows)
    assert bound is not None
    low, high = table.value.lower, table.value.upper
    for ages in ([low] * n_rows, [low, high] * (n_rows // 2), [high] * n_rows):
        rows = tuple((float(age), 0.0, 0, 0) for age in ages)
        exact = np.mean(ages) if asked is MEAN else np.var(ages)
        values = [
            release(plan, private_rows(rows), randomness).estimates(0)[0].value
            for _ in range(100)
        ]
        missed = [v for v in values if v is None or abs(v - exact) > bound]
        assert len(missed) <= 25, "of 100, each with probability 0.05 at most"


def test_intervals_of_means_and_variances_hold() -> None:
    """At ε = 4 and 300 rows the intervals say something, and almost never miss."""
    rng = np.random.default_rng(5)
    rows = tuple((float(age), 0.0, 0, 0) for age in rng.integers(0, 4, 300).tolist())
    ages = np.array([row[0] for row in rows])
    plan = planned(
        MEAN, {"statistic": "variance", "column": "age"}, epsilon=Fraction(4)
    )
    missed, randomness = 0, SystemRandomness()
    for _ in range(200):
        released = release(plan, private_rows(rows), randomness)
        [mean], [variance] = released.estimates(0), released.estimates(1)
        assert mean.high - mean.low < 1
        missed += not mean.low <= ages.mean() <= mean.high
        missed += not variance.low <= ages.var() <= variance.high
    # of 400 intervals, each misses with probability 0.05 at most
    assert missed <= 45


def test_statistics_are_read_as_they_were_written() -> None:
    plan = planned({"statistic": "crosstab", "columns": ["sex", "age"]}, MEAN)
    released = release(plan, private_rows(()), SystemRandomness())
    stored = released.to_json()
    assert Statistics.from_json(stored, SCHEMA).to_json() == stored


@pytest.mark.parametrize(
    "change",
    [
        lambda stored: stored["tables"].pop(),
        lambda stored: stored["tables"][0][0].pop(),
        lambda stored: stored["tables"][0][0].append("1.5"),
        lambda stored: stored["plan"]["event"]["parts"].pop(),
        lambda stored: stored["plan"]["tables"][0].update(statistic="sum"),
        lambda stored: stored.update(more=1),
    ],
)
def test_other_bytes_are_not_statistics(change: Any) -> None:
    plan = planned({"statistic": "histogram", "column": "sex"}, MEAN)
    released = release(plan, private_rows(()), SystemRandomness())
    stored: Any = released.to_json()
    change(stored)
    with pytest.raises(StatisticsInvalid):
        Statistics.from_json(stored, SCHEMA)


@pytest.mark.parametrize("adjacency", [Adjacency.ADD_REMOVE_ONE, Adjacency.LABEL])
@pytest.mark.parametrize("account", ACCOUNTS)
@pytest.mark.parametrize("epsilon", [Fraction(1, 50), Fraction(1), Fraction(6)])
def test_a_plan_costs_what_was_asked(
    account: str, adjacency: Adjacency, epsilon: Fraction
) -> None:
    of = ACCOUNTS[account]
    terms = Terms(epsilon, of.accountant, of.delta, adjacency)
    tables = [
        {"statistic": "count", "by": ["ill"]},
        {"statistic": "variance", "column": "debt", "by": ["ill"]},
    ]
    facts = public_facts(terms, None, SCHEMA, adjacency)
    loss = facts.budget.loss(price.plan(tables, facts).event)
    asked = epsilon if account == "pure" else facts.budget.limit
    # normal noise has whole steps, of which a small price buys few
    assert Fraction(99, 100) * asked <= loss <= asked


ODD = schema_of(
    {"name": "a", "type": "numeric", "lower": 1, "upper": 1.0000000000000002},
    {"name": "b", "type": "numeric", "lower": 1e15, "upper": 1e15 + 0.5},
    {"name": "c", "type": "numeric", "lower": -1e-7, "upper": 0.1 + 0.2},
    {"name": "d", "type": "integer", "lower": -5, "upper": 10**9},
    {"name": "e", "type": "numeric", "lower": 0, "upper": 5e-324},
    {"name": "f", "type": "numeric", "lower": 0, "upper": 1e-162},
    {"name": "g", "type": "numeric", "lower": -1e308, "upper": 1e308},
    classes=["no", "yes"],
)


@pytest.mark.parametrize("column", "abcdg")
@pytest.mark.parametrize("n_bins", [1, 3, 10, 1_000])
def test_a_plan_is_read_as_it_was_made(column: str, n_bins: int) -> None:
    [feature] = [feature for feature in ODD.features if feature.name == column]
    odd = {
        "from": feature.lower / 3,
        "below": math.nextafter(feature.upper, math.inf),
    }
    tables: list[dict[str, Any]] = [
        {"statistic": "histogram", "column": column, "bins": {column: n_bins}, "weight": "0.3"},
        {"statistic": "count", "where": [{"column": column, **odd}], "weight": "1e-5"},
    ]  # fmt: skip
    facts = public_facts(Terms(Fraction(9)), None, ODD, Adjacency.ADD_REMOVE_ONE)
    made = price.plan(tables, facts)
    stored = json.loads(json.dumps(made.to_json()))
    assert StatisticsPlan.from_json(stored, ODD) == made
    assert price.plan(stored["tables"], facts) == made


@pytest.mark.parametrize("column", "efg")
def test_a_number_that_floats_cannot_divide_adds_nothing_beyond_its_steps(
    column: str,
) -> None:
    facts = public_facts(Terms(Fraction(1)), None, ODD, Adjacency.ADD_REMOVE_ONE)
    with pytest.raises(ParameterInvalid):
        price.plan([{"statistic": "variance", "column": column}], facts)


@pytest.mark.parametrize("weight", ["1e-19", "1000000000000", "0.12345678901234567e-3"])
def test_a_weight_of_too_many_digits_is_refused(weight: str) -> None:
    asked = {"statistic": "count", "weight": to_text(Fraction(weight))}
    with pytest.raises(ParameterInvalid):
        read_tables([asked], SCHEMA)


FIFTHS = tuple(float(n) / 5 for n in range(1, 5))
AXES = {
    "no edge": Axis("x", bounds=(0.0, 1.0)),
    "equal": Axis("x", edges=FIFTHS, bounds=(0.0, 1.0)),
    "many": Axis("x", edges=tuple(np.linspace(-2, 5, 999)[1:-1]), bounds=(-2.0, 5.0)),
    "close": Axis("x", edges=(1e-9, 2e-9, 0.5), bounds=(0.0, 1.0)),
    "too close": Axis("x", edges=tuple(n * 1e-9 for n in range(1, 9)), bounds=(0, 1)),
    "last": Axis("x", edges=(3.0, 9.0), bounds=(0.0, 9.0)),
    "far": Axis("x", edges=(-1.0, 1.0), bounds=(-1.7e308, 1.7e308)),
    "near": Axis("x", edges=(1.0000000000000002,), bounds=(1.0, 1.0000000000000004)),
    "tiny": Axis("x", edges=(5e-324,), bounds=(0.0, 1e-323)),
    "point": Axis("x", bounds=(2.5, 2.5)),
    "empty": Axis("x", edges=FIFTHS, bounds=(0.0, 1.0), has_missing=True),
}


@pytest.mark.parametrize("name", AXES)
def test_a_number_is_in_the_bin_that_a_search_finds(name: str) -> None:
    axis, rng = AXES[name], np.random.default_rng(3)
    low, high = axis.bounds
    ends = np.array([low, high, *axis.edges])
    spread = low / 2 + (high / 2 - low / 2) * rng.random(5_000) + low / 2
    values = np.concatenate(
        [ends, np.nextafter(ends, low), np.nextafter(ends, high), spread]
    ).clip(low, high)
    expected = np.searchsorted(axis.edges, values, side="right")
    if axis.has_missing:
        values = np.append(values, math.nan)
        expected = np.append(expected, len(axis.edges) + 1)
    block = ColumnBlock({"x": values}, len(values))
    np.testing.assert_array_equal(sums._codes(axis, block), expected)


WHOLE = schema_of(
    {"name": "age", "type": "integer", "lower": 0, "upper": 120},
    {"name": "sex", "type": "categorical", "categories": ["f", "m"]},
    {"name": "eye", "type": "categorical", "categories": ["b"], "missing": True},
    classes=["no", "yes"],
    label="ill",
)
BEYOND: list[tuple[dict[str, Any], str]] = [
    ({"column": "sex", "in": [None]}, "no-missing-cells"),
    ({"column": "sex", "in": ["f", None]}, "no-missing-cells"),
    ({"column": "age", "from": 120.5}, "out-of-bounds"),
    ({"column": "age", "from": 121, "below": 130}, "out-of-bounds"),
    ({"column": "age", "below": 0}, "out-of-bounds"),
    ({"column": "age", "from": -9, "below": -1}, "out-of-bounds"),
]
WITHIN: list[dict[str, Any]] = [
    {"column": "eye", "in": [None]},
    {"column": "ill", "in": [None]},
    {"column": "sex", "in": ["f", "m"]},
    {"column": "age", "from": 120},
    {"column": "age", "from": -5, "below": 0.5},
    {"column": "age", "from": -5, "below": 500},
]


@pytest.mark.parametrize(("condition", "problem"), BEYOND)
def test_a_condition_that_no_row_can_meet_is_named(
    condition: dict[str, Any], problem: str
) -> None:
    with pytest.raises(ParameterInvalid) as caught:
        read_tables([{"statistic": "count", "where": [condition]}], WHOLE)
    [found] = caught.value.problems
    field = ("in",) if problem == "no-missing-cells" else ()
    accepted = ("f", "m") if field else ("numbers from 0 to 120",)
    assert found.place == ("tables", 0, "where", 0, *field)
    assert (found.problem, tuple(found.accepted)) == (problem, accepted)


@pytest.mark.parametrize("condition", WITHIN)
def test_a_condition_that_some_row_can_meet_is_accepted(
    condition: dict[str, Any],
) -> None:
    [table] = read_tables([{"statistic": "count", "where": [condition]}], WHOLE)
    assert table.where[0].column == condition["column"]


def test_a_category_that_is_named_like_a_cell_of_ours_is_told_from_it() -> None:
    categories = ("OTHER", "MISSING", '"OTHER"', '""MISSING""', "OTHERS", '"OTHER', "a")
    axis = Axis("x", categories=categories, has_missing=True)
    [*words, other, missing] = [place for [place] in _places([axis])]
    assert (other, missing) == ("OTHER", "MISSING")
    assert words[:2] == ['"OTHER"', '"MISSING"']
    assert words[4:] == list(categories[4:])
    assert len({*words, other, missing}) == len(categories) + 2


NUMBER = number_schema(
    {"name": "ward", "type": "categorical", "categories": ["a", "b"]},
    lower=0,
    upper=60,
)


def _of_days(table: dict[str, Any], adjacency: Adjacency) -> StatisticsPlan:
    terms = Terms(Fraction(1), "gdp", Fraction(1, 10**6), adjacency)
    return price.plan([table], public_facts(terms, None, NUMBER, adjacency))


@pytest.mark.parametrize(
    "table",
    [
        {"statistic": "sum", "column": "days"},
        {"statistic": "mean", "column": "days", "by": ["ward"]},
        {"statistic": "variance", "column": "days"},
        {"statistic": "median", "column": "days"},
        {
            "statistic": "histogram",
            "column": "days",
            "bins": {"days": {"quantiles": 4}},
        },
    ],
)
def test_where_labels_alone_are_protected_their_numbers_are_not_added_or_ranked(
    table: dict[str, Any],
) -> None:
    """A changed number would move one cell by twice what a row adds, which the price of
    a move between two cells does not cover.
    """
    assert _of_days(table, Adjacency.ADD_REMOVE_ONE).tables
    with pytest.raises(ParameterInvalid, match="not-on-label-accounts"):
        _of_days(table, Adjacency.LABEL)


def test_a_changed_number_moves_a_row_between_two_bins_at_most() -> None:
    where = [{"column": "days", "from": 5, "below": 50}]
    table = {"statistic": "histogram", "column": "days", "where": where}
    plan = _of_days(table, Adjacency.LABEL)
    assert plan.tables[0].groups_by_label
    [[axis]] = [read.axes for read in plan.tables]
    assert axis.cells[-1] == {"missing": True}

    def exact(days: float) -> Any:
        block = ColumnBlock({"days": np.array([days])}, 1)
        return sums._of_block(plan, NUMBER, block)

    [(_, [(_, event)])] = plan.measured
    for before in (0.0, 5.0, 31.5, 60.0, math.nan):
        for after in (0.0, 6.0, 59.0, math.nan):
            moved = exact(after) - exact(before)
            assert np.abs(moved).max() <= per_row(event)
            assert np.square(moved).sum() <= event.l2_sensitivity_squared
