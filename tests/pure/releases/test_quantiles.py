"""Quantiles: their grid, their plans, the error in rank that a plan states, and the
order of what is released.
"""

import itertools
import json
import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from grovekeeper_forests.errors import ParameterInvalid
from grovekeeper_forests.noise.randomness import SystemRandomness
from grovekeeper_forests.privacy.calibration import Terms
from grovekeeper_forests.privacy.events import (
    Adjacency,
    ExponentialMechanism,
    Parallel,
    Part,
    PermuteAndFlip,
)
from grovekeeper_forests.releases.contract import public_facts
from grovekeeper_forests.releases.statistics import price
from grovekeeper_forests.releases.statistics.draw import release
from grovekeeper_forests.releases.statistics.price import (
    StatisticsInvalid,
    StatisticsPlan,
)
from grovekeeper_forests.releases.statistics.quantile_draw import scores
from grovekeeper_forests.releases.statistics.quantile_price import (
    Selection,
    _exponential_scales,
    miss_probability,
    rank_error,
    selections_of,
)
from grovekeeper_forests.releases.statistics.quantile_read import cells_of, resolution
from grovekeeper_forests.releases.statistics.read import (
    EPSILONS,
    Estimate,
    Statistics,
    epsilon_for,
    error_before,
)
from grovekeeper_forests.releases.statistics.tables import read_tables
from tests.privacy.enumeration import permute_and_flip_law
from tests.privacy.noiseless import Noiseless
from tests.privacy.test_statistics_exact_loss import SCHEMA, private_rows
from tests.pure.releases.test_statistics import ACCOUNTS, ODD, planned
from tests.support.schemas import schema_of

WIDE = schema_of(
    {"name": "income", "type": "numeric", "lower": 0, "upper": 2_000},
    {"name": "year", "type": "integer", "lower": 0, "upper": 1_999},
    {"name": "visits", "type": "integer", "lower": -2, "upper": 997},
    classes=["no", "yes"],
)


def quantiles(*shares: str, column: str = "age", **more: Any) -> dict[str, Any]:
    asked = {"statistic": "quantiles", "column": column, "quantiles": list(shares)}
    return asked | more


def grid(column: str, **more: Any) -> list[tuple[float, float, float]]:
    [table] = read_tables([quantiles("0.5", column=column, **more)], WIDE)
    return [(cell.value, cell.low, cell.high) for cell in cells_of(table)]


def test_candidates_follow_from_the_declaration() -> None:
    incomes, years, visits = map(grid, ("income", "year", "visits"))
    assert incomes[:2] == [(1, 0, 2), (3, 2, 4)]
    assert (len(incomes), incomes[-1]) == (1_000, (1_999, 1_998, 2_000))
    assert years[:2] == [(0, 0, 1), (2, 2, 3)]
    assert (len(years), years[-1]) == (1_000, (1_998, 1_998, 1_999))
    assert visits == [(visit, visit, visit) for visit in range(-2, 998)]


def test_a_request_may_name_the_candidates() -> None:
    bins = {"income": [10, 100, 1_000]}
    assert grid("income", bins=bins)[1:3] == [(55, 10, 100), (550, 100, 1_000)]
    assert grid("year", bins={"year": 4})[0] == (249, 0, 499)
    [table] = read_tables([quantiles("0.5", column="income", bins=bins)], WIDE)
    assert resolution(table) == 1_000
    assert table.to_json()["bins"] == bins


def test_the_usual_candidates_are_not_written_out() -> None:
    [table] = read_tables([quantiles("0.25", "0.5", column="income")], WIDE)
    stored = table.to_json()
    assert (stored["bins"], stored["quantiles"]) == ({}, ["0.25", "0.5"])
    assert read_tables([stored], WIDE) == [table]
    [median] = read_tables([{"statistic": "median", "column": "income"}], WIDE)
    assert "quantiles" not in median.to_json()
    assert read_tables([median.to_json()], WIDE) == [median]


