"""The record sanitiser: total, record-wise, and strict with prediction rows that the
caller can correct.
"""

import math

import numpy as np
import pytest

from grovekeeper_forests import limits as forest_limits
from grovekeeper_forests.data.sanitiser import (
    JsonCells,
    NumberCells,
    count_out_of_bounds,
    has_known_label,
    sanitise_codes,
    sanitise_numbers,
    sanitise_prediction_columns,
    sanitise_prediction_rows,
)
from grovekeeper_forests.data.schema import Feature, Label, Schema
from grovekeeper_forests.errors import ParameterInvalid, ParameterProblem

AGE = Feature("age", "integer", lower=0, upper=120)
HEIGHT = Feature("height/m", "numeric", lower=-0.5, upper=2.5, missing=True)
SEX = Feature("sex", "categorical", categories=("Female", "Male"), missing=True)
CITY = Feature("ci~ty", "categorical", categories=("Bern", "0"))
SCHEMA = Schema((AGE, HEIGHT, SEX, CITY), Label("income", ("low", "high")))
ROW = {"age": 39, "height/m": 1.5, "sex": "Male", "ci~ty": "Bern"}
CANARY = "canary-of-a-person"


def errors_of(rows=None, columns=None, schema=SCHEMA):
    with pytest.raises(ParameterInvalid) as caught:
        if rows is not None:
            sanitise_prediction_rows(schema, rows)
        else:
            sanitise_prediction_columns(schema, cells_of(columns))
    assert CANARY not in repr(caught.value.problems)
    assert CANARY not in str(caught.value)
    return list(caught.value.problems)


def cells_of(columns):
    return {name: JsonCells(values) for name, values in columns.items()}


def column(values, feature):
    return sanitise_prediction_rows(
        Schema((feature,), SCHEMA.label), [{feature.name: v} for v in values]
    ).columns[0]


def _columns_or_problems(name, cells):
    missing = {
        feature.name: JsonCells([None] * len(cells))
        for feature in (HEIGHT, SEX)
        if feature.name != name
    }
    present = {
        "age": JsonCells([39] * len(cells)),
        "ci~ty": JsonCells(["Bern"] * len(cells)),
    }
    try:
        columns = sanitise_prediction_columns(
            SCHEMA, {**missing, **present, name: cells}
        ).columns
    except ParameterInvalid as refused:
        return refused.problems
    return [(values.dtype, values.tobytes()) for values in columns]


@pytest.mark.parametrize("name", ["age", "height/m", "sex", "ci~ty"])
@pytest.mark.parametrize(
    "numbers",
    [
        [1.0, -3.0, 1e300, -math.inf],
        [math.nan, 2.5, math.nan],
        [math.nan, math.nan],
        [],
    ],
)
def test_numbers_in_an_array_count_as_numbers_of_json(name, numbers):
    listed = [None if math.isnan(number) else number for number in numbers]
    expected = _columns_or_problems(name, JsonCells(listed))
    assert _columns_or_problems(name, NumberCells(np.array(numbers))) == expected


def test_numbers_are_clamped_into_the_bounds_and_nowhere_else():
    values = np.array([-math.inf, -1e308, -0.5, 0.25, 2.5, 2.6, math.inf])
    assert sanitise_numbers(HEIGHT, values).tolist() == [
        -0.5,
        -0.5,
        -0.5,
        0.25,
        2.5,
        2.5,
        2.5,
    ]
    assert count_out_of_bounds(HEIGHT, values) == 4
    assert values[0] == -math.inf, "the caller's array is not changed"


def test_an_empty_number_stays_missing_only_where_the_schema_allows_it():
    values = np.array([math.nan, 7.0])
    assert np.isnan(sanitise_numbers(HEIGHT, values)).tolist() == [True, False]
    assert sanitise_numbers(AGE, values).tolist() == [0.0, 7.0]
    assert count_out_of_bounds(HEIGHT, np.array([math.nan])) == 0


def test_an_integer_feature_holds_integers_inside_its_bounds():
    values = np.array([0.5, 1.5, 119.7, 120.4, -0.2])
    assert sanitise_numbers(AGE, values).tolist() == [0.0, 2.0, 120.0, 120.0, 0.0]


