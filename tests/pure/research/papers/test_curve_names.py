"""Names beside curves keep their distance and their order."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from research.papers.curve_names import spread


def test_crowded_names_are_centred_where_their_curves_end() -> None:
    assert spread([10.0, 10.0, 30.0], 4.0) == [8.0, 12.0, 30.0]
    assert spread([30.0, 1.0, 2.0, 3.0], 4.0) == [30.0, -2.0, 2.0, 6.0]
    assert spread([], 4.0) == []


@pytest.mark.property
@given(st.lists(st.floats(0, 60), max_size=9))
def test_names_are_apart_and_in_the_order_of_their_curves(ends: list[float]) -> None:
    places = spread(ends, 3.0)
    order = sorted(
        range(len(ends)),
        key=lambda index: ends[index],
    )
    in_order = [places[index] for index in order]
    for low, high in pairwise(in_order):
        assert high - low >= 3.0 - 1e-9
    assert sum(places) == pytest.approx(sum(ends))