@pytest.mark.parametrize("column", "abcdef")
@pytest.mark.parametrize("n_cells", [None, 1, 3, 1_000])
def test_a_plan_is_read_as_it_was_made(column: str, n_cells: int | None) -> None:
    bins = {} if n_cells is None else {"bins": {column: n_cells}}
    asked = [quantiles("0.001", "0.25", "0.999", column=column, **bins)]
    facts = public_facts(Terms(Fraction(9)), None, ODD, Adjacency.ADD_REMOVE_ONE)
    made = price.plan(asked, facts)
    stored = json.loads(json.dumps(made.to_json()))
    assert StatisticsPlan.from_json(stored, ODD) == made
    assert price.plan(stored["tables"], facts) == made
    [table] = made.tables
    for cell in cells_of(table):
        assert cell.low <= cell.value <= cell.high
        assert math.isfinite(cell.value)


@pytest.mark.parametrize("account", ["zcdp", "gdp"])
def test_a_search_prices_tables_of_the_same_quantiles_once_a_step(account: str) -> None:
    shares = [f"0.{tenth}" for tenth in range(1, 10)]
    tables = [
        quantiles(*shares, by=by, bins={"age": n_cells})
        for n_cells in (10, 500)
        for by in ([], ["sex"], ["ill"])
    ]
    steps = []

    def plan_at(epsilon: Fraction) -> StatisticsPlan:
        steps.append(epsilon)
        return planned(*tables, account=account, epsilon=epsilon)

    before = _exponential_scales.cache_info().misses
    epsilon_for(Fraction(61), plan_at)
    solved = _exponential_scales.cache_info().misses - before
    assert 0 < solved <= len(steps)


def test_a_number_whose_bounds_have_no_distance_has_no_quantiles() -> None:
    for bins in ({}, {"g": 1}):
        with pytest.raises(ParameterInvalid) as refused:
            read_tables([quantiles("0.5", column="g", bins=bins)], ODD)
        [found] = refused.value.problems
        assert found.place == ("tables", 0, "column")
        assert found.problem == "bounds-too-close-or-too-wide"


@pytest.mark.parametrize(
    ("asked", "place", "problem"),
    [
        (quantiles(), ("quantiles",), "missing"),
        (quantiles(*(f"0.{n}" for n in range(10, 20))), ("quantiles",), "too-many"),
        (quantiles("0.5", "0.25"), ("quantiles",), "not-ascending"),
        (quantiles("0.5", "0.5"), ("quantiles",), "not-ascending"),
        (quantiles("1"), ("quantiles", 0), "out-of-range"),
        (quantiles("0.5", "0.9999"), ("quantiles", 1), "out-of-range"),
        (quantiles("0.5", column="sex"), ("column",), "not-a-number"),
        (quantiles("0.5", column="ill"), ("column",), "not-a-number"),
        (quantiles("0.5", by=["age"]), ("by",), "not-distinct"),
        (quantiles("0.5", bins={"debt": 3}), ("bins", "debt"), "not-grouped-by"),
        ({"statistic": "median"}, ("column",), "missing"),
        ({"statistic": "count", "quantiles": ["0.5"]}, ("quantiles",), "not-of-this-statistic"),
    ],
)  # fmt: skip
def test_a_table_that_is_wrong_is_named(
    asked: dict[str, Any], place: tuple[Any, ...], problem: str
) -> None:
    with pytest.raises(ParameterInvalid) as refused:
        read_tables([asked], SCHEMA)
    [found] = refused.value.problems
    assert (found.place, found.problem) == (("tables", 0, *place), problem)


def test_the_numbers_of_all_tables_are_limited() -> None:
    bins = {"bins": {"debt": 1_000}, "by": ["debt", "ill"]}
    assert read_tables([quantiles("0.1", "0.2", "0.3", **bins)], SCHEMA)
    with pytest.raises(ParameterInvalid):
        read_tables([quantiles("0.1", "0.2", "0.3", "0.4", **bins)], SCHEMA)
    # counts of 60 groups and a thousand candidates, of a million in all
    wide = quantiles("0.5", column="year", by=["income"], bins={"income": 60})
    assert read_tables([wide] * 16, WIDE)
    with pytest.raises(ParameterInvalid):
        read_tables([wide] * 17, WIDE)


