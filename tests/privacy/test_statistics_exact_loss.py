"""T1, T2 and T4 on statistics: the exact law of the production code over small datasets,
and the change that one row makes in every measure of every table on every account.
"""

import itertools
from collections.abc import Callable, Iterator
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from grovekeeper_forests.bins.noisy_counts import per_row
from grovekeeper_forests.data.coded_rows import RowParts
from grovekeeper_forests.data.sanitiser import SanitisedColumns, SanitisedRows
from grovekeeper_forests.privacy.accountants import gdp, pure, zcdp
from grovekeeper_forests.privacy.calibration import Terms
from grovekeeper_forests.privacy.events import (
    Adjacency,
    DiscreteLaplace,
    Event,
    RoundedGaussian,
)
from grovekeeper_forests.releases.contract import public_facts
from grovekeeper_forests.releases.statistics import draw as statistics_draw
from grovekeeper_forests.releases.statistics import price, sums
from grovekeeper_forests.releases.statistics.price import StatisticsPlan
from grovekeeper_forests.releases.statistics.tables import Axis
from tests.privacy.enumeration import TOLERANCE, EnumeratingRandomness, loss, output_law
from tests.privacy.noiseless import Noiseless
from tests.privacy.recorder import Draw, Recorder, check
from tests.support.block_rows import in_blocks
from tests.support.schemas import schema_of

NAN = float("nan")
SCHEMA = schema_of(
    {"name": "age", "type": "integer", "lower": 0, "upper": 3, "missing": True},
    {"name": "debt", "type": "numeric", "lower": -1, "upper": 2, "missing": True},
    {"name": "sex", "type": "categorical", "categories": ["f", "m"], "missing": True},
    classes=["no", "yes"],
    label="ill",
)
UNLABELLED = -1
Row = tuple[float, float, int, int]
"""age, debt, code of sex, class."""

ROWS: tuple[Row, ...] = tuple(
    itertools.product(
        (0.0, 2.0, 3.0, NAN), (-1.0, 0.3, 2.0, NAN), (0, 1, 2, 3), (0, 1, UNLABELLED)
    )
)

TABLES: dict[str, dict[str, Any]] = {
    "count": {"statistic": "count"},
    "filtered": {
        "statistic": "count",
        "where": [
            {"column": "age", "from": 1, "below": 3},
            {"column": "sex", "in": ["f", None]},
        ],
    },
    "histogram": {"statistic": "histogram", "column": "age", "bins": {"age": [1, 3]}},
    "labels": {"statistic": "histogram", "column": "ill"},
    "crosstab": {"statistic": "crosstab", "columns": ["sex", "ill"]},
    "sum": {"statistic": "sum", "column": "debt"},
    "sums": {"statistic": "sum", "column": "age", "by": ["ill"]},
    "mean": {"statistic": "mean", "column": "debt", "by": ["ill"]},
    "variance": {
        "statistic": "variance",
        "column": "age",
        "where": [{"column": "ill", "in": ["yes", None]}],
    },
}
OF_LABELS = ("labels", "crosstab", "sums", "mean", "variance")
ACCOUNTS = {
    "pure": Terms(Fraction(1)),
    "zcdp": Terms(Fraction(1), zcdp.NAME, Fraction(1, 10**6)),
    "gdp": Terms(Fraction(1), gdp.NAME, Fraction(1, 10**6)),
}


def planned(*tables: str, terms: Terms = ACCOUNTS["pure"]) -> StatisticsPlan:
    asked = [TABLES[table] for table in tables]
    facts = public_facts(terms, None, SCHEMA, terms.adjacency)
    plan = price.plan(asked, facts)
    assert StatisticsPlan.from_json(plan.to_json(), SCHEMA) == plan
    return plan


def private_rows(rows: tuple[Row, ...]) -> RowParts:
    ages, debts, sexes, labels = zip(*rows, strict=True) if rows else ((), (), (), ())
    columns = (
        np.array(ages, dtype=np.float64),
        np.array(debts, dtype=np.float64),
        np.array(sexes, dtype=np.int32),
    )
    ids = np.zeros((len(rows), 16), dtype=np.uint8)
    features = SanitisedColumns(columns, len(rows))
    whole = SanitisedRows(features, np.array(labels, dtype=np.int32), ids)
    return in_blocks(whole, SCHEMA)


