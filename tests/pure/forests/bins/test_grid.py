"""The public fine grid: a function of the declaration alone, with small cells for
skewed columns.
"""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from grovekeeper_forests.bins import quantile_bins, releases
from grovekeeper_forests.bins.quantile_bins import Grid
from grovekeeper_forests.data.encoding import to_numbers
from grovekeeper_forests.data.schema import Feature

finite = st.floats(
    allow_nan=False, allow_infinity=False, min_value=-1e300, max_value=1e300
)


def numeric(lower: float, upper: float, *, missing: bool = False) -> Feature:
    return Feature("x", "numeric", lower=lower, upper=upper, missing=missing)


def integer(lower: int, upper: int) -> Feature:
    return Feature("x", "integer", lower=float(lower), upper=float(upper))


@given(bounds=st.tuples(finite, finite))
@settings(max_examples=150, deadline=None)
def test_edges_ascend_inside_the_bounds_and_are_few(
    bounds: tuple[float, float],
) -> None:
    lower, upper = sorted(bounds)
    edges = quantile_bins.grid_edges(numeric(lower, upper))

    assert quantile_bins.n_cells(numeric(lower, upper)) <= quantile_bins.MAX_CELLS
    assert np.all(np.diff(edges) > 0)
    assert np.all((edges >= lower) & (edges < upper))


@given(bounds=st.tuples(finite, finite), whole=st.booleans())
@settings(max_examples=50, deadline=None)
def test_fine_edges_are_those_of_the_coarse_grid_and_of_equal_cells(
    bounds: tuple[float, float], whole: bool
) -> None:
    """At most 65,359 cells, so that the codes of a column and MISSING have 16 bits."""
    lower, upper = sorted(bounds)
    feature = numeric(lower, upper)
    if whole:
        feature = Feature(
            "x", "integer", lower=np.floor(lower), upper=np.floor(upper) + 256
        )
    edges = quantile_bins.grid_edges(feature, Grid.FINE)

    assert len(edges) + 1 <= quantile_bins._MAX_FINE_CELLS == 65_359
    assert np.isin(quantile_bins.grid_edges(feature), edges).all()
    assert np.all(np.diff(edges) > 0)
    assert np.all((edges >= feature.lower) & (edges < feature.upper))


def test_a_fine_grid_has_a_cell_for_every_65280th_of_the_range() -> None:
    edges = quantile_bins.grid_edges(numeric(0.0, 65_280.0), Grid.FINE).round(6)
    coarse = quantile_bins.grid_edges(numeric(0.0, 65_280.0))

    assert np.isin(np.arange(1.0, 65_280.0), edges).all()
    assert len(edges) == 65_279 + len(coarse) - 255 - _n_whole(coarse)


def _n_whole(coarse: np.ndarray) -> int:
    """Geometric edges that are whole numbers, but no multiples of 255."""
    return int(np.sum((coarse % 1 == 0) & (coarse % 255 != 0)))


def test_a_wide_integer_has_fine_cells_between_integers_and_none_twice() -> None:
    edges = quantile_bins.grid_edges(integer(0, 1_000), Grid.FINE)

    assert edges.tolist() == [value + 0.5 for value in range(1_000)]


def test_integer_with_a_short_range_has_a_cell_per_value() -> None:
    assert quantile_bins.grid_edges(integer(-2, 1)).tolist() == [-1.5, -0.5, 0.5]
    assert quantile_bins.n_cells(integer(0, 255)) == 256
    assert releases.cell_counts(
        integer(-2, 1), np.array([-2.0, 1.0, 1.0, -1.0]), Grid.COARSE
    ).tolist() == [1, 1, 0, 2]


def test_wide_integer_is_cut_between_integers() -> None:
    edges = quantile_bins.grid_edges(integer(-1_000, 100_000))

    assert np.all(edges - np.floor(edges) == 0.5)
    assert len(edges) > 256


def test_a_grid_has_equal_steps_and_geometric_steps() -> None:
    edges = quantile_bins.grid_edges(numeric(0.0, 1024.0))

    assert set(range(4, 1024, 4)) <= set(edges.tolist())
    for k in range(2, 41):
        assert np.min(np.abs(edges / (1024 * 2 ** (-k / 2)) - 1)) < 1e-12
    assert edges[0] == 1024 * 2**-20


def test_geometric_edges_stand_at_the_bound_that_is_nearer_to_zero() -> None:
    above, below = (
        quantile_bins.grid_edges(numeric(10.0, 11.0)),
        quantile_bins.grid_edges(numeric(-11.0, -10.0)),
    )

    assert above[0] - 10.0 == pytest.approx(2**-20)
    assert -10.0 - below[-1] == pytest.approx(2**-20)
    assert np.allclose(above, -below[::-1], rtol=0, atol=1e-12)


def test_range_around_zero_is_cut_at_zero_and_on_both_sides() -> None:
    edges = quantile_bins.grid_edges(numeric(-8.0, 2.0))

    assert 0.0 in edges
    for bound in (-8.0, 2.0):
        assert np.min(np.abs(edges / (bound * 2**-20) - 1)[edges != 0]) < 1e-12


def test_single_value_has_a_single_cell() -> None:
    assert quantile_bins.n_cells(numeric(3.25, 3.25)) == 1
    assert releases.cell_counts(
        numeric(3.25, 3.25), np.full(5, 3.25), Grid.COARSE
    ).tolist() == [5]


def test_extreme_bounds_do_not_overflow() -> None:
    for lower, upper in [(-1.7e308, 1.7e308), (0.0, 5e-324), (1e308, 1.7e308)]:
        for grid in Grid:
            edges = quantile_bins.grid_edges(numeric(lower, upper), grid)
            assert np.all(np.isfinite(edges))
            assert np.all(np.diff(edges) > 0)


def test_edges_cannot_be_changed_by_a_reader() -> None:
    with pytest.raises(ValueError, match="read-only"):
        quantile_bins.grid_edges(numeric(0, 1))[0] = 7.0


@given(
    values=st.lists(st.floats(-3, 5, allow_nan=False), max_size=30),
    cut=st.integers(0, 30),
)
@settings(max_examples=60, deadline=None)
def test_counts_of_parts_add_up_and_missing_values_are_left_out(
    values: list[float], cut: int
) -> None:
    feature = numeric(-3.0, 5.0, missing=True)
    column = np.array([*values, math.nan, math.nan])
    whole = releases.cell_counts(feature, column, Grid.COARSE)

    assert whole.sum() == len(values)
    assert np.array_equal(
        whole,
        releases.cell_counts(feature, column[:cut], Grid.COARSE)
        + releases.cell_counts(feature, column[cut:], Grid.COARSE),
    )


def test_value_on_an_edge_belongs_to_the_cell_below() -> None:
    feature = numeric(0.0, 256.0)
    edge = quantile_bins.grid_edges(feature)[100]
    cells = [
        int(releases.cell_counts(feature, np.array([value]), Grid.COARSE).argmax())
        for value in (edge, np.nextafter(edge, 999))
    ]

    assert cells == [100, 101]


def test_ordered_categories_are_integers() -> None:
    grades = Feature(
        "grade", "categorical", categories=tuple("abc"), ordered=True, missing=True
    )
    column = np.array([0, 2, 3, 4], dtype=np.int32)  # a, c, OTHER, MISSING

    assert quantile_bins.grid_edges(grades).tolist() == [0.5, 1.5]
    assert np.array_equal(
        to_numbers(grades, column), [0.0, 2.0, 2.0, math.nan], equal_nan=True
    )
    assert releases.cell_counts(grades, column, Grid.COARSE).tolist() == [1, 0, 2]
