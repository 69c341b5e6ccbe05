"""Tables of statistics as they are settled, and every problem of a table with its
place, its limit and what is accepted there.
"""

from fractions import Fraction
from typing import Any

import pytest

from grovekeeper_forests.data.schema import Schema
from grovekeeper_forests.errors import ParameterInvalid
from grovekeeper_forests.releases.statistics.tables import (
    STATISTICS,
    Axis,
    Condition,
    Table,
    read_tables,
    require_possible,
)

SCHEMA = Schema.from_json(
    {
        "features": [
            {
                "name": "visits",
                "type": "integer",
                "lower": -7,
                "upper": 3,
                "missing": True,
            },
            {"name": "debt", "type": "numeric", "lower": -1, "upper": 4},
            {
                "name": "sex",
                "type": "categorical",
                "categories": ["f", "m"],
                "missing": True,
            },
            {"name": "city", "type": "categorical", "categories": ["A", "B", "C"]},
            {
                "name": "born",
                "type": "date",
                "lower": "2020-01-01",
                "upper": "2020-02-01",
            },
            {"name": "one", "type": "integer", "lower": 2, "upper": 2},
            {"name": "wide", "type": "numeric", "lower": -1e308, "upper": 1e308},
            {"name": "tiny", "type": "numeric", "lower": 0, "upper": 1e-200},
        ],
        "labels": [
            {"name": "ill", "classes": ["no", "yes"]},
            {"name": "risk", "cuts": [0.5, 2]},
            {"name": "days", "type": "integer", "lower": 0, "upper": 9},
        ],
    }
)
NAMES = (
    "visits",
    "debt",
    "sex",
    "city",
    "born",
    "one",
    "wide",
    "tiny",
    "days",
    "ill",
    "risk",
)
COUNT: dict[str, Any] = {"statistic": "count"}
QUANTILE = ("0.001 to 0.999, with at most three digits",)
WEIGHT = ("0.000000000000000001 to 999999999999",)
NUMBERS = ("numbers from -1 to 4",)
DATES = ("dates from 2020-01-01 to 2020-02-01",)