def law(plan: StatisticsPlan, rows: tuple[Row, ...]) -> dict[object, float]:
    private = private_rows(rows)

    def run(randomness: EnumeratingRandomness) -> object:
        released = statistics_draw.release(plan, private, randomness)  # type: ignore[arg-type]
        return tuple(m.tobytes() for table in released.measured for m in table)

    return output_law(run, window=(-1, 1))  # type: ignore[arg-type]


def losses(plan: StatisticsPlan) -> Iterator[float]:
    """The loss of each row that is added to no row, and beside another."""
    for others in ((), ((2.0, 0.3, 0, 1),)):
        without = law(plan, others)
        yield from (loss(law(plan, (*others, row)), without) for row in ROWS)


@pytest.mark.covering("table", "epsilon")
@pytest.mark.parametrize("epsilon", ["0.5", "2"])
@pytest.mark.parametrize("table", ["count", "filtered", "histogram", "labels", "sum"])
def test_a_table_loses_its_price_and_no_more(table: str, epsilon: str) -> None:
    plan = planned(table, terms=Terms(Fraction(epsilon)))
    claim = float(pure.loss(plan.event, adjacency=Adjacency.ADD_REMOVE_ONE))
    assert 0.99 * float(Fraction(epsilon)) < claim <= float(Fraction(epsilon))
    assert 0.6 * claim < max(losses(plan)) <= claim + TOLERANCE


def test_a_mean_loses_the_price_of_its_two_measures_together() -> None:
    asked = {"statistic": "mean", "column": "age"}
    plan = price.plan(
        [asked], public_facts(ACCOUNTS["pure"], None, SCHEMA, Adjacency.ADD_REMOVE_ONE)
    )
    claim = float(pure.loss(plan.event, adjacency=Adjacency.ADD_REMOVE_ONE))
    assert 0.6 * claim < max(losses(plan)) <= claim + TOLERANCE


def test_every_release_can_come_from_every_dataset() -> None:
    plan = planned("histogram")
    support = law(plan, ()).keys()
    assert all(law(plan, (row,)).keys() == support for row in ROWS)


def exact(plan: StatisticsPlan, rows: tuple[Row, ...]) -> list[np.ndarray]:
    released = statistics_draw.release(plan, private_rows(rows), Noiseless())
    return [measure for table in released.measured for measure in table]


def require_stated(event: Event, change: np.ndarray) -> bool:
    """Whether a change of the exact numbers is the largest that the event states."""
    if isinstance(event, DiscreteLaplace):
        moved = int(np.abs(change).sum())
        assert moved <= event.l1_sensitivity
        return moved == event.l1_sensitivity
    assert isinstance(event, RoundedGaussian)
    squared = sum(int(step) ** 2 for step in change)
    assert squared <= event.l2_sensitivity_squared
    return squared == event.l2_sensitivity_squared


@pytest.mark.parametrize("account", ACCOUNTS)
def test_one_row_moves_each_measure_by_what_its_event_states(account: str) -> None:
    plan = planned(*TABLES, terms=ACCOUNTS[account])
    events = [part.event for part in plan.event.parts]
    nothing, reached = exact(plan, ()), [False] * len(events)
    for row in ROWS:
        for index, (one, none) in enumerate(
            zip(exact(plan, (row,)), nothing, strict=True)
        ):
            reached[index] |= require_stated(events[index], one - none)
    assert all(reached), "an event states more than any row can do"


@pytest.mark.parametrize("account", ACCOUNTS)
def test_a_number_beyond_its_bounds_moves_no_measure_further(account: str) -> None:
    """Rows are stored inside their bounds; the sums do not rely on it."""
    plan = planned("sum", "sums", "mean", "variance", terms=ACCOUNTS[account])
    events = [part.event for part in plan.event.parts]
    nothing = exact(plan, ())
    for row in itertools.product((-9.0, 9.0), (-9.0, 9.0), (0,), (0, 1)):
        for event, one, none in zip(events, exact(plan, (row,)), nothing, strict=True):
            require_stated(event, one - none)


