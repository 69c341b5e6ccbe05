"""Tests forests on numbers whose public bounds are far wider than most values."""

from dataclasses import replace

import numpy as np
import pytest

from grovekeeper_forests.bins import quantile_bins
from grovekeeper_forests.bins.quantile_bins import Grid
from grovekeeper_forests.data.schema import Feature, Label, Schema
from research import bundled, wide_bounds
from research.datasets import Dataset
from research.runs import Task

WDBC = bundled.read("wdbc")


def task(name: str, epsilon: str, split: int = 0) -> Task:
    return Task(name, "nbrt@gdp:n_estimators=100", epsilon, "1e-6", split)


def test_a_bulk_in_one_coarse_cell_is_learned_from_the_fine_grid() -> None:
    traces = wide_bounds.traces()
    asked = task(traces.name, "1")
    share = float(np.mean(traces.y == 0))

    assert share == pytest.approx(0.542, abs=0.001)
    assert wide_bounds.is_fine(traces, asked)
    assert wide_bounds.accuracy(traces, asked, Grid.COARSE) < 0.62
    assert wide_bounds.accuracy(traces, asked, Grid.FINE) > 0.95


def notes() -> Dataset:
    """A table of the size and shape of ``banknote``: 1,400 rows and four numbers, which
    separate two classes nearly.
    """
    chance = np.random.default_rng(5)
    y = (chance.random(1_400) < 0.44).astype(np.int32)
    columns = tuple(
        (50 + shift * y + 4 * chance.standard_normal(1_400)).clip(
            20,
            80,
        )
        for shift in (12, 8, 4, 0)
    )
    features = tuple(
        Feature(f"x{number}", "numeric", lower=20.0, upper=80.0) for number in range(4)
    )
    return Dataset(
        "notes",
        Schema(features, Label("y", ("true", "false"))),
        columns,
        y,
    )


@pytest.mark.parametrize("factor", [1, 20, 1_000])
def test_a_table_is_learned_whatever_its_bounds_are(factor: int) -> None:
    wide = wide_bounds.widened(notes(), factor)
    asked = task(wide.name, "4")

    assert wide_bounds.is_fine(wide, asked)
    # 0.95 to 0.96 on average, and eight deviations from what is asserted
    assert wide_bounds.accuracy(wide, asked, Grid.FINE) > 0.85


@pytest.mark.parametrize("factor", [20, 1_000])
def test_bounds_of_a_small_table_leave_the_coarse_grid(factor: int) -> None:
    wide = wide_bounds.widened(WDBC, factor)

    assert not wide_bounds.is_fine(wide, task(wide.name, "10"))


def test_widened_bounds_hold_every_value_and_the_former_bounds() -> None:
    wide = wide_bounds.widened(WDBC, 20)

    for former, feature in zip(
        WDBC.schema.features,
        wide.schema.features,
        strict=True,
    ):
        assert feature.lower < former.lower
        assert feature.upper > former.upper
        width = former.upper - former.lower
        assert feature.upper - feature.lower == pytest.approx(20 * width)
    assert replace(wide, schema=WDBC.schema, name="wdbc").columns is WDBC.columns


def test_the_rule_is_left_as_it_was() -> None:
    before = quantile_bins.STRENGTH_OF_A_FINE_GRID
    with wide_bounds.grid_at_most(Grid.COARSE):
        assert before < quantile_bins.STRENGTH_OF_A_FINE_GRID
    assert before == quantile_bins.STRENGTH_OF_A_FINE_GRID
