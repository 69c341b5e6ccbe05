"""What a plan of statistics states, number by number, and which stored plans and
releases are refused.
"""

import copy
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from grovekeeper_forests.bins.noisy_counts import FINEST_GRID, finest_steps, per_row
from grovekeeper_forests.errors import ParameterInvalid
from grovekeeper_forests.privacy.accountants import gdp, pure, zcdp
from grovekeeper_forests.privacy.calibration import Terms
from grovekeeper_forests.privacy.events import (
    Adjacency,
    DiscreteLaplace,
    EventCostsMore,
    Parallel,
    Part,
    Sequential,
    UnknownPrivacyEvent,
)
from grovekeeper_forests.releases.contract import public_facts
from grovekeeper_forests.releases.statistics import price, quantile_draw
from grovekeeper_forests.releases.statistics.price import (
    Measure,
    StatisticsInvalid,
    StatisticsPlan,
    measures,
)
from grovekeeper_forests.releases.statistics.quantile_price import (
    n_changed_groups,
    selection_of,
)
from grovekeeper_forests.releases.statistics.quantile_read import (
    Cell,
    are_edges,
    cells_of,
    in_order,
    is_selection,
)
from grovekeeper_forests.releases.statistics.read import Statistics
from grovekeeper_forests.releases.statistics.tables import Table, read_tables
from tests.support.schemas import schema_of

SCHEMA = schema_of(
    {"name": "visits", "type": "integer", "lower": -7, "upper": 3},
    {"name": "debt", "type": "numeric", "lower": -1, "upper": 4},
    {"name": "cells", "type": "integer", "lower": 0, "upper": FINEST_GRID},
    {"name": "atoms", "type": "integer", "lower": 0, "upper": FINEST_GRID + 2},
    {"name": "sex", "type": "categorical", "categories": ["f", "m"]},
    classes=["no", "yes"],
    label="ill",
)
BINS: dict[str, Any] = {
    "statistic": "histogram",
    "column": "debt",
    "bins": {"debt": {"quantiles": 4}},
}
COUNT: dict[str, Any] = {"statistic": "count"}
VARIANCE = {"statistic": "variance", "column": "visits"}
MEDIAN: dict[str, Any] = {"statistic": "median", "column": "debt"}
DELTA = Fraction(1, 10**6)
TERMS = {
    "pure": Terms(Fraction(1)),
    "zcdp": Terms(Fraction(1), zcdp.NAME, DELTA),
    "gdp": Terms(Fraction(1), gdp.NAME, DELTA),
    "labels": Terms(Fraction(1), adjacency=Adjacency.LABEL),
}
ROWS = Measure("rows", 1.0, 1)


def planned(*asked: dict[str, Any], account: str = "pure") -> StatisticsPlan:
    terms = TERMS[account]
    return price.plan(asked, public_facts(terms, None, SCHEMA, terms.adjacency))


def table_of(**asked: Any) -> Table:
    [table] = read_tables([asked], SCHEMA)
    return table


