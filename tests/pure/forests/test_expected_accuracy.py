"""The accuracy that quotes expect: read off committed benchmarks of similar tables, and
from public facts alone.
"""

import pytest

from grovekeeper_forests.data.schema import Schema
from grovekeeper_forests.expected_accuracy import MEASUREMENTS, Comparison, runs
from research import measured_accuracy
from tests.support.schemas import schema_of


def _schema(*, numeric: int, categorical: int, n_classes: int = 2) -> Schema:
    return schema_of(
        *(
            {"name": f"n{i}", "type": "numeric", "lower": 0, "upper": 1}
            for i in range(numeric)
        ),
        *(
            {"name": f"c{i}", "type": "categorical", "categories": ["a", "b"]}
            for i in range(categorical)
        ),
        classes=[f"k{i}" for i in range(n_classes)],
    )


LIKE_ADULT = _schema(numeric=6, categorical=8)


def test_the_shipped_measurements_equal_the_committed_results() -> None:
    assert MEASUREMENTS.read_text(encoding="utf-8") == measured_accuracy.text(), (
        "run research.measured_accuracy"
    )


def test_a_table_recovers_its_measured_share_at_its_rows_and_epsilon() -> None:
    """84.65 % at ε = 1 on adult, whose largest class has 75.82 % and whose forest
    without privacy reaches 85.63 %.
    """
    band = Comparison("rpf", "pure", rows=round(0.9 * 32_561), schema=LIKE_ADULT).at(
        1.0
    )
    assert band is not None
    assert {table.table: table.share for table in band.tables}[
        "adult"
    ] == pytest.approx(0.9, abs=0.001)
    assert band.low <= band.middle <= band.high


def test_more_rows_need_less_epsilon() -> None:
    small, large = (
        Comparison("nbrt", "gdp", rows=rows, schema=LIKE_ADULT)
        for rows in (3_000, 30_000)
    )
    at_small, at_large = small.at(1.0), large.at(0.1)
    assert at_small is not None
    assert at_large is not None
    assert at_small.middle == pytest.approx(at_large.middle)


def test_several_rows_of_a_person_divide_epsilon() -> None:
    of_person = Comparison("rpf", "pure", rows=30_000, schema=LIKE_ADULT, divisor=5).at(
        5.0
    )
    of_row = Comparison("rpf", "pure", rows=30_000, schema=LIKE_ADULT).at(1.0)
    assert of_person is not None
    assert of_row is not None
    assert of_person.tables == of_row.tables


@pytest.mark.parametrize(
    ("comparison", "epsilon"),
    [
        (Comparison("rpf", "pure", rows=100, schema=LIKE_ADULT), 0.1),
        (Comparison("rpf", "pure", rows=10**8, schema=LIKE_ADULT), 1.0),
        (Comparison("rpf", "zcdp", rows=30_000, schema=LIKE_ADULT), 1.0),
        (
            Comparison(
                "rpf",
                "pure",
                rows=30_000,
                schema=_schema(numeric=3, categorical=0, n_classes=500),
            ),
            1.0,
        ),
    ],
    ids=[
        "too few rows",
        "too many rows",
        "not measured on such accounts",
        "too many classes",
    ],
)
def test_nothing_is_expected_where_no_similar_table_was_measured(
    comparison: Comparison, epsilon: float
) -> None:
    assert comparison.at(epsilon) is None


def test_classes_and_kinds_of_columns_decide_which_tables_are_similar() -> None:
    of_two = Comparison("rpf", "pure", rows=10_000, schema=LIKE_ADULT).at(1.0)
    of_many = Comparison(
        "rpf",
        "pure",
        rows=10_000,
        schema=_schema(numeric=16, categorical=0, n_classes=26),
    ).at(1.0)
    assert of_two is not None
    assert "letter" not in {table.table for table in of_two.tables}
    assert of_many is None or "adult" not in {table.table for table in of_many.tables}


def test_a_curve_has_a_band_at_every_epsilon_with_enough_tables() -> None:
    comparison = Comparison("rpf", "pure", rows=30_000, schema=LIKE_ADULT)
    curve = comparison.curve()
    assert [band for band in curve if len(band.tables) < 3] == []
    assert {0.1, 1.0} <= {band.epsilon for band in curve}
    assert comparison.at(1.0) in curve


def test_the_nearest_measurement_is_on_a_similar_table_at_the_nearest_rows_and_epsilon() -> (
    None
):
    """85.71 % at ε = 10 on adult is the most rows × ε that was measured on a table like
    it.
    """
    nearest = Comparison("rpf", "pure", rows=10**8, schema=LIKE_ADULT).nearest(1.0)
    assert nearest is not None
    assert (nearest.table, nearest.rows, nearest.epsilon) == ("adult", 29_305, 10)
    assert nearest.share == pytest.approx((0.8571 - 0.7582) / (0.8563 - 0.7582))
    assert Comparison("rpf", "zcdp", rows=100, schema=LIKE_ADULT).nearest(1.0) is None


def test_the_runs_are_those_of_the_results() -> None:
    listed = {(run.algorithm, run.accountant): run for run in runs()}
    assert ("rpf", "zcdp") not in listed
    on_zcdp = listed["mrf", "zcdp"]
    assert (on_zcdp.n_tables, on_zcdp.smallest, on_zcdp.largest) == (5, 0.1, 1.0)


def test_tables_on_which_there_was_nothing_to_gain_are_named() -> None:
    """On bank a forest without privacy gains 1.5 points over the largest class, on
    transfusion nothing.
    """
    of_bank = Comparison(
        "rpf", "pure", rows=round(0.9 * 4_521), schema=_schema(numeric=7, categorical=9)
    ).at(0.5)
    assert of_bank is not None
    assert of_bank.without_gain == ("bank", "transfusion")
    assert {table.table for table in of_bank.tables}.isdisjoint(of_bank.without_gain)
    assert len(of_bank.tables) + len(of_bank.without_gain) == 8


def test_the_expected_accuracy_is_the_middle_share_between_the_middle_references() -> (
    None
):
    band = Comparison("rpf", "pure", rows=30_000, schema=LIKE_ADULT).at(1.0)
    assert band is not None
    assert band.majority < band.accuracy < band.forest
    assert (band.accuracy - band.majority) / (
        band.forest - band.majority
    ) == pytest.approx(band.middle)


def test_auroc_is_that_of_similar_tables_of_two_classes() -> None:
    """Measured on bank: 0.657 at ε = 0.5, where the accuracy is that of the largest
    class; 0.92 without privacy.
    """
    of_bank = Comparison(
        "rpf", "pure", rows=round(0.9 * 4_521), schema=_schema(numeric=7, categorical=9)
    ).at(0.5)
    assert of_bank is not None
    assert of_bank.auroc is not None
    assert (
        of_bank.auroc.low
        <= of_bank.auroc.middle
        <= of_bank.auroc.high
        < of_bank.auroc.without_privacy + 0.1
    )
    assert of_bank.auroc.n_tables == 6
    of_three = Comparison(
        "rpf",
        "pure",
        rows=10_000,
        schema=_schema(numeric=7, categorical=9, n_classes=3),
    ).at(1.0)
    assert of_three is not None
    assert of_three.auroc is None