Problem = tuple[
    list[dict[str, Any]], tuple[str | int, ...], str, int | None, tuple[str, ...]
]
PROBLEMS: list[Problem] = [
    ([], ("tables",), "too-few", 20, ()),
    ([{"statistic": "mode"}], ("tables", 0, "statistic"), "unknown", None, STATISTICS),
    (
        [{"statistic": "count", "by": ["sex", "city", "ill"]}],
        ("tables", 0, "by"),
        "too-many",
        2,
        (),
    ),
    (
        [{"statistic": "count", "column": "sex"}],
        ("tables", 0, "column"),
        "not-of-this-statistic",
        None,
        (),
    ),
    (
        [{"statistic": "count", "columns": ["sex"]}],
        ("tables", 0, "columns"),
        "not-of-this-statistic",
        None,
        (),
    ),
    (
        [{"statistic": "histogram", "column": "sex", "columns": ["sex"]}],
        ("tables", 0, "columns"),
        "not-of-this-statistic",
        None,
        (),
    ),
    (
        [{"statistic": "crosstab", "columns": ["sex", "city"], "column": "sex"}],
        ("tables", 0, "column"),
        "not-of-this-statistic",
        None,
        (),
    ),
    ([{"statistic": "histogram"}], ("tables", 0, "column"), "missing", None, NAMES),
    ([{"statistic": "sum"}], ("tables", 0, "column"), "missing", None, NAMES),
    ([{"statistic": "median"}], ("tables", 0, "column"), "missing", None, NAMES),
    (
        [{"statistic": "crosstab", "columns": ["sex"]}],
        ("tables", 0, "columns"),
        "too-few",
        None,
        (),
    ),
    (
        [{"statistic": "crosstab", "columns": ["sex", "city", "ill", "visits"]}],
        ("tables", 0, "columns"),
        "too-many",
        None,
        (),
    ),
    (
        [{"statistic": "crosstab", "columns": ["sex", "sex"]}],
        ("tables", 0, "columns"),
        "not-distinct",
        None,
        (),
    ),
    (
        [{"statistic": "crosstab", "columns": ["sex", "city"], "by": ["city"]}],
        ("tables", 0, "by"),
        "not-distinct",
        None,
        (),
    ),
    (
        [{"statistic": "histogram", "column": "sex", "by": ["sex"]}],
        ("tables", 0, "by"),
        "not-distinct",
        None,
        (),
    ),
    (
        [{"statistic": "count", "by": ["sex", "sex"]}],
        ("tables", 0, "by"),
        "not-distinct",
        None,
        (),
    ),
    (
        [
            {
                "statistic": "quantiles",
                "column": "debt",
                "quantiles": ["0.5"],
                "by": ["debt"],
            }
        ],
        ("tables", 0, "by"),
        "not-distinct",
        None,
        (),
    ),
    (
        [
            {
                "statistic": "crosstab",
                "columns": ["sex", "city"],
                "by": ["ill", "visits"],
            }
        ],
        ("tables", 0, "by"),
        "too-many",
        1,
        (),
    ),
    (
        [
            {
                "statistic": "crosstab",
                "columns": ["sex", "city", "ill"],
                "by": ["visits"],
            }
        ],
        ("tables", 0, "by"),
        "too-many",
        0,
        (),
    ),
    (
        [
            {
                "statistic": "histogram",
                "column": "sex",
                "by": ["ill", "city"],
                "bins": {"debt": [1]},
            }
        ],
        ("tables", 0, "bins", "debt"),
        "not-grouped-by",
        None,
        ("ill", "city", "sex"),
    ),
    (
        [{"statistic": "count", "bins": {"debt": 3, "born": 2}}],
        ("tables", 0, "bins", "born"),
        "not-grouped-by",
        None,
        (),
    ),
    (
        [{"statistic": "histogram", "column": "none"}],
        ("tables", 0, "column"),
        "unknown",
        None,
        NAMES,
    ),
    (
        [{"statistic": "count", "by": ["none"]}],
        ("tables", 0, "by"),
        "unknown",
        None,
        NAMES,
    ),
    (
        [{"statistic": "crosstab", "columns": ["sex", "none"]}],
        ("tables", 0, "columns"),
        "unknown",
        None,
        NAMES,
    ),
    (
        [{"statistic": "histogram", "column": "ill", "bins": {"ill": 2}}],
        ("tables", 0, "bins", "ill"),
        "not-for-categories",
        None,
        (),
    ),
    (
        [{"statistic": "histogram", "column": "sex", "bins": {"sex": 2}}],
        ("tables", 0, "bins", "sex"),
        "not-for-categories",
        None,
        (),
    ),
    (
        [
            {
                "statistic": "count",
                "by": ["debt", "visits"],
                "bins": {"debt": {"quantiles": 4}, "visits": {"quantiles": 4}},
            }
        ],
        ("tables", 0, "bins"),
        "too-many",
        1,
        (),
    ),
    (
        [
            {
                "statistic": "mean",
                "column": "debt",
                "by": ["visits"],
                "bins": {"visits": {"quantiles": 4}},
            }
        ],
        ("tables", 0, "bins", "visits"),
        "not-of-this-statistic",
        None,
        (),
    ),
    (
        [
            {
                "statistic": "quantiles",
                "column": "debt",
                "quantiles": ["0.5"],
                "bins": {"debt": {"quantiles": 4}},
            }
        ],
        ("tables", 0, "bins", "debt"),
        "not-of-this-statistic",
        None,
        (),
    ),
    (
        [
            {
                "statistic": "histogram",
                "column": "debt",
                "bins": {"debt": {"quantiles": 1}},
            }
        ],
        ("tables", 0, "bins", "debt"),
        "out-of-range",
        20,
        (),
    ),
    (
        [
            {
                "statistic": "histogram",
                "column": "debt",
                "bins": {"debt": {"quantiles": 21}},
            }
        ],
        ("tables", 0, "bins", "debt"),
        "out-of-range",
        20,
        (),
    ),
    (
        [
            {
                "statistic": "histogram",
                "column": "visits",
                "bins": {"visits": {"quantiles": 12}},
            }
        ],
        ("tables", 0, "bins", "visits"),
        "out-of-range",
        11,
        (),
    ),
    (
        [{"statistic": "histogram", "column": "debt", "bins": {"debt": 0}}],
        ("tables", 0, "bins", "debt"),
        "out-of-range",
        1000,
        (),
    ),
    (
        [{"statistic": "histogram", "column": "debt", "bins": {"debt": 1001}}],
        ("tables", 0, "bins", "debt"),
        "out-of-range",
        1000,
        (),
    ),
    (
        [{"statistic": "histogram", "column": "debt", "bins": {"debt": [1, 1]}}],
        ("tables", 0, "bins", "debt"),
        "not-ascending",
        None,
        (),
    ),
    (
        [{"statistic": "histogram", "column": "debt", "bins": {"debt": [2, 1]}}],
        ("tables", 0, "bins", "debt"),
        "not-ascending",
        None,
        (),
    ),
    (
        [{"statistic": "histogram", "column": "debt", "bins": {"debt": [1, 5]}}],
        ("tables", 0, "bins", "debt"),
        "out-of-bounds",
        None,
        NUMBERS,
    ),
    (
        [{"statistic": "histogram", "column": "debt", "bins": {"debt": [-2, 1]}}],
        ("tables", 0, "bins", "debt"),
        "out-of-bounds",
        None,
        NUMBERS,
    ),
    (
        [{"statistic": "histogram", "column": "debt", "bins": {"debt": ["1"]}}],
        ("tables", 0, "bins", "debt"),
        "not-a-number",
        None,
        (),
    ),
    (
        [
            {
                "statistic": "histogram",
                "column": "born",
                "bins": {"born": ["2020-01-40"]},
            }
        ],
        ("tables", 0, "bins", "born"),
        "not-a-date",
        None,
        DATES,
    ),
    (
        [
            {
                "statistic": "histogram",
                "column": "born",
                "bins": {"born": ["2021-01-04"]},
            }
        ],
        ("tables", 0, "bins", "born"),
        "out-of-bounds",
        None,
        DATES,
    ),
    (
        [{"statistic": "mean", "column": "sex"}],
        ("tables", 0, "column"),
        "not-a-number",
        None,
        ("visits", "debt", "born", "days"),
    ),
    (
        [{"statistic": "sum", "column": "ill"}],
        ("tables", 0, "column"),
        "not-a-number",
        None,
        ("visits", "debt", "days"),
    ),
    (
        [{"statistic": "sum", "column": "sex"}],
        ("tables", 0, "column"),
        "not-a-number",
        None,
        ("visits", "debt", "days"),
    ),
    (
        [{"statistic": "median", "column": "sex"}],
        ("tables", 0, "column"),
        "not-a-number",
        None,
        ("visits", "debt", "born", "tiny", "days"),
    ),
    (
        [{"statistic": "sum", "column": "none"}],
        ("tables", 0, "column"),
        "unknown",
        None,
        NAMES,
    ),
    (
        [{"statistic": "sum", "column": "born"}],
        ("tables", 0, "column"),
        "not-of-dates",
        None,
        (),
    ),
    (
        [{"statistic": "mean", "column": "one"}],
        ("tables", 0, "column"),
        "constant",
        None,
        (),
    ),
    (
        [{"statistic": "mean", "column": "wide"}],
        ("tables", 0, "column"),
        "bounds-too-close-or-too-wide",
        None,
        (),
    ),
    (
        [{"statistic": "median", "column": "wide"}],
        ("tables", 0, "column"),
        "bounds-too-close-or-too-wide",
        None,
        (),
    ),
    (
        [{"statistic": "variance", "column": "tiny"}],
        ("tables", 0, "column"),
        "bounds-too-close-or-too-wide",
        None,
        (),
    ),
    (
        [{"statistic": "mean", "column": "tiny"}],
        ("tables", 0, "column"),
        "bounds-too-close-or-too-wide",
        None,
        (),
    ),
    (
        [{"statistic": "quantiles", "column": "debt", "quantiles": []}],
        ("tables", 0, "quantiles"),
        "missing",
        9,
        (),
    ),
    (
        [
            {
                "statistic": "quantiles",
                "column": "debt",
                "quantiles": [
                    "0.10",
                    "0.11",
                    "0.12",
                    "0.13",
                    "0.14",
                    "0.15",
                    "0.16",
                    "0.17",
                    "0.18",
                    "0.19",
                ],
            }
        ],
        ("tables", 0, "quantiles"),
        "too-many",
        9,
        (),
    ),
    (
        [{"statistic": "quantiles", "column": "debt", "quantiles": ["0.5", "0.25"]}],
        ("tables", 0, "quantiles"),
        "not-ascending",
        None,
        (),
    ),
    (
        [{"statistic": "quantiles", "column": "debt", "quantiles": ["0.5", "0.5"]}],
        ("tables", 0, "quantiles"),
        "not-ascending",
        None,
        (),
    ),
    (
        [{"statistic": "quantiles", "column": "debt", "quantiles": ["0"]}],
        ("tables", 0, "quantiles", 0),
        "out-of-range",
        None,
        QUANTILE,
    ),
    (
        [{"statistic": "quantiles", "column": "debt", "quantiles": ["1"]}],
        ("tables", 0, "quantiles", 0),
        "out-of-range",
        None,
        QUANTILE,
    ),
    (
        [{"statistic": "quantiles", "column": "debt", "quantiles": ["0.0005"]}],
        ("tables", 0, "quantiles", 0),
        "out-of-range",
        None,
        QUANTILE,
    ),
    (
        [{"statistic": "quantiles", "column": "debt", "quantiles": ["0.5", "half"]}],
        ("tables", 0, "quantiles", 1),
        "out-of-range",
        None,
        QUANTILE,
    ),
    (
        [{"statistic": "histogram", "column": "debt", "quantiles": ["0.5"]}],
        ("tables", 0, "quantiles"),
        "not-of-this-statistic",
        None,
        (),
    ),
    (
        [
            {
                "statistic": "count",
                "where": [
                    {"column": "debt", "from": 0},
                    {"column": "debt", "from": 0},
                    {"column": "debt", "from": 0},
                    {"column": "debt", "from": 0},
                    {"column": "debt", "from": 0},
                    {"column": "debt", "from": 0},
                    {"column": "debt", "from": 0},
                    {"column": "debt", "from": 0},
                    {"column": "debt", "from": 0},
                    {"column": "debt", "from": 0},
                    {"column": "debt", "from": 0},
                ],
            }
        ],
        ("tables", 0, "where"),
        "too-many",
        10,
        (),
    ),
    (
        [{"statistic": "count", "where": [{"column": "debt"}]}],
        ("tables", 0, "where", 0),
        "needs-a-range",
        None,
        NUMBERS,
    ),
    (
        [{"statistic": "count", "where": [{"column": "debt", "in": ["a"]}]}],
        ("tables", 0, "where", 0),
        "needs-a-range",
        None,
        NUMBERS,
    ),
    (
        [{"statistic": "count", "where": [{"column": "debt", "in": ["a"], "from": 0}]}],
        ("tables", 0, "where", 0),
        "needs-a-range",
        None,
        NUMBERS,
    ),
    (
        [{"statistic": "count", "where": [{"column": "none", "in": ["a"]}]}],
        ("tables", 0, "where", 0, "column"),
        "unknown",
        None,
        NAMES,
    ),
    (
        [{"statistic": "count", "where": [{"column": "debt", "from": 2, "below": 2}]}],
        ("tables", 0, "where", 0),
        "empty-range",
        None,
        (),
    ),
    (
        [{"statistic": "count", "where": [{"column": "debt", "from": 2, "below": 1}]}],
        ("tables", 0, "where", 0),
        "empty-range",
        None,
        (),
    ),
    (
        [{"statistic": "count", "where": [{"column": "debt", "from": 5}]}],
        ("tables", 0, "where", 0),
        "out-of-bounds",
        None,
        NUMBERS,
    ),
    (
        [{"statistic": "count", "where": [{"column": "debt", "below": -1}]}],
        ("tables", 0, "where", 0),
        "out-of-bounds",
        None,
        NUMBERS,
    ),
    (
        [{"statistic": "count", "where": [{"column": "born", "from": "2020-03-01"}]}],
        ("tables", 0, "where", 0),
        "out-of-bounds",
        None,
        DATES,
    ),
    (
        [{"statistic": "count", "where": [{"column": "born", "from": "now"}]}],
        ("tables", 0, "where", 0, "from"),
        "not-a-date",
        None,
        DATES,
    ),
    (
        [{"statistic": "count", "where": [{"column": "debt", "below": "1"}]}],
        ("tables", 0, "where", 0, "below"),
        "not-a-number",
        None,
        (),
    ),
    (
        [{"statistic": "count", "where": [{"column": "debt", "from": "1"}]}],
        ("tables", 0, "where", 0, "from"),
        "not-a-number",
        None,
        (),
    ),
    (
        [{"statistic": "count", "where": [{"column": "born", "below": "then"}]}],
        ("tables", 0, "where", 0, "below"),
        "not-a-date",
        None,
        DATES,
    ),
    (
        [{"statistic": "count", "where": [{"column": "sex"}]}],
        ("tables", 0, "where", 0),
        "needs-categories",
        None,
        ("f", "m"),
    ),
    (
        [{"statistic": "count", "where": [{"column": "sex", "in": []}]}],
        ("tables", 0, "where", 0),
        "needs-categories",
        None,
        ("f", "m"),
    ),
    (
        [{"statistic": "count", "where": [{"column": "sex", "from": 1, "in": ["f"]}]}],
        ("tables", 0, "where", 0),
        "needs-categories",
        None,
        ("f", "m"),
    ),
    (
        [{"statistic": "count", "where": [{"column": "sex", "below": 1, "in": ["f"]}]}],
        ("tables", 0, "where", 0),
        "needs-categories",
        None,
        ("f", "m"),
    ),
    (
        [{"statistic": "count", "where": [{"column": "sex", "in": ["f", "x"]}]}],
        ("tables", 0, "where", 0, "in"),
        "unknown",
        None,
        ("f", "m"),
    ),
    (
        [{"statistic": "count", "where": [{"column": "city", "in": ["A", None]}]}],
        ("tables", 0, "where", 0, "in"),
        "no-missing-cells",
        None,
        ("A", "B", "C"),
    ),
    (
        [{"statistic": "count", "where": [{"column": "ill", "in": ["maybe"]}]}],
        ("tables", 0, "where", 0, "in"),
        "unknown",
        None,
        ("no", "yes"),
    ),
    (
        [
            {
                "statistic": "count",
                "where": [{"column": "debt", "from": 0}, {"column": "sex"}],
            }
        ],
        ("tables", 0, "where", 1),
        "needs-categories",
        None,
        ("f", "m"),
    ),
    (
        [{"statistic": "count", "weight": "0"}],
        ("tables", 0, "weight"),
        "out-of-range",
        None,
        WEIGHT,
    ),
    (
        [{"statistic": "count", "weight": "-1"}],
        ("tables", 0, "weight"),
        "out-of-range",
        None,
        WEIGHT,
    ),
    (
        [{"statistic": "count", "weight": "much"}],
        ("tables", 0, "weight"),
        "out-of-range",
        None,
        WEIGHT,
    ),
    (
        [
            {
                "statistic": "crosstab",
                "columns": ["debt", "born", "visits"],
                "bins": {"debt": 1000, "born": 20},
            }
        ],
        ("tables",),
        "too-many-cells",
        10000,
        (),
    ),
    (
        [
            {
                "statistic": "crosstab",
                "columns": ["debt", "born"],
                "bins": {"debt": 1000, "born": 11},
            }
        ],
        ("tables",),
        "too-many-cells",
        10000,
        (),
    ),
    (
        [COUNT, {"statistic": "count", "by": ["none"]}],
        ("tables", 1, "by"),
        "unknown",
        None,
        NAMES,
    ),
    ([COUNT] * 21, ("tables",), "too-many", 20, ()),
]


