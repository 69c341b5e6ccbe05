"""Sums and differences of columns, against values computed by hand."""

import numpy as np

from grovekeeper_forests.data.encoding import n_pair_codes, pair_columns, to_places


def test_the_place_of_a_code_contains_the_middle_of_its_bin() -> None:
    """Two bins on a scale of eight: their midpoints are at a quarter and at three
    quarters.
    """
    assert to_places(np.array([0, 1], dtype=np.uint8), 2, 8).tolist() == [2, 6]
    assert to_places(np.array([0, 1, 2], dtype=np.uint8), 3, 3).tolist() == [0, 1, 2]
    assert to_places(np.array([0, 255], dtype=np.uint8), 256, 64).tolist() == [0, 63]


def test_of_a_pair_the_sum_comes_before_the_difference() -> None:
    X, own = (
        np.array([[0, 1, 3], [3, 1, 0]], dtype=np.uint8),
        np.array([4, 4], dtype=np.int32),
    )
    result = pair_columns(own, [(0, 1)]).of(X)

    assert n_pair_codes(own, [(0, 1)]).tolist() == [7, 7]
    assert result.tolist() == [[3, 2, 3], [0, 3, 6]]
