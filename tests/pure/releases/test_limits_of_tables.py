"""Tables at their limits: most edges, fewest private bins, and bounds so close or so
wide that what a row adds is no number.
"""

import json
from dataclasses import replace
from typing import Any

import pytest

from grovekeeper_forests.errors import ParameterInvalid
from grovekeeper_forests.releases.statistics.tables import Table, read_tables
from tests.pure.releases.test_tables_of_statistics import (
    COUNT,
    SCHEMA,
    histogram,
    table_of,
)
from tests.support.schemas import schema_of


def problem_of(asked: dict[str, Any]) -> tuple[Any, ...]:
    with pytest.raises(ParameterInvalid) as refused:
        read_tables([asked], SCHEMA)
    [found] = refused.value.problems
    return found.place[2:], found.problem, found.limit


def test_a_list_of_edges_has_a_limit_and_ascends_to_its_end() -> None:
    edges = [step / 1_001 for step in range(1, 1_001)]
    assert (
        len(table_of(histogram("debt", bins={"debt": edges[1:]})).axes[0].edges) == 999
    )
    asked = histogram("debt", bins={"debt": edges})
    assert problem_of(asked) == (("bins", "debt"), "too-many", 999)
    asked = histogram("debt", bins={"debt": [0, 2, 1]})
    assert problem_of(asked) == (("bins", "debt"), "not-ascending", None)
    asked = {"statistic": "quantiles", "column": "debt"}
    asked["quantiles"] = ["0.1", "0.5", "0.3"]
    assert problem_of(asked) == (("quantiles",), "not-ascending", None)


@pytest.mark.parametrize("column", ["visits", "debt", "born", "days"])
def test_edges_of_private_bins_are_quantiles_of_all_rows(column: str) -> None:
    table = table_of(
        histogram(column, by=["sex", "ill"], bins={column: {"quantiles": 2}})
    )
    axis = table.axes[2]
    [half] = table.of_edges.quantiles  # type: ignore[union-attr]
    grid = replace(axis, n_private=0, has_missing=False)
    expected = Table("quantiles", None, (), (), table.weight, 0, (half,), grid)
    assert table.of_edges == expected
    assert half * 2 == 1
    assert len(expected.to_json()["bins"][column]) == len(axis.edges)


def test_a_label_may_be_any_of_the_columns_of_a_table() -> None:
    for columns in (["ill", "sex"], ["sex", "ill"], ["sex", "city", "ill"]):
        assert table_of({"statistic": "crosstab", "columns": columns}).groups_by_label


@pytest.mark.parametrize(
    "asked",
    [
        {"column": "born", "from": "2020-01-09", "below": None},
        {"column": "born", "from": None, "below": "2020-01-09"},
        {"column": "debt", "from": 3.0, "below": None},
        {"column": "debt", "from": None, "below": 0.5},
    ],
)
def test_a_condition_is_stored_as_it_was_asked(asked: dict[str, Any]) -> None:
    """To the byte: 3.0 and not 3."""
    stored = table_of(COUNT | {"where": [asked]}).to_json()["where"]
    assert json.dumps(stored) == json.dumps([asked])


@pytest.mark.parametrize(
    ("lower", "upper", "has_mean"),
    [
        (0, 1, True),
        (1e160, 1e160 + 1e150, True),
        (-1e160 - 1e150, -1e160, True),
        (0, 1e160, False),
        (0, 4.6e-162, False),
        (0, 1e-161, True),
    ],
)
def test_a_mean_needs_bounds_whose_squares_are_numbers(
    lower: float, upper: float, has_mean: bool
) -> None:
    number = {"name": "x", "type": "numeric", "lower": lower, "upper": upper}
    kind = {"name": "kind", "type": "categorical", "categories": ["a", "b"]}
    schema = schema_of(number, kind, classes=["no", "yes"], label="ill")
    for statistic in ("mean", "variance", "sum"):
        asked = {"statistic": statistic, "column": "x"}
        if has_mean:
            assert read_tables([asked], schema)
        else:
            with pytest.raises(ParameterInvalid, match="bounds-too-close-or-too-wide"):
                read_tables([asked], schema)
        with pytest.raises(ParameterInvalid) as refused:
            read_tables([asked | {"column": "kind"}], schema)
        [found] = refused.value.problems
        assert tuple(found.accepted) == ("x",) * has_mean