@pytest.mark.parametrize(("asked", "place", "problem", "limit", "accepted"), PROBLEMS)
def test_each_problem_has_its_place(
    asked: list[dict[str, Any]],
    place: tuple[str | int, ...],
    problem: str,
    limit: int | None,
    accepted: tuple[str, ...],
) -> None:
    for tables in (asked, [*asked, *asked]) if len(asked) == 1 else (asked,):
        with pytest.raises(ParameterInvalid) as refused:
            read_tables(tables, SCHEMA)
        [found] = refused.value.problems
        assert (found.place, found.problem, found.limit, tuple(found.accepted)) == (
            place,
            problem,
            limit,
            accepted,
        )


def histogram(column: str, **more: Any) -> dict[str, Any]:
    return {"statistic": "histogram", "column": column, **more}


def median(**more: Any) -> dict[str, Any]:
    return {"statistic": "median", "column": "debt", **more}


def table_of(asked: dict[str, Any]) -> Table:
    [table] = read_tables([asked], SCHEMA)
    return table


CELLS, SUMS = 10_000, 1_000_000
DECILES = [f"0.{n}" for n in range(1, 10)]
THOUSAND = histogram("debt", bins={"debt": 1_000})
BY_THOUSAND = {"by": ["wide"], "bins": {"wide": 1_000, "debt": 10}}
NINE_OF_THOUSAND: dict[str, Any] = {
    "statistic": "quantiles",
    "column": "debt",
    "quantiles": DECILES,
}
NINE_OF_THOUSAND |= BY_THOUSAND
OF_DAYS = median(by=["born", "visits"], bins={"born": 32, "visits": 11})


