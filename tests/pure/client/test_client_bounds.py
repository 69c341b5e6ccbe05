"""The bounds of an upload are written as users of scikit-learn and diffprivlib write
them.
"""

from typing import Any

import numpy as np
import pytest
from sklearn.base import clone

from grovekeeper_client.estimator import PrivateForestClassifier

X, Y = np.array([[1.0, 10.0], [2.0, 20.0]]), ["a", "b"]


def _bounds(bounds: Any) -> list[tuple[float, float]]:
    forest = clone(PrivateForestClassifier("a", 1, upload=True, bounds=bounds))
    schema, _ = forest._numbers(X, Y)
    return [(feature["lower"], feature["upper"]) for feature in schema["features"]]


@pytest.mark.parametrize(
    "bounds",
    [
        {"x1": (0, 50), "x0": (0, 5)}, ([0, 0], [5, 50]), (np.zeros(2), np.array([5, 50])), (0, [5, 50]),
    ],
)  # fmt: skip
def test_every_column_has_bounds_of_its_own(bounds: Any) -> None:
    assert _bounds(bounds) == [(0.0, 5.0), (0.0, 50.0)]


def test_one_pair_holds_for_all_columns() -> None:
    assert _bounds((-1, 60)) == [(-1.0, 60.0), (-1.0, 60.0)]


@pytest.mark.parametrize(
    "bounds",
    [
        {"x0": (0, 5)},
        {"x0": (0, 5), "x1": (0, 5), "x2": (0, 5)},
        ([0], [5]),
        (0, [1, 2, 3]),
    ],
)
def test_bounds_of_other_columns_are_refused(bounds: Any) -> None:
    with pytest.raises(ValueError, match="column"):
        _bounds(bounds)


@pytest.mark.parametrize(
    "bounds", [[(0, 10), (5, 20)], [[0, 0], [5, 50]], ((0, 5), (0, 5), (0, 5)), (0,), 5]
)
def test_one_pair_for_each_column_is_not_read_as_two_sides(bounds: Any) -> None:
    """Lists of pairs would be read transposed: other bounds, and budget for a forest on
    them.
    """
    with pytest.raises(ValueError, match="by name of column"):
        _bounds(bounds)


@pytest.mark.parametrize("bounds", [(5, 0), ([0, 60], 50), (float("nan"), 1)])
def test_a_low_bound_above_the_high_bound_is_refused(bounds: Any) -> None:
    with pytest.raises(ValueError, match="above its high bound"):
        _bounds(bounds)
