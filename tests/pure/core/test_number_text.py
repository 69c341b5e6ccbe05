"""A number that people type means what it means in an upload."""

import json
import math

import pyarrow as pa
import pytest

from app.datasets.csv_columns import NumberColumn
from grovekeeper_common.number_text import number_of
from grovekeeper_forests.data.schema import Feature

NUMBERS = [
    "39", "+39", "-0", "39.", ".5", "39.5", "1e3", "1E-3", "-1e400", "1e400", "inf", "-Infinity", "INF", " 39\t", "007",
    "9" * 5_000, "0.30000000000000004",
]  # fmt: skip
MISSING = ["", " ", "\t", "nan", "NaN", "-nan", " NAN "]
OTHERS = [
    "1_000",
    "１０００",
    "1,000",
    "39,5",
    "0x10",
    "nan(1)",
    "None",
    "--1",
    "1e",
    "e5",
    "\u00a039",
    "1 000",
    "infin",
]
FEATURE = Feature("n", "numeric", lower=-1e300, upper=1e300, missing=True)


def _uploaded(text: str) -> tuple[float | None, bool]:
    """The value of a cell of CSV, and whether the cell is refused."""
    column = NumberColumn(FEATURE)
    counted = column.read(pa.array([text], pa.string()))
    return counted.stored.to_pylist()[0], bool(column.problems)


@pytest.mark.parametrize("text", NUMBERS)
def test_a_number_is_that_of_an_upload_and_of_json(text: str) -> None:
    number = number_of(text)
    assert number is not None
    assert json.loads(json.dumps(number, allow_nan=False)) == number
    clamped = min(
        max(
            float(number) if abs(number) < 10**308 else math.copysign(math.inf, number),
            -1e300,
        ),
        1e300,
    )
    assert _uploaded(text) == (clamped, False)


@pytest.mark.parametrize("text", MISSING)
def test_a_missing_value_is_that_of_an_upload(text: str) -> None:
    assert number_of(text) is None
    assert _uploaded(text) == (None, False)


@pytest.mark.parametrize("text", OTHERS)
def test_what_an_upload_refuses_is_no_number(text: str) -> None:
    with pytest.raises(ValueError, match="not a number"):
        number_of(text)
    assert _uploaded(text)[1]