def by_quantiles(n_bins: int) -> dict[str, Any]:
    bins = {"wide": 1_000, "debt": {"quantiles": n_bins}}
    return histogram("debt", by=["wide"], bins=bins)


@pytest.mark.parametrize(
    ("asked", "limit"),
    [
        ([COUNT] * 20, None),
        ([THOUSAND] * 10, None),
        ([*[THOUSAND] * 10, COUNT], CELLS),
        ([median(by=["wide"], bins={"wide": 1_000})], None),
        ([median(by=["wide"], bins={"wide": 1_000}), COUNT], SUMS),
        ([OF_DAYS] * 2, None),
        ([OF_DAYS] * 3, SUMS),
        ([by_quantiles(4)], None),
        ([by_quantiles(4), COUNT], SUMS),
        ([by_quantiles(10)], None),
        ([by_quantiles(11)], CELLS),
        ([NINE_OF_THOUSAND, THOUSAND], None),
        ([NINE_OF_THOUSAND, THOUSAND, COUNT], CELLS),
    ],
)
def test_numbers_and_sums_of_all_tables_are_limited(
    asked: list[dict[str, Any]], limit: int | None
) -> None:
    if limit is None:
        assert len(read_tables(asked, SCHEMA)) == len(asked)
        return
    with pytest.raises(ParameterInvalid) as refused:
        read_tables(asked, SCHEMA)
    [found] = refused.value.problems
    assert (found.place, found.problem) == (("tables",), "too-many-cells")
    assert found.limit == limit


