"""Dates: read by one function, stored as days since the first day, written by one
function.
"""

import math
from datetime import date, timedelta

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from grovekeeper_forests.data.days import NO_DAY, date_of, day_of
from grovekeeper_forests.data.sanitiser import (
    JsonCells,
    NumberCells,
    RequestRows,
    sanitise_prediction_rows,
)
from grovekeeper_forests.data.schema import Feature, Label, Schema
from grovekeeper_forests.errors import ParameterInvalid
from grovekeeper_forests.estimators import _day

DECLARED = {
    "name": "admitted",
    "type": "date",
    "lower": "1969-12-30",
    "upper": "1970-01-05",
    "missing": True,
}
SCHEMA = {
    "features": [DECLARED],
    "label": {"name": "ill", "classes": ["no", "yes"]},
}


@given(st.dates())
def test_every_date_is_a_number_and_a_date_again(day: date) -> None:
    number = day_of(day.isoformat())
    assert number == (day - date(1970, 1, 1)).days
    assert date_of(number) == date_of(number + 0.9) == day.isoformat()


@given(st.text())
def test_what_is_no_date_is_no_day(text: str) -> None:
    number = day_of(text)
    assert number == NO_DAY or math.isnan(number) or number.is_integer()


@pytest.mark.parametrize(
    "cell",
    [
        "29.02.2024",
        "02/29/2024",
        "2024-2-29",
        "20240229",
        "2024-W09-4",
        "2023-02-29",
        "0000-01-01",
        "2024-02-29T00:00:00",
        "\uff12024-02-29",
        "19782",
        19782,
        19782.0,
        True,
        date(2024, 2, 29),
    ],
)
def test_other_spellings_are_no_dates(cell: object) -> None:
    assert day_of(cell) == NO_DAY


def test_a_declaration_of_dates_reads_back_as_it_was_written() -> None:
    schema = Schema.from_json(SCHEMA)
    [feature] = schema.features
    assert (feature.lower, feature.upper, feature.first_day) == (0.0, 6.0, -2)
    assert schema.to_json()["features"] == [DECLARED]
    assert Schema.from_json(schema.to_json()) == schema


@pytest.mark.parametrize(
    ("bounds", "problem"),
    [
        ({"lower": "1969-02-29"}, ("lower", "not-a-date")),
        ({"lower": None}, ("lower", "not-a-date")),
        ({"upper": "05.01.1970"}, ("upper", "not-a-date")),
        ({"upper": 5}, ("upper", "not-a-date")),
        ({"upper": "1969-12-29"}, ("lower", "above-upper")),
        ({"ordered": True}, ("ordered", "not-for-numbers")),
    ],
)
def test_broken_bounds_are_named(
    bounds: dict[str, object], problem: tuple[str, str]
) -> None:
    schema = Schema.unchecked(SCHEMA | {"features": [DECLARED | bounds]})
    found = [(item.place[-1], item.problem) for item in schema.problems()]
    assert found == [problem]


def test_a_bound_that_is_no_date_states_the_form() -> None:
    """2024-13-01 has it, but for its month."""
    schema = Schema.unchecked(
        SCHEMA | {"features": [DECLARED | {"lower": "2024-13-01"}]}
    )
    [problem] = schema.problems()
    assert problem.problem == "not-a-date"
    assert problem.accepted == ("a text such as 2024-02-29",)


def test_one_day_is_a_legal_range() -> None:
    day = {"lower": "1970-01-01", "upper": "1970-01-01"}
    assert not Schema.unchecked(SCHEMA | {"features": [DECLARED | day]}).problems()


_AGE = Feature("age", "integer", upper=120.0)
_CELLS = st.one_of(
    st.none(), st.sampled_from(["", " 1970-01-01", "1970-01-02", "1900-01-01", "9999-12-31", "x"]),
    st.dates().map(date.isoformat), st.integers(), st.booleans(),
)  # fmt: skip


@given(st.lists(_CELLS, min_size=1, max_size=4), st.booleans())
def test_small_and_large_requests_read_dates_alike(
    cells: list[object], missing: bool
) -> None:
    declared = DECLARED | {"missing": missing}
    [feature] = Schema.from_json(SCHEMA | {"features": [declared]}).features
    schema = Schema((feature, _AGE), Label("ill", ("no", "yes")))
    rows = [{"admitted": cell, "age": 1} for cell in cells]
    days = [day_of(cell) for cell in cells]
    if NO_DAY in days or (not missing and any(map(math.isnan, days))):
        with pytest.raises(ParameterInvalid) as refused:
            sanitise_prediction_rows(schema, rows)
        with pytest.raises(ParameterInvalid) as also:
            RequestRows(schema).sanitise(rows)
        assert also.value.problems == refused.value.problems
        return
    expected = sanitise_prediction_rows(schema, rows)
    fast = RequestRows(schema).sanitise(rows)
    np.testing.assert_array_equal(fast.columns[0], expected.columns[0])
    for cell, day in zip(cells, expected.columns[0].tolist(), strict=True):
        number = day_of(cell) - day_of("1969-12-30")
        assert math.isnan(day) if math.isnan(number) else day == min(max(number, 0), 6)


def test_cells_that_are_no_dates_are_named_once() -> None:
    schema = Schema.from_json(SCHEMA)
    rows = [{"admitted": cell} for cell in ("1970-01-01", "1.1.1970", 5)]
    with pytest.raises(ParameterInvalid) as refused:
        sanitise_prediction_rows(schema, rows)
    [problem] = refused.value.problems
    assert (problem.place, problem.problem) == (("rows", 1, "admitted"), "not-a-date")
    assert problem.count == 2


def test_numbers_are_no_dates() -> None:
    [feature] = Schema.from_json(SCHEMA).features
    numbers = NumberCells(np.array([1.0, np.nan]))
    assert numbers.of_other_types(feature).tolist() == [0]
    assert list(JsonCells([1.0, None]).of_other_types(feature)) == [0]


def test_an_estimator_takes_dates_of_python() -> None:
    day = date(2024, 2, 29)
    assert _day(day) == "2024-02-29"
    assert _day(None) is None
    assert _day(5) == 5
    assert day_of(_day(day + timedelta(days=1))) == day_of("2024-03-01")