@pytest.mark.parametrize("adjacency", [Adjacency.ADD_REMOVE_ONE, Adjacency.LABEL])
@pytest.mark.parametrize("account", ACCOUNTS)
@pytest.mark.parametrize("epsilon", [Fraction(1, 50), Fraction(1), Fraction(6)])
def test_a_plan_costs_what_was_asked(
    account: str, adjacency: Adjacency, epsilon: Fraction
) -> None:
    of = ACCOUNTS[account]
    terms = Terms(epsilon, of.accountant, of.delta, adjacency)
    tables = [
        quantiles("0.25", "0.5", "0.9", by=["ill"]),
        {"statistic": "count", "by": ["ill"]},
        quantiles("0.5", column="debt", where=[{"column": "ill", "in": ["no"]}]),
    ]
    facts = public_facts(terms, None, SCHEMA, adjacency)
    loss = facts.budget.loss(price.plan(tables, facts).event)
    asked = epsilon if account == "pure" else facts.budget.limit
    assert Fraction(99, 100) * asked <= loss <= asked


@pytest.mark.parametrize("account", ACCOUNTS)
def test_groups_share_no_price_and_labels_pay_for_two(account: str) -> None:
    plan = planned(quantiles("0.5", by=["ill"]), account=account)
    [part] = plan.event.parts
    assert isinstance(part.event, Parallel)
    [of_groups] = part.event.parts
    kind = PermuteAndFlip if account == "pure" else ExponentialMechanism
    assert (of_groups.times, type(of_groups.event)) == (3, kind)