RISKS = ("below 0.5", "0.5 to below 2", "2 or more")
OF_JANUARY = (4, 7, 10, 13, 16, 20, 23, 26, 29)
HALVES = (-0.5, 0, 0.5, 1, 1.5, 2, 2.5, 3, 3.5)


def of_numbers(
    column: str, edges: tuple[float, ...], lower: float, upper: float, **more: Any
) -> Axis:
    bounds = float(lower), float(upper)
    return Axis(column, edges=tuple(map(float, edges)), bounds=bounds, **more)


AXES = {
    "visits": (of_numbers("visits", tuple(range(-5, 4)), -7, 3, has_missing=True), 11),
    "debt": (of_numbers("debt", HALVES, -1, 4), 10),
    "sex": (Axis("sex", ("f", "m"), has_missing=True), 4),
    "city": (Axis("city", ("A", "B", "C")), 4),
    "born": (of_numbers("born", OF_JANUARY, 0, 31, first_day=18_262), 10),
    "one": (of_numbers("one", (), 2, 2), 1),
    "ill": (Axis("ill", ("no", "yes"), is_label=True), 3),
    "risk": (Axis("risk", RISKS, has_missing=True, has_other=False, is_label=True), 4),
    "days": (
        of_numbers("days", tuple(range(1, 10)), 0, 9, has_missing=True, is_label=True),
        11,
    ),
}


