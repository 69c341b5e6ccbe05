"""The lost number of runs and share of training rows of Bojarski et al. (2014), from
their printed intervals.
"""

from dataclasses import replace

import pytest

from research import printed_tables
from research.papers import printed_intervals
from research.papers.printed_intervals import PrintedError


def test_a_half_width_gives_back_its_number_of_test_points() -> None:
    error, n_points = 20.0, 1_000
    half_width = round(
        printed_intervals.Z_95 * (error * (100 - error) / n_points) ** 0.5, 2
    )
    low, high = printed_intervals.implied_test_points(
        PrintedError("", 0, "", error, half_width)
    )
    assert low < n_points < high
    assert high / low < 1.02
    assert not low < n_points / 2 < high


def test_the_errors_are_those_of_the_table() -> None:
    printed = {
        (error.dataset, error.method): error.error
        for error in printed_intervals.printed_errors()
    }
    cells = [cell for cell in printed_tables.cells() if cell.table == "dprf-1"]
    assert {
        (cell.dataset, cell.method): round(100 - cell.printed, 2) for cell in cells
    } == printed
    assert len(printed) == 40


def test_every_printed_interval_is_one_of_95_percent_on_as_many_points_as_rows() -> (
    None
):
    def fitting(z: float) -> int:
        ranges = [
            (error.n_rows, printed_intervals.implied_test_points(error, z))
            for error in errors
        ]
        return sum(low <= n_rows <= high for n_rows, (low, high) in ranges)

    errors = printed_intervals.printed_errors()
    assert fitting(printed_intervals.Z_95) == 40
    assert fitting(1.644854) == fitting(2.575829) == 0, "neither 90 % nor 99 %"
    halved = [replace(error, n_rows=error.n_rows // 2) for error in errors]
    assert not any(
        low <= error.n_rows <= high
        for error in halved
        for low, high in [printed_intervals.implied_test_points(error)]
    )


def test_errors_of_random_trees_are_whole_numbers_of_rows_of_ten_tests() -> None:
    whole = {
        dataset: printed_intervals.whole_test_points(errors)
        for dataset, errors in printed_intervals.forests_by_dataset().items()
    }
    assert [whole[name] for name in ("Ban_Aut", "BTSC", "CVR", "Mam_Mass")] == [
        [1360],
        [730],
        [420],
        [944, 950],
    ]


@pytest.mark.parametrize(
    ("n_runs", "left_out"), [(2, []), (4, []), (5, []), (10, [1]), (20, [])]
)
def test_only_ten_runs_follow_one_rule(n_runs: int, left_out: list[int]) -> None:
    assert printed_intervals.rows_left_out(n_runs) == left_out
