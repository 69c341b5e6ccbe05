"""Tables of statistics in words, and the texts that people type for them."""

import contextlib
import time
from typing import Any

import pytest

from grovekeeper_common.statistic_words import (
    all_bins,
    bins_of,
    condition_of,
    error_of,
    error_of_quantiles,
    title,
)

ALL: dict[str, Any] = {"column": None, "columns": [], "by": [], "where": []}


def test_a_table_has_a_title() -> None:
    where = [
        {"column": "sex", "in": ["Female", None]},
        {"column": "age", "from": 18.0, "below": None},
    ]
    assert title({**ALL, "statistic": "count"}) == "count"
    mean = {**ALL, "statistic": "mean", "column": "age", "by": ["sex"], "where": where}
    words = "mean of age by sex, where sex is Female or (no value) and age from 18"
    assert title(mean) == words
    bounds = {"column": "a", "from": 0.30000000000000004, "below": 9007199254740991.0}
    exact = title({**ALL, "statistic": "count", "where": [bounds]})
    assert exact == "count, where a from 0.30000000000000004 below 9007199254740991"
    crossed = {**ALL, "statistic": "crosstab", "columns": ["sex", "age"]}
    assert title(crossed) == "crosstab of sex, age"


@pytest.mark.parametrize(
    ("text", "condition"),
    [
        ("sex=Female,Male", {"column": "sex", "in": ["Female", "Male"]}),
        ("income=>50K", {"column": "income", "in": [">50K"]}),
        ("age=18..65", {"column": "age", "from": 18.0, "below": 65.0}),
        ("age= .5 .. ", {"column": "age", "from": 0.5}),
        ("age=..-1e2", {"column": "age", "below": -100.0}),
        ("sex=Female, Male", {"column": "sex", "in": ["Female", "Male"]}),
        ('band="10..19", 20', {"column": "band", "in": ["10..19", "20"]}),
        ("band=a..b", {"column": "band", "in": ["a..b"]}),
        ('"a=b;c" ="x, y"', {"column": "a=b;c", "in": ["x, y"]}),
        ('"say ""hi"""=" é"', {"column": 'say "hi"', "in": [" é"]}),
        ("sex=Female,MISSING", {"column": "sex", "in": ["Female", None]}),
        ('sex="", "MISSING"', {"column": "sex", "in": [None, "MISSING"]}),
        ('sex= a"b ,""', {"column": "sex", "in": ['a"b ', None]}),
        ('height"=3..4', {"column": 'height"', "from": 3.0, "below": 4.0}),
    ],
)
def test_a_condition_is_read(text: str, condition: dict[str, Any]) -> None:
    assert condition_of(text) == condition


@pytest.mark.parametrize(
    "text",
    ["", "sex", "sex=", "=a", "age=..", "age=1e999..", '"sex=a', 'sex="a', 'sex="a"b', "sex=a\nb",
     "sex=a,", "sex=,a", 'sex=a, "b'],
)  # fmt: skip
def test_a_text_that_is_no_condition_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        condition_of(text)


@pytest.mark.parametrize(
    "text", ["d=01.01.2020..2021-01-01", "d=2020-01-01..1.1.2021", "d=1x.."]
)
def test_a_misspelt_range_is_no_category(text: str) -> None:
    with pytest.raises(ValueError, match=r"no range of numbers or of dates"):
        condition_of(text)


def test_bins_are_a_number_of_bins_or_edges() -> None:
    assert bins_of("age= 5") == ("age", 5)
    assert bins_of("age=18, 65,") == ("age", [18.0, 65.0])
    assert bins_of("age= quantiles: 5") == ("age", {"quantiles": 5})
    assert bins_of("age=18,") == ("age", [18.0])
    for text in ("age", "age=few", "age=1,1e999", "age=quantiles:", "age=deciles:5"):
        with pytest.raises(ValueError, match=r"."):
            bins_of(text)


@pytest.mark.parametrize(
    "values", ["1_0", "1_0,20", "\u0663", "\u0663,\u0664", "quantiles:\u0663", "18,,65", ",18", ",", "18,nan"]
)  # fmt: skip
def test_bins_are_read_as_uploads_read_numbers(values: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        bins_of(f"age={values}")


def test_bins_of_a_column_are_named_once() -> None:
    named = all_bins(["age=5", '"a=b;c"=1,2'])
    assert named == {"age": 5, "a=b;c": [1.0, 2.0]}
    with pytest.raises(ValueError, match="age is named twice"):
        all_bins(["age=1,2", "age=3"])


def test_an_error_is_a_number_or_a_share() -> None:
    assert error_of("50") == {"error": "50"}
    assert error_of(" 1% ") == {"error_share": "0.01"}


@pytest.mark.parametrize(
    "text",
    ["x%", "1_0%", "\u0661%", "%", "1e999999999%", "1e999999%", "1e-999999%", "0e999999%", "inf%", "nan%", "sNaN%"],
)  # fmt: skip
def test_an_error_that_is_no_share_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="share"):
        error_of(text)


def test_what_is_known_of_quantiles_speaks_of_their_cells() -> None:
    several = error_of_quantiles("income", 6, 10_000.0, 41.2)
    assert several == (
        "Each number is the middle of a cell of income that is at most 10,000 wide. "
        "With probability 95 %, the cells of a group hold values within ± 42 rows of "
        "the ranks asked for. Of fewer rows than that, any value can come out."
    )
    of_dates = error_of_quantiles("admitted", 1, 3.0, 41.2, "days")
    assert "a cell of admitted that is at most 3 days wide." in of_dates
    of_days = error_of_quantiles("admitted", 1, 1.0, 41.2, "days")
    assert "a cell of admitted that is at most 1 day wide." in of_days
    of_numbers = error_of_quantiles("days", 1, 3.0, 41.2, None)
    assert "a cell of days that is at most 3 wide." in of_numbers
    alone = error_of_quantiles("age", 1, 0.0, 40.0)
    assert alone == (
        "The number is one value of age. With probability 95 %, its cell holds a value "
        "within ± 40 rows of the rank asked for. Of fewer rows than that, any value can "
        "come out."
    )


@pytest.mark.parametrize(
    "values",
    [" " * 60_000 + "x", ".." + " " * 60_000 + "x", "1.." * 20_000 + ',"'],
    ids=["blanks", "blanks behind points", "points and numbers"],
)
def test_a_long_condition_takes_no_time_by_its_square(values: str) -> None:
    """A search holds all threads of the service until it ends: a form of 60 kB held
    them for six seconds.
    """
    before = time.thread_time()
    with contextlib.suppress(ValueError):
        condition_of(f"age={values}")
    assert time.thread_time() - before < 1