@pytest.mark.parametrize("column", AXES)
def test_cells_of_a_column_follow_from_its_declaration(column: str) -> None:
    table = table_of(histogram(column))
    expected, n_cells = AXES[column]
    assert table.axes == table.counted_axes == (expected,)
    assert table.shape == (n_cells,)
    assert len(expected.cells) == n_cells
    assert table.groups_by_label == (column in ("ill", "risk", "days"))
    assert table.columns == {column}
    assert (table.ranked_or_added, table.private_axis, table.of_edges) == (None,) * 3
    assert (table.n_candidates, table.n_numbers, table.n_by) == (1, n_cells, 0)
    assert table.exact == table
    assert table.to_json() == {
        "statistic": "histogram",
        "column": column,
        "columns": [],
        "bins": _bins(expected),
        "by": [],
        "where": [],
        "weight": "1",
    }
    assert read_tables([table.to_json()], SCHEMA) == [table]


def _bins(axis: Axis) -> dict[str, Any]:
    if axis.categories:
        return {}
    if axis.column == "born":
        return {"born": [f"2020-01-{1 + int(edge):02}" for edge in axis.edges]}
    return {axis.column: list(axis.edges)}


def test_cells_are_named_by_what_they_hold() -> None:
    named = {column: axis.cells for column, (axis, _) in AXES.items()}
    assert named["visits"][:2] == [{"from": -7, "below": -5}, {"from": -5, "below": -4}]
    assert named["visits"][-2:] == [{"from": 3, "to": 3}, {"missing": True}]
    assert named["debt"][-1] == {"from": 3.5, "to": 4}
    assert named["sex"] == [
        {"category": "f"},
        {"category": "m"},
        {"other": True},
        {"missing": True},
    ]
    assert named["born"][0] == {"from": "2020-01-01", "below": "2020-01-05"}
    assert named["born"][-1] == {"from": "2020-01-30", "to": "2020-02-01"}
    assert named["one"] == [{"from": 2, "to": 2}]
    assert named["ill"][-1] == {"other": True}
    assert named["risk"] == [*({"category": risk} for risk in RISKS), {"missing": True}]


