"""The released table of margins, and the temperature that is fitted to it despite its
noise.
"""

import numpy as np
import pytest

from grovekeeper_forests.algorithms.nbrt.boosted_rows import (
    BoostedRows,
    LocalBoostedRows,
)
from grovekeeper_forests.algorithms.nbrt.read import (
    LARGEST_TEMPERATURE,
    MARGIN_EDGES,
    N_MARGIN_BINS,
    TEMPERATURE_BITS,
    fitted_temperature,
    tally_margins,
)
from grovekeeper_forests.algorithms.nbrt.scales import Scales
from grovekeeper_forests.data.coded_rows import RowParts

ONE = 2**TEMPERATURE_BITS
UNIT = 2**16
"""A score of 1."""
COUNT = 2**24
"""The contribution of one row if the noise has a deviation of one row."""


def expected_table(true: float, *, per_bin: int) -> np.ndarray:
    """The expected table if scores times ``true`` are the right log-odds."""
    ends = np.array([0, *MARGIN_EDGES]) / UNIT
    centres = np.append((ends[:-1] + ends[1:]) / 2, 9.0)
    of_first = np.rint(per_bin / (1 + np.exp(-true * centres)))
    return np.stack([per_bin - of_first, of_first], axis=1).astype(np.int64)


def test_a_row_is_in_the_cell_of_its_margin_and_side() -> None:
    scores = (
        np.array([[3, 1, 0], [1, 3, 0], [0, 1, 1], [9, 0, 8]], dtype=np.int64) * UNIT
    )
    table = tally_margins(scores, np.array([0, 0, 1, 0], dtype=np.int32))

    expected = np.zeros((N_MARGIN_BINS, 2), dtype=np.int64)
    # margin 2, the row's class ranks first: a margin at an edge is in the bin above
    expected[6, 1] += 1
    expected[6, 0] += 1  # margin 2, the row's class ranks second
    expected[0, 1] += 1  # a tie: the first of the equal classes ranks first
    expected[4, 1] += 1  # margin 1
    assert np.array_equal(table, expected)


def test_two_classes_have_their_margin_in_the_only_score() -> None:
    scores = np.array([[2], [2], [-2], [-2], [0]], dtype=np.int64) * UNIT
    table = tally_margins(scores, np.array([1, 0, 1, 0, 0], dtype=np.int32))

    assert table[6].tolist() == [2, 2]
    assert table[0].tolist() == [0, 1]
    assert table.sum() == 5


def test_rows_of_a_third_class_are_in_no_cell() -> None:
    scores = np.array([[3, 2, 1]], dtype=np.int64) * UNIT
    assert tally_margins(scores, np.array([2], dtype=np.int32)).sum() == 0
    assert tally_margins(scores[:0], np.zeros(0, dtype=np.int32)).shape == (
        N_MARGIN_BINS,
        2,
    )


def test_margins_of_extreme_scores_do_not_wrap() -> None:
    # far above the sum of 1,024 trees with scores up to 3
    largest = 1_200 * UNIT * 2**10
    table = tally_margins(
        np.array([[largest, -largest, 0]], dtype=np.int64),
        np.array([0], dtype=np.int32),
    )
    assert table[-1].tolist() == [0, 1]


def held(scores: np.ndarray, y: np.ndarray) -> LocalBoostedRows:
    """Rows that already have these scores."""
    n_scores = scores.shape[1]
    rows = LocalBoostedRows(
        np.zeros((len(y), 1), dtype=np.uint8), y, n_classes=max(n_scores, 2)
    )
    rows.start(
        np.zeros(n_scores, dtype=np.int64),
        Scales.of(2**30, n_trees=4, n_classes=max(n_scores, 2)),
    )
    rows._scores = scores
    return rows


@pytest.mark.parametrize("cuts", [[], [0], [9], [10, 11], [1, 9, 10, 24]])
def test_parts_of_rows_are_tallied_as_all_rows_together_are(cuts: list[int]) -> None:
    generator = np.random.default_rng(1)
    scores, y = (
        generator.integers(-(2**19), 2**19, (25, 3)),
        generator.integers(0, 3, 25).astype(np.int32),
    )
    shift = np.array([5, -7, 2**16], dtype=np.int64)
    parts = zip(np.split(scores, cuts), np.split(y, cuts), strict=True)

    assert np.array_equal(
        BoostedRows(RowParts([held(*part) for part in parts])).tally(shift),
        tally_margins(scores + shift, y),
    )


def test_scores_are_not_modified() -> None:
    scores = np.array([[3, 2, 1]], dtype=np.int64)
    tally_margins(scores, np.array([0], dtype=np.int32))
    assert scores.tolist() == [[3, 2, 1]]


@pytest.mark.parametrize("true", [0.5, 0.7, 1.0, 1.5, 2.5])
def test_the_temperature_of_a_clear_table_is_found(true: float) -> None:
    table = expected_table(true, per_bin=100_000)
    assert fitted_temperature(table * COUNT, COUNT) / ONE == pytest.approx(
        true, rel=0.06
    )


def test_temperature_stays_at_one_where_noise_says_nothing() -> None:
    """The counts are far below the noise, so the prior expectation decides whatever was
    released.
    """
    rng = np.random.default_rng(3)
    for _ in range(20):
        released = np.rint(2.0**24 * rng.standard_normal((N_MARGIN_BINS, 2))).astype(
            np.int64
        )
        assert fitted_temperature(
            released + 2**10 * expected_table(2.0, per_bin=5), 2**10
        ) / ONE == pytest.approx(1.0, abs=0.6)


def test_any_release_gives_a_legal_temperature() -> None:
    rng = np.random.default_rng(4)
    for scale in (1.0, 2.0**20, 2.0**60):
        released = np.rint(scale * rng.standard_normal((N_MARGIN_BINS, 2))).astype(
            np.int64
        )
        assert ONE // 5 < fitted_temperature(released, 1) < LARGEST_TEMPERATURE
    assert fitted_temperature(np.zeros((N_MARGIN_BINS, 2), dtype=np.int64), 1) == ONE