def test_equal_numbers_have_equal_bits():
    zeros = sanitise_numbers(HEIGHT, np.array([0.0, -0.0]))
    assert zeros.tobytes() == np.zeros(2).tobytes()
    assert sanitise_numbers(AGE, np.array([-0.2])).tobytes() == np.zeros(1).tobytes()


def test_equal_bounds_are_legal():
    constant = Feature("one", "numeric", lower=1, upper=1)
    assert sanitise_numbers(constant, np.array([0.0, 1.0, 2.0])).tolist() == [
        1.0,
        1.0,
        1.0,
    ]


@pytest.mark.parametrize(("feature", "largest"), [(SEX, 3), (CITY, 2)])
def test_codes_that_a_feature_does_not_have_are_other(feature, largest):
    codes = np.array([-(2**31), -1, 0, 1, 2, 3, 4, 2**31 - 1], dtype=np.int32)
    expected = [
        code if 0 <= code <= largest else feature.other_code for code in codes.tolist()
    ]
    result = sanitise_codes(feature, codes)
    assert result.tolist() == expected
    assert result.dtype == np.int32


def test_rows_without_a_declared_class_are_dropped_one_by_one():
    codes = np.array([-1, 0, 1, 2, 2**31 - 1, -(2**31)], dtype=np.int32)
    assert has_known_label(SCHEMA.label, codes).tolist() == [
        False,
        True,
        True,
        False,
        False,
        False,
    ]


def test_rows_are_encoded_in_schema_order():
    encoded = sanitise_prediction_rows(SCHEMA, [ROW, {"ci~ty": "0", "age": 200}])
    age, height, sex, city = encoded.columns
    assert encoded.n_rows == 2
    assert age.tolist() == [39.0, 120.0]
    assert height[0] == 1.5
    assert math.isnan(height[1])
    assert sex.tolist() == [1, SEX.missing_code]
    assert city.tolist() == [0, 1]
    assert [array.dtype for array in encoded.columns] == [
        np.float64,
        np.float64,
        np.int32,
        np.int32,
    ]


def test_rows_and_columns_are_the_same_body():
    rows = [
        ROW,
        {**ROW, "age": -5, "sex": "Other"},
        {**ROW, "height/m": None, "ci~ty": "Basel"},
    ]
    by_rows = sanitise_prediction_rows(SCHEMA, rows)
    by_columns = sanitise_prediction_columns(
        SCHEMA, cells_of({name: [row[name] for row in rows] for name in ROW})
    )
    assert by_rows.n_rows == by_columns.n_rows == 3
    for left, right in zip(by_rows.columns, by_columns.columns, strict=True):
        np.testing.assert_array_equal(left, right)


def test_an_unknown_category_is_other_and_matching_is_exact():
    assert column(["Male", "male", " Male", "", None], SEX).tolist() == [1, 2, 2, 3, 3]


def test_integers_beyond_floats_are_clamped():
    assert column([10**400, -(10**400), None, 1], HEIGHT).tolist()[:2] == [2.5, -0.5]
    assert column([10**400, 2], AGE).tolist() == [120.0, 2.0]


def test_an_unknown_column_is_named_to_the_caller_who_sent_it():
    for problem in (
        *errors_of(rows=[ROW, {**ROW, "agee": 1}]),
        *errors_of(columns={"age": [1], "agee": [1]}),
    ):
        assert (problem.problem, problem.column) == ("unknown-column", "agee")
    (long,) = errors_of(columns={"a" * 1000: [1]})
    assert long.column == "a" * forest_limits.MAX_NAME_CHARS


def test_an_unknown_column_lists_the_columns_that_are_read():
    for problem in (*errors_of(rows=[{"agee": 1}]), *errors_of(columns={"agee": [1]})):
        assert problem.accepted == tuple(feature.name for feature in SCHEMA.features)


def test_the_label_is_no_column_of_a_prediction():
    assert errors_of(rows=[{**ROW, "income": "low"}]) == [
        ParameterProblem(("rows",), "unknown-column", count=1)
    ]


@pytest.mark.parametrize("row", [{}, {"age": None, "ci~ty": None}])
def test_a_missing_feature_and_a_null_are_refused_alike(row):
    assert errors_of(rows=[ROW, row]) == [
        ParameterProblem(("rows", 1, "age"), "missing", count=1),
        ParameterProblem(("rows", 1, "ci~ty"), "missing", count=1),
    ]