@pytest.mark.parametrize(
    ("bins", "edges"),
    [
        ({"born": ["2020-01-01", "2020-01-09", "2020-02-01"]}, (8, 31)),
        ({"visits": [-7, 0, 3]}, (0, 3)),
        ({"visits": 1}, ()),
        ({"visits": 3}, (-3, 1)),
        ({"visits": 1_000}, tuple(range(-6, 4))),
        ({"debt": [-1, 0, 4]}, (0,)),
        ({"debt": [0.5]}, (0.5,)),
        ({"debt": 1}, ()),
        ({"debt": 4}, (0.25, 1.5, 2.75)),
        ({"born": 2}, (16,)),
        ({"days": 4}, (3, 5, 8)),
        ({"one": 5}, ()),
        ({"one": [2]}, (2,)),
        ({"tiny": 2}, (5e-201,)),
    ],
)
def test_bins_are_those_that_were_asked(
    bins: dict[str, Any], edges: tuple[float, ...]
) -> None:
    [column] = bins
    [axis] = table_of(histogram(column, bins=bins)).axes
    assert axis.edges == edges
    assert all(type(edge) is float for edge in axis.edges)


@pytest.mark.parametrize(
    ("column", "n_bins", "by", "n_cells", "starts", "edges"),
    [
        ("debt", 4, ["sex"], 1_000, [1, 2, 5], (-0.995, -0.99, -0.975)),
        ("debt", 20, [], 1_000, [999] * 19, (3.995,) * 19),
        ("days", 4, [], 10, [1, 2, 5], (1, 2, 5)),
        ("visits", 11, ["ill"], 11, list(range(1, 11)), tuple(range(-6, 4))),
        ("born", 3, ["sex", "city"], 32, [1, 31], (1, 31)),
    ],
)
def test_private_bins_are_cut_between_cells_of_a_fine_grid(
    column: str,
    n_bins: int,
    by: list[str],
    n_cells: int,
    starts: list[int],
    edges: tuple[float, ...],
) -> None:
    where = [{"column": "city", "in": ["A"]}]
    asked = histogram(column, by=by, bins={column: {"quantiles": n_bins}}, where=where)
    table = table_of(asked | {"weight": "0.5"})
    of_edges, place = table.of_edges, len(by)
    assert of_edges is not None
    assert table.private_axis == place
    assert of_edges.n_candidates == n_cells
    assert of_edges.n_cells == 1
    assert of_edges.where == table.where
    assert of_edges.weight == table.weight == Fraction(1, 2)
    assert of_edges.quantiles == tuple(
        Fraction(step, n_bins) for step in range(1, n_bins)
    )
    axis = table.axes[place]
    assert (axis.n_private, axis.n_cells) == (n_bins, n_bins + axis.has_missing)
    assert table.exact.axes[place].n_cells == n_cells + axis.has_missing
    assert table.exact.axes[:place] == table.axes[:place]
    assert table.ranked_or_added == column
    cut = table.with_edges(starts)
    assert cut.axes[:place] == table.axes[:place]
    assert cut.axes[place].edges == edges
    assert (cut.private_axis, cut.axes[place].n_cells) == (None, axis.n_cells)
    assert (cut.where, cut.weight, cut.n_by) == (table.where, table.weight, len(by))
    stored = table.to_json()
    assert stored["bins"][column] == {"quantiles": n_bins}
    assert (stored["by"], stored["weight"]) == (by, "0.5")
    assert read_tables([stored], SCHEMA) == [table]


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        (
            {"column": "born", "from": "2020-01-09", "below": "2020-02-01"},
            Condition("born", None, 8.0, 31.0, 18_262),
        ),
        (
            {"column": "sex", "in": ["m", None, "f", "m"]},
            Condition("sex", ("m", None, "f")),
        ),
        ({"column": "ill", "in": ["no", None]}, Condition("ill", ("no", None))),
        ({"column": "days", "below": 3}, Condition("days", None, None, 3.0)),
        ({"column": "debt", "from": 4}, Condition("debt", None, 4.0)),
        ({"column": "debt", "from": -9}, Condition("debt", None, -9.0)),
        ({"column": "debt", "below": 9}, Condition("debt", None, None, 9.0)),
        ({"column": "debt", "from": 0, "below": 0.5}, Condition("debt", None, 0, 0.5)),
        ({"column": "risk", "in": [RISKS[1]]}, Condition("risk", (RISKS[1],))),
    ],
)
def test_conditions_are_read_as_they_were_asked(
    asked: dict[str, Any], expected: Condition
) -> None:
    table = table_of(COUNT | {"where": [{"column": "city", "in": ["B"]}, asked]})
    assert table.where == (Condition("city", ("B",)), expected)
    assert table.columns == {"city", asked["column"]}
    assert read_tables([table.to_json()], SCHEMA) == [table]
    ten = table_of(COUNT | {"where": [asked] * 10})
    assert ten.where == (expected,) * 10


