"""Derives the number of test points, the runs and the share of training rows from
printed errors and intervals.

The text of Bojarski et al. (2014) that we have has lost its number of runs, its share
of training rows and its ε. Table 1 prints every error with the half width of its
"binomial symmetrical" confidence interval, z √(p (1 − p) / N), N being the number of
test points over all runs; and an error that is a mean over runs is a whole number of
test points over N.
"""

import csv
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

INTERVALS = Path(__file__).parents[1] / "reference" / "printed_intervals.csv"

Z_95 = 1.959964
"""Standard deviations of a two-sided 95 % interval."""

_HALF_A_DIGIT = 0.005
"""The paper prints percentages with two decimals."""


@dataclass(frozen=True)
class PrintedError:
    """An error of table 1.

    Attributes:
        dataset: as printed.
        n_rows: printed number of rows of the dataset.
        method: as printed.
        error: percent of the test points.
        half_width: of the confidence interval, percent.
    """

    dataset: str
    n_rows: int
    method: str
    error: float
    half_width: float


@cache
def printed_errors() -> Sequence[PrintedError]:
    """The forty errors of table 1, in the order of the paper."""
    with INTERVALS.open(newline="", encoding="utf-8") as lines:
        return tuple(
            PrintedError(
                row["dataset"],
                int(row["n_rows"]),
                row["method"],
                float(row["error"]),
                float(row["half_width"]),
            )
            for row in csv.DictReader(lines)
        )


def implied_test_points(printed: PrintedError, z: float = Z_95) -> tuple[float, float]:
    """The smallest and the largest number of test points that the rounded error and
    half width allow.

    Args:
        printed: an error with its half width.
        z: standard deviations that the half width stands for.
    """

    def n_points(error: float, half_width: float) -> float:
        share = error / 100
        return share * (1 - share) * (100 * z / half_width) ** 2

    # Below one half a larger error has a larger variance, so the corners of the
    # rounding are the extremes.
    low = n_points(printed.error - _HALF_A_DIGIT, printed.half_width + _HALF_A_DIGIT)
    return low, n_points(
        printed.error + _HALF_A_DIGIT, printed.half_width - _HALF_A_DIGIT
    )


def whole_test_points(errors: Sequence[PrintedError]) -> list[int]:
    """The numbers of test points, from nine tenths of the rows to all rows, that make
    every error whole.

    Args:
        errors: of one dataset, of methods that ran on the same test points.
    """
    n_rows = errors[0].n_rows
    return [
        n_points
        for n_points in range(9 * n_rows // 10, n_rows + 1)
        if all(_is_whole(printed.error, n_points) for printed in errors)
    ]


def _is_whole(error: float, n_points: int) -> bool:
    """Whether some whole number of points out of ``n_points`` is printed as ``error``
    percent.
    """
    tolerance = _HALF_A_DIGIT + 1e-9  # a half may be printed either way
    return abs(100 * round(error * n_points / 100) / n_points - error) <= tolerance


def forests_by_dataset() -> Mapping[str, Sequence[PrintedError]]:
    """The four errors of random trees of every dataset; ``rpart`` has other test
    points.
    """
    by_dataset: dict[str, list[PrintedError]] = defaultdict(list)
    for printed in printed_errors():
        if printed.method != "rpart":
            by_dataset[printed.dataset].append(printed)
    return by_dataset


def rows_left_out(n_runs: int) -> list[int]:
    """The j for which tests of ⌊n / R⌋ − j rows in each of R runs make every error of
    random trees whole.

    Args:
        n_runs: R. Its tests have one R-th of the rows, because the test points of all
            runs are about as many as rows.
    """
    forests = list(forests_by_dataset().values())
    return [
        left_out
        for left_out in range(min(errors[0].n_rows for errors in forests) // n_runs)
        if all(
            n_runs * (errors[0].n_rows // n_runs - left_out)
            in whole_test_points(errors)
            for errors in forests
        )
    ]