@pytest.mark.parametrize("account", ACCOUNTS)
def test_where_labels_move_rows_between_groups_no_paid_selection_is_left(
    account: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Two groups pay for each quantile, at a scale of its own; each is drawn once."""
    of = ACCOUNTS[account]
    terms = Terms(Fraction(1), of.accountant, of.delta, Adjacency.LABEL)
    facts = public_facts(terms, None, SCHEMA, Adjacency.LABEL)
    plan = price.plan([quantiles("0.25", "0.9", by=["ill"])], facts)
    release(plan, private_rows(((2.0, 0.0, 0, 1),)), SystemRandomness())
    assert not caplog.messages


def test_an_account_of_labels_refuses_a_table_without_the_label() -> None:
    facts = public_facts(
        Terms(Fraction(1), adjacency=Adjacency.LABEL), None, SCHEMA, Adjacency.LABEL
    )
    with pytest.raises(ParameterInvalid):
        price.plan([quantiles("0.5")], facts)


@pytest.mark.parametrize("share", ["1/2", "1/4", "9/10", "333/1000"])
def test_scores_are_distances_in_rank(share: str) -> None:
    """Against the definition, in fractions; some cell always scores zero."""
    quantile = Fraction(share)
    for counts in itertools.product((0, 1, 2, 7), repeat=4):
        target, below = quantile * sum(counts), 0
        expected = []
        for count in counts:
            up_to = below + count
            distance = max(below - target, target - up_to, Fraction(0))
            expected.append(-distance * quantile.denominator)
            below = up_to
        assert scores(np.array(counts), quantile).tolist() == expected
        assert max(expected) == 0


@pytest.mark.parametrize("account", ACCOUNTS)
def test_without_noise_the_quantiles_are_those_of_the_rows(account: str) -> None:
    rng = np.random.default_rng(7)
    debts = rng.uniform(-1, 2, 999)
    rows = tuple((math.nan, debt, 0, index % 2) for index, debt in enumerate(debts))
    shares = ("0.1", "0.5", "0.975")
    plan = planned(
        quantiles(*shares, column="debt"),
        quantiles("0.5", column="debt", by=["ill"]),
        quantiles("0.5", column="age"),
        account=account,
    )
    released = release(plan, private_rows(rows), Noiseless())
    found = released.estimates(0)
    for share, estimate in zip(shares, found, strict=True):
        exact = np.quantile(debts, float(share), method="inverted_cdf")
        assert estimate.low <= exact <= estimate.high
        assert estimate.high - estimate.low == pytest.approx(0.003)
    no, yes, _ = released.estimates(1)
    for estimate, of_label in ((no, debts[::2]), (yes, debts[1::2])):
        assert abs(estimate.value - np.median(of_label)) < 0.05
    assert released.estimates(2)[0].value in (0, 1, 2, 3), "a group without a row"


def test_quantiles_of_a_group_are_in_order() -> None:
    plan = planned(quantiles("0.25", "0.5", "0.75", by=["sex"]))
    [(_, priced)] = plan.measured
    assert len(priced) == 3
    selected = [np.array(cells) for cells in ([3, 0, 0, 1], [2, 1, 0, 1], [0, 3, 0, 0])]
    values = [cell.value for cell in Statistics(plan, [selected]).estimates(0)]
    assert values == [0, 2, 3, 0, 1, 3, 0, 0, 0, 0, 1, 1]


@pytest.mark.parametrize("account", ACCOUNTS)
@pytest.mark.parametrize("gap", [1, 2, 9])
def test_the_chance_of_a_gap_is_that_of_the_worst_case(account: str, gap: int) -> None:
    plan = planned(quantiles("0.25", column="debt", bins={"debt": 5}), account=account)
    [selection] = selected_by(plan)
    utilities = (0, *[-gap] * 4)
    exact = 1 - law_of(selection, utilities)[0]
    assert miss_probability(selection, gap) == pytest.approx(exact, rel=1e-9)
    # no other scores with the same gap miss more often
    for others in itertools.product((0, gap, gap + 1, 3 * gap), repeat=4):
        law = law_of(selection, (0, *(-other for other in others)))
        missed = sum(law[1 + n] for n, other in enumerate(others) if other >= gap)
        assert missed <= exact + 1e-12


def selected_by(plan: StatisticsPlan) -> list[Selection]:
    [(table, priced)] = plan.measured
    return selections_of(table, [event for _, event in priced])


def law_of(selection: Selection, utilities: tuple[int, ...]) -> list[float]:
    if isinstance(selection, PermuteAndFlip):
        return permute_and_flip_law(utilities, selection.inverse_scale)
    scale = float(selection.inverse_scale)
    weights = [math.exp(scale * utility) for utility in utilities]
    return [weight / sum(weights) for weight in weights]


def test_a_chance_near_zero_is_computed_without_cancellation() -> None:
    selection = PermuteAndFlip(
        Adjacency.ADD_REMOVE_ONE, Fraction(2), Fraction(1, 2), 1_000
    )
    chances = [miss_probability(selection, gap) for gap in range(1, 5_000)]
    assert all(low >= high >= 0 for low, high in itertools.pairwise(chances))
    assert chances[0] > 0.99
    assert chances[99] == pytest.approx(500 * math.exp(-50), rel=1e-3)


@pytest.mark.parametrize("account", ACCOUNTS)
@pytest.mark.parametrize("shares", [("0.5",), ("0.25", "0.9")])
def test_the_error_in_rank_holds_for_every_dataset(
    account: str, shares: tuple[str, ...]
) -> None:
    """Brute force: the law of all sorted quantiles of a group, over datasets of which
    some are near the worst case.
    """
    asked = quantiles(*shares, column="debt", bins={"debt": 4})
    plan = planned(asked, account=account, epsilon=Fraction(3))
    [(table, priced)] = plan.measured
    error = rank_error(table, [event for _, event in priced], 0.95)
    assert error == error_before(table, priced, None)
    worst = 0.0
    sizes = 0, 1, math.floor(2 * error) + 1, math.floor(4 * error) + 1
    for counts in itertools.product(sizes, repeat=4):
        chance = miss_of(plan, np.array(counts), error)
        assert chance <= 0.05
        worst = max(worst, chance)
    assert worst > 0.01, "the bound says something"


def miss_of(plan: StatisticsPlan, counts: np.ndarray, error: float) -> float:
    """The probability that a sorted quantile of a group is further in rank."""
    [(table, _)] = plan.measured
    laws, distances = [], []
    for share, selection in zip(table.quantiles, selected_by(plan), strict=True):
        utilities = scores(counts, share)
        laws.append(law_of(selection, tuple(utilities.tolist())))
        distances.append(-utilities / share.denominator)
    missed = 0.0
    for cells in itertools.product(range(len(counts)), repeat=len(laws)):
        in_order = zip(distances, sorted(cells), strict=True)
        if any(of_cell[cell] > error for of_cell, cell in in_order):
            chances = (law[cell] for law, cell in zip(laws, cells, strict=True))
            missed += math.prod(chances)
    return missed


@pytest.mark.parametrize("account", ACCOUNTS)
@pytest.mark.parametrize("shares", [("0.25",), ("0.25", "0.5", "0.9")])
def test_the_error_in_rank_is_the_smallest_that_the_bound_gives(
    account: str, shares: tuple[str, ...]
) -> None:
    [(table, priced)] = planned(quantiles(*shares), account=account).measured
    events = [event for _, event in priced]
    error = rank_error(table, events, 0.95)
    selections = selections_of(table, events)

    def missed_above(rows: Fraction) -> float:
        """The chance that some quantile is further than this."""
        gaps = [math.floor(rows * share.denominator) + 1 for share in table.quantiles]
        return sum(map(miss_probability, selections, gaps))

    steps = round(error * 1_000)
    assert missed_above(Fraction(steps, 1_000)) <= 0.05
    assert missed_above(Fraction(steps - 1, 1_000)) > 0.05


@pytest.mark.parametrize("account", ACCOUNTS)
def test_the_epsilon_of_an_error_is_the_smallest_that_keeps_it(account: str) -> None:
    asked = quantiles("0.25", "0.5", column="debt"), {"statistic": "count"}

    def plan_at(epsilon: Fraction) -> StatisticsPlan:
        return planned(*asked, account=account, epsilon=epsilon)

    def error_at(epsilon: Fraction) -> float:
        table, priced = next(iter(plan_at(epsilon).measured))
        error = error_before(table, priced, None)
        assert error is not None
        return error

    found = epsilon_for(Fraction(25), plan_at)
    assert error_at(found) <= 25
    assert error_at(EPSILONS[EPSILONS.index(found) - 1]) > 25


@pytest.mark.parametrize(
    "change",
    [
        lambda stored: stored["tables"][0].pop(),
        lambda stored: stored["tables"][0][0].__setitem__(0, "4"),
        lambda stored: stored["tables"][0][0].__setitem__(0, "-1"),
        lambda stored: stored["plan"]["tables"][0].update(quantiles=["0.25", "0.6"]),
        lambda stored: stored["plan"]["event"]["parts"][0]["event"]["parts"][0].update(times=5),
        lambda stored: stored["plan"]["event"]["parts"][0]["event"]["parts"][0]["event"].update(max_candidates=3),
        lambda stored: stored["plan"]["event"]["parts"][0]["event"]["parts"][0]["event"].update(range_sensitivity="1"),
        lambda stored: stored["plan"]["event"]["parts"][0]["event"]["parts"][0]["event"].update(inverse_scale="0"),
    ],
)  # fmt: skip
def test_other_bytes_are_not_quantiles(change: Any) -> None:
    plan = planned(quantiles("0.25", "0.5", by=["ill"]))
    released = release(plan, private_rows(()), SystemRandomness())
    stored: Any = json.loads(json.dumps(released.to_json()))
    assert Statistics.from_json(stored, SCHEMA).to_json() == stored
    change(stored)
    with pytest.raises(StatisticsInvalid):
        Statistics.from_json(stored, SCHEMA)


def test_a_median_of_one_value_is_that_value() -> None:
    plan = planned({"statistic": "median", "column": "age"}, epsilon=Fraction(50))
    rows = ((2.0, 0.0, 0, 0),) * 200
    released = release(plan, private_rows(rows), SystemRandomness())
    assert released.estimates(0) == [Estimate(2, 2, 2)]


def test_parts_of_an_event_count_once() -> None:
    plan = planned(quantiles("0.25", "0.5"))
    assert [part.times for part in plan.event.parts] == [1, 1]
    doubled = type(plan.event)(tuple(Part(2, part.event) for part in plan.event.parts))
    with pytest.raises(StatisticsInvalid):
        StatisticsPlan.from_json(StatisticsPlan(plan.tables, doubled).to_json(), SCHEMA)