@pytest.mark.parametrize("cell", ["39", CANARY, True, False, [39], {"a": 1}])
def test_only_a_json_number_is_a_number(cell):
    assert errors_of(rows=[{**ROW, "age": cell}]) == [
        ParameterProblem(("rows", 0, "age"), "not-a-number", count=1)
    ]
    assert errors_of(rows=[ROW, {**ROW, "height/m": cell}]) == [
        ParameterProblem(("rows", 1, "height/m"), "not-a-number", count=1)
    ]


@pytest.mark.parametrize("cell", [0, 1.5, True, [CANARY], {CANARY: 1}])
def test_only_a_json_string_is_a_category(cell):
    assert errors_of(rows=[{**ROW, "ci~ty": cell}]) == [
        ParameterProblem(("rows", 0, "ci~ty"), "not-a-string", count=1)
    ]


def test_the_columns_form_points_at_cells_and_at_absent_columns():
    columns = {
        "age": [1, None, "2"],
        "sex": [None, "Male", 3],
        "height/m": [None, 1, 2],
    }
    assert errors_of(columns=columns) == [
        ParameterProblem(("columns", "age", 2), "not-a-number", count=1),
        ParameterProblem(("columns", "age", 1), "missing", count=1),
        ParameterProblem(("columns", "sex", 2), "not-a-string", count=1),
        ParameterProblem(("columns", "ci~ty"), "missing", count=3),
    ]


def test_columns_of_unequal_length_are_refused():
    columns = {"age": [1, 2], "ci~ty": ["Bern"]}
    assert errors_of(columns=columns) == [
        ParameterProblem(
            ("columns", "ci~ty"),
            "unequal-lengths",
            accepted=("2 cells, as age has",),
            column="ci~ty",
            count=1,
        )
    ]


def test_an_absent_column_is_missing_where_that_is_legal():
    encoded = sanitise_prediction_columns(
        SCHEMA, cells_of({"age": [1, 2], "ci~ty": ["Bern", "0"]})
    )
    assert np.isnan(encoded.columns[1]).all()
    assert encoded.columns[2].tolist() == [SEX.missing_code] * 2


def test_no_rows_are_legal():
    encoded = sanitise_prediction_rows(SCHEMA, [])
    assert encoded.n_rows == 0
    assert [array.shape for array in encoded.columns] == [(0,)] * 4
    assert [array.dtype for array in encoded.columns] == [
        np.float64,
        np.float64,
        np.int32,
        np.int32,
    ]


def test_a_problem_of_many_rows_is_one_problem_of_its_column():
    rows = [
        ROW,
        *(
            {name: cell for name, cell in ROW.items() if name != "age"}
            for _ in range(90)
        ),
    ]
    assert errors_of(rows=rows) == [
        ParameterProblem(("rows", 1, "age"), "missing", count=90)
    ]
    columns = {name: [cell] * 3 for name, cell in ROW.items()} | {
        "ci~ty": ["Bern", 1, 2]
    }
    (problem,) = errors_of(columns=columns)
    assert problem == ParameterProblem(("columns", "ci~ty", 1), "not-a-string", count=2)
    assert (problem.column, problem.accepted) == ("ci~ty", CITY.categories)


def test_a_refusal_names_a_bounded_number_of_columns():
    wide = Schema(
        tuple(
            Feature(f"x{index}", "numeric", lower=0, upper=1) for index in range(300)
        ),
        SCHEMA.label,
    )
    for body in ({"rows": [{}] * 50}, {"columns": {"x299": ["1"] * 300}}):
        assert (
            len(errors_of(**body, schema=wide)) == forest_limits.MAX_REPORTED_PROBLEMS
        )


def test_the_image_of_a_row_does_not_depend_on_the_other_rows():
    rows = [
        ROW,
        {**ROW, "age": 10**400},
        {"age": 1.2, "ci~ty": "?"},
        {**ROW, "sex": None},
    ]
    together = sanitise_prediction_rows(SCHEMA, rows)
    for index, row in enumerate(rows):
        alone = sanitise_prediction_rows(SCHEMA, [row])
        for joint, single in zip(together.columns, alone.columns, strict=True):
            np.testing.assert_array_equal(joint[index : index + 1], single)