@pytest.mark.parametrize("account", ACCOUNTS)
def test_one_label_moves_each_measure_by_what_its_event_states(account: str) -> None:
    terms = replace(ACCOUNTS[account], adjacency=Adjacency.LABEL)
    plan = planned(*OF_LABELS, terms=terms)
    events = [part.event for part in plan.event.parts]
    reached = [False] * len(events)
    for age, debt, sex, label in ROWS:
        before = exact(plan, ((age, debt, sex, label),))
        for other in (0, 1, UNLABELLED):
            after = exact(plan, ((age, debt, sex, other),))
            for index, (one, two) in enumerate(zip(before, after, strict=True)):
                reached[index] |= require_stated(events[index], one - two)
    # in the last table, a label decides whether a row is counted, and in no two cells
    assert all(reached[:-3])


@pytest.mark.parametrize("account", ACCOUNTS)
def test_rows_add_up(account: str) -> None:
    """Every measure of many rows is the sum of those of each row: no row decides what
    another one adds.
    """
    plan = planned(*TABLES, terms=ACCOUNTS[account])
    of_all = exact(plan, ROWS)
    of_each = [exact(plan, (row,)) for row in ROWS]
    for index, measure in enumerate(of_all):
        assert (measure == sum(one[index] for one in of_each)).all()


FLAWS: dict[str, Callable[[pytest.MonkeyPatch], None]] = {
    "every row counts twice": lambda patch: patch.setattr(
        sums, "per_row", lambda event: 2 * per_row(event)
    ),
    "a number is not centred": lambda patch: patch.setattr(
        sums, "centre_of", lambda feature: 0.0
    ),
}


@pytest.mark.parametrize("flaw", FLAWS)
def test_a_careless_change_is_noticed(
    monkeypatch: pytest.MonkeyPatch, flaw: str
) -> None:
    plan = planned(*TABLES)
    FLAWS[flaw](monkeypatch)
    monkeypatch.setattr(np, "clip", lambda values, low, high: values)
    events = [part.event for part in plan.event.parts]
    with pytest.raises(AssertionError):
        for row in ROWS:
            for event, change in zip(events, exact(plan, (row,)), strict=True):
                require_stated(event, change)


def recorded(
    plan: StatisticsPlan, rows: tuple[Row, ...], replayed: list[Draw] | None = None
) -> list[Draw]:
    recorder = Recorder(replayed)
    released = statistics_draw.release(plan, private_rows(rows), recorder)  # type: ignore[arg-type]
    leaves = tuple(m.tobytes() for table in released.measured for m in table)
    return [*recorder.draws, Draw("what leaves", leaves, None, None)]


def shares_of_the_charge(
    plan: StatisticsPlan,
    account: str,
    neighbours: Iterator[tuple[Row, ...]],
    n_rows: int = 1,
) -> list[float]:
    """The costs of the moves of every draw, where each draw of a neighbour releases
    what it released of all rows, as shares of the charge.
    """
    first = recorded(plan, ROWS)
    return [
        check(
            plan.event,
            first,
            recorded(plan, rows, first),
            accountant=account,
            n_rows=n_rows,
        )
        for rows in neighbours
    ]


@pytest.mark.covering("account", "n_rows")
@pytest.mark.parametrize("n_rows", [1, 2])
@pytest.mark.parametrize("account", ACCOUNTS)
def test_a_unit_moves_the_draws_of_a_release_by_what_was_charged(
    account: str, n_rows: int
) -> None:
    terms = replace(ACCOUNTS[account], max_rows=n_rows)
    plan = planned(*TABLES, terms=terms)
    neighbours = (
        (*ROWS[:gone], *ROWS[gone + n_rows :]) for gone in range(0, len(ROWS), 11)
    )
    shares = shares_of_the_charge(plan, account, neighbours, n_rows)
    # no row is in the widest cell of every table
    assert 0.4 < max(shares) <= 1