def test_quantiles_have_a_grid_and_groups() -> None:
    table = table_of(
        {
            "statistic": "quantiles",
            "column": "days",
            "quantiles": ["0.001", "0.25", "0.999"],
            "by": ["sex", "ill"],
            "weight": "2.5",
        }
    )
    assert table.grid == of_numbers("days", tuple(range(1, 10)), 0, 9)
    assert table.counted_axes == (*table.axes, table.grid)
    assert (table.n_cells, table.n_numbers, table.n_candidates) == (12, 36, 10)
    assert table.columns == {"sex", "ill", "days"}
    assert (table.ranked_or_added, table.n_by) == ("days", 2)
    assert table.weight == Fraction(5, 2)
    assert table.to_json()["bins"] == {}
    born = table_of(median() | {"column": "born", "bins": {"born": ["2020-01-09"]}})
    assert born.grid == of_numbers("born", (8,), 0, 31, first_day=18_262)
    assert born.quantiles == (Fraction(1, 2),)
    assert born.to_json()["bins"] == {"born": ["2020-01-09"]}
    assert born.to_json()["column"] == "born"


def test_a_crosstab_names_its_columns_and_its_groups_apart() -> None:
    asked = {"statistic": "crosstab", "columns": ["sex", "debt"], "by": ["city"]}
    table = table_of(asked | {"bins": {"debt": [0]}})
    assert [axis.column for axis in table.axes] == ["city", "sex", "debt"]
    assert table.n_by == 1
    assert table.to_json() == {
        "statistic": "crosstab",
        "column": None,
        "columns": ["sex", "debt"],
        "bins": {"debt": [0.0]},
        "by": ["city"],
        "where": [],
        "weight": "1",
    }
    three = table_of({"statistic": "crosstab", "columns": ["sex", "city", "ill"]})
    assert three.shape == (4, 4, 3)
    mean = table_of({"statistic": "mean", "column": "visits", "by": ["ill"]})
    assert (mean.ranked_or_added, mean.columns) == ("visits", {"visits", "ill"})
    assert mean.value == SCHEMA.features[0]


@pytest.mark.parametrize(
    ("where", "place"),
    [
        ([("debt", 0, 1), ("debt", 1, 2)], 1),
        ([("debt", 0, 2), ("debt", 1, 3)], None),
        ([("debt", 1, None), ("visits", 0, 1), ("debt", None, 1)], 2),
        ([("debt", 1, None), ("visits", 0, 1), ("debt", None, 1.5)], None),
        ([("debt", 0, None), ("debt", 2, None), ("debt", None, 1)], 2),
        ([("debt", None, 1), ("debt", None, 2), ("debt", 1, None)], 2),
        ([("sex", ["f"]), ("sex", ["m"])], 1),
        ([("sex", ["f", None]), ("sex", ["m", None])], None),
        ([("sex", ["f", "m"]), ("sex", ["m", None]), ("sex", ["f", None])], 2),
        ([("sex", ["f"]), ("city", ["A"])], None),
    ],
)
def test_conditions_that_exclude_each_other_are_found_in_any_table(
    where: list[Any], place: int | None
) -> None:
    conditions = [
        {"column": column, "in": range_[0]}
        if isinstance(range_[0], list)
        else {"column": column, "from": range_[0], "below": range_[1]}
        for column, *range_ in where
    ]
    table = table_of(COUNT | {"where": conditions})
    for tables in ([table], [table_of(COUNT), table], [table, table_of(COUNT)]):
        if place is None:
            require_possible(tables)
            continue
        with pytest.raises(ParameterInvalid) as refused:
            require_possible(tables)
        [found] = refused.value.problems
        assert found.place == ("tables", tables.index(table), "where", place)
        assert found.problem == "excludes-another"
