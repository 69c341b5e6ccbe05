"""The start of a label that is a number follows from two selections and public edges
alone.
"""

from fractions import Fraction

import numpy as np
import pytest
from numpy.typing import NDArray

from grovekeeper_forests.bins import number_targets, releases
from grovekeeper_forests.data.schema import TARGET_STEPS, Label

LABEL = Label("days", bounds=(0.0, 60.0))


def codes(*numbers: int) -> NDArray[np.int32]:
    return np.array(numbers, dtype=np.int32)


def test_a_code_on_an_edge_is_below_it() -> None:
    counts = number_targets.count_by_edge(codes(5, 9), codes(0, 5, 6, 9, 10))
    assert counts.tolist() == [2, 2, 1]


def test_rows_above_the_last_edge_are_rows() -> None:
    by_cell = np.array([1, 2, 4], dtype=np.int64)
    assert number_targets.middle_utilities(by_cell).tolist() == [-5, -1]


def test_distances_are_counted_on_both_sides_of_the_middle() -> None:
    y = codes(0, 7, 10, 13, 14, TARGET_STEPS)
    counts = number_targets.target_counts(codes(3, 9), y, 10)
    assert counts.tolist() == [3, 1, 2]
    by_code = number_targets.target_counts(codes(3, 9), y, None)
    assert by_code.tolist() == [1, 1, 4]


@pytest.mark.parametrize("chosen", [(0, 0), (3, 15), (40, 7)])
@pytest.mark.parametrize("y", [(), (0,), (TARGET_STEPS,), (5, 6, TARGET_STEPS // 2)])
def test_a_start_is_what_the_selections_chose_whatever_the_rows_are(
    chosen: tuple[int, int], y: tuple[int, ...]
) -> None:
    """The best edge or spread of the rows would tell of them."""
    scales = Fraction(1, 3), Fraction(1, 5)
    edges, questions, selections = number_targets.edges_of(LABEL), [], []

    def counts(
        asked: NDArray[np.int32], middle: int | None = None
    ) -> NDArray[np.int64]:
        questions.append((asked.tolist(), middle))
        return number_targets.target_counts(asked, codes(*y), middle)

    def select(utilities: NDArray[np.int64], *, inverse_scale: Fraction) -> int:
        selections.append((len(utilities), inverse_scale))
        return chosen[len(selections) - 1]

    start = releases.release_start(LABEL, scales, target_counts=counts, select=select)
    middle = int(edges[chosen[0]])
    assert start.tolist() == [middle, number_targets.spreads()[chosen[1]]]
    distances = number_targets.distances().tolist()
    assert questions == [(edges.tolist(), None), (distances, middle)]
    n_candidates = len(edges), number_targets.N_SPREADS
    assert selections == list(zip(n_candidates, scales, strict=True))