@pytest.mark.parametrize(
    ("statistic", "column", "expected"),
    [
        ("sum", "visits", [Measure("sum", 7.0, 7)]),
        ("sum", "debt", [Measure("sum", 4.0, None)]),
        ("sum", "cells", [Measure("sum", float(FINEST_GRID), FINEST_GRID)]),
        ("sum", "atoms", [Measure("sum", float(FINEST_GRID + 2), None)]),
        ("mean", "visits", [ROWS, Measure("centred", 5.0, 10)]),
        ("mean", "debt", [ROWS, Measure("centred", 2.5, None)]),
        (
            "mean",
            "cells",
            [ROWS, Measure("centred", float(FINEST_GRID // 2), FINEST_GRID)],
        ),
        (
            "variance",
            "visits",
            [ROWS, Measure("centred", 5.0, 10), Measure("squares", 12.5, None)],
        ),
        ("median", "debt", [Measure("rank", 1.0, None)]),
        ("histogram", "sex", [ROWS]),
    ],
)
def test_measures_follow_from_the_bounds(
    statistic: str, column: str, expected: list[Measure]
) -> None:
    assert measures(table_of(statistic=statistic, column=column)) == expected


@pytest.mark.parametrize("account", TERMS)
@pytest.mark.parametrize("statistic", ["sum", "mean", "variance"])
@pytest.mark.parametrize("column", ["visits", "debt", "cells"])
def test_a_row_adds_whole_steps_where_its_numbers_are_whole(
    account: str, statistic: str, column: str
) -> None:
    by = [] if account != "labels" else ["ill"]
    asked = {"statistic": statistic, "column": column, "by": by}
    [(_, measured)] = planned(asked, account=account).measured
    n_moved = 2 if account == "labels" else 1
    finest = finest_steps(Fraction(1, len(measured) * n_moved))
    for measure, event in measured:
        if isinstance(event, DiscreteLaplace):
            assert per_row(event) == min(measure.whole_steps or finest, finest)


def test_private_bins_pay_a_quarter_of_their_table() -> None:
    [priced] = planned(BINS).priced
    edges, counts = (
        sum(pure.loss(event, adjacency=Adjacency.ADD_REMOVE_ONE) for event in paid)
        for paid in (priced.edges, [event for _, event in priced.measured])
    )
    assert 0.2499 < edges <= 0.25
    assert 0.7499 < counts <= 0.75


def test_a_plan_that_costs_more_than_was_asked_is_an_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    parts = price._parts
    monkeypatch.setattr(
        price, "_parts", lambda table, share, facts: 2 * parts(table, share, facts)
    )
    with pytest.raises(EventCostsMore):
        planned(COUNT)


def test_a_plan_reads_the_columns_of_all_of_its_tables() -> None:
    assert planned(BINS, VARIANCE).columns == ("debt", "visits")


def _twice(stored: Any) -> None:
    stored["event"]["parts"][0]["times"] = 2


def _last_twice(stored: Any) -> None:
    stored["event"]["parts"][-1]["times"] = 2


def _no_last(stored: Any) -> None:
    stored["event"]["parts"].pop()


def _one_more(stored: Any) -> None:
    stored["event"]["parts"].append(stored["event"]["parts"][-1])


def _other_cells(stored: Any) -> None:
    stored["event"]["parts"][-1]["event"]["coordinates"] += 1


def _other_cells_of_the_second(stored: Any) -> None:
    stored["event"]["parts"][-2]["event"]["coordinates"] += 1


def _without_sensitivity(stored: Any) -> None:
    stored["event"]["parts"][-1]["event"]["l1_sensitivity"] = "0"


def _selected(stored: Any) -> None:
    """The event of a quantile in the place of noise."""
    stored["event"]["parts"][-1] = planned(MEDIAN).event.parts[0].to_json()


def _noise(stored: Any) -> None:
    """Noise in the place of the event of a quantile."""
    stored["event"]["parts"][0] = planned(COUNT).event.parts[0].to_json()


def _nothing(stored: Any) -> None:
    stored["event"]["parts"][0]["event"] = Sequential(()).to_json()


def _side_by_side(stored: Any) -> None:
    parts = tuple(map(Part.from_json, stored["event"]["parts"]))
    stored["event"] = Parallel("groups", parts).to_json()


def _spelled_otherwise(stored: Any) -> None:
    stored["tables"][0]["weight"] = "1.0"


def _more(stored: Any) -> None:
    stored["more"] = 1


REFUSED: list[tuple[Callable[[Any], None], tuple[dict[str, Any], ...]]] = [
    (_twice, (COUNT,)),
    (_twice, (VARIANCE, COUNT)),
    (_last_twice, (VARIANCE, COUNT)),
    (_no_last, (COUNT, COUNT)),
    (_one_more, (COUNT, COUNT)),
    (_other_cells, (VARIANCE,)),
    (_other_cells, (COUNT, COUNT)),
    (_other_cells_of_the_second, (VARIANCE,)),
    (_without_sensitivity, (COUNT,)),
    (_selected, (COUNT,)),
    (_selected, (COUNT, COUNT)),
    (_noise, (BINS,)),
    (_noise, (BINS, COUNT)),
    (_noise, (MEDIAN, COUNT)),
    (_nothing, (MEDIAN,)),
    (_side_by_side, (COUNT,)),
    (_spelled_otherwise, (COUNT,)),
    (_more, (COUNT,)),
]


@pytest.mark.parametrize(("change", "asked"), REFUSED)
def test_another_plan_is_refused(
    change: Callable[[Any], None], asked: tuple[dict[str, Any], ...]
) -> None:
    stored = planned(*asked).to_json()
    assert StatisticsPlan.from_json(copy.deepcopy(stored), SCHEMA).to_json() == stored
    change(stored)
    with pytest.raises(StatisticsInvalid):
        StatisticsPlan.from_json(stored, SCHEMA)


@pytest.mark.parametrize("asked", [(COUNT, BINS), (BINS, COUNT), (COUNT, COUNT, BINS)])
def test_edges_of_the_wrong_range_are_refused_in_any_table(
    asked: tuple[dict[str, Any], ...],
) -> None:
    """The last edge of the private bins, in whatever place their table is."""
    stored: Any = planned(*asked).to_json()
    parts = stored["event"]["parts"]
    places = [n for n, part in enumerate(parts) if "over" in part["event"]]
    [group] = parts[places[-1]]["event"]["parts"]
    group["event"]["range_sensitivity"] = "1"
    with pytest.raises(StatisticsInvalid):
        StatisticsPlan.from_json(stored, SCHEMA)


def test_the_event_of_another_mechanism_is_not_that_of_a_quantile() -> None:
    table = table_of(**MEDIAN)
    [[(_, noise)]] = [measured for _, measured in planned(COUNT).measured]
    for event in (noise, Sequential(()), Sequential((Part(1, noise),))):
        with pytest.raises(UnknownPrivacyEvent):
            selection_of(event, Fraction(1, 2), table)


def test_a_label_moves_rows_between_groups_where_it_makes_them() -> None:
    by_label = table_of(**MEDIAN, by=["ill"])
    assert n_changed_groups(by_label, Adjacency.LABEL) == 2
    assert n_changed_groups(by_label, Adjacency.ADD_REMOVE_ONE) == 1


def test_tables_without_a_label_are_named_where_labels_are_protected() -> None:
    labels: list[dict[str, Any]] = [
        {"name": "ill", "classes": ["no", "yes"]},
        {"name": "days", "type": "integer", "lower": 0, "upper": 9},
    ]
    features = [{"name": "visits", "type": "integer", "lower": 0, "upper": 3}]
    schema = type(SCHEMA).from_json({"features": features, "labels": labels})
    facts = public_facts(TERMS["labels"], None, schema, Adjacency.LABEL)

    def problems(*asked: dict[str, Any]) -> list[Any]:
        with pytest.raises(ParameterInvalid) as refused:
            price.plan(asked, facts)
        return [
            (each.place, each.problem, each.accepted) for each in refused.value.problems
        ]

    of_label = {"statistic": "histogram", "column": "ill"}
    names = ("ill", "days")
    assert problems(COUNT) == [(("tables", 0), "needs-the-label", names)]
    assert problems(of_label, COUNT) == [(("tables", 1), "needs-the-label", names)]
    of_days = {"statistic": "sum", "column": "days"}
    assert problems(of_label, of_days) == [
        (("tables", 1, "column"), "not-on-label-accounts", ())
    ]
    [table] = price.plan([{"statistic": "histogram", "column": "days"}], facts).tables
    assert table.groups_by_label
    by_class = {"statistic": "mean", "column": "visits", "by": ["ill"]}
    assert price.plan([by_class], facts).tables


def test_cells_of_a_whole_number_end_below_the_next() -> None:
    table = table_of(**MEDIAN | {"column": "visits"}, bins={"visits": [-3.9, -3.5, 0]})
    assert cells_of(table) == [
        Cell(-6, -7, -4),
        Cell(-3, -3, -3),
        Cell(-2, -3, -1),
        Cell(1, 0, 3),
    ]
    table = table_of(**MEDIAN, bins={"debt": [0, 1]})
    assert cells_of(table) == [Cell(-0.5, -1, 0), Cell(0.5, 0, 1), Cell(2.5, 1, 4)]


def test_a_selection_names_cells_of_the_grid_and_edges_ascend() -> None:
    table = table_of(**MEDIAN, bins={"debt": [0, 1, 2]})
    for cell, expected in ((-1, False), (0, True), (3, True), (4, False)):
        for selected in ([cell], [0, cell], [cell, 0]):
            assert is_selection(table, [np.array(selected)]) == expected
            assert is_selection(table, [np.array([0]), np.array(selected)]) == expected
            assert is_selection(table, [np.array(selected), np.array([0])]) == expected
    for edges, expected in (
        ([1, 2, 3], True),
        ([1], True),
        ([3], True),
        ([0, 1], False),
        ([1, 1, 2], False),
        ([2, 1, 3], False),
        ([1, 2, 4], False),
        ([2, 3], True),
    ):
        assert are_edges(table, np.array(edges)) == expected


def test_quantiles_of_each_group_ascend() -> None:
    table = table_of(
        statistic="quantiles",
        column="debt",
        quantiles=["0.25", "0.75"],
        bins={"debt": [0, 1, 2]},
        by=["sex"],
    )
    cells = cells_of(table)
    lower, upper = np.array([3, 1, 0]), np.array([0, 2, 0])
    assert in_order(table, [lower, upper]) == [
        (cells[0], cells[3]),
        (cells[1], cells[2]),
        (cells[0], cells[0]),
    ]
    assert in_order(table, iter([lower, upper])) == in_order(table, [lower, upper])  # type: ignore[arg-type]


def apart(cells: list[int], n_candidates: int) -> list[int]:
    """Edges that are moved apart, upwards first and then down from the end."""
    edges, last = [], 0
    for cell in sorted(cells):
        last = max(cell, last + 1)
        edges.append(last)
    n_edges = len(edges)
    return [
        min(edge, n_candidates - n_edges + place) for place, edge in enumerate(edges)
    ]


@pytest.mark.parametrize(
    "cells",
    [
        [0, 0, 0],
        [1, 2, 3],
        [5, 2, 9],
        [9, 9, 9],
        [4, 4, 9],
        [0, 4, 4],
        [8, 0, 9],
        [3, 3, 4],
        [9, 8, 8],
        [0, 1, 1],
    ],
)
def test_equal_edges_are_moved_apart(
    monkeypatch: pytest.MonkeyPatch, cells: list[int]
) -> None:
    [table] = [priced.table.of_edges for priced in planned(BINS).priced]
    assert table is not None
    monkeypatch.setattr(
        quantile_draw,
        "select_quantiles",
        lambda *_: [np.array([cell]) for cell in cells],
    )
    monkeypatch.setattr(Table, "n_candidates", 10)
    none: Any = None
    starts = quantile_draw.select_edges(table, [], np.zeros(10, np.int64), none)
    assert starts.tolist() == apart(cells, 10)
    assert starts.dtype == np.int64


def test_released_tables_are_read_by_their_number() -> None:
    """A table of counts before private bins and another after."""
    asked = (COUNT, BINS, COUNT | {"where": [{"column": "sex", "in": ["f"]}]})
    plan = planned(*asked)
    edges = np.array([1, 5, 8])
    counts = [np.array([n]) for n in (7, 9)]
    in_bins = np.array([4, 3, 2, 1])
    read = Statistics(plan, [[counts[0]], [edges, in_bins], [counts[1]]])
    assert [read.numbers(index) for index in range(3)] == [
        [counts[0]],
        [in_bins],
        [counts[1]],
    ]
    assert read.table(0) == plan.tables[0]
    assert read.table(2) == plan.tables[2]
    assert read.table(1) == plan.tables[1].with_edges([1, 5, 8])
    stored: Any = read.to_json()
    assert Statistics.from_json(stored, SCHEMA).to_json() == stored
    for other in (
        ["5", "5", "8"],
        ["0", "5", "8"],
        ["8", "5", "1"],
        ["1", "5", "1000"],
    ):
        with pytest.raises(StatisticsInvalid):
            Statistics.from_json(
                {
                    "plan": stored["plan"],
                    "tables": [
                        stored["tables"][0],
                        [other, stored["tables"][1][1]],
                        stored["tables"][2],
                    ],
                },
                SCHEMA,
            )
