"""Rows that are sanitised in one table equal rows that are sanitised column by column,
with the same errors.
"""

import random
from collections.abc import Sequence

import pytest

from grovekeeper_forests.data.sanitiser import (
    RequestRows,
    SanitisedColumns,
    SanitisedTable,
    sanitise_prediction_rows,
)
from grovekeeper_forests.data.schema import Feature, Label, Schema
from grovekeeper_forests.errors import GrovekeeperError

SCHEMA = Schema(
    (
        Feature("age", "integer", lower=0, upper=120),
        Feature("rows", "categorical", categories=("a{", "b", "é", "")),
        Feature("height", "numeric", lower=-1.5, upper=2.5, missing=True),
        Feature("sex", "categorical", categories=("F", "M"), missing=True),
    ),
    Label("y", ("0", "1")),
)
ROWS = RequestRows(SCHEMA)
CELLS: dict[str, list[object]] = {
    "age": [
        3,
        -5,
        12.5,
        13.5,
        500,
        -0.0,
        True,
        "3",
        None,
        2**53 + 1,
        10**400,
        [1],
        float("inf"),
    ],
    "rows": ["a{", "b", "zz", "é", "", None, 3, {}],
    "height": [1.5, None, -9, -0.0, 0.30000000000000004, "x", False, -(10**400)],
    "sex": ["F", None, "M", "Q", 1.0, []],
    "other": [1],
}
"""The first three cells of a column are usual."""


def _rows(rng: random.Random) -> list[dict[str, object]]:
    names = [
        name for name in CELLS if rng.random() < (0.03 if name == "other" else 0.97)
    ]
    usual = {
        name: cells if rng.random() < 0.2 else cells[:3]
        for name, cells in CELLS.items()
    }
    return [
        {name: rng.choice(usual[name]) for name in names}
        for _ in range(rng.randrange(4))
    ]


def _of(
    rows: Sequence[dict[str, object]], *, in_one_table: bool
) -> tuple[SanitisedColumns | None, object]:
    try:
        return (
            ROWS.sanitise(rows)
            if in_one_table
            else sanitise_prediction_rows(SCHEMA, rows)
        ), None
    except GrovekeeperError as error:
        return None, (type(error), vars(error))


def _listed(columns: SanitisedColumns) -> object:
    return None if columns.changed is None else columns.changed.tolist()


def test_a_table_equals_the_columns_and_has_their_errors() -> None:
    rng = random.Random(0)
    n_tables = n_errors = 0
    for _ in range(4_000):
        rows = _rows(rng)
        (columns, error), (expected, expected_error) = (
            _of(rows, in_one_table=it) for it in (True, False)
        )
        assert error == expected_error, rows
        n_errors += error is not None
        n_tables += isinstance(columns, SanitisedTable)
        if columns is not None and expected is not None:
            assert columns.n_rows == expected.n_rows
            assert _listed(columns) == _listed(expected), rows
            for one, other in zip(columns.columns, expected.columns, strict=True):
                assert (one.dtype, one.tobytes()) == (other.dtype, other.tobytes()), (
                    rows
                )
    assert n_tables > 1_000
    assert n_errors > 500


def test_cells_that_the_model_does_not_see_as_they_are_count_by_column() -> None:
    whole = {"age": 120, "rows": "b", "height": -1.5}
    rows = [
        whole,
        whole | {"age": 121, "sex": "Q"},
        whole | {"age": -1, "height": 2.6},
        whole | {"age": 3.4, "rows": "zz", "sex": ""},
    ]
    for some in (rows, rows[1:2]):
        clamped = [
            sum(row["age"] in (121, -1) for row in some),
            0,
            sum(row["height"] == 2.6 for row in some),
            0,
        ]
        unseen = [
            0,
            sum(row["rows"] == "zz" for row in some),
            0,
            sum(row.get("sex") == "Q" for row in some),
        ]
        assert _listed(ROWS.sanitise(some)) == [clamped, unseen]
    assert _listed(ROWS.sanitise([whole, whole])) is None


@pytest.mark.parametrize("number", [10**400, -(10**400)])
def test_a_number_beyond_every_float_is_clamped(number: int) -> None:
    columns = ROWS.sanitise([{"age": number, "rows": "b"}]).columns
    assert columns[0].tolist() == [120 if number > 0 else 0]