@pytest.mark.parametrize("account", ACCOUNTS)
def test_a_label_moves_the_draws_of_a_release_by_what_was_charged(account: str) -> None:
    terms = replace(ACCOUNTS[account], adjacency=Adjacency.LABEL)
    plan = planned(*OF_LABELS, terms=terms)

    def relabelled() -> Iterator[tuple[Row, ...]]:
        for place in range(0, len(ROWS), 11):
            *features, label = ROWS[place]
            for other in {0, 1, UNLABELLED} - {label}:
                changed: Any = (*features, other)
                yield (*ROWS[:place], changed, *ROWS[place + 1 :])

    assert 0.4 < max(shares_of_the_charge(plan, account, relabelled())) <= 1


SEXES = ("f", "m", "OTHER", None)
KINDS = {0: "no", 1: "yes", UNLABELLED: None}
BY_HAND: list[dict[str, Any]] = [
    *TABLES.values(),
    {"statistic": "crosstab", "columns": ["debt", "age"], "by": ["sex"], "bins": {"debt": [0, 1]}},
    {"statistic": "count", "where": [
        {"column": "sex", "in": ["m"]}, {"column": "ill", "in": ["no", "yes"]}, {"column": "debt", "below": 2},
    ]},
    {"statistic": "mean", "column": "debt", "by": ["sex"], "where": [{"column": "debt", "from": 0.3}]},
    {"statistic": "variance", "column": "age", "by": ["ill", "debt"], "bins": {"debt": 1}},
]  # fmt: skip


def cell_of(axis: Axis, value: Any) -> int:
    """The place of the only cell of an axis that holds a value."""

    def holds(cell: dict[str, Any]) -> bool:
        match cell:
            case {"category": category}:
                return bool(value == category)
            case {"other": True}:
                return value == "OTHER" or (value is None and not axis.has_missing)
            case {"missing": True}:
                return value is None
            case {"from": low, "below": high}:
                return value is not None and low <= value < high
        return value is not None and cell["from"] <= value <= cell["to"]

    [place] = [place for place, cell in enumerate(axis.cells) if holds(cell)]
    return place


def is_read(conditions: list[dict[str, Any]], values: dict[str, Any]) -> bool:
    for condition in conditions:
        value = values[condition["column"]]
        if "in" in condition:
            if value not in condition["in"]:
                return False
        elif value is None or not (
            condition.get("from", -9) <= value < condition.get("below", 9)
        ):
            return False
    return True


def by_hand(plan: StatisticsPlan, asked: list[dict[str, Any]]) -> list[list[int]]:
    """The exact numbers of all rows, row by row and cell by cell."""
    found: list[list[int]] = []
    for (table, priced), request in zip(plan.measured, asked, strict=True):
        for measure, event in priced:
            numbers, steps = [0] * table.n_cells, per_row(event)
            for age, debt, sex, label in ROWS:
                values = {
                    "age": None if age != age else age,
                    "debt": None if debt != debt else debt,
                    "sex": SEXES[sex],
                    "ill": KINDS[label],
                }
                number = None if table.value is None else values[table.value.name]
                is_counted = table.value is None or number is not None
                if not (is_counted and is_read(request.get("where", []), values)):
                    continue
                place = 0
                for axis in table.axes:
                    place = place * axis.n_cells + cell_of(axis, values[axis.column])
                adds = 1.0
                if measure.name != "rows":
                    assert table.value is not None
                    adds = number
                    if measure.name != "sum":
                        low, high = table.value.lower, table.value.upper
                        adds = number - (low + high) / 2
                    if measure.name == "squares":
                        adds = adds**2 - ((high - low) / 2) ** 2 / 2
                numbers[place] += round(adds / measure.reach * steps)
            found.append(numbers)
    return found


@pytest.mark.parametrize("account", ACCOUNTS)
def test_exact_numbers_are_those_of_a_count_by_hand(account: str) -> None:
    terms = ACCOUNTS[account]
    plan = price.plan(BY_HAND, public_facts(terms, None, SCHEMA, terms.adjacency))
    numbers = [measure.tolist() for measure in exact(plan, ROWS)]
    assert numbers == by_hand(plan, BY_HAND)
